"""Scheduling policies: what they are, whom they select and what they change. Pure, no I/O."""
