"""``harbourmaster gate``."""
