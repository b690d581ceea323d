"""Processes that belong together: recorded in one file, each with a log, awaited and ended."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec import structs

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import Process, end_all, read_records, spawn, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from harbourmaster.playground.processes import Record

# A wait also ends when its process does, so this only paces the questions.
PROBE_SECONDS = 0.05
LOG_LINES = 10
REVIVED_SECONDS = 120.0
# What a user's shell may have, and our processes must not read.
FOREIGN = ("KUBECONFIG", "ETCD_", "KWOK_")


class Started(ABC):
    """A context manager whose processes, those of its group, run as long as the context."""

    _group: Group

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start all of it; on failure nothing stays."""

    @abstractmethod
    def stop(self) -> None:
        """End all of it."""

    def kill(self, name: str) -> None:
        """End one process by SIGKILL, as a crash would."""
        self._group.kill(name)

    def running(self) -> list[str]:
        """Return the names of the processes that live."""
        return self._group.running()


class Group:
    """Living processes by name, in starting order; ``records`` is written at each change.

    They end with this process, however it ends, unless ``detached``.
    """

    def __init__(self, records: Path, logs: Path, *, detached: bool) -> None:
        self._file = records
        self._logs = logs
        self._detached = detached
        self._records: dict[str, Record] = {}
        self._processes: dict[str, Process] = {}

    @classmethod
    def find(cls, records: Path, logs: Path) -> Self:
        """Return what lives of the processes that an earlier process recorded."""
        group = cls(records, logs, detached=True)
        for record in read_records(records) or []:
            process = Process.find(record)
            if process is not None:
                group._processes[record.name] = process
                group._records[record.name] = record
        return group

    def revive(self, why_not: Callable[[str], str | None]) -> list[str]:
        """Start what an earlier process recorded and has ended, as it was; return its names.

        ``why_not`` says why what answers at a URL is not ready.
        """
        known = {record.name: record for record in read_records(self._file) or []}
        ended = [record for name, record in known.items() if name not in self._processes]
        # What is not started yet must stay in the file.
        self._records = known
        for record in ended:
            ours = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
            environment = {**ours, **record.environment}
            self.start(
                record.name, record.command, environment, ready=record.ready, ports=record.ports
            )
            if record.ready:
                self.wait_until(record.name, partial(why_not, record.ready), REVIVED_SECONDS)
        return [record.name for record in ended]

    @property
    def names(self) -> list[str]:
        """The names of the processes that were started, and neither killed nor ended by us."""
        return list(self._processes)

    def running(self) -> list[str]:
        """Return the names of the processes that live."""
        return [name for name, process in self._processes.items() if not process.wait(0)]

    def record(self, name: str) -> Record:
        """Return the record of a process. Raises PlaygroundError if it is not running."""
        if name not in self._records:
            raise PlaygroundError(f"{name} is not running: {self._file.parent}")
        return self._records[name]

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self._logs / f"{name}.log"

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        ready: str = "",
        ports: Mapping[str, int] | None = None,
        pass_fds: Collection[int] = (),
    ) -> None:
        """Start and record a process. ``ready`` is the URL that answers 200 when it is ready."""
        if name in self.running():
            raise PlaygroundError(f"{name} is running already: {self._file.parent}")
        self.end([name], 0)
        process = spawn(
            name,
            command,
            self.log(name),
            environment,
            attached=not self._detached,
            pass_fds=pass_fds,
        )
        self._processes[name] = process
        self._records[name] = structs.replace(
            process.record,
            ready=ready,
            ports=dict(ports or {}),
            command=list(command),
            environment={
                key: value for key, value in environment.items() if os.environ.get(key) != value
            },
        )
        self.write()

    def wait_until(
        self,
        name: str,
        why_not: Callable[[], str | None],
        timeout: float,
        beside: Iterable[str] = (),
    ) -> None:
        """Return when ``why_not`` says None.

        Raises PlaygroundError when time runs out, or when the process or one ``beside`` it ends.
        """
        watched = {member: self._processes[member] for member in (name, *beside)}
        deadline = time.monotonic() + timeout
        while (reason := why_not()) is not None:
            watched[name].wait(PROBE_SECONDS)
            for member, process in watched.items():
                if process.wait(0):
                    raise self._failure(member, f"ended with exit code {process.exit_code()}")
            if time.monotonic() > deadline:
                raise self._failure(name, f"is not ready after {timeout:.0f} s ({reason})")

    def kill(self, name: str) -> None:
        """End a process by SIGKILL, as a crash would."""
        self.record(name)
        self._forget(name).finish(0)
        self.write()

    def end(self, names: Iterable[str], grace: float) -> list[str]:
        """End those of the named that live: SIGTERM to all, then SIGKILL. Return their names."""
        ending = [name for name in names if name in self._processes]
        if ending:
            end_all([self._forget(name) for name in ending], grace)
            self.write()
        return ending

    def write(self) -> None:
        """Write the records of the processes that were not ended."""
        write_records(self._file, self._records.values())

    def _forget(self, name: str) -> Process:
        del self._records[name]
        return self._processes.pop(name)

    def _failure(self, name: str, what: str) -> PlaygroundError:
        log = self.log(name)
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return PlaygroundError("\n".join([f"{name} {what}: see {log}", *lines]))


def living(records: Path) -> list[str]:
    """Return the names of the recorded processes that live."""
    return [record.name for record in read_records(records) or [] if lives(record)]


def lives(record: Record) -> bool:
    """Whether the process of a record lives."""
    process = Process.find(record)
    if process is None:
        return False
    process.close()
    return True
