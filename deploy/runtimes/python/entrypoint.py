"""Runs the function ``$SCRIPT``, a path or a URL, as ``python3 $CMD_ARGS SCRIPT`` would.

No shell reads any of it. What comes from a URL is fetched whole first, so that half a script or a
page that says "not found" never runs.
"""  # noqa: INP001 - the only file of an image

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CODE: Final = 10 * 1024 * 1024
_SECONDS: Final = 30.0
_INTERPRETER: Final = "python3"


class ScriptError(Exception):
    """The script cannot run; the text is for the user, ``code`` for the Job."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def main(environment: Mapping[str, str]) -> NoReturn:
    """Become the interpreter of the function, or exit."""
    try:
        command = prepare(environment)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.code)
    os.execvp(command[0], command)  # noqa: S606 - that there is no shell is the point


def prepare(environment: Mapping[str, str]) -> list[str]:
    """The command; code from a URL is the standard input by then. Raises ScriptError."""
    script = environment.get("SCRIPT", "")
    try:
        arguments = shlex.split(environment.get("CMD_ARGS", ""))
    except ValueError as error:
        raise ScriptError(f"CMD_ARGS cannot be split into arguments: {error}", 2) from None
    if script.startswith("/"):
        return [_INTERPRETER, *arguments, script]
    if not script.lower().startswith(("http://", "https://")):
        # Anything else could be taken for an option.
        raise ScriptError("SCRIPT must be an absolute path, or a URL of http or https", 2)
    become_input(fetch(script))
    return [_INTERPRETER, *arguments, "-"]


def fetch(url: str) -> bytes:
    """Return the content at a URL. Raises ScriptError."""
    try:
        with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - the scheme is checked
            code: bytes = answer.read(MAX_CODE + 1)
    except (OSError, URLError, ValueError) as error:
        raise ScriptError(f"{url} cannot be fetched: {error}", 1) from None
    if len(code) > MAX_CODE:
        raise ScriptError(f"{url} has more than {MAX_CODE // 1024**2} MiB", 1)
    return code


def become_input(code: bytes) -> None:
    """Have the standard input consist of the code: nothing is written to any disk."""
    descriptor = os.memfd_create("function")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(code)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)


if __name__ == "__main__":
    main(os.environ)
