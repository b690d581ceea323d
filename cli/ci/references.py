"""Definitions that objects name, as far as they can be looked for among the given files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.gates.metadata import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = {
    r"(pre|post)-?deployment-?tasks|promotiontasks|functionref": "KeptnTaskDefinition",
    r"(pre|post)-?deployment-?evaluations": "KeptnEvaluationDefinition",
    "keptnmetricref": "KeptnMetric",
    "analysisdefinition": "AnalysisDefinition",
    "analysisvaluetemplateref": "AnalysisValueTemplate",
    "cloudref": "Cloud",
    "metrics": "GlobalMetric",
    "provider": "KeptnMetricsProvider",
}
"""By the fields of our kinds, and by Keptn's keys of workloads, in small letters."""
_PROVIDERS: Final = {"Metric": "MetricsProvider", "GlobalMetric": "GlobalMetricsProvider"}


def named_in(value: Any, owner: str, at: str = "") -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
    """The path, kind and name of each object that an object of ours names, or a workload's keys.

    ``owner`` is its kind, and empty for a workload.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from named_in(item, owner, f"{at}[{index}]")
    for field, below in value.items() if isinstance(value, dict) else ():
        path, key = f"{at}.{field}".lstrip("."), str(field).removeprefix("keptn.sh/").lower()
        found = (kind for each, kind in _KINDS.items() if re.fullmatch(each, key))
        kind = next(found, "") if owner or key != str(field).lower() else ""
        if kind:
            kind = _PROVIDERS.get(owner, kind) if field == "provider" else kind
            yield from _named(below, kind, path if owner else at)
        # Those of another cluster.
        elif field != "manifests":
            yield from named_in(below, owner, path)


def _named(value: object, kind: str, at: str) -> Iterator[tuple[str, str, str]]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            given = "Metric" if each.get("scope") == "Namespaced" else each.get("kind") or kind
            yield at, str(given), each["name"]
        elif isinstance(each, str) and kind != "GlobalMetric":
            yield from ((at, kind, name) for name in names_of(each))
