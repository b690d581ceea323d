"""What webhook configurations and trust bundles should be, and what has drifted. Pure, no I/O."""
