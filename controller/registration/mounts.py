"""Has the kubelet mount a new serving certificate into the webhook's pods at once.

It updates what pods mount when it syncs them: every 60 to 90 s, or when a pod changes. An
annotation that names the certificate is such a change. Pods that start later mount it anyway.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Final

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import PODS
from harbourmaster.certs.bundle import TLS_CERTIFICATE
from harbourmaster.controller.objects import decode_object
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.parts import Process

MARK: Final = "certs.harbourmaster.dev/serving-certificate"
"""Annotation of a pod: the certificate for which the kubelet was asked to look."""
SELECTOR: Final = "app.kubernetes.io/name=harbourmaster,app.kubernetes.io/component=webhook"
_DIGITS: Final = 16


class Mounts:
    """One term of leading."""

    def __init__(self, process: Process) -> None:
        self._client = process.client
        self._namespace = process.namespace
        self._data = process.secret_data
        self._seen = ""
        self._log = get_logger("certificates")

    async def reconcile(self) -> None:
        """Mark the pods that may have mounted another certificate. Raises ApiError."""
        certificate = self._data().get(TLS_CERTIFICATE)
        mark = hashlib.sha256(certificate).hexdigest()[:_DIGITS] if certificate else ""
        if mark and mark != self._seen:
            await self._mark_pods(mark)
        self._seen = mark

    async def _mark_pods(self, mark: str) -> None:
        page = await self._client.list(
            PODS, self._namespace, label_selector=SELECTOR, metadata_only=True
        )
        found = [decode_object(PODS, raw)["metadata"] for raw in page.items]
        stale = [pod["name"] for pod in found if pod.get("annotations", {}).get(MARK) != mark]
        patch = MergePatch({"metadata": {"annotations": {MARK: mark}}})
        for name in stale:
            with contextlib.suppress(NotFoundError):
                await self._client.patch(PODS, name, patch, self._namespace)
        if stale:
            self._log.info("mount of the certificate requested", pods=len(stale))
