"""Restarts the second scheduler when another authority signs our certificate.

A scheduler reads its trusted authorities only when it starts. An annotation of its pod template
says which authority its pods have read; until they restart, every replica serves the old
certificate (``harbourmaster.certs.handover``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import JsonPatch, escape
from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.handover import mark_of
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.objects import reference
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.serving.certificates import ServingCertificate

NAME: Final = "scheduler"
MARK: Final = "certs.harbourmaster.dev/authority"
"""Annotation of the template: which authority signed when it was rolled out last."""
_ANNOTATIONS: Final = "/spec/template/metadata/annotations"


class _TemplateMetadata(Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True):
    metadata: _TemplateMetadata | None = None


class _Spec(Struct, frozen=True):
    template: _Template


class _Deployment(Struct, frozen=True):
    """What of a Deployment matters here."""

    metadata: Metadata
    spec: _Spec

    @property
    def annotations(self) -> dict[str, str] | None:
        """Of its pods; None where there is no map of them."""
        metadata = self.spec.template.metadata
        return metadata.annotations if metadata else None


_decode: Final = msgspec.json.Decoder(_Deployment).decode


def _decide(deployment: _Deployment, mark: str) -> list[dict[str, Any]]:
    """The JSON Patch that rolls this very Deployment out; empty where its pods know the mark."""
    annotations = deployment.annotations
    if (annotations or {}).get(MARK) == mark:
        return []
    test = {"op": "test", "path": "/metadata/uid", "value": deployment.metadata.uid}
    if annotations is None:
        # A template without metadata has no labels, which no server takes.
        return [test, {"op": "add", "path": _ANNOTATIONS, "value": {MARK: mark}}]
    path = f"{_ANNOTATIONS}/{escape(MARK)}"
    return [test, {"op": "add", "path": path, "value": mark}]


class Rollouts:
    """One term of leading; it has one key."""

    def __init__(self, runtime: Runtime, certificate: ServingCertificate, name: str) -> None:
        self._client = runtime.client
        self._certificate = certificate
        self._name = name
        self._namespace = runtime.namespace
        self._events = runtime.events
        # Who takes the annotation away starts the pods anew by that: it is not written twice.
        self._seen = ""
        self._log = get_logger(NAME)

    def map_changes(self, _keys: Iterable[str] | None) -> tuple[str, ...]:
        """The one."""
        return (self._name,)

    async def reconcile(self, _key: str) -> None:
        """Have the pods know the current authority. Raises ApiError."""
        try:
            mark = mark_of(self._certificate.bundle())
        except CertificateError:
            # Whoever serves it tells; a change calls again.
            return
        if not mark or mark == self._seen:
            return
        try:
            await self._roll_out(mark)
        except NotFoundError:
            # One that is made later begins with what is there then.
            self._log.info("scheduler deployment not found", deployment=self._name)
        except ForbiddenError as error:
            self._log.warning(
                "scheduler not restarted: restart its pods, or grant the permission to patch "
                "its deployment",
                deployment=self._name,
                error=str(error),
            )
        self._seen = mark

    async def _roll_out(self, mark: str) -> None:
        found = _decode(await self._client.get(DEPLOYMENTS, self._name, self._namespace))
        operations = _decide(found, mark)
        if not operations:
            return
        await self._client.patch(DEPLOYMENTS, self._name, JsonPatch(operations), self._namespace)
        self._log.info("scheduler restarted", deployment=self._name, authority=mark)
        self._events.emit(
            reference(DEPLOYMENTS, found.metadata),
            "Normal",
            "AuthorityChanged",
            "restarting the pods, so that they read the authority of the serving certificate",
        )


def rollouts_controller(runtime: Runtime, certificate: ServingCertificate, name: str) -> Controller:
    """Make the controller that keeps the Deployment ``name`` in step with the certificate."""
    controller = Controller(
        NAME, lambda _queue: Rollouts(runtime, certificate, name), runtime.metrics
    )
    certificate.on_change.append(controller.changed_all)
    return controller
