"""Desired webhook configurations and trust bundles, and their drift. Pure, no I/O."""
