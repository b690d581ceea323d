"""The one error of the playground."""

from __future__ import annotations


class PlaygroundError(Exception):
    """What went wrong, where, and what to do; the first line stands alone.

    Further lines, if any, are the end of the log that the first line names.
    """
