"""The one reader of clusters: what commands know of one is read here, with the caller's rights."""
