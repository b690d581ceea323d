"""``python -m webhook``: the admission process, as ``harbourmaster webhook``."""

from __future__ import annotations

import sys

from policies.decoding import describe
from serving.process import run_process
from webhook.process import run
from webhook.settings import WebhookSettings

if __name__ == "__main__":
    sys.exit(run_process("python -m webhook", run, WebhookSettings, describe))
