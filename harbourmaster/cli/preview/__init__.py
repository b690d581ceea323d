"""``harbourmaster preview``: what other policies would change, before anybody applies them."""
