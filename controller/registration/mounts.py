"""Has the kubelet mount a new serving certificate into the webhook's pods at once.

It updates what pods mount when it syncs them: every 60 to 90 s, or when a pod changes. An
annotation that names the certificate is such a change. Pods that start later mount it anyway, and
the others without it within that time: an error is logged and stops nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import PODS
from harbourmaster.certs.bundle import TLS_CERTIFICATE
from harbourmaster.controller.objects import decode_object
from harbourmaster.controller.registration.configurations import RESYNC
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.parts import Process

MARK: Final = "certs.harbourmaster.dev/serving-certificate"
"""Annotation of a pod: the certificate for which the kubelet was asked to look."""
SELECTOR: Final = "app.kubernetes.io/name=harbourmaster,app.kubernetes.io/component=webhook"
AGAIN: Final = 60.0
"""Seconds until the next attempt; by then, the kubelet has often looked by itself."""
_DIGITS: Final = 16


class Mounts:
    """One term of leading."""

    def __init__(self, process: Process) -> None:
        self._client = process.client
        self._namespace = process.namespace
        self._data = process.secret_data
        self._seen = ""
        self._reported = ""
        self._log = get_logger("certificates")

    async def reconcile(self) -> float:
        """Mark the pods that may have mounted another certificate; seconds until the next look."""
        certificate = self._data().get(TLS_CERTIFICATE)
        mark = hashlib.sha256(certificate).hexdigest()[:_DIGITS] if certificate else ""
        if mark and mark != self._seen:
            fault = await self._mark_pods(mark)
            if fault is not None:
                self._report(mark, fault)
                return AGAIN
        self._seen = mark
        return RESYNC

    async def _mark_pods(self, mark: str) -> ApiError | None:
        """Mark all that can be marked; the first error."""
        try:
            page = await self._client.list(
                PODS, self._namespace, label_selector=SELECTOR, metadata_only=True
            )
        except ApiError as error:
            return error
        patch = MergePatch({"metadata": {"annotations": {MARK: mark}}})
        faults, marked = [], 0
        for pod in (decode_object(PODS, raw)["metadata"] for raw in page.items):
            if pod.get("annotations", {}).get(MARK) == mark:
                continue
            try:
                await self._client.patch(PODS, pod["name"], patch, self._namespace)
                marked += 1
            except NotFoundError:
                continue
            except ApiError as error:
                faults.append(error)
        if marked:
            self._log.info("mount of the certificate requested", pods=marked)
        return faults[0] if faults else None

    def _report(self, mark: str, fault: ApiError) -> None:
        """Log the first error of each certificate."""
        if mark != self._reported:
            self._log.warning(
                "mount of the certificate not requested, retrying every minute: grant the "
                "permission to list and patch pods, or restart the webhook's pods",
                error=str(fault),
            )
        self._reported = mark
