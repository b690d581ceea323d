"""Words for the values of the fields that policies set. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harbourmaster.policies.model import PREFERRED, REQUIRED

_LONGEST: Final = 160
"""Characters of a value; the JSON output has all of it."""
_LONGEST_SENTENCE: Final = 500
_SELECTING: Final = frozenset(("matchLabels", "matchExpressions"))
_SIGNS: Final = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}
_BEGINNINGS: Final = {
    ".tolerations[": "tolerates ",
    f".nodeAffinity.{REQUIRED}": "only on nodes with ",
    f".nodeAffinity.{PREFERRED}": "rather on nodes with ",
    f".podAffinity.{REQUIRED}": "only near ",
    f".podAffinity.{PREFERRED}": "rather near ",
    f".podAntiAffinity.{REQUIRED}": "never near ",
    f".podAntiAffinity.{PREFERRED}": "rather not near ",
}


def format_value(path: str, value: Any) -> str:  # noqa: ANN401
    """The value of the field at ``path``."""
    return _cut(_format(path, value), _LONGEST)


def sentence(path: str, value: Any) -> str:  # noqa: ANN401 - a field in JSON
    """Return a sentence for a field such as ``spec.tolerations[0]``; a text is left as it is."""
    begins = next((begins for part, begins in _BEGINNINGS.items() if part in path), "")
    text = _format(path, value)
    return _cut(text if isinstance(value, str) else begins + text, _LONGEST_SENTENCE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _format(path: str, value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    if ".tolerations[" in path and isinstance(value, dict):
        return _toleration(value)
    if path.endswith(".nodeSelectorTerms") and isinstance(value, list | tuple):
        return " or ".join(_term(term) for term in value)
    if isinstance(value, dict):
        if value.keys() == {"weight", "preference"}:
            return f"{_term(value['preference'])} (weight {value['weight']})"
        if value.keys() == {"weight", "podAffinityTerm"}:
            return f"{_pod_term(value['podAffinityTerm'])} (weight {value['weight']})"
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
    return " and ".join(map(requirement, asked))


def _pod_term(term: Any) -> str:  # noqa: ANN401
    """Pods by their labels, and how near they are; anything more is left as it is."""
    if not isinstance(term, dict) or term.keys() != {"labelSelector", "topologyKey"}:
        return _json(term)
    selector = term["labelSelector"]
    if not isinstance(selector, dict) or not _SELECTING.issuperset(selector):
        return _json(term)
    labels = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    labels += map(requirement, selector.get("matchExpressions") or ())
    which = f"pods with {' and '.join(labels)}" if labels else "any pods"
    return f"{which}, by {term['topologyKey']}"


def requirement(asked: Any) -> str:  # noqa: ANN401
    """Return a requirement on labels, in JSON, in words."""
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
