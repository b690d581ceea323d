"""The command ``harbourmaster compile``."""
