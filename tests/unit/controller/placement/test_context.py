from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.controller.placement.context import AppliedManifests
from harbourmaster.controller.placement.sending import Applied
from harbourmaster.controller.placement.watches import MemberWatches, Seen
from harbourmaster.kube.streams import WatchEvent
from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.manifests import UID_LABEL, Item, Prepared
from harbourmaster.placement.readiness import READY
from helpers.placement_flow import deployment

REF = ObjectRef(api_version="apps/v1", kind="Deployment", name="web", uid="u")


def seen(scaled, fields="f"):
    return Seen("u", "a", fields, READY, scaled)


@pytest.mark.parametrize(
    ("before", "answer", "watched", "scaled"),
    [
        # The watch showed the autoscaler first, and our apply changed nothing.
        (seen(8), seen(8), seen(8), 8),
        # The manifest's number was applied over it, which the watch does not show yet.
        (seen(8), seen(None, "g"), seen(8), None),
        (seen(None), seen(None), seen(8), 8),
        (seen(None), seen(5), None, None),
    ],
)
def test_replicas_of_others_are_observed_in_the_newest_state(before, answer, watched, scaled):
    """krake-spec 7.8."""
    watches = SimpleNamespace(
        get=lambda *_: watched, has_finished=lambda _uid: False, was_removed=lambda _uid: False
    )
    manifest = deployment("web")
    prepared = Prepared(items=(Item(REF, manifest),))
    applied = AppliedManifests(SimpleNamespace(watches=watches), prepared, 0.0)
    applied.record((Applied(REF, DEPLOYMENTS, answer, before),))
    applied.read_watches()
    observed = applied.observe({}, "one").get(REF.key)
    assert (None if observed is None else observed.scaled) == scaled


async def test_an_object_that_is_deleted_as_soon_as_it_is_added_is_noticed():
    changed = []
    watches = MemberWatches(None, lambda _run: None, changed.append)
    watches.follow(DEPLOYMENTS)
    metadata = {"name": "web", "namespace": "team", "uid": "u", "labels": {UID_LABEL: "a"}}
    raw = msgspec.json.encode({"metadata": metadata})
    mirror = watches._mirrors[DEPLOYMENTS]
    for kind in ("ADDED", "DELETED"):
        mirror._apply(WatchEvent(kind, msgspec.Raw(raw)))
    mirror._flush()
    assert changed == [frozenset("a")]
    assert watches.was_removed("u")
    applied = AppliedManifests(SimpleNamespace(watches=watches), Prepared(), 0.0)
    applied.record((Applied(REF, DEPLOYMENTS, seen(None), None),))
    applied.read_watches()
    assert applied.drift == "Deployment web was deleted"
