"""Standalone mode: the webhook's server on policies from files, with its own certificates (D14)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop
from watchfiles import awatch

from certs.errors import CertificateError
from certs.hardening import disable_core_dumps
from certs.reload import CertificateHolder, TlsOptions
from certs.store import ensure
from certs.watch import keep_current
from policies.model import CLUSTER_POLICY, POLICY
from serving.drain import StopSignals, drain
from serving.health import health_app
from serving.limits import Limits
from serving.readiness import Readiness, tls_probe
from serving.site import AddressError, Site
from telemetry.logging import configure_logging, get_logger
from telemetry.metrics import create_metrics, set_certificate_expiry
from webhook.app import Reviews, create_app
from webhook.documents import SUFFIXES
from webhook.engine import Engine, EngineHolder
from webhook.example import try_review
from webhook.handlers import OUTCOMES
from webhook.records import Records
from webhook.settings import StartError
from webhook.snapshot import Snapshot, describe
from webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from asyncio import Future
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
    from typing import BinaryIO

    from watchfiles import Change

    from certs.bundle import Bundle
    from webhook.settings import ServerSettings, Settings
    from webhook.sources import Loaded


_MOUNTED_DATA: Final = "..data"
"""The link that is replaced when a mounted ConfigMap or Secret changes."""
_LAST_CONNECTIONS: Final = 3
"""Times the drain that connections may take in all to end by themselves; then they are cut."""


def serve(arguments: Arguments) -> int:
    """Serve until SIGTERM or SIGINT. Raises StartError where it can't begin."""
    settings: Settings = arguments.settings
    disable_core_dumps()
    stream = configure_logging(settings.log.level, settings.log.format)
    sources = Sources(arguments.policies, arguments.namespaces, arguments.parents)
    sources.check()
    if arguments.example is not None and settings.server.client_ca is not None:
        raise StartError("--try sends no client certificate: leave out --client-ca, or --try")
    try:
        uvloop.run(_Server(settings, sources, stream).run(arguments.example))
    except (AddressError, CertificateError) as error:
        raise StartError(str(error)) from None
    return 0


class _Server:
    """Everything that runs while serving from files."""

    def __init__(self, settings: Settings, sources: Sources, stream: BinaryIO | None) -> None:
        self._settings = settings
        self._sources = sources
        self._stream = stream
        self._holder = EngineHolder(Engine(Snapshot(), settings))
        self._metrics = create_metrics(version("harbourmaster"), OUTCOMES)
        self._readiness = Readiness()
        self._log = get_logger("standalone")

    async def run(self, example: Path | None) -> None:
        """Serve until a signal comes, then drain."""
        server = self._settings.server
        directory = _certificate_directory(server)
        names = _names(server.host)
        bundle = ensure(directory, names, datetime.now(UTC))
        certificates = CertificateHolder(bundle, _tls_options(server))
        self._note_expiry(bundle)
        limits = Limits(
            requests=server.max_in_flight,
            body_bytes=server.max_in_flight_bytes,
            metrics=self._metrics,
        )
        changes = self._watch()
        # The watch begins with its first step; what is read after that can't miss a change.
        change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        self._take(load(self._sources))
        # What was loaded stays; without this each full collection walks all of it.
        gc.collect()
        gc.freeze()
        limits.start()
        records = Records(self._metrics, asyncio.get_running_loop(), self._stream)
        reviews = Reviews(self._holder, server, limits, records)
        site = Site(
            create_app(reviews), host=server.host, port=server.port, tls=certificates.context
        )
        health = Site(
            health_app(self._readiness, self._metrics.registry),
            host=server.host,
            port=server.health_port,
        )
        probe = tls_probe(site, lambda: certificates.bundle.leaf_der)
        self._readiness.add_probe("serving", probe)
        with StopSignals() as stop:
            try:
                await site.start()
                await health.start()
                self._metrics.connections.set_function(lambda: site.connections)
                async with self._background(
                    self._reload(change, changes), self._renew(certificates, directory, names)
                ):
                    self._log.info(
                        "serving",
                        reviews=site.url,
                        health=health.url,
                        certificates=str(directory),
                        **describe(self._holder.current.snapshot),
                    )
                    if example is not None:
                        await try_review(example, site, directory / "ca.crt")
                    signal = await stop.wait()
                    # Ctrl-C is a person's, who waits; SIGTERM is a cluster's, which does not.
                    wait = server.drain_seconds if signal == "SIGTERM" else 0.0
                    self._log.info("stopping", signal=signal, drain_seconds=wait)
                    cap = wait * _LAST_CONNECTIONS
                    summary = await drain([site], self._readiness, wait=wait, cap=cap)
                    self._log.info("stopped", connections_cut=summary.cut)
            finally:
                limits.stop()
                await site.stop()
                await health.stop()
                records.flush()

    @contextlib.asynccontextmanager
    async def _background(self, *coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(
        self, certificates: CertificateHolder, directory: Path, names: tuple[str, ...]
    ) -> None:
        await keep_current(
            certificates,
            directory,
            names,
            on_change=self._note_renewal,
            on_error=self._note_certificate_error,
        )

    def _watch(self) -> AsyncGenerator[object]:
        # The folder of a file is watched, for an editor replaces the file.
        watched = {path if path.is_dir() else path.parent for path in self._sources.paths}
        return awatch(*watched, recursive=False, watch_filter=self._concerns_us)

    async def _reload(self, change: Future[object], changes: AsyncGenerator[object]) -> None:
        """Load everything anew at each change; what can't be read leaves the old in force."""
        while True:
            try:
                await change
            except StopAsyncIteration:
                return
            change = asyncio.ensure_future(anext(changes))
            try:
                # In a thread: ten thousand documents take a second, and reviews go on.
                loaded = await asyncio.to_thread(load, self._sources)
            except StartError as error:
                self._log.error("reload failed, the last state stays in force", error=str(error))
                self._readiness.set("policies", str(error))
                continue
            except Exception:  # noqa: BLE001 - logged with its traceback
                # Whatever lies there, the next change must count again.
                self._log.exception("reload failed, the last state stays in force")
                continue
            self._readiness.set("policies", None)
            self._take(loaded)
            self._log.info("reloaded", **describe(loaded.snapshot))

    def _concerns_us(self, _change: Change, changed: str) -> bool:
        """Whether a changed file is a source; our own log may well lie beside one."""
        path = Path(changed)
        if path.name == _MOUNTED_DATA:
            return True
        files = [source.resolve() for source in self._sources.paths if not source.is_dir()]
        folders = [source.resolve() for source in self._sources.paths if source.is_dir()]
        is_document = path.suffix in SUFFIXES and not path.name.startswith(".")
        return path.resolve() in files or (is_document and path.parent.resolve() in folders)

    def _take(self, loaded: Loaded) -> None:
        """Decide by what was loaded from now on, and tell what is wrong in it."""
        self._holder.current = Engine(loaded.snapshot, self._settings)
        for problem in loaded.problems:
            self._log.error("bad document", problem=str(problem))
        policies = loaded.snapshot.policies
        self._metrics.policies.labels(CLUSTER_POLICY).set(policies.cluster_size)
        self._metrics.policies.labels(POLICY).set(policies.namespaced_size)
        self._metrics.policies_invalid.set(policies.invalid)
        self._metrics.bad_documents.set(len({(p.file, p.document) for p in loaded.problems}))

    def _note_expiry(self, bundle: Bundle) -> None:
        set_certificate_expiry(self._metrics, "leaf", bundle.not_after)
        if bundle.authority_not_after is not None:
            set_certificate_expiry(self._metrics, "authority", bundle.authority_not_after)

    def _note_renewal(self, bundle: Bundle) -> None:
        self._note_expiry(bundle)
        self._log.info("certificate renewed", not_after=bundle.not_after.isoformat())

    def _note_certificate_error(self, text: str) -> None:
        self._metrics.certificate_reload_errors.inc()
        self._log.error("certificates not reloaded, the last ones go on serving", error=text)


def _certificate_directory(server: ServerSettings) -> Path:
    if server.cert_dir is not None:
        return Path(server.cert_dir)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "harbourmaster" / "certs"


def _names(host: str) -> tuple[str, ...]:
    """What the certificate is made for: this machine, by every name a client may use."""
    given = () if host in {"0.0.0.0", "::", "localhost", "127.0.0.1", "::1"} else (host,)  # noqa: S104
    return ("localhost", "127.0.0.1", "::1", *given)


def _tls_options(server: ServerSettings) -> TlsOptions:
    if server.client_ca is None:
        if server.client_cn is not None:
            raise CertificateError("--client-cn needs --client-ca, the CA that signs the clients")
        return TlsOptions(server.tls_min_version)
    try:
        authority = Path(server.client_ca).read_bytes()
    except OSError as error:
        raise CertificateError(f"{server.client_ca}: cannot be read: {error.strerror}") from None
    return TlsOptions(server.tls_min_version, authority)
