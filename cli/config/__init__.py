"""The command ``harbourmaster config``."""
