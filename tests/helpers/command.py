"""The command ``harbourmaster``, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers.patience import PATIENCE


def harbourmaster(*words, kubeconfig=None, seconds=PATIENCE):
    """Run the command; no cluster is meant but that of the kubeconfig."""
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "harbourmaster.cli.main", *words],
        env=kept if kubeconfig is None else {**kept, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
