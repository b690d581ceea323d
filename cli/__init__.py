"""The ``harbourmaster`` command."""
