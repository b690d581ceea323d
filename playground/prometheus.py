"""A Prometheus server: started, waited for, asked, and stopped."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import msgspec

from harbourmaster.playground import api
from harbourmaster.playground.build import ensure_prometheus
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, Started, living
from harbourmaster.playground.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "prometheus"
RECORDS = "prometheus.json"
READY_SECONDS = 30.0
GRACE_SECONDS = 5.0


class Series(msgspec.Struct, frozen=True):
    """One series of an answer: its labels, and its newest sample as (Unix seconds, text)."""

    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result: list[Series]


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class Prometheus(Started):
    """One server with its data below one folder; methods block until it is so.

    ``scrapes`` has for each job the URL of its metrics, which are fetched every ``interval`` (as
    Prometheus writes durations). The port is chosen when this is made, and stays; the process ends
    with this one, however it ends, unless ``detached``. ``rules`` is the content of a rule file.
    """

    def __init__(
        self,
        directory: Path,
        scrapes: Mapping[str, str],
        *,
        interval: str = "1s",
        rules: Mapping[str, object] | None = None,
        program: Path | None = None,
        detached: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        (self.port,) = free_ports(1)
        self._scrapes = dict(scrapes)
        self._interval = interval
        self._rules = rules
        self._program = program
        self._group = Group(self.directory / RECORDS, self.directory, detached=detached)

    @property
    def url(self) -> str:
        """The address, as in a KeptnMetricsProvider."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The log, to which restarts append."""
        return self._group.log(NAME)

    @property
    def pid(self) -> int:
        """The process ID. Raises PlaygroundError if it does not run."""
        return self._group.record(NAME).pid

    def start(self) -> None:
        """Start it on its data and wait until it answers queries; on failure nothing stays."""
        alive = living(self.directory / RECORDS)
        if alive:
            raise PlaygroundError(f"{self.directory}: an earlier prometheus is still running")
        program = self._program or ensure_prometheus()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # JSON is YAML.
        configuration = self.directory / "prometheus.yml"
        content = configuration_of(self._scrapes, self._interval)
        if self._rules is not None:
            (self.directory / "rules.yml").write_bytes(msgspec.json.encode(self._rules))
            content["rule_files"] = ["rules.yml"]
        configuration.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
        command = [
            str(program),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            "--storage.tsdb.retention.time=1d",
            f"--web.listen-address=127.0.0.1:{self.port}",
            # By default it waits five seconds before it discovers targets.
            "--scrape.discovery-reload-interval=100ms",
        ]
        ready = f"{self.url}/-/ready"
        try:
            self._group.start(NAME, command, os.environ, ready=ready, ports={"http": self.port})
            self._group.wait_until(NAME, partial(api.why_not_ready, ready), READY_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL if it outlives the grace period."""
        self._group.end([NAME], GRACE_SECONDS)

    def kill(self, name: str = NAME) -> None:
        """End it by SIGKILL, as a crash would."""
        self._group.kill(name)

    def await_targets(self) -> None:
        """Wait until each job has been fetched once, with success."""
        self._group.wait_until(NAME, self._why_not_scraped, READY_SECONDS)

    def query(self, expression: str) -> list[Series]:
        """Return the vector that an instant query finds now. Raises PlaygroundError."""
        try:
            _, text = api.ask(f"{self.url}/api/v1/query?{urlencode({'query': expression})}")
            answer = msgspec.json.decode(text, type=_Answer)
        except (PlaygroundError, msgspec.DecodeError) as error:
            raise PlaygroundError(f"{self.url} does not answer {expression}: {error}") from error
        if answer.data is None:
            raise PlaygroundError(f"{self.url} refuses {expression}: {answer.error}")
        return answer.data.result

    def _why_not_scraped(self) -> str | None:
        try:
            good = {sample.metric["job"] for sample in self.query("up == 1")}
        except PlaygroundError as error:
            return str(error)
        missing = [job for job in self._scrapes if job not in good]
        return f"it has nothing of {', '.join(missing)}" if missing else None


def configuration_of(scrapes: Mapping[str, str], interval: str) -> dict[str, object]:
    """Return the configuration in which each job is one URL."""
    return {
        "global": {"scrape_interval": interval},
        "scrape_configs": [_scrape(job, url) for job, url in scrapes.items()],
    }


def _scrape(job: str, url: str) -> dict[str, object]:
    parts = urlsplit(url)
    return {
        "job_name": job,
        "scheme": parts.scheme,
        "metrics_path": parts.path or "/metrics",
        "static_configs": [{"targets": [parts.netloc]}],
    }
