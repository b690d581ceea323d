"""The quick judgement of whether pods fit equals the one by every node and pod."""

from __future__ import annotations

import json
import random

import pytest

from harbourmaster.cli.preview.compare import Difference
from harbourmaster.cli.preview.fitting import Places
from harbourmaster.rescheduling.anti_affinity import rivals
from harbourmaster.rescheduling.decoding import decode_node, decode_pending, decode_present
from harbourmaster.rescheduling.fit import fits
from helpers.preview_cluster import HOST, bare, ready_node
from helpers.rescheduling.objects import container

APPS = ("a", "b")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def encode(value):
    return json.dumps(value).encode()


def apart(rng):
    """Anti-affinity to an app, in a domain and perhaps in other namespaces."""
    term = {
        "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
        "topologyKey": rng.choice([HOST, "zone"]),
    }
    more = rng.random()
    if more < 0.2:
        term["namespaceSelector"] = {}
    elif more < 0.3:
        term["namespaceSelector"] = {"matchLabels": {"team": "t"}}
    elif more < 0.5:
        term["namespaces"] = ["shop", "mall"]
    return {"podAntiAffinity": {REQUIRED: [term]}}


def spec(rng, cpu):
    spec = {"containers": [container(cpu, ports=[80] if rng.random() < 0.1 else ())]}
    if rng.random() < 0.4:
        spec["affinity"] = apart(rng)
    if rng.random() < 0.4:
        spec["nodeSelector"] = {"disk": rng.choice(["ssd", "hdd"])}
    if rng.random() < 0.1:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
    return spec


def random_cluster(rng):
    nodes = [
        ready_node(f"n{index}", rng.choice([1, 2, 4]), disk=rng.choice(["ssd", "hdd"]), zone="z")
        for index in range(rng.randint(1, 4))
    ]
    pods = []
    for index in range(rng.randint(1, 8)):
        app, place = rng.choice(APPS), rng.choice(["shop", "mall"])
        on = rng.choice([node["metadata"]["name"] for node in nodes] + [""])
        manifest = bare(f"p{index}", on, labels={"app": app}, place=place)
        manifest["spec"] |= spec(rng, rng.choice([0.5, 1, 2]))
        pods.append(manifest)
    return [decode_node(encode(manifest)) for manifest in nodes], [
        decode_present(encode(pod)) for pod in pods
    ]


def fits_by_trial(pending, nodes, pods, namespaces, without):
    """Whether it fits on any node, each tried."""
    neighbours = [pod for pod in pods if without is None or pod.uid != without.uid]
    by_name = {node.name: node for node in nodes}
    placed = [(pod, by_name[pod.node]) for pod in neighbours if pod.node]
    near = rivals(pending.pod, placed, namespaces)
    verdicts = {
        fits(
            pending,
            node,
            [pod for pod in neighbours if pod.node == node.name],
            rivals=near,
            namespaces=namespaces,
        ).fits
        for node in nodes
    }
    return True if True in verdicts else None if None in verdicts else False


@pytest.mark.parametrize("seed", range(400))
def test_the_fast_judgement_equals_trying_every_node(seed):
    rng = random.Random(seed)  # noqa: S311 - a fixed seed
    nodes, pods = random_cluster(rng)
    namespaces = {"shop": {"team": "t"}} if rng.random() < 0.5 else {}
    sides = []
    for _ in range(2):
        side = bare("new", labels={"app": "a"})
        side["spec"] = spec(rng, rng.choice([0.5, 1, 2, 3]))
        side["metadata"].pop("uid")
        sides.append(side)
    members = [pod for pod in pods if pod.labels == {"app": "a"} and pod.namespace == "shop"]
    fit = Places(nodes, pods, namespaces).judge(
        Difference((), (), *sides), members, is_daemon=False
    )
    pendings = [decode_pending(encode(side)) for side in sides]
    verdicts = [
        tuple(fits_by_trial(pending, nodes, pods, namespaces, pod) for pending in pendings)
        for pod in members or [None]
    ]
    assert fit.pods == len(verdicts)
    assert fit.lost == sum(now is not False and then is False for now, then in verdicts)
    assert fit.already == sum(now is False and then is False for now, then in verdicts)
    assert fit.gained == sum(now is False and then is True for now, then in verdicts)
    assert fit.unjudged == sum(then is None for _, then in verdicts)
    assert bool(fit.reasons) is bool(fit.lost)


def judge(now, then, pods, nodes, **options):
    decoded = [decode_present(encode(pod)) for pod in pods]
    places = Places([decode_node(encode(node)) for node in nodes], decoded, {})
    return places.judge(Difference((), (), now, then), decoded, **{"is_daemon": False, **options})


def test_a_pod_can_use_the_room_that_it_frees():
    nodes = [ready_node("n1", 1, disk="ssd")]
    web = bare("web", "n1", cpu=1)
    then = bare("web", cpu=1, nodeSelector={"disk": "ssd"})
    assert judge(bare("web", cpu=1), then, [web], nodes).lost == 0


def test_anti_affinity_is_evaluated_once_for_equal_pods(monkeypatch):
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": HOST,
        "namespaceSelector": {},
    }
    affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    nodes = [ready_node(f"n{index}") for index in range(11)]
    pods = [
        bare(f"web-{index}", f"n{index}", labels={"app": "web"}, affinity=affinity)
        for index in range(10)
    ]
    decoded = [decode_present(encode(manifest)) for manifest in pods]
    places = Places([decode_node(encode(node)) for node in nodes], decoded, {})
    asked = []

    def count_rivals(pod, placed, namespaces):
        listed = list(placed)
        asked.extend(listed)
        return rivals(pod, listed, namespaces)

    monkeypatch.setattr("harbourmaster.cli.preview.fitting.rivals", count_rivals)
    for index, other_pod in enumerate(decoded):
        sides = [
            bare(f"web-{index}", labels={"app": "web"}, affinity=affinity, nodeSelector=selector)
            for selector in ({}, {HOST: "n10"})
        ]
        for side in sides:
            del side["metadata"]["uid"]
        fit = places.judge(Difference((), (), *sides), [other_pod], is_daemon=False)
        assert (fit.pods, fit.already) == (1, 0)
    # Each of the ten alone, and all of them together; not so for each workload, by either policy.
    assert len(asked) == 20


def test_a_daemon_pod_is_judged_on_its_own_cordoned_node():
    nodes = [ready_node("n1", disk="ssd"), ready_node("n2"), ready_node("n3", disk="ssd")]
    nodes[0]["spec"]["unschedulable"] = True
    pods = [bare(f"d-{name}", name) for name in ("n1", "n2")]
    then = bare("d", nodeSelector={"disk": "ssd"})
    fit = judge(bare("d"), then, pods, nodes, is_daemon=True)
    assert (fit.pods, fit.lost) == (2, 1)


@pytest.mark.parametrize(("effect", "lost"), [("NoSchedule", 0), ("NoExecute", 1)])
def test_a_pod_with_a_node_name_ignores_taints_that_only_a_scheduler_honours(effect, lost):
    nodes = [ready_node("n1"), ready_node("n2")]
    nodes[1]["spec"] |= {"unschedulable": True, "taints": [{"key": "pool", "effect": effect}]}
    web = bare("web", "n1")
    then = bare("web", nodeName="n2")
    assert judge(bare("web"), then, [web], nodes).lost == lost


def test_a_pod_that_never_fitted_is_not_lost():
    fit = judge(
        bare("big", cpu=9),
        bare("big", cpu=9, nodeSelector={"disk": "ssd"}),
        [bare("big", cpu=9)],
        [ready_node("n1")],
    )
    assert (fit.already, fit.lost, fit.reasons) == (1, 0, {})


def test_a_pod_that_fits_only_now_is_gained():
    nodes = [ready_node("n1")]
    nodes[0]["spec"]["taints"] = [{"key": "pool", "value": "", "effect": "NoSchedule"}]
    then = bare("web", tolerations=[{"key": "pool", "operator": "Exists"}])
    assert judge(bare("web"), then, [], nodes).gained == 1
