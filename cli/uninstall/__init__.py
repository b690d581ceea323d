"""``harbourmaster uninstall``."""
