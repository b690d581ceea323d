"""Builds the list of pods that policies select, and the page of one pod with its fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.pages import policies
from harbourmaster.dashboard.pages.gates import GateRow, gate_of
from harbourmaster.dashboard.query import select_page
from harbourmaster.dashboard.sources import lookup
from harbourmaster.policies.explain import OWN, ExplainedPolicy, FieldReport, explain
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.dashboard.query import Listing, PageQuery
    from harbourmaster.dashboard.slicing import Sliced
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility

    Json = dict[str, Any]

PATH: Final = f"{policies.PATH}/pods"
_END: Final = re.compile(r"[.\[]")
SLICE: Final = 500
"""Pods that are matched before other tasks may run."""


def pods(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> Sliced[Listing[str]]:
    """List the keys of unfinished pods, or of those that the policy ``query.state`` selects."""
    scope, state = visible.of(PODS), query.state
    compiled = (policy.compiled for policy in policies.visible_policies(sources, visible))
    chosen = policy_set(policy for policy in compiled if policy.reference == state)
    keys = []
    for number, key in enumerate(tuple(sources.labels.store) if sources.labels else (), 1):
        if not number % SLICE:
            yield
        pod, space = lookup(sources.labels, key), key.partition("/")[0]
        labels = lookup(sources.namespaces, space) or {}
        if pod and scope.sees(space) and (not state or chosen.match(space, labels, pod.labels)):
            keys.append(key)
    return select_page(
        keys,
        query,
        namespace=lambda key: key.partition("/")[0],
        texts=lambda key: (key,),
        key=str,
        row=str,
        holds=bool,
    )


class FieldRow(Struct, frozen=True, gc=False):
    """A field of the pod, the policies that ask for its value, and its last writer."""

    report: FieldReport
    manager: Json | None
    """The entry of managedFields, which never has changes by admission."""


class PodPage(Struct, frozen=True):
    """The page of a pod."""

    created: str
    policies: tuple[str, ...]
    fields: tuple[FieldRow, ...]
    gate: GateRow | None
    """The reason why the pod waits; None if it does not wait."""


def pod(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> PodPage | None:
    """Build the page of the pod in the sources; None without it."""
    view = KINDS["", "v1", "Pod"].read(sources.pod) if sources.pod else None
    if sources.pod is None or view is None:
        return None
    metadata = msgspec.json.decode(sources.pod)["metadata"]
    candidates = [
        ExplainedPolicy(policy.compiled) for policy in policies.visible_policies(sources, visible)
    ]
    options = MergeOptions(node_name_as_field=bool(view.spec and view.spec.scheduling_gates))
    labels = lookup(sources.namespaces, query.namespace) or {}
    known = explain(view, "/spec", query.namespace, labels, candidates, options)
    return PodPage(
        metadata["creationTimestamp"],
        tuple(policy.reference for policy in known.policies if policy.matched),
        # The pod does not have the other fields: a policy would set them in a new pod.
        tuple(
            FieldRow(field, _manager(field.path, metadata))
            for field in known.fields
            if field.set_by == (OWN,)
        ),
        gate_of(sources, visible, f"{query.namespace}/{query.name}", now),
    )


def _manager(path: str, metadata: Json) -> Json | None:
    name = f"f:{_END.split(path)[1]}"
    managers = [
        {"time": "", **field}
        for field in metadata.get("managedFields", ())
        if name in field.get("fieldsV1", {}).get("f:spec", ())
    ]
    return max(managers, key=lambda manager: manager["time"], default=None)
