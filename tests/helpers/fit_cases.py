"""Whether one pod fits on one node: cases whose verdicts kube-scheduler gave, by name."""

from __future__ import annotations

from helpers import fit_amounts, fit_neighbours, fit_nodes

CASES = [*fit_amounts.CASES, *fit_nodes.CASES, *fit_neighbours.CASES]
