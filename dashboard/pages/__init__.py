"""What stands on each page, made of stores, of what a user may see, and of a query. Pure."""
