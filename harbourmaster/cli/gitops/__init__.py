"""``harbourmaster gitops``: rules for Argo CD and Flux to ignore what policies set."""
