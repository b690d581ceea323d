"""The dashboard: read-only pages of the caches, for users that are allowed to list the same."""
