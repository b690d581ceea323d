"""CEL of the tolerations of pods: the API server's defaults that policies replace.

The variable ``tolerationKeys`` has the keys of the pod's tolerations, ``replaced`` those of
defaults that are removed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from harbourmaster.policies.cel import literal, toleration
from harbourmaster.policies.tolerations import DEFAULTS, counting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.policies.cel import Cel
    from harbourmaster.policies.compiled import CompiledPolicy

_DEFAULT_KEYS: Final = {taint: toleration(item) for taint, item in DEFAULTS.items()}
_STAYS: Final = "!(variables.tolerationKeys[i] in variables.replaced)"
_INDEXES: Final = f"lists.range(variables.tolerations.size()).filter(i, {_STAYS})"
KEPT: Final = f"{_INDEXES}.map(i, variables.tolerations[i])"
"""The pod's tolerations without those that are replaced."""


def replaced(policies: Sequence[CompiledPolicy], matches: Cel) -> Cel:
    """Return the list ``replaced``; the first policy that covers a taint decides about its default.

    ``matches`` is a list that says which policies select the pod.
    """
    keys = []
    for taint, default in _DEFAULT_KEYS.items():
        replaces = [
            f"{matches}[{index}] ? {literal(toleration(item) != default)}"
            for index, policy in enumerate(policies)
            if (item := _covering(policy, taint)) is not None
        ]
        if replaces:
            covering = f"variables.tolerationKeys.filter(k, k.matches({literal(_pattern(taint))}))"
            counts = f"{covering}.indexOf({literal(default)}) == 0"
            decision = " : ".join((*replaces, "false"))
            keys.append(f"{counts} && ({decision}) ? [{literal(default)}] : []")
    return f"[{', '.join(keys)}].flatten()" if keys else "[]"


def lacks(key: str) -> Cel:
    """Whether a pod lacks the toleration with this key, after defaults were removed."""
    is_absent = f"!({literal(key)} in variables.tolerationKeys)"
    if key not in _DEFAULT_KEYS.values():
        return is_absent
    return f"({is_absent} || {literal(key)} in variables.replaced)"


def has_default(policy: CompiledPolicy) -> Iterator[Cel]:
    """Yield whether a pod has a default that the policy replaces, for each of them."""
    for taint, default in _DEFAULT_KEYS.items():
        if _covering(policy, taint) is not None:
            yield f"{literal(default)} in variables.replaced"


def _covering(policy: CompiledPolicy, taint: str) -> dict[str, object] | None:
    return counting([item for item, _ in policy.tolerations], taint)


def _pattern(taint: str) -> str:
    """A regular expression of the keys of tolerations that cover the taint, as ``covers``."""
    name = re.escape(taint)
    return rf"^(({name})?\|Exists\|[^|]*|{name}\|(Equal)?\|)\|(NoExecute)?\|"
