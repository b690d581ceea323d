"""Keeps the Secret with the serving certificate of the webhook's replicas (decision D15).

``harbourmaster.certs.overlap`` decides what to write. A serving certificate is written only after
every configuration and every conversion has its authority.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import SECRETS
from harbourmaster.certs.child import decide, parse_bundle
from harbourmaster.certs.model import CA_CERTIFICATE, TLS_CERTIFICATE, Lifetimes, Write
from harbourmaster.certs.secret import authority_publication, read_authorities
from harbourmaster.controller.objects import data_of, decode_object, reference
from harbourmaster.controller.registration.configurations import RESYNC
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.registration.desired import LABELS
from harbourmaster.registration.trust import carries
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.certs.model import Action
    from harbourmaster.controller.registration.ca_injector import CABundleReconciler
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.registration.trust import Trust

PUBLISHED: Final = "certs.harbourmaster.dev/next-ca-published"
"""The annotation of the Secret that says since when every caBundle has the next authority."""
_SOONEST: Final = 0.05


class _Pending(Struct, frozen=True):
    """A write that waits until its authorities are published."""

    version: str | None
    """The resource version of the Secret that it replaces; None without a Secret."""
    write: Write
    since: datetime | None = None
    """The time since when every caBundle has the authorities; None if one lacks them."""


class CertificateReconciler:
    """Keeps the Secret, for one term of a leader."""

    def __init__(
        self,
        runtime: Runtime,
        names: tuple[tuple[str, ...], tuple[str, ...]],
        trust: Trust,
        ca_bundles: CABundleReconciler,
        on_announcement: Callable[[], None],
    ) -> None:
        """``names`` are those of the certificate, and all that its authority may sign.

        ``on_announcement`` is called when caBundles must get another authority at once.
        """
        self._client = runtime.client
        self._settings = settings = runtime.settings.certificates
        self._namespace = runtime.namespace
        self._names, self._permitted = names
        self._store = runtime.secret.store
        self._trust = trust
        self._ca_bundles = ca_bundles
        self._on_announcement = on_announcement
        self._events = runtime.events
        self._clock = runtime.now
        self._lifetimes = Lifetimes(
            authority=timedelta(seconds=settings.ca_lifetime_seconds),
            serving=timedelta(seconds=settings.leaf_lifetime_seconds),
            publish=timedelta(seconds=settings.publish_seconds),
        )
        self._pending: _Pending | None = None
        self._decided: tuple[object, datetime, Action] | None = None
        self._unpublished_at = datetime.min.replace(tzinfo=UTC)
        self._log = get_logger("certificates")

    def observe(self) -> None:
        """Note when a caBundle lacks the next authority; called for each change of a cache.

        CABundleReconciler may repair it before this class reconciles again.
        """
        now = self._clock()
        if (
            authority_publication(now, data_of(self._secret()), self._ca_bundles.bundles(), None)
            is None
        ):
            self._unpublished_at = now

    async def reconcile(self) -> float:
        """Write the Secret if it is time; return the seconds until the next time.

        Raises ApiError: a ConflictError if the watch is behind, whose next event queues the key.
        """
        now = self._clock()
        secret = self._secret()
        data = data_of(secret) if secret is not None else await self._read_adopted()
        since = _published_since(secret)
        unbroken = since if since is not None and since >= self._unpublished_at else None
        seen = authority_publication(now, data, self._ca_bundles.bundles(), unbroken)
        action = self._pending_write(secret) or await self._decide(now, data, seen)
        # The decision takes a process, for seconds on a busy node.
        now = self._clock()
        if isinstance(action, Write):
            delay = self._publication_delay(now, secret, data, action)
            if delay is not None:
                return delay
            await self._write(secret, data, action)
        elif secret is not None and seen != since:
            await self._note_publication(secret, seen)
        return _requeue_after(action.until - self._clock())

    def _secret(self) -> dict[str, Any] | None:
        return self._store.get(f"{self._namespace}/{self._settings.secret_name}")

    async def _decide(
        self, now: datetime, data: Mapping[str, bytes], seen: datetime | None
    ) -> Action:
        known = self._decided
        if known is not None and known[0] == (data, seen) and known[1] <= now < known[2].until:
            # Before that time the answer is the same, which takes a process.
            return known[2]
        mended = await self._trust.with_lost_authorities(data, now, parse_bundle)
        action = await decide(now, mended, self._names, seen, self._lifetimes, self._permitted)
        if mended == data and not isinstance(action, Write):
            self._decided = ((data, seen), now, action)
        if mended != data and not isinstance(action, Write):
            # Only the lost authorities are missing, so nothing else is written.
            return Write(dict(mended), "ca.crt has lost authorities that are trusted", action.until)
        return action

    async def _write(
        self, secret: dict[str, Any] | None, before: Mapping[str, bytes], action: Write
    ) -> None:
        stored = await self._store_secret(secret, action.data)
        self._pending = None
        self._trust.announce(None, self._clock())
        is_issued = action.data.get(TLS_CERTIFICATE) != before.get(TLS_CERTIFICATE)
        self._log.info(
            "certificates written", reason=action.reason, issued=is_issued, until=action.until
        )
        self._events.emit(
            reference(SECRETS, stored["metadata"]),
            "Normal",
            "CertificateIssued" if is_issued else "AuthorityChanged",
            action.reason,
        )

    async def _note_publication(self, secret: dict[str, Any], since: datetime | None) -> None:
        metadata = dict(secret["metadata"])
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(PUBLISHED, None)
        if since is not None:
            annotations[PUBLISHED] = since.astimezone(UTC).isoformat()
        changed = {**secret, "metadata": {**metadata, "annotations": annotations}}
        await self._client.replace(SECRETS, self._settings.secret_name, changed, self._namespace)
        self._log.info("next authority published", since=since)

    async def _store_secret(
        self, secret: dict[str, Any] | None, data: Mapping[str, bytes]
    ) -> dict[str, Any]:
        metadata = (secret or {}).get("metadata") or {}
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(PUBLISHED, None)
        obj: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            **(secret or {}),
            "metadata": {
                **metadata,
                "name": self._settings.secret_name,
                "namespace": self._namespace,
                "labels": {**(metadata.get("labels") or {}), **LABELS},
                "annotations": annotations,
            },
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        if secret is None:
            answer = await self._client.create(SECRETS, obj, self._namespace)
        else:
            name = self._settings.secret_name
            answer = await self._client.replace(SECRETS, name, obj, self._namespace)
        stored: dict[str, Any] = msgspec.json.decode(answer)
        return stored

    async def _read_adopted(self) -> dict[str, bytes]:
        """Return the data of the Secret to adopt while ours is absent; empty without one."""
        name = self._settings.adopt_secret
        if name is None:
            return {}
        try:
            raw = await self._client.get(SECRETS, name, self._namespace)
        except NotFoundError:
            return {}
        self._log.info("certificates adopted", secret=name)
        return data_of(decode_object(SECRETS, raw))

    def _pending_write(self, secret: dict[str, Any] | None) -> Write | None:
        """Return the write that waits to replace this Secret, or None."""
        if self._pending is not None and self._pending.version != _version(secret):
            self._pending = None
            self._trust.announce(None, self._clock())
        return self._pending.write if self._pending is not None else None

    def _publication_delay(
        self,
        now: datetime,
        secret: dict[str, Any] | None,
        before: Mapping[str, bytes],
        action: Write,
    ) -> float | None:
        """Return the seconds until the authority of the certificate is published; None if it is.

        In a rotation it is published by then. This is for a Secret that was lost or damaged, whose
        former certificate the replicas still serve.
        """
        present = list(self._ca_bundles.present_bundles())
        if not present or action.data.get(TLS_CERTIFICATE) == before.get(TLS_CERTIFICATE):
            return None
        issuer = read_authorities(action.data.get(CA_CERTIFICATE), now, limit=1)
        known = carries(present, issuer, now)
        if self._pending is None:
            if known:
                return None
            self._pending = _Pending(_version(secret), action)
            self._trust.announce(action.data, now)
            self._log.warning(
                "new authority published before its certificate is served", reason=action.reason
            )
            self._on_announcement()
        since = self._pending.since
        if not known:
            self._pending = _Pending(_version(secret), action)
            # The watch reports the change; this is for a configuration that never gets it.
            return self._lifetimes.publish.total_seconds() + 1
        if since is None:
            since = now
            self._pending = _Pending(_version(secret), action, now)
        delay = since + self._lifetimes.publish - now
        return None if delay <= timedelta() else _requeue_after(delay)


def _published_since(secret: Mapping[str, Any] | None) -> datetime | None:
    metadata = (secret or {}).get("metadata") or {}
    text = (metadata.get("annotations") or {}).get(PUBLISHED, "")
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        return None
    return since if since.tzinfo is not None else None


def _version(secret: Mapping[str, Any] | None) -> str | None:
    return secret["metadata"]["resourceVersion"] if secret is not None else None


def _requeue_after(delay: timedelta) -> float:
    # A clock may jump, so the delay is limited.
    return min(max(delay.total_seconds(), _SOONEST), RESYNC)
