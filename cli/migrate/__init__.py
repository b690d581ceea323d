"""``harbourmaster migrate``."""
