"""``python -m harbourmaster.controller``: the process of ``harbourmaster server controller``."""

from __future__ import annotations

import sys

from harbourmaster.api.decoding import describe
from harbourmaster.controller.process import run
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.process import run_process

if __name__ == "__main__":
    sys.exit(run_process("python -m harbourmaster.controller", run, ControllerSettings, describe))
