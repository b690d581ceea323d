"""The redaction of reviews for files: fields that decide are kept, possible secrets are not.

Only what is named here is kept, so an unknown field is left out. A value that must
not be seen is replaced by one of its type, because the type can decide; an empty one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harbourmaster.gates.metadata import APP_TYPE_KEY, PARENT_KEY, READ_KEYS, REMOVED_KEY
from harbourmaster.gates.stages import STAGE_KEYS
from harbourmaster.gates.waits import INHERITED_KEY, WAIT_KEYS
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, MODE_KEY
from harbourmaster.policies.model import ON_TOO_LARGE, is_policy_kind
from harbourmaster.policies.pods import KINDS, MIRROR_ANNOTATION
from harbourmaster.policies.targets import ALL_CONTROLLERS, CREATORS, EXCLUDED_KEY, TARGETS_KEY
from harbourmaster.webhook.checked_objects import is_checked

if TYPE_CHECKING:
    from collections.abc import Iterable

REDACTED: Final = "redacted"
_CRITICAL: Final = "scheduler.alpha.kubernetes.io/critical-pod"
DECIDING_ANNOTATIONS: Final = READ_KEYS | {
    *WAIT_KEYS,
    *STAGE_KEYS,
    INHERITED_KEY,
    REMOVED_KEY,
    PARENT_KEY,
    ON_TOO_LARGE,
    ENFORCEMENT_KEY,
    MODE_KEY,
    TARGETS_KEY,
    EXCLUDED_KEY,
    APP_TYPE_KEY,
    MIRROR_ANNOTATION,
    _CRITICAL,
}
"""Annotations whose value is kept; of all others only the key is."""

_Rule: TypeAlias = Callable[[Any], Any]


def redact(review: Any) -> Any:  # noqa: ANN401
    """Return the recordable part of a decoded AdmissionReview; None if its kind is not recorded."""
    request = review.get("request") if isinstance(review, dict) else None
    kind = request.get("kind") if isinstance(request, dict) else None
    fields = kind if isinstance(kind, dict) else {}
    group, version, name = (_text(fields.get(part)) for part in ("group", "version", "kind"))
    if is_policy_kind(group, version, name):
        return _POLICY_REVIEW(review)
    if is_checked(group, name):
        # They hold scripts, addresses and manifests, any of which may be why they are refused.
        return None
    return (_WORKLOAD_REVIEW if (group, version, name) in KINDS else _HEAD_REVIEW)(review)


def blank(value: Any) -> Any:  # noqa: ANN401
    """Return an empty or meaningless value of the same type; empty texts stay empty."""
    if isinstance(value, str):
        return REDACTED if value else ""
    # In this order: to Python, true is a number.
    if value is None or isinstance(value, bool):
        return None if value is None else False
    if isinstance(value, int | float):
        return 0 if isinstance(value, int) else 0.5
    return [] if isinstance(value, list) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _keep(value: Any) -> Any:  # noqa: ANN401
    return value


def _fields(rules: dict[str, _Rule]) -> _Rule:
    def apply(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            return blank(value)
        return {name: rules[name](item) for name, item in value.items() if name in rules}

    return apply


def _items(rule: _Rule) -> _Rule:
    def apply(value: Any) -> Any:  # noqa: ANN401
        return [rule(item) for item in value] if isinstance(value, list) else blank(value)

    return apply


def _annotations(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        return blank(value)
    return {
        key: text if key in DECIDING_ANNOTATIONS else blank(text) for key, text in value.items()
    }


def _keep_all(names: Iterable[str]) -> dict[str, _Rule]:
    return dict.fromkeys(names, _keep)


_VARIABLE: Final = _fields({**_keep_all(("name", "valueFrom")), "value": blank})
_CONTAINER: Final = _fields(
    {
        **_keep_all(("name", "image", "envFrom", "ports", "resources", "restartPolicy")),
        "env": _items(_VARIABLE),
    }
)
_META: Final = {
    **_keep_all(
        (
            "name",
            "generateName",
            "namespace",
            "uid",
            "labels",
            "ownerReferences",
            "creationTimestamp",
            "deletionTimestamp",
        )
    ),
    "annotations": _annotations,
}
_POD: Final = {
    **_keep_all(
        (
            "affinity",
            "nodeName",
            "nodeSelector",
            "schedulerName",
            "tolerations",
            "schedulingGates",
            "priority",
            "priorityClassName",
            "preemptionPolicy",
            "topologySpreadConstraints",
            "terminationGracePeriodSeconds",
            "restartPolicy",
            "runtimeClassName",
            "serviceAccountName",
            "hostNetwork",
            "overhead",
            "os",
        )
    ),
    "containers": _items(_CONTAINER),
    "initContainers": _items(_CONTAINER),
    "ephemeralContainers": _items(_CONTAINER),
}
_TEMPLATE: Final = _fields({"metadata": _fields(_META), "spec": _fields(_POD)})
_WORKLOAD: Final = _fields(
    {
        **_keep_all(("apiVersion", "kind")),
        "metadata": _fields(_META),
        "spec": _fields(
            {
                **_POD,
                **_keep_all(("replicas", "selector", "schedule", "suspend")),
                **_keep_all(("strategy", "updateStrategy", "progressDeadlineSeconds")),
                "template": _TEMPLATE,
                "jobTemplate": _fields({"spec": _fields({"template": _TEMPLATE})}),
            }
        ),
    }
)
_MANAGED: Final = _items(
    _fields(_keep_all(("manager", "operation", "apiVersion", "fieldsType", "subresource", "time")))
)
_POLICY: Final = _fields(
    {
        **_keep_all(("apiVersion", "kind", "spec")),
        "metadata": _fields(
            {**_META, **_keep_all(("generation", "finalizers")), "managedFields": _MANAGED}
        ),
    }
)
_HEAD: Final = _fields(
    {
        **_keep_all(("apiVersion", "kind")),
        "metadata": _fields(_keep_all(("name", "namespace"))),
    }
)


def _user(name: Any) -> Any:  # noqa: ANN401
    """Keep the name of a controller; persons are not recorded."""
    return name if name in (ALL_CONTROLLERS, *CREATORS) else blank(name)


def _review(thing: _Rule) -> _Rule:
    request = {
        **_keep_all(("uid", "kind", "resource", "subResource", "name", "namespace", "operation")),
        "userInfo": _fields({"username": _user}),
        "dryRun": _keep,
        "object": thing,
    }
    return _fields({**_keep_all(("apiVersion", "kind")), "request": _fields(request)})


_WORKLOAD_REVIEW: Final = _review(_WORKLOAD)
_POLICY_REVIEW: Final = _review(_POLICY)
_HEAD_REVIEW: Final = _review(_HEAD)
