"""``harbourmaster placement`` and ``harbourmaster import``."""
