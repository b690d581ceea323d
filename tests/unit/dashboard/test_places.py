"""The namespaces that are checked for a user with few permissions, and notes about the rest."""

from __future__ import annotations

import re

from harbourmaster.dashboard.visibility import MOST_NAMESPACES
from helpers.dashboard_stores import StaticSource

HOME = "harbour"


async def test_pods_are_counted_where_none_waits(place):
    filled = place.filled
    for namespace in ("shop", "payments"):
        filled.namespace(namespace)
        filled.policy(namespace, "keep-all", 0, podSelector={}, schedulerName="other")
        filled.pod(namespace, {"app": "cart"})
    filled.app("payments", "checkout", 1)
    filled.gated("payments", "checkout")
    place.access.namespaces["sailor"] = frozenset(("shop", "payments"))
    text = await place.page("/policies", "sailor")
    assert "in the namespaces in which you may list them: 2 in all" in text
    assert len(re.findall(r'href="/policies/pods\?state=[^"]+">1<', text)) == 2
    assert "2 in all" in await place.page("/policies")


async def test_a_pod_is_seen_that_waits_where_nothing_else_is_yet(place):
    filled = place.filled
    for namespace in ("shop", "payments"):
        filled.namespace(namespace)
    filled.app("payments", "checkout", 1)
    filled.gated("payments", "checkout")
    filled.gated("shop", "newcomer")
    place.access.namespaces["sailor"] = frozenset(("shop", "payments"))
    assert "newcomer" in await place.page("/gates", "sailor")
    assert "2</b> <span>pods wait" in await place.page("/", "sailor")


async def test_what_is_missing_is_told_to_who_may_list_it_and_to_nobody_else(place, monkeypatch):
    filled = place.filled
    filled.app("shop", "cart", 1)
    filled.gated("shop", "cart")
    definitions = filled.sources["evaluation_definitions"]
    definition = definitions.store.get("shop/latency")
    for name in ("latency", "errors"):
        filled.remove("evaluation_definitions", f"shop/{name}")
    missing = "KeptnEvaluationDefinition latency not found"
    assert missing in await place.page("/gates")
    assert missing in await place.page("/gates", "sailor")
    # It may be in the namespace for all, which the sailor can't see.
    world = filled.world

    async def at_home(**settings):
        made = await world(**settings)
        object.__setattr__(made, "definition_namespaces", (HOME,))
        return made

    monkeypatch.setattr(place.filled.dashboard, "_read_sources", at_home)
    definitions.store.put(f"{HOME}/latency", definition)
    for path in ("/gates", "/gates?namespace=shop"):
        assert missing not in await place.page(path, "sailor")
        assert "&lt;200" not in await place.page(path, "sailor")
    place.access.namespaces["sailor"] = frozenset(("shop", HOME))
    for path in ("/gates", "/gates?namespace=shop"):
        assert "&lt;200" in await place.page(path, "sailor"), path


async def test_a_refusal_says_that_not_all_namespaces_were_asked_about(place):
    for number in range(MOST_NAMESPACES + 5):
        place.filled.namespace(f"ns-{number:05}")
    place.access.namespaces["sailor"] = frozenset((f"ns-{MOST_NAMESPACES + 2:05}",))
    text = await place.page("/policies", "sailor", status=403)
    assert "5 were too many" in text
    assert "/policies?namespace=NAME" in text
    await place.page(f"/policies?namespace=ns-{MOST_NAMESPACES + 2:05}", "sailor")
    assert "in the whole cluster" in await place.page("/reservations", "sailor", status=403)


async def test_pods_that_are_not_all_here_are_not_counted(place, monkeypatch):
    filled = place.filled
    filled.namespace("shop")
    filled.policy("shop", "keep-all", 0, podSelector={})
    labels = StaticSource(filled.pods)
    labels.synced.clear()
    filled.counter._is_whole = labels.synced.is_set
    filled.sources["labels"] = labels
    text = await place.page("/policies")
    assert "The pods are being listed" in text
    assert "not counted yet" in text
    assert "without a pod" not in text
    assert "without a pod" not in await place.page("/")
    labels.synced.set()
    text = await place.page("/policies")
    assert "being read" not in text
    assert "without a pod" in text


async def test_a_kind_that_is_not_there_or_switched_off_is_told(place):
    place.filled.sources["cluster_policies"].absent = True
    for path in ("/", "/policies"):
        text = await place.page(path)
        assert "The kind ClusterPodSchedulingPolicy is not installed" in text
    place.filled.sources["app_versions"] = None
    assert "their controller is switched off" in await place.page("/applications")
    assert "Off in this controller" in await place.page("/")
