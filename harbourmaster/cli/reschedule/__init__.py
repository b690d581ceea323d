"""``harbourmaster reschedule``."""
