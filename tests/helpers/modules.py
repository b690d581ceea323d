"""Files of other projects, from their Go modules."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from harbourmaster.playground.build import find_go


class Module(NamedTuple):
    """A module of one version, and what Go says of its content."""

    path: str
    version: str
    content: str

    def folder(self):
        """The folder of the module's files; they are fetched the first time."""
        result = subprocess.run(
            [
                find_go(os.environ).command,
                "mod",
                "download",
                "-json",
                f"{self.path}@{self.version}",
            ],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        answer = json.loads(result.stdout)
        assert answer["Sum"] == self.content
        return Path(answer["Dir"])


CERT_MANAGER = Module(
    "github.com/cert-manager/cert-manager",
    "v1.21.2",
    "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
)
PROMETHEUS_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)
