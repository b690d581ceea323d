"""The content of each page, from caches, what a user may see, and a query. Pure."""
