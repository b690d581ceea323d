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

from harbourmaster.kube.connection import check_token
from harbourmaster.kube.errors import ConnectionSettingsError, one_line
from harbourmaster.kube.trust import load_pair
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

PLUGIN_SECONDS: Final = 30.0
"""Seconds that a plugin may take; it cannot ask the user for anything."""
END_SECONDS: Final = 1.0
"""Seconds that a killed plugin may take to end."""
MARGIN: Final = timedelta(seconds=10)
"""Time before its end at which a credential is renewed."""


class PluginCommand(Struct, frozen=True):
    """The command of a plugin. ``source`` names the kubeconfig in errors."""

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
    """The token of a plugin while it is valid; a client certificate is loaded into the context."""

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
        self._credential: _Credential | None = None
        self._running = asyncio.Lock()

    async def get(self) -> str | None:
        """Return the token; None if the plugin returned a certificate.

        Raises ConnectionSettingsError.
        """
        async with self._running:
            if self._credential is None or _has_ended(self._credential, self._now()):
                self._credential = await self._run_plugin()
        return self._credential.token or None

    def expire(self) -> None:
        """Run the plugin again at the next call."""
        self._credential = None

    async def _run_plugin(self) -> _Credential:
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
        credential = answer.status
        if credential.client_certificate_data and self._context is not None:
            certificate = credential.client_certificate_data
            key = credential.client_key_data
            load_pair(self._context, certificate.encode(), key.encode(), command.source)
        elif not credential.token:
            raise _fault(command, "returned neither a token nor a certificate")
        if credential.token:
            check_token(credential.token, f"{command.source}: the answer of {command.arguments[0]}")
        return credential


def _has_ended(credential: _Credential, now: datetime) -> bool:
    end = credential.expiration_timestamp
    return end is not None and now >= end.astimezone(UTC) - MARGIN


async def _run(command: PluginCommand) -> bytes:
    """Return the output of the plugin, which has ended when this returns."""
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
        # A process that left the group may hold the pipes forever.
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()


def _fault(command: PluginCommand, text: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(
        f"{command.source}: the exec plugin {command.arguments[0]} {text}"
    )
