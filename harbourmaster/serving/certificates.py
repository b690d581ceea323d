"""The certificate of what the controller serves with TLS: the webhook's, from the same Secret.

If we manage the Secret, every replica watches it and gets a new certificate at once. If somebody
else does (cert-manager), it is mounted as for the webhook, and we have no permission to read it.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from harbourmaster.api.times import utc_now
from harbourmaster.certs.bundle import (
    CA_CERTIFICATE,
    TLS_CERTIFICATE,
    TLS_KEY,
    BundleFiles,
    parse_bundle,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.handover import handover
from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import load
from harbourmaster.certs.watch import keep_current, wait_for
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from harbourmaster.certs.bundle import Bundle


LONGEST_WAIT: Final = 600.0
"""Seconds until a held certificate is looked at again: a clock may jump."""


def tls_options(
    client_ca: str | None, client_cn: str | None, minimum: Literal["1.2", "1.3"] = "1.2"
) -> TlsOptions:
    """What is required of clients; ``client_ca`` is a file. Raises CertificateError."""
    if client_ca is None:
        if client_cn is not None:
            raise CertificateError("--client-cn needs --client-ca, the CA that signs the clients")
        return TlsOptions(minimum)
    try:
        return TlsOptions(minimum, Path(client_ca).read_bytes())
    except OSError as error:
        raise CertificateError(f"{client_ca}: cannot be read: {reason(error)}") from None


class ServingCertificate(Protocol):
    """Where the certificate comes from."""

    on_change: list[Callable[[], None]]
    """Called when there may be another one, whether it can be served or not."""

    def bundle(self) -> Bundle:
        """The newest, served or not. Raises CertificateError."""

    async def first(self) -> CertificateHolder:
        """Wait for one that can be served."""

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer each new one to the holder, until cancelled."""


class SecretCertificate:
    """From the cache of our Secret; call ``changed`` when it changes.

    ``served`` names in the log what it is for. ``holds``: its clients read ca.crt only when they
    start, so one of another authority is served late.
    """

    def __init__(
        self,
        served: str,
        options: TlsOptions,
        data: Callable[[], Mapping[str, bytes]],
        now: Callable[[], datetime],
        *,
        holds: bool = False,
    ) -> None:
        self._options = options
        self._data = data
        self._now = now
        self._holds = holds
        self.on_change: list[Callable[[], None]] = []
        self._changes = asyncio.Event()
        self._fault = ""
        self._log = get_logger(served)

    def changed(self) -> None:
        """Look again."""
        self._changes.set()
        for each in self.on_change:
            each()

    async def first(self) -> CertificateHolder:
        """Wait for the first."""
        self._changes.set()
        while True:
            await self._changes.wait()
            self._changes.clear()
            try:
                return CertificateHolder(self.bundle(), self._options)
            except CertificateError as error:
                self._tell(str(error))

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer what comes."""
        wait = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changes.wait()
            self._changes.clear()
            is_held = wait is not None
            wait = None
            try:
                found = self.bundle()
                wait = self._wait(holder.bundle, found)
                changed = wait is None and holder.offer(found)
            except CertificateError as error:
                self._tell(str(error))
                continue
            self._fault = ""
            if changed:
                self._log.info("certificate loaded", until=holder.bundle.not_after)
            elif wait is not None and not is_held:
                self._log.info(
                    "certificate of another authority held back", until=holder.bundle.not_after
                )

    def _wait(self, served: Bundle, found: Bundle) -> float | None:
        """Seconds until another look at whether to serve what was found; None for now."""
        now = self._now()
        end = handover(served, found, now) if self._holds else None
        return None if end is None else min((end - now).total_seconds(), LONGEST_WAIT)

    def bundle(self) -> Bundle:
        """What is there now. Raises CertificateError."""
        data = self._data()
        bundle = parse_bundle(
            BundleFiles(
                ca_crt=data.get(CA_CERTIFICATE),
                tls_crt=data.get(TLS_CERTIFICATE),
                tls_key=data.get(TLS_KEY),
            )
        )
        verify_bundle(bundle, self._now())
        return bundle

    def _tell(self, fault: str) -> None:
        if self._data() and fault != self._fault:
            self._log.warning("certificate not loaded", error=fault)
        self._fault = fault


class MountedCertificate:
    """From a directory that somebody else fills."""

    def __init__(self, served: str, options: TlsOptions, directory: str) -> None:
        self._options = options
        self._directory = Path(directory)
        self.on_change: list[Callable[[], None]] = []
        self._log = get_logger(served)

    def bundle(self) -> Bundle:
        """What is there now. Raises CertificateError."""
        return load(self._directory, utc_now())

    async def first(self) -> CertificateHolder:
        """Wait for the first."""
        bundle = await wait_for(self._directory, on_error=self._tell)
        self._tell_change()
        return CertificateHolder(bundle, self._options)

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer what comes."""
        await keep_current(holder, self._directory, None, on_change=self._note, on_error=self._tell)

    def _note(self, bundle: Bundle) -> None:
        self._log.info("certificate loaded", until=bundle.not_after)
        self._tell_change()

    def _tell_change(self) -> None:
        for each in self.on_change:
            each()

    def _tell(self, fault: str) -> None:
        self._log.warning("certificate not loaded", error=fault)
