"""The certificate for TLS in the controller: the webhook's, from the same Secret.

If we manage the Secret, every replica watches it and gets a new certificate at once. If another
issuer does (cert-manager), it is mounted as for the webhook, and we have no permission to read it.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from harbourmaster.api.times import utc_now
from harbourmaster.certs.child import load, parse_bundle
from harbourmaster.certs.errors import CertificateError, UnreadableError
from harbourmaster.certs.model import (
    CA_CERTIFICATE,
    TLS_CERTIFICATE,
    TLS_KEY,
    BundleFiles,
    verify_bundle,
)
from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.rotation import handover
from harbourmaster.certs.watch import keep_current, wait_for
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from harbourmaster.certs.model import Bundle


LONGEST_WAIT: Final = 600.0
"""Maximum seconds between checks of a certificate that is held back: a clock may jump."""


def tls_options(
    client_ca: str | None, client_cn: str | None, minimum: Literal["1.2", "1.3"] = "1.2"
) -> TlsOptions:
    """Return the requirements on clients; ``client_ca`` is a file. Raises CertificateError."""
    if client_ca is None:
        if client_cn is not None:
            raise CertificateError("--client-cn needs --client-ca, the CA that signs the clients")
        return TlsOptions(minimum)
    try:
        return TlsOptions(minimum, Path(client_ca).read_bytes())
    except OSError as error:
        raise CertificateError(f"{client_ca}: cannot be read: {reason(error)}") from None


class ServingCertificate(Protocol):
    """The source of a serving certificate."""

    on_change: list[Callable[[], None]]
    """Functions that are called when there may be another certificate, usable or not."""

    async def bundle(self) -> Bundle:
        """Return the newest certificate, served or not. Raises CertificateError."""

    async def first(self) -> CertificateHolder:
        """Wait for a certificate that can be served."""

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer each new certificate to the holder, until cancelled."""


class SecretCertificate:
    """A certificate from the cache of our Secret; call ``changed`` when the Secret changes.

    ``served`` names the server in the log. ``holds``: its clients read ca.crt only when they start,
    so a certificate of another authority is served late.
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
        self._parsed: Bundle | None = None
        self._fault = ""
        self._log = get_logger(served)

    def changed(self) -> None:
        """Check the Secret again."""
        self._changes.set()
        self._notify()

    async def first(self) -> CertificateHolder:
        """Wait for the first certificate."""
        self._changes.set()
        while True:
            await self._changes.wait()
            self._changes.clear()
            try:
                return CertificateHolder(await self.bundle(), self._options)
            except CertificateError as error:
                self._log_fault(str(error))

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer each new certificate to the holder, until cancelled."""
        wait = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changes.wait()
            self._changes.clear()
            is_held = wait is not None
            wait = None
            try:
                bundle = await self.bundle()
                wait = self._wait(holder.bundle, bundle)
                changed = wait is None and holder.offer(bundle)
            except CertificateError as error:
                self._log_fault(str(error))
                continue
            self._fault = ""
            if changed:
                self._log.info("certificate loaded", until=holder.bundle.not_after)
                self._notify()
            elif wait is not None and not is_held:
                self._log.info(
                    "certificate of another authority held back", until=holder.bundle.not_after
                )

    def _wait(self, served: Bundle, offered: Bundle) -> float | None:
        """Return the seconds until ``offered`` may be served; None for now."""
        now = self._now()
        end = handover(served, offered, now) if self._holds else None
        return None if end is None else min((end - now).total_seconds(), LONGEST_WAIT)

    async def bundle(self) -> Bundle:
        """Return the current certificate. Raises CertificateError."""
        data = self._data()
        if not data:
            raise UnreadableError("the Secret is missing")
        files = BundleFiles(
            ca_crt=data.get(CA_CERTIFICATE),
            tls_crt=data.get(TLS_CERTIFICATE),
            tls_key=data.get(TLS_KEY),
        )
        if self._parsed is None or self._parsed.files != files:
            self._parsed = await parse_bundle(files)
        verify_bundle(self._parsed, self._now())
        return self._parsed

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()

    def _log_fault(self, fault: str) -> None:
        if self._data() and fault != self._fault:
            self._log.warning("certificate not loaded", error=fault)
        self._fault = fault


class MountedCertificate:
    """A certificate from a directory that another issuer fills."""

    def __init__(self, served: str, options: TlsOptions, directory: str) -> None:
        self._options = options
        self._directory = Path(directory)
        self.on_change: list[Callable[[], None]] = []
        self._log = get_logger(served)

    async def bundle(self) -> Bundle:
        """Return the current certificate. Raises CertificateError."""
        return await load(self._directory, utc_now())

    async def first(self) -> CertificateHolder:
        """Wait for the first certificate."""
        bundle = await wait_for(self._directory, on_error=self._log_fault)
        self._notify()
        return CertificateHolder(bundle, self._options)

    async def keep(self, holder: CertificateHolder) -> None:
        """Offer each new certificate to the holder, until cancelled."""
        await keep_current(
            holder, self._directory, None, on_change=self._note, on_error=self._log_fault
        )

    def _note(self, bundle: Bundle) -> None:
        self._log.info("certificate loaded", until=bundle.not_after)
        self._notify()

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()

    def _log_fault(self, fault: str) -> None:
        self._log.warning("certificate not loaded", error=fault)
