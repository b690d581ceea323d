"""Keptn's keys on pods and their owners, and which one counts (keptn-spec 2.2, 2.4).

Each meaning has a key of Keptn's and perhaps a recommended label of Kubernetes' to fall back on.
The first that is not empty wins: annotation, then label, of Keptn's key; then of the fallback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

OPT_IN_KEY: Final = "keptn.sh/lifecycle-toolkit"
"""Annotation of a Namespace whose pods wait for their checks; the value must be OPT_IN."""
OPT_IN: Final = "enabled"
WORKLOAD_KEY: Final = "keptn.sh/workload"
VERSION_KEY: Final = "keptn.sh/version"
APP_KEY: Final = "keptn.sh/app"
CONTAINER_KEY: Final = "keptn.sh/container"
METADATA_KEY: Final = "keptn.sh/metadata"
PRE_TASKS_KEY: Final = "keptn.sh/pre-deployment-tasks"
POST_TASKS_KEY: Final = "keptn.sh/post-deployment-tasks"
PRE_EVALUATIONS_KEY: Final = "keptn.sh/pre-deployment-evaluations"
POST_EVALUATIONS_KEY: Final = "keptn.sh/post-deployment-evaluations"
DEPLOYMENT_TIMEOUT_KEY: Final = "gates.harbourmaster.dev/deployment-timeout"
"""The time in which a deployment must be done, in place of that of the KeptnConfig."""
REMOVED_KEY: Final = "keptn.sh/scheduling-gate-removed"
"""On a pod whose gate was removed, and that is not to get it again."""
PARENT_KEY: Final = "gates.harbourmaster.dev/parent"
"""On a pod gated before its owner was known; the value is UNRESOLVED."""
UNRESOLVED: Final = "unresolved"
APP_TYPE_KEY: Final = "gates.harbourmaster.dev/app-type"
"""On a pod that named no app, so that its workload is one; the value is SINGLE_SERVICE."""
SINGLE_SERVICE: Final = "single-service"

_FALLBACKS: Final = {
    WORKLOAD_KEY: "app.kubernetes.io/name",
    VERSION_KEY: "app.kubernetes.io/version",
    APP_KEY: "app.kubernetes.io/part-of",
}
_INHERITED: Final = (
    APP_KEY,
    PRE_TASKS_KEY,
    POST_TASKS_KEY,
    PRE_EVALUATIONS_KEY,
    POST_EVALUATIONS_KEY,
    METADATA_KEY,
    DEPLOYMENT_TIMEOUT_KEY,
)
"""The keys that a pod inherits from its parent, besides workload and version."""
READ_KEYS: Final = frozenset(
    (WORKLOAD_KEY, VERSION_KEY, CONTAINER_KEY, *_INHERITED, *_FALLBACKS.values())
)
"""All that is read of a parent."""
_PAIR: Final = 2
_SHOWN: Final = 64
MAX_VALUE: Final = 4096
"""Characters of a list of checks, and of what pods inherit."""


class Metadata(Struct, frozen=True, gc=False):
    """Annotations and labels of a pod or of its parent."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}

    def get(self, key: str) -> str:
        """The value that counts for the meaning of a key of Keptn's, or an empty text."""
        return lookup(self.annotations, self.labels, key)


def lookup(annotations: Mapping[str, str], labels: Mapping[str, str], key: str) -> str:
    """The value that counts for the meaning of a key of Keptn's; empty is the same as absent."""
    value = annotations.get(key) or labels.get(key)
    if value:
        return value
    fallback = _FALLBACKS.get(key)
    if fallback is None:
        return ""
    return annotations.get(fallback) or labels.get(fallback) or ""


def inheritable(parent: Metadata) -> dict[str, str]:
    """Annotations that a pod gets from its parent, workload and version apart."""
    return {key: value for key in _INHERITED if (value := parent.get(key))}


def names_of(text: str) -> tuple[str, ...]:
    """The names in a comma list: trimmed, without the empty and without the second of two.

    Of a list that is too long, one name that no object can have.
    """
    parts = limit_value(text).split(",") if text else ()
    return tuple(dict.fromkeys(name for part in parts if (name := part.strip())))


def limit_value(value: str) -> str:
    """A value of at most MAX_VALUE characters, or what is wrong with it."""
    return value if len(value) <= MAX_VALUE else f"more than {MAX_VALUE} characters"


def pairs_of(text: str) -> dict[str, str]:
    """The pairs in ``k=v,k2=v2``; what has not exactly one ``=`` is dropped."""
    parts = (part.strip().split("=") for part in text.split(","))
    return {pair[0].strip(): pair[1].strip() for pair in parts if len(pair) == _PAIR}


def cut(text: str) -> str:
    """A key or value as messages show it: printable, and at most _SHOWN characters."""
    printable = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= _SHOWN else f"{printable[: _SHOWN - 3]}..."
