"""``harbourmaster why``: the reasons of what was done to a pod, and of where it is."""
