"""``python -m harbourmaster.webhook``: the process of ``harbourmaster server webhook``."""

from __future__ import annotations

import sys

from harbourmaster.api.decoding import describe
from harbourmaster.serving.process import run_process
from harbourmaster.webhook.process import run
from harbourmaster.webhook.settings import WebhookSettings

if __name__ == "__main__":
    sys.exit(run_process("python -m harbourmaster.webhook", run, WebhookSettings, describe))
