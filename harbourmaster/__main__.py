"""``python -m harbourmaster``: the command ``harbourmaster``."""

from __future__ import annotations

import sys

from harbourmaster.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
