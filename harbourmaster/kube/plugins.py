"""Tokens and certificates from a kubeconfig's exec plugin: a command that logs the user in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.connection import checked_token
from harbourmaster.kube.errors import ConnectionSettingsError, one_line
from harbourmaster.kube.trust import load_pair
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

PLUGIN_SECONDS: Final = 30.0
"""How long a plugin may take; it cannot ask the user for anything."""
END_SECONDS: Final = 1.0
"""How long a killed plugin may take to end."""
MARGIN: Final = timedelta(seconds=10)
"""How long before its end a credential is renewed."""


class PluginCommand(Struct, frozen=True):
    """What to run. ``source`` names the kubeconfig in errors."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    api_version: str
    cluster: Mapping[str, Any] | None
    """The cluster information for the plugin; None if it does not ask for it."""
    source: str


class _Credential(Struct, frozen=True, gc=False, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str
    kind: str
    status: _Credential


class PluginToken:
    """The plugin's token while it is valid; a client certificate is loaded into the context."""

    def __init__(
        self,
        command: PluginCommand,
        context: ssl.SSLContext | None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._command = command
        self._context = context
        self._now = now
        self._kept: _Credential | None = None
        self._running = asyncio.Lock()

    async def get(self) -> str | None:
        """The token; None if the plugin returned a certificate. Raises ConnectionSettingsError."""
        async with self._running:
            if self._kept is None or _has_ended(self._kept, self._now()):
                self._kept = await self._renewed()
        return self._kept.token or None

    def expire(self) -> None:
        """Run the plugin again at the next call."""
        self._kept = None

    async def _renewed(self) -> _Credential:
        command = self._command
        output = await _run(command)
        try:
            answer = msgspec.json.decode(output, type=_Answer)
        except msgspec.DecodeError as error:
            # Without its output, which may have secrets.
            raise _fault(command, f"did not print a valid ExecCredential: {error}") from None
        if (answer.api_version, answer.kind) != (command.api_version, "ExecCredential"):
            kind = one_line(f"{answer.kind} of {answer.api_version}", 100)
            raise _fault(
                command, f"answers with {kind}, expected ExecCredential of {command.api_version}"
            )
        found = answer.status
        if found.client_certificate_data and self._context is not None:
            certificate, key = found.client_certificate_data, found.client_key_data
            load_pair(self._context, certificate.encode(), key.encode(), command.source)
        elif not found.token:
            raise _fault(command, "returned neither a token nor a certificate")
        if found.token:
            checked_token(found.token, f"{command.source}: the answer of {command.arguments[0]}")
        return found


def _has_ended(credential: _Credential, now: datetime) -> bool:
    end = credential.expiration_timestamp
    return end is not None and now >= end.astimezone(UTC) - MARGIN


async def _run(command: PluginCommand) -> bytes:
    """The output of the plugin, which has ended when this returns."""
    # Cancelled within the start, asyncio would leave the plugin's own children running.
    starting = asyncio.ensure_future(_start(command))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):
            await _end(await starting)
        raise
    except (OSError, ValueError) as error:
        raise _fault(command, f"can't be run: {reason(error)}") from error
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise _fault(command, f"does not end within {PLUGIN_SECONDS:g} s") from None
    finally:
        await _end(process)
    if process.returncode != 0:
        text = one_line(errors.decode(errors="replace"), 200)
        raise _fault(command, f"ended with exit code {process.returncode}: {text}")
    return output


async def _start(command: PluginCommand) -> asyncio.subprocess.Process:
    spec: dict[str, Any] = {"interactive": False}
    if command.cluster is not None:
        spec["cluster"] = command.cluster
    info = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": spec}
    return await asyncio.create_subprocess_exec(
        *command.arguments,
        env={**command.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Its children can be ended with it, and it cannot ask the terminal.
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # A process that left the group may hold the pipes without end.
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()


def _fault(command: PluginCommand, text: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(
        f"{command.source}: the exec plugin {command.arguments[0]} {text}"
    )
