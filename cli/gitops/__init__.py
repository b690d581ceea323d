"""``harbourmaster gitops``: what Argo CD and Flux are to leave alone, as policies set it."""
