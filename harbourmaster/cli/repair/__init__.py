"""``harbourmaster repair``."""
