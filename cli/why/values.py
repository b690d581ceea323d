"""Values of scheduling fields as people write them, on one line."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harbourmaster.policies.keys import toleration_key

_MOST: Final = 160
"""Characters of a value; the JSON output has all of it."""
_SELECTING: Final = frozenset(("matchLabels", "matchExpressions"))
_SIGNS: Final = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}
_DEFAULT_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULTS: Final = frozenset(
    toleration_key(
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    )
    for key in _DEFAULT_KEYS
)
_OF_DAEMONS: Final = frozenset(
    toleration_key({"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect})
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    )
)


def shown(path: str, value: Any) -> str:  # noqa: ANN401
    """The value of the field at ``path``."""
    text = _shown(path, value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def is_default_toleration(value: Any) -> bool:  # noqa: ANN401
    """Whether it is one of the two that Kubernetes gives every pod."""
    return isinstance(value, dict) and toleration_key(value) in _DEFAULTS


def is_of_daemon(value: Any) -> bool:  # noqa: ANN401
    """Whether it is what the DaemonSet controller gives its pods: their node, and tolerations."""
    if isinstance(value, dict):
        return toleration_key(value) in _OF_DAEMONS
    terms = value if isinstance(value, list | tuple) else ()
    return any(
        field.get("key") == "metadata.name"
        for term in terms
        if isinstance(term, dict)
        for field in term.get("matchFields") or ()
    )


def _shown(path: str, value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    if ".tolerations[" in path and isinstance(value, dict):
        return _toleration(value)
    if path.endswith(".nodeSelectorTerms") and isinstance(value, list | tuple):
        return " or ".join(_term(term) for term in value)
    if isinstance(value, dict):
        if value.keys() == {"weight", "preference"}:
            return f"weight {value['weight']}: {_term(value['preference'])}"
        if value.keys() == {"weight", "podAffinityTerm"}:
            return f"weight {value['weight']}: {_pod_term(value['podAffinityTerm'])}"
        if "topologyKey" in value:
            return _pod_term(value)
    return _json(value)


def _toleration(value: dict[str, Any]) -> str:
    key, effect = value.get("key") or "", value.get("effect") or ""
    text = key or "every taint"
    if value.get("value"):
        text += f"={value['value']}"
    if effect:
        text += f":{effect}"
    seconds = value.get("tolerationSeconds")
    return text if seconds is None else f"{text} for {seconds} s"


def _term(term: Any) -> str:  # noqa: ANN401
    if not isinstance(term, dict):
        return _json(term)
    asked = [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]
    known = {"matchExpressions", "matchFields"}
    if not asked or not known.issuperset(term):
        return _json(term)
    return " and ".join(map(_requirement, asked))


def _pod_term(term: Any) -> str:  # noqa: ANN401
    """Pods by their labels, and how near they are; anything more is left as it is."""
    if not isinstance(term, dict) or term.keys() != {"labelSelector", "topologyKey"}:
        return _json(term)
    selector = term["labelSelector"]
    if not isinstance(selector, dict) or not _SELECTING.issuperset(selector):
        return _json(term)
    labels = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    labels += map(_requirement, selector.get("matchExpressions") or ())
    which = f"pods with {' and '.join(labels)}" if labels else "any pods"
    return f"{which}, by {term['topologyKey']}"


def _requirement(asked: Any) -> str:  # noqa: ANN401
    if not isinstance(asked, dict):
        return _json(asked)
    key, operator = asked.get("key"), str(asked.get("operator"))
    values = [str(value) for value in asked.get("values") or ()]
    if operator == "Exists":
        return f"{key} is there"
    if operator == "DoesNotExist":
        return f"{key} is not there"
    if operator in {"In", "NotIn"} and len(values) == 1:
        return f"{key}{'=' if operator == 'In' else '!='}{values[0]}"
    sign = _SIGNS.get(operator, operator)
    listed = f"({', '.join(values)})" if operator in {"In", "NotIn"} else ", ".join(values)
    return f"{key} {sign} {listed}"


def _json(value: Any) -> str:  # noqa: ANN401
    return msgspec.json.encode(value).decode()
