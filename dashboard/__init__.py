"""The dashboard: what the mirrors know as pages, read-only, for whoever may list the same."""
