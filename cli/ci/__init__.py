"""``harbourmaster validate`` and ``harbourmaster test``: checks of files, for pipelines."""
