"""Cases with pods of other nodes: topology spread and pod affinity (4.2, items 7 and 8).

A case has domains of its own, by a topology key that no node of another case has. Nothing but the
first node has room for another pod.
"""

from __future__ import annotations

import json

from harbourmaster.rescheduling.decoding import decode_node, decode_pending, decode_present
from harbourmaster.rescheduling.fit import fits
from harbourmaster.rescheduling.topology import Topology
from helpers.fitting import OTHER, a_case, expression, finished, leaving, pod

AREA, RACK = "@node.example.com/area", "@node.example.com/rack"
APP = {"app": "a"}
SELECTOR = {"matchLabels": APP}
CASES = []


def on(number, obj):
    """The pod on another node, the first of which is 1."""
    return {**obj, "spec": {**obj["spec"], "nodeName": f"@node-{number}"}}


def case(name, verdict, incoming, *present, own="x", others=("y",), labels=None, taints=()):  # noqa: PLR0913
    """One with these areas, and pods on its own node unless they are ``on`` another one.

    An area None is none. ``labels`` and ``taints`` are of the last of the other nodes.
    """
    made = []
    for number, area in enumerate(others, 1):
        there = [obj for obj in present if obj["spec"].get("nodeName") == f"@node-{number}"]
        is_last = number == len(others)
        case = a_case(
            "",
            True,
            {},
            allocatable={"pods": str(len(there))},
            labels={AREA: area, RACK: f"r{number}", **((is_last and labels) or {})},
            taints=taints if is_last else (),
        ).node
        text = json.dumps(case)
        made.append(json.loads(text.replace('"@node"', f'"@node-{number}"')))
    base = a_case(name, verdict, incoming, *present, labels={AREA: own, RACK: "r0"})
    CASES.append(base._replace(others=tuple(made)))


def of_app(**more):
    return pod(**{"labels": APP, **more})


def spreading(*constraints, labels=APP, **spec):
    """A pod with these constraints that must hold."""
    basic = {"maxSkew": 1, "topologyKey": AREA, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [
        {**basic, "labelSelector": SELECTOR, **constraint} for constraint in constraints or ({},)
    ]
    return pod(labels=labels, topologySpreadConstraints=spread, **spec)


case("spread: nobody yet", True, spreading())
case("spread: one here", False, spreading(), of_app())
case("spread: one there", True, spreading(), on(1, of_app()))
case("spread: one in each", True, spreading(), of_app(), on(1, of_app()))
case("spread: two here, one there", False, spreading(), of_app(), of_app(), on(1, of_app()))
case("spread: a skew of two", True, spreading({"maxSkew": 2}), of_app())
case("spread: a skew of two used up", False, spreading({"maxSkew": 2}), of_app(), of_app())
case("spread: of others, with one here", True, spreading(labels={}), of_app())
case("spread: of others, with two here", False, spreading(labels={}), of_app(), of_app())
case("spread: another namespace", True, spreading(), of_app(namespace=OTHER))
case("spread: other labels", True, spreading(), pod(labels={"app": "b"}))
case("spread: one that is leaving", True, spreading(), leaving(of_app()))
case("spread: one that is finished", True, spreading(), finished(of_app()))
case("spread: one in the same area", False, spreading(), on(1, of_app()), others=("x", "y"))
case("spread: the only area", True, spreading(), of_app(), of_app(), others=())
case(
    "spread: areas of several nodes",
    True,
    spreading(),
    of_app(),
    on(2, of_app()),
    others=("y", "y"),
)
case("spread: another node without an area", True, spreading(), of_app(), others=(None,))
case("spread: no area here", False, spreading(), own=None)
case(
    "spread: pods where there is no area",
    True,
    spreading(),
    on(1, of_app()),
    on(1, of_app()),
    others=(None,),
)
_TWO = ({}, {"topologyKey": RACK})
case("spread: two constraints", True, spreading(*_TWO))
case(
    "spread: two constraints, the second fails",
    False,
    spreading(*_TWO),
    of_app(),
    on(2, of_app()),
    others=("y", "y"),
    labels={RACK: "r0"},
)
case(
    "spread: an area without a rack does not count",
    True,
    spreading(*_TWO),
    of_app(),
    others=("y",),
    labels={RACK: None},
)
for _least, _fits in ((1, True), (2, True), (3, False)):
    case(
        f"spread: at least {_least} domains of two",
        _fits,
        spreading({"minDomains": _least}),
        of_app(),
        on(1, of_app()),
    )
case(
    "spread: at least three domains of two, none here",
    True,
    spreading({"minDomains": 3}),
    on(1, of_app()),
)
case("spread: any selector", True, spreading({"labelSelector": {}}), of_app(), of_app())
case("spread: no selector", True, spreading({"labelSelector": None}), of_app(), of_app())
_HASHED = {"matchLabelKeys": ["hash"]}
case(
    "spread: another revision",
    True,
    spreading(_HASHED, labels={**APP, "hash": "1"}),
    of_app(labels={**APP, "hash": "2"}),
)
case(
    "spread: the same revision",
    False,
    spreading(_HASHED, labels={**APP, "hash": "1"}),
    of_app(labels={**APP, "hash": "1"}),
)
case(
    "spread: a revision without a hash",
    False,
    spreading(_HASHED),
    of_app(labels={**APP, "hash": "1"}),
)
case(
    "spread: any selector with a revision",
    False,
    spreading({**_HASHED, "labelSelector": {}}, labels={"hash": "1"}),
    pod(labels={"hash": "1"}),
)
_SSD = {"nodeSelectorTerms": [{"matchExpressions": [expression("disk", "NotIn", "hdd")]}]}
_NEEDS_SSD = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _SSD}}
for _policy, _fits in ((None, True), ("Honor", True), ("Ignore", False)):
    _given = {"nodeAffinityPolicy": _policy} if _policy else {}
    case(
        f"spread: a node that is not selected, {_policy}",
        _fits,
        spreading(_given, affinity=_NEEDS_SSD),
        of_app(),
        labels={"disk": "hdd"},
    )
_TAINT = {"key": "example.com/kept", "effect": "NoSchedule"}
for _policy, _fits in ((None, False), ("Honor", True), ("Ignore", False)):
    _given = {"nodeTaintsPolicy": _policy} if _policy else {}
    case(f"spread: a tainted node, {_policy}", _fits, spreading(_given), of_app(), taints=[_TAINT])
case(
    "spread: a tainted node that is tolerated",
    False,
    spreading({"nodeTaintsPolicy": "Honor"}, tolerations=[{"operator": "Exists"}]),
    of_app(),
    taints=[_TAINT],
)
case("spread: a wish", True, spreading({"whenUnsatisfiable": "ScheduleAnyway"}), of_app())


def near(*terms, labels=None, **spec):
    """A pod that must be near those of the app, or those that its terms select."""
    basic = {"topologyKey": AREA, "labelSelector": SELECTOR}
    required = [{**basic, **term} for term in terms or ({},)]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod(labels=labels or {}, affinity=affinity, **spec)


case("near: nobody", False, near())
case("near: one here", True, near(), of_app())
case("near: one in the area", True, near(), on(1, of_app()), others=("x",))
case("near: one in another area", False, near(), on(1, of_app()))
case("near: another namespace", False, near(), of_app(namespace=OTHER))
case("near: a named namespace", True, near({"namespaces": [OTHER]}), of_app(namespace=OTHER))
_TEAM = {"namespaceSelector": {"matchLabels": {"example.com/team": "b"}}}
case("near: a selected namespace", True, near(_TEAM), of_app(namespace=OTHER))
case("near: a namespace that is not selected", False, near(_TEAM), of_app())
case("near: all namespaces", True, near({"namespaceSelector": {}}), of_app(namespace=OTHER))
case("near: one that is finished", False, near(), finished(of_app()))
case("near: no area", False, near(), of_app(), own=None)
case("near: itself, as the first", True, near(labels=APP))
case("near: itself, with one elsewhere", False, near(labels=APP), on(1, of_app()))
case("near: itself, with one in no area", True, near(labels=APP), on(1, of_app()), others=(None,))
case(
    "near: itself, with one in another namespace",
    True,
    near(labels=APP),
    on(1, of_app(namespace=OTHER)),
)
case("near: itself, in no area", False, near(labels=APP), own=None)
_FRONT = {"labelSelector": {"matchLabels": {"tier": "front"}}}
case("near: two terms of one pod", True, near({}, _FRONT), of_app(labels={**APP, "tier": "front"}))
case(
    "near: two terms of two pods", False, near({}, _FRONT), of_app(), pod(labels={"tier": "front"})
)
_RACKS = ({}, {"topologyKey": RACK})
case("near: in two topologies", True, near(*_RACKS), of_app())
case("near: in one of two topologies", False, near(*_RACKS), on(1, of_app()), others=("x",))
case(
    "near: in two topologies by two pods",
    True,
    near(*_RACKS),
    on(1, of_app()),
    on(2, of_app()),
    others=("x", "y"),
    labels={RACK: "r0"},
)
case("near: itself in two topologies", True, near(*_RACKS, labels=APP))
case(
    "near: itself by a negative selector",
    True,
    near(
        {"labelSelector": {"matchExpressions": [expression("app", "NotIn", "a")]}},
        labels={"app": "q"},
    ),
    of_app(),
)
case("near: a wish of who is there", True, pod(), near(labels=APP))
case(
    "near and spread",
    True,
    spreading(affinity=near()["spec"]["affinity"]),
    of_app(),
    on(1, of_app()),
)
case("near, but spread", False, spreading(affinity=near()["spec"]["affinity"]), of_app())


def verdict(node, others, present, pending, namespaces):
    """The result of our fit check, given the objects as JSON."""
    nodes = {
        decoded.name: decoded for decoded in (decode_node(manifest) for manifest in (node, *others))
    }
    target, pod_ = nodes[json.loads(node)["metadata"]["name"]], decode_pending(pending)
    running = [
        placed_pod for placed_pod in map(decode_present, present) if not placed_pod.is_finished
    ]
    placed = [(placed_pod, nodes[placed_pod.node or target.name]) for placed_pod in running]
    beside = [placed_pod for placed_pod, where in placed if where is target]
    topology = Topology(pod_, nodes.values(), placed, namespaces)
    return fits(pod_, target, beside, topology=topology, namespaces=namespaces)
