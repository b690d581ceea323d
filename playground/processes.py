"""Processes that are started, found again and ended without ever hitting a foreign one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.pki import write_private

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

ATTACHED = Path(__file__).with_name("attached.py")

# How long the kernel may take to take down a process after SIGKILL.
KILL_SECONDS = 10.0

# The kernel ends attached processes when the *thread* that started them ends, so they are all
# started by this one, which lives as long as the interpreter.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="playground-spawner")


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A process as it is recorded in a file; ``identity`` tells it from a later one with its pid.

    ``ready`` is the URL that answers 200 when the process is ready, ``ports`` are others of its.
    ``environment`` has the variables that its starter did not have.
    """

    name: str
    pid: int
    identity: str
    ready: str = ""
    ports: dict[str, int] = {}
    command: list[str] = []
    environment: dict[str, str] = {}


class _Records(msgspec.Struct, frozen=True):
    processes: list[Record]


def identity(pid: int) -> str | None:
    """Boot id and start time (clock ticks since boot) of a live process; None for a dead one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the name in parentheses may hold anything, field 3 (state) follows the last ")".
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return f"{boot}:{fields[19]}"


class Process:
    """A handle on one running process; it stays right when the pid is used again."""

    def __init__(self, record: Record, child: subprocess.Popen[bytes] | None = None) -> None:
        self.record = record
        self._child = child
        self._descriptor = os.pidfd_open(record.pid)

    @classmethod
    def find(cls, record: Record) -> Process | None:
        """Return the process of a record, or None when it has ended."""
        try:
            process = cls(record)
        except (ProcessLookupError, FileNotFoundError):
            # The second: by now it is the id of a thread.
            return None
        # Checked after the handle is open: from here on the kernel knows which one is meant.
        if identity(record.pid) == record.identity:
            return process
        process.close()
        return None

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return whether the process has ended."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def exit_code(self) -> int | None:
        """Return the exit code of our own child that has ended (minus a signal's number)."""
        return None if self._child is None else self._child.wait()

    def finish(self, grace: float) -> None:
        """Let it end within ``grace`` seconds, then send SIGKILL; return when it is gone."""
        if not self.wait(grace):
            self.send(signal.SIGKILL)
            self.wait(KILL_SECONDS)
        self.exit_code()
        self.close()

    def close(self) -> None:
        """Release the handle; the process goes on."""
        os.close(self._descriptor)


def spawn(
    name: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    attached: bool,
    pass_fds: Collection[int] = (),
) -> Process:
    """Start a process in a group of its own; output is appended to ``log``.

    An attached one ends with this process, however that ends.
    """
    arguments = list(command)
    if attached:
        arguments = [sys.executable, "-IS", str(ATTACHED), str(os.getpid()), *command]
    with log.open("ab") as output:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603 -- the command is our own
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=pass_fds,
            )

        child = _SPAWNER.submit(start).result() if attached else start()
    # A child that has ended already has no identity and still needs its record.
    record = Record(name, child.pid, identity(child.pid) or "")
    return Process(record, child)


def run_captured(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    """Run a command of ours or the user's to its end, and return what it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # noqa: S603


def end_all(processes: Iterable[Process], grace: float) -> None:
    """Send SIGTERM to all, then SIGKILL to whatever outlives ``grace`` seconds."""
    ending = list(processes)
    for process in ending:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + grace
    for process in ending:
        process.finish(max(0.0, deadline - time.monotonic()))


def interrupt_on(*numbers: signal.Signals) -> None:
    """Have the first signal raise KeyboardInterrupt, also where who started us ignores it."""

    def interrupt(*_: object) -> NoReturn:
        # What ends and removes things now must come to its end.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    # The default would end this process and leave the others.
    for number in numbers:
        signal.signal(number, interrupt)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write the file of a group of processes."""
    content = msgspec.json.encode(_Records(list(records)))
    write_private(path, msgspec.json.format(content) + b"\n")


def read_records(path: Path) -> list[Record] | None:
    """Read what was written; None where there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Records).processes
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise PlaygroundError(
            f"{path} is damaged ({error}): end its processes yourself and remove it"
        ) from error
