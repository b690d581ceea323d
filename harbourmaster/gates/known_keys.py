"""All keys of Keptn and of ours that have a meaning anywhere, and what a mistyped one should be.

Neither Keptn nor we read any other key under these prefixes, so one that is mistyped skips checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.names import VERY_NEAR, nearest
from harbourmaster.gates import metadata, release, stages
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.release import OURS
from harbourmaster.gates.waits import INHERITED_KEY, WAIT_KEYS, WAITED_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PREFIXES: Final = ("keptn.sh/", OURS)
TASK_NAME_KEY: Final = "keptn.sh/task-name"
"""On the Job of a task."""
WRITTEN_KEYS: Final = frozenset(
    (
        metadata.WORKLOAD_KEY,
        metadata.VERSION_KEY,
        metadata.APP_KEY,
        metadata.CONTAINER_KEY,
        metadata.METADATA_KEY,
        metadata.PRE_TASKS_KEY,
        metadata.POST_TASKS_KEY,
        metadata.PRE_EVALUATIONS_KEY,
        metadata.POST_EVALUATIONS_KEY,
        *stages.STAGE_KEYS,
    )
)
"""Those for checks that people write on workloads and their pods."""
_MEANT: Final = (
    *WRITTEN_KEYS,
    metadata.DEPLOYMENT_TIMEOUT_KEY,
    *WAIT_KEYS,
)
STATE_KEYS: Final = frozenset(
    (
        release.CHECKS_KEY,
        release.HELD_BY_KEY,
        release.RELEASED_KEY,
        release.RELEASED_BY_KEY,
        release.RELEASED_REASON_KEY,
        WAITED_KEY,
        stages.STAGE_KEY,
    )
)
"""Annotations that record how a pod waits: a new pod has only those that admission sets."""
KNOWN_KEYS: Final = WRITTEN_KEYS | {
    *_MEANT,
    OPT_IN_KEY,
    metadata.REMOVED_KEY,
    metadata.PARENT_KEY,
    metadata.APP_TYPE_KEY,
    *STATE_KEYS,
    INHERITED_KEY,
    release.RERUN_KEY,
    *release.RERUN_NOTES,
    stages.STAGED_LABEL,
    stages.PROMOTE_KEY,
    stages.PROMOTE_BY_KEY,
    stages.PROMOTE_REASON_KEY,
    # On namespaces, Jobs and objects of Keptn's kinds, where other packages read or write them.
    "keptn.sh/app-type",
    "keptn.sh/inject-cert",
    TASK_NAME_KEY,
    f"{OURS}adopts",
    f"{OURS}clear-failed-nodes",
    f"{OURS}code-digest",
    f"{OURS}enabled",
    f"{OURS}job",
    f"{OURS}no-override",
    f"{OURS}other-owners",
    f"{OURS}owners",
    f"{OURS}since",
    f"{OURS}termination-message-policy",
    f"{OURS}written-version",
}
MAX_MEANT: Final = 63
"""Longest name of a key, in characters, as in the API."""

IS_OFF: Final = frozenset(("disabled", "false"))
"""Values of the opt-in that turn checks off."""
_TRIED: Final = 16
"""Unknown keys of a namespace that are compared; each takes time, and a namespace may have many."""


def unknown_keys(keys: Iterable[str]) -> list[str]:
    """Those of the keys that are under our prefixes and have no meaning, in their order."""
    return [key for key in keys if key.startswith(PREFIXES) and key not in KNOWN_KEYS]


def similar_key(key: str, among: Collection[str] = _MEANT) -> str:
    """The known key most similar to an unknown one; empty where none is similar."""
    name = key.partition("/")[2].lower()
    if len(name) > MAX_MEANT:
        return ""
    names = {known.partition("/")[2]: known for known in among}
    return names.get(nearest(name, names, VERY_NEAR), "")


def mistaken_opt_in(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotation by which a namespace asks for gates and gets none, if there is one.

    Its value counts where that is what is wrong, and is empty where the key is.
    """
    value = annotations.get(OPT_IN_KEY)
    if value is not None:
        return {} if value == OPT_IN or value.lower() in IS_OFF else {OPT_IN_KEY: value}
    for key in unknown_keys(annotations)[:_TRIED]:
        if similar_key(key, (OPT_IN_KEY,)) and annotations[key].lower() not in IS_OFF:
            return {key: ""}
    return {}
