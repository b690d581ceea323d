"""Standalone mode: the webhook's server on policies from files, with its own certificates (D14)."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvloop
from aiohttp import ClientSession

from harbourmaster.certs.child import ensure
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.hardening import disable_core_dumps
from harbourmaster.certs.watch import changes_in
from harbourmaster.serving.background import running
from harbourmaster.serving.documents import SUFFIXES
from harbourmaster.serving.drain import StopSignals
from harbourmaster.serving.settings import StartError
from harbourmaster.serving.site import AddressError
from harbourmaster.telemetry.logging import configure_logging, get_logger
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.server import ReviewServer
from harbourmaster.webhook.snapshot import Snapshot, describe
from harbourmaster.webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from asyncio import Future
    from collections.abc import AsyncGenerator
    from typing import BinaryIO

    from watchfiles import Change

    from harbourmaster.serving.settings import ServerSettings
    from harbourmaster.serving.site import Site
    from harbourmaster.webhook.settings import Settings
    from harbourmaster.webhook.sources import Loaded


_MOUNTED_DATA: Final = "..data"
"""The link that is replaced when a mounted ConfigMap or Secret changes."""
_DEBOUNCE_MS: Final = 1600
_INDENT: Final = 2
_LOCALHOST: Final = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "::"))  # noqa: S104 - compared
"""Listen addresses that are reached by the name localhost."""


def serve(arguments: Arguments) -> int:
    """Serve until SIGTERM or SIGINT. Raises StartError where it can't begin."""
    settings: Settings = arguments.settings
    disable_core_dumps()
    stream = configure_logging(settings.log.level, settings.log.format)
    sources = Sources(
        arguments.policies,
        arguments.namespaces,
        arguments.parents,
        keeps_policies=settings.record.directory is not None,
    )
    sources.check()
    if arguments.example is not None and settings.server.client_ca is not None:
        raise StartError("--try sends no client certificate: leave out --client-ca, or --try")
    try:
        uvloop.run(_serve(settings, sources, stream, arguments.example))
    except (AddressError, CertificateError) as error:
        raise StartError(str(error)) from None
    return 0


async def _serve(
    settings: Settings, sources: Sources, stream: BinaryIO | None, example: Path | None
) -> None:
    await _Standalone(settings, sources, stream).run(example)


class _Standalone:
    """The server in standalone mode, with its documents and its own certificates."""

    def __init__(self, settings: Settings, sources: Sources, stream: BinaryIO | None) -> None:
        self._settings = settings
        self._sources = sources
        self._holder = EngineHolder(Engine(Snapshot(), settings))
        self._server = ReviewServer(settings, self._holder, stream)
        self._log = get_logger("standalone")

    async def run(self, example: Path | None) -> None:
        """Serve until a signal comes, then drain."""
        server = self._server
        directory = _certificate_directory(self._settings.server)
        names = _names(self._settings.server.host)
        bundle = await ensure(directory, names, datetime.now(UTC))
        changes = self._watch()
        # The watch begins with its first step; what is read after that can't miss a change.
        change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        self._take(load(self._sources))
        # What was loaded stays; without this each full collection walks all of it.
        gc.collect()
        gc.freeze()
        with StopSignals() as stop:
            try:
                site, certificates = await server.start(bundle)
                await server.health.start()
                renewing = server.renew(certificates, directory, names)
                async with running(self._reload(change, changes), renewing):
                    self._log.info(
                        "serving",
                        reviews=site.url,
                        health=server.health.url,
                        certificates=str(directory),
                        **describe(self._holder.current.snapshot),
                    )
                    if example is not None:
                        await _try_review(example, site, directory / "ca.crt")
                    await server.drain(await stop.wait())
            finally:
                await server.stop()

    def _watch(self) -> AsyncGenerator[object]:
        # The folder of a file is watched, for an editor replaces the file.
        watched = {path if path.is_dir() else path.parent for path in self._sources.paths}
        return changes_in(*watched, debounce=_DEBOUNCE_MS, concerns=self._concerns_us)

    async def _reload(self, change: Future[object], changes: AsyncGenerator[object]) -> None:
        """Load everything again after each change; a failed load keeps the last state."""
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
                self._log.error("reload failed, keeping the last state", error=str(error))
                self._server.readiness.set("policies", str(error))
                continue
            except Exception:  # noqa: BLE001 - logged with its traceback
                # Whatever lies there, the next change must count again.
                self._log.exception("reload failed, keeping the last state")
                continue
            self._server.readiness.set("policies", None)
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
        self._server.note_policies(loaded.snapshot.policies)
        bad = len({(problem.file, problem.document) for problem in loaded.problems})
        self._server.metrics.bad_documents.set(bad)


def _certificate_directory(server: ServerSettings) -> Path:
    if server.cert_dir is not None:
        return Path(server.cert_dir)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "harbourmaster" / "certs"


def _names(host: str) -> tuple[str, ...]:
    """Return the names in the certificate: every name of this machine that a client may use."""
    given = () if host in {*_LOCALHOST, "::1"} else (host,)
    return ("localhost", "127.0.0.1", "::1", *given)


async def _try_review(file: Path, site: Site, authority: Path) -> None:
    """Send the AdmissionReview in ``file``, and print its curl line, the answer and the patch."""
    server = f"https://localhost:{site.port}" if site.host in _LOCALHOST else site.url
    url = f"{server}/mutate"
    body = await asyncio.to_thread(file.read_bytes)
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(authority))
    headers = {"Content-Type": "application/json"}
    async with (
        ClientSession() as session,
        session.post(url, data=body, headers=headers, ssl=context) as response,
    ):
        answer = await response.read()
    lines = [
        "",
        "Send a recorded admission review to this server:",
        "",
        f"  curl --cacert {authority} -H 'Content-Type: application/json' \\",
        f"       --data @{file} {url}",
        "",
        "It answers:",
        "",
        _indent(msgspec.json.format(answer, indent=_INDENT)),
    ]
    patch = _patch_of(answer)
    if patch is not None:
        lines += ["", "The patch in it, decoded:", "", _indent(patch)]
    lines += ["", "The server keeps running; Ctrl-C stops it.", ""]
    sys.stdout.write("\n".join(lines))
    sys.stdout.flush()


def _patch_of(answer: bytes) -> bytes | None:
    response: dict[str, Any] = msgspec.json.decode(answer)["response"]
    if "patch" not in response:
        return None
    return msgspec.json.format(base64.b64decode(response["patch"]), indent=_INDENT)


def _indent(text: bytes) -> str:
    return "\n".join(f"  {line}" for line in text.decode().splitlines())
