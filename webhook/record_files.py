"""The files of recorded cases: readable by their owner only, bounded in size and number."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"^reviews-\d{8}T\d{6}-[0-9a-f]{8}\.jsonl$")
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class RecordFiles:
    """Files in a directory, of which the oldest are removed; every call may wait for the disk."""

    def __init__(self, directory: Path, *, max_bytes: int, max_files: int) -> None:
        """Make the directory if it is absent. Raises StartError if it can't be used."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file: int | None = None
        self._path = directory
        self._size = 0
        try:
            directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"{directory}: nothing can be recorded: {reason(error)}") from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StartError(f"{directory}: nothing can be recorded: it is not writable")

    def write(self, lines: list[bytes]) -> None:
        """Write whole lines, each with its line end. Raises OSError and leaves no partial line."""
        for line in lines:
            if self._file is not None and self._size + len(line) > self._max_bytes:
                self.close()
            if self._file is None:
                self._file, self._size = self._open_file(), 0
            self._append(self._file, line)

    def close(self) -> None:
        """Close the file; the next line begins another. After an OSError it is closed, too."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _append(self, file: int, line: bytes) -> None:
        done = 0
        try:
            while done < len(line):
                done += os.write(file, line[done:])
        except OSError:
            self._abandon(file)
            raise
        self._size += done

    def _abandon(self, file: int) -> None:
        """Remove a partial line or an empty file; the next attempt begins a new one."""
        with suppress(OSError):
            os.ftruncate(file, self._size)
        with suppress(OSError):
            self.close()
        # Otherwise each attempt on a full disk would leave one, and push out a good one.
        if not self._size:
            with suppress(OSError):
                self._path.unlink()

    def _open_file(self) -> int:
        self._make_room()
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        # Nobody can have put a link there: the name cannot be guessed, and must be new.
        self._path = self._directory / f"reviews-{moment}-{secrets.token_hex(4)}.jsonl"
        # The umask can only take more away.
        return os.open(self._path, _FLAGS, _PRIVATE)

    def _make_room(self) -> None:
        """Remove the oldest files, also those of processes before this one."""
        files: list[tuple[int, Path]] = []
        for path in self._directory.iterdir():
            # Another replica may share the folder, and remove it first.
            with suppress(FileNotFoundError):
                if _NAME.match(path.name) and stat.S_ISREG((seen := path.lstat()).st_mode):
                    files.append((seen.st_mtime_ns, path))
        files.sort()
        for _, path in files[: max(len(files) - self._max_files + 1, 0)]:
            path.unlink(missing_ok=True)
