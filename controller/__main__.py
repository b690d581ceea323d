"""``python -m controller``: the controller process, as ``harbourmaster controller``."""

from __future__ import annotations

import sys

from controller.process import run
from controller.settings import ControllerSettings
from policies.decoding import describe
from serving.process import run_process

if __name__ == "__main__":
    sys.exit(run_process("python -m controller", run, ControllerSettings, describe))
