"""Whether the API server has what it needs to call the webhooks, and does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.workloads import REGISTRATION

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Sequence

# One for each review that was answered, whatever the answer.
REVIEWS = "harbourmaster_admission_duration_seconds_count"
CONFIGURATIONS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{REGISTRATION}"
    for kind in ("mutating", "validating")
)
_TRIED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "tried-"},
    "spec": {"containers": [{"name": "tried", "image": "registry.example.com/tried"}]},
}


def missing(port: int, context: ssl.SSLContext, paths: Iterable[str]) -> str | None:
    """Return None when the API server serves all paths, else what it says to the first other."""
    for path in paths:
        try:
            api.request(port, context, "GET", f"{path}?limit=1")
        except PlaygroundError as error:
            return str(error)
    return None


class Trial:
    """Whether webhooks review pods: some are tried in ``default``, and none is stored.

    A pod passes where no webhook can be called, so their own counts tell. ``health`` has the URL
    of each webhook.
    """

    def __init__(self, port: int, context: ssl.SSLContext, health: Sequence[str]) -> None:
        self._port = port
        self._context = context
        self._health = health
        self._before: float | None = None

    def why_not(self) -> str | None:
        """Try a pod; return None when the counts are above those of the first call."""
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        try:
            # A webhook counts a moment after it answered, so a later call may see it.
            now = sum(counted(api.ask(f"{url}/metrics")[1]) for url in self._health)
            if self._before is None:
                self._before = now
            if now > self._before:
                return None
            api.request(self._port, self._context, "POST", path, _TRIED)
        except PlaygroundError as error:
            return str(error)
        return "the API server asks no webhook about a pod"


def counted(metrics: str) -> float:
    """The reviews in the Prometheus text of one webhook."""
    lines = (line for line in metrics.splitlines() if line.startswith(REVIEWS))
    return sum(float(line.rpartition(" ")[2]) for line in lines)
