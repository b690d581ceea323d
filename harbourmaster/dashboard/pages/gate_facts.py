"""The facts about waiting pods, as far as a user may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harbourmaster.api.resources import (
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.check_facts import facts_in, with_version
from harbourmaster.lifecycle.wait_cycles import workload_of_pod
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import AppVersion

DETAILS: Final = (
    WORKLOADS,
    TASKS,
    TASK_DEFINITIONS,
    EVALUATIONS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
)
"""Kinds of which a report says that they were not read, unless the user is allowed to list them."""
DEFINITIONS: Final = (TASK_DEFINITIONS, EVALUATION_DEFINITIONS, KEPTN_METRICS)
"""Kinds whose objects may also be in a namespace that serves all others."""


class GateFactsReader:
    """Reads the facts about pods that a user is allowed to see from the sources of a page."""

    def __init__(self, sources: PageSources, visible: Visibility) -> None:
        self._sources = sources
        self._visible = visible
        self._by_namespace: dict[str, Facts] = {}
        self._apps: dict[tuple[str, str], list[AppVersion]] = {}
        for version in values(sources.app_versions):
            place = (version.metadata.namespace, version.spec.app_name)
            self._apps.setdefault(place, []).append(version)

    def facts(self, pod: Pod) -> Facts:
        """Return the facts about one pod."""
        namespace, waits = pod.namespace, self._sources.waits
        facts = self.facts_in(namespace)
        described = workload_of(pod.annotations, pod.labels)
        if described is not None:
            key = f"{namespace}/{names_of_pod(described).version}"
            version = self._find(WORKLOAD_VERSIONS, key)
            apps = self._apps.get((namespace, version.spec.app), ()) if version is not None else ()
            facts = with_version(facts, version, apps, self._find)
        if pod.wait_conditions is not None and waits is not None:
            cycle = waits.cycles(namespace).get(workload_of_pod(pod), "")
            facts = replace(facts, cycle=cycle)
        return facts

    def facts_in(self, namespace: str) -> Facts:
        """Return the facts about the checks and waits in a namespace."""
        if namespace not in self._by_namespace:
            places = tuple(dict.fromkeys((namespace, *self._sources.definition_namespaces)))
            waits = self._sources.waits
            self._by_namespace[namespace] = replace(
                facts_in(namespace, places, self._find),
                items=waits.reports(namespace) if waits is not None else {},
                unread=tuple(
                    kind.kind
                    for kind in DETAILS
                    if not all(
                        self._visible.sees(kind, place)
                        for place in (places if kind in DEFINITIONS else (namespace,))
                    )
                ),
            )
        return self._by_namespace[namespace]

    def _find(self, resource: Resource, key: str) -> Any:  # noqa: ANN401 - an object of that kind
        if not self._visible.sees(resource, key.partition("/")[0]):
            return None
        return lookup(self._sources.of(resource), key)
