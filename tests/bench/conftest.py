"""Tests of benchmarks import these by their names, as the programs do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
