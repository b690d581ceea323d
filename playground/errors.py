"""The one error of the playground."""

from __future__ import annotations


class PlaygroundError(Exception):
    """An operation failed: the first line says why, where, and what to do.

    Further lines, if any, are the end of the log that the first line names.
    """
