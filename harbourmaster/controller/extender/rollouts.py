"""Restarts the second scheduler when another authority signs our certificate.

A scheduler reads its trusted authorities only when it starts. An annotation of its pod template
names the authority that its pods have read; until they restart, every replica serves the old
certificate (``harbourmaster.certs.rotation``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import JsonPatch, escape
from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.rotation import mark_of
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
"""The annotation of the pod template that names the authority of the last rollout."""
_ANNOTATIONS: Final = "/spec/template/metadata/annotations"


class _TemplateMetadata(Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True):
    metadata: _TemplateMetadata | None = None


class _Spec(Struct, frozen=True):
    template: _Template


class _Deployment(Struct, frozen=True):
    metadata: Metadata
    spec: _Spec

    @property
    def annotations(self) -> dict[str, str] | None:
        """The annotations of the pod template; None if it has no map of annotations."""
        metadata = self.spec.template.metadata
        return metadata.annotations if metadata else None


_decode: Final = msgspec.json.Decoder(_Deployment).decode


def _decide(deployment: _Deployment, mark: str) -> list[dict[str, Any]]:
    """Return the JSON Patch that restarts the pods; empty if they have read the authority."""
    annotations = deployment.annotations
    if (annotations or {}).get(MARK) == mark:
        return []
    test = {"op": "test", "path": "/metadata/uid", "value": deployment.metadata.uid}
    if annotations is None:
        # API servers refuse templates without labels, so there is metadata.
        return [test, {"op": "add", "path": _ANNOTATIONS, "value": {MARK: mark}}]
    path = f"{_ANNOTATIONS}/{escape(MARK)}"
    return [test, {"op": "add", "path": path, "value": mark}]


class RolloutReconciler:
    """Keeps the annotation of one Deployment, for one term of a leader."""

    def __init__(self, runtime: Runtime, certificate: ServingCertificate, name: str) -> None:
        self._client = runtime.client
        self._certificate = certificate
        self._name = name
        self._namespace = runtime.namespace
        self._events = runtime.events
        # Removing the annotation restarts the pods, too, so it is not written twice.
        self._seen = ""
        self._log = get_logger(NAME)

    def map_changes(self, _keys: Iterable[str] | None) -> tuple[str, ...]:
        """Return the only key, the name of the Deployment."""
        return (self._name,)

    async def reconcile(self, _key: str) -> None:
        """Restart the pods if the authority has changed. Raises ApiError."""
        try:
            mark = mark_of(await self._certificate.bundle())
        except CertificateError:
            # The port that serves it logs the error; a change queues the key again.
            return
        if not mark or mark == self._seen:
            return
        try:
            await self._roll_out(mark)
        except NotFoundError:
            # A Deployment that is created later starts with the current authority.
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
        deployment = _decode(await self._client.get(DEPLOYMENTS, self._name, self._namespace))
        operations = _decide(deployment, mark)
        if not operations:
            return
        await self._client.patch(DEPLOYMENTS, self._name, JsonPatch(operations), self._namespace)
        self._log.info("scheduler restarted", deployment=self._name, authority=mark)
        self._events.emit(
            reference(DEPLOYMENTS, deployment.metadata),
            "Normal",
            "AuthorityChanged",
            "restarting the pods, so that they read the authority of the serving certificate",
        )


def rollouts_controller(runtime: Runtime, certificate: ServingCertificate, name: str) -> Controller:
    """Create the controller that restarts the Deployment ``name`` after a new authority."""
    controller = Controller(
        NAME, lambda _queue: RolloutReconciler(runtime, certificate, name), runtime.metrics
    )
    certificate.on_change.append(controller.enqueue_all)
    return controller
