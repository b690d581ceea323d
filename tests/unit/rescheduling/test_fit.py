from __future__ import annotations

import json

import pytest

from harbourmaster.api.selectors import EVERYTHING, Matcher
from harbourmaster.rescheduling.anti_affinity import keeps_apart, rivals
from harbourmaster.rescheduling.fit import (
    CORDONED,
    DELETING,
    KEPT_APART,
    KEPT_APART_ELSEWHERE,
    NOT_READY,
    NOT_SELECTED,
    NOT_TOLERATING,
    OTHER_NODE,
    TOO_MANY_PODS,
    UNKNOWN_DOMAINS,
    UNKNOWN_NAMESPACE,
    fits,
    resource_reasons,
    static_reasons,
)
from harbourmaster.rescheduling.model import (
    FitVerdict,
    HostPort,
    Node,
    NodeRequirement,
    NodeTerm,
    PendingPod,
    Pod,
    PodTerm,
    Taint,
    Toleration,
)
from harbourmaster.rescheduling.node_affinity import is_readable, is_readable_field, matches
from helpers.fit_cases import AMONG_DOMAINS, CASES, KNOWN, verdict
from helpers.planning import spread

HOST, ZONE = "kubernetes.io/hostname", "zone"
EXISTS = Toleration(operator="Exists")
SYSTEM = Toleration("CriticalAddonsOnly", "Exists")


def node(name="n1", **given):
    given = {"allocatable": {"cpu": 1000, "memory": 100, "pods": 3}, **given}
    return Node(name=name, labels={HOST: name, ZONE: "z"}, **given)


def pod(uid="u", **given):
    return Pod(**{"uid": uid, "namespace": "shop", "name": uid, **given})


def pending(*tolerations, where=None, **given):
    return PendingPod(pod=pod("new", **given), tolerations=tolerations, **(where or {}))


def term(topology=HOST, selector=EVERYTHING, namespaces=("shop",), namespace_selector=None):
    return PodTerm(selector, frozenset(namespaces), namespace_selector, topology)


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        (node(), ()),
        (node(is_ready=False), (NOT_READY,)),
        (node(is_deleting=True), (DELETING,)),
        (node(is_cordoned=True, is_ready=False), (NOT_READY, CORDONED)),
        (node(taints=(Taint("a", "b", "NoSchedule"),)), ("untolerated taint a=b:NoSchedule",)),
        (node(taints=(Taint("a", "", "NoExecute"),)), ("untolerated taint a:NoExecute",)),
        (node(taints=(Taint("a", "b", "PreferNoSchedule"),)), ()),
    ],
)
def test_nodes_that_are_out_of_the_question(given, reasons):
    assert static_reasons(pending(SYSTEM), given) == reasons


def test_a_pod_that_needs_another_node():
    assert static_reasons(pending(SYSTEM, where={"node_name": "n2"}), node()) == (OTHER_NODE,)
    assert static_reasons(pending(SYSTEM, where={"node_name": "n1"}), node()) == ()
    for where in (
        {"node_terms": (NodeTerm(),)},
        {"node_terms": ()},
        {"node_selector": (("a", ""),)},
    ):
        assert static_reasons(pending(SYSTEM, where=where), node()) == (NOT_SELECTED,)


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    ],
)
def test_nodes_that_are_about_to_go_whatever_is_tolerated(key):
    """No toleration helps there (rescheduler-spec 6.2)."""
    tainted = node(taints=(Taint(key, "1", "NoSchedule"),))
    for tolerations in ((EXISTS,), (SYSTEM,)):
        (reason,) = static_reasons(pending(*tolerations), tainted)
        assert reason == f"node is about to go: taint {key}=1:NoSchedule"
    assert fits(pending(EXISTS), tainted, ()).fits is False


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (SYSTEM, True),
        (EXISTS, True),
        (Toleration("CriticalAddonsOnly", "Exists", effect="NoSchedule"), True),
        (Toleration("CriticalAddonsOnly", "Exists", effect="NoExecute"), False),
        (Toleration("CriticalAddonsOnly", "Equal", "true"), False),
        (Toleration("CriticalAddonsOnly"), False),
        (Toleration("CriticalAddonsOnly", "Gt", "1"), False),
        (Toleration("CriticalAddonsOnly", "Lt", "1"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_the_taint_of_a_reservation_is_imagined(toleration, is_tolerated):
    expected = () if is_tolerated else (NOT_TOLERATING,)
    assert static_reasons(pending(toleration), node()) == expected
    assert static_reasons(pending(toleration), node(), reserving=False) == ()
    assert fits(pending(toleration), node(), ()) == FitVerdict(True)


def test_the_taint_of_a_reservation_may_have_another_key():
    own = Toleration("own", "Exists")
    assert static_reasons(pending(own), node(), taint_key="own") == ()
    assert static_reasons(pending(SYSTEM), node(), taint_key="own") == (NOT_TOLERATING,)


def test_a_foreign_taint_of_the_key_replaces_that_of_a_reservation():
    foreign = node(taints=(Taint("CriticalAddonsOnly", "true", "NoSchedule"),))
    equal = pending(Toleration("CriticalAddonsOnly", "Equal", "true"))
    assert static_reasons(equal, foreign) == ()
    assert static_reasons(pending(SYSTEM), foreign) == ()
    harsher = node(taints=(Taint("CriticalAddonsOnly", "true", "NoExecute"),))
    assert static_reasons(equal, harsher) == (NOT_TOLERATING,)


@pytest.mark.parametrize("operator", ["Gt", "Lt", "exists", "=="])
def test_operators_that_match_nothing(operator):
    tainted = node(taints=(Taint("a", "5", "NoSchedule"),))
    assert static_reasons(pending(SYSTEM, Toleration("a", operator, "5")), tainted)


def test_what_a_node_lacks():
    used = {"cpu": 500, "memory": 200}
    assert resource_reasons((("cpu", 500),), node(), used, 2) == ()
    assert resource_reasons((("cpu", 501),), node(), used, 3) == ("too little cpu", TOO_MANY_PODS)
    requests = (("example.com/gpu", 1), ("memory", 1))
    assert resource_reasons(requests, node(), used, 0) == (
        "too little example.com/gpu",
        "too little memory",
    )
    assert resource_reasons((), Node(name="n"), {}, 0) == (TOO_MANY_PODS,)


def test_each_reason_is_reported_once():
    port = HostPort("TCP", "", 80)
    present = pod("a", requests=(("cpu", 900),), ports=(port,), anti_affinity=(term(),))
    new = pending(requests=(("cpu", 200),), ports=(port, port))
    verdict = fits(new, node(is_ready=False), [present, present])
    assert verdict == FitVerdict(
        False, (NOT_READY, "too little cpu", "host port 80/TCP is taken", KEPT_APART)
    )


def test_the_pod_itself_and_finished_ones_do_not_count():
    full = (("cpu", 1000),)
    new = pending(requests=full)
    assert fits(new, node(), [pod("new", requests=full)]).fits
    assert fits(new, node(), [pod("old", requests=full, phase="Succeeded")]).fits
    assert fits(new, node(), [pod("old", requests=full, deletion=1.0)]).fits is False
    nameless = PendingPod(pod=pod("", requests=full))
    assert fits(nameless, node(), [pod("", requests=full)]).fits is False


def test_unsupported_constraints_are_reported_if_nothing_else_fails():
    new = pending(requests=(("cpu", 1000),), where={"unsupported": ("volumes", "pod affinity")})
    assert fits(new, node(), ()) == FitVerdict(
        None, ("not judged: volumes", "not judged: pod affinity")
    )
    assert fits(new, node(), [pod(requests=(("cpu", 1),))]) == FitVerdict(
        False, ("too little cpu",)
    )


TEAM = Matcher(one_of=(("team", frozenset(("a",))),))
NAMED = Matcher(one_of=(("kubernetes.io/metadata.name", frozenset(("shop",))),))


@pytest.mark.parametrize(
    ("selector", "namespaces", "expected"),
    [
        (None, {}, False),
        (EVERYTHING, {}, True),
        (TEAM, {}, None),
        (TEAM, {"other": {"team": "a"}}, None),
        (TEAM, {"shop": {"team": "a"}}, True),
        (TEAM, {"shop": {}}, False),
        (NAMED, {}, True),
        (Matcher(none_of=NAMED.one_of), {}, False),
        (Matcher(absent=("team",)), {}, None),
        (Matcher(present=("team",)), {}, None),
    ],
)
def test_namespaces_that_are_not_known(selector, namespaces, expected):
    distant = pod("a", namespace="far", anti_affinity=(term(ZONE, EVERYTHING, (), selector),))
    assert keeps_apart(pod(), distant, node(), namespaces) is expected
    assert keeps_apart(distant, pod(), node(), namespaces) is expected
    verdict = fits(pending(), node(), [distant], namespaces=namespaces)
    assert verdict.fits is (None if expected is None else not expected)
    elsewhere = rivals(pod("new"), [(distant, node("n2"))], namespaces)
    assert elsewhere.are_elsewhere(node()) is expected
    assert fits(pending(), node(), (), rivals=elsewhere).fits is verdict.fits


def test_an_unknown_namespace_is_reported():
    distant = pod("a", namespace="far", anti_affinity=(term(ZONE, EVERYTHING, (), TEAM),))
    assert fits(pending(), node(), [distant]) == FitVerdict(None, (UNKNOWN_NAMESPACE,))
    certain = pod("b", anti_affinity=(term(),))
    assert fits(pending(), node(), [distant, certain]) == FitVerdict(False, (KEPT_APART,))


def test_rivals_on_other_nodes_of_the_domain():
    apart = pod("a", anti_affinity=(term(ZONE),))
    finished = pod("b", anti_affinity=(term(ZONE),), phase="Failed")
    there = rivals(pod("new"), [(apart, node("n2"))], {})
    assert fits(pending(), node(), (), rivals=there) == FitVerdict(False, (KEPT_APART_ELSEWHERE,))
    # On the node itself they may be moved.
    assert fits(pending(), node("n2"), (), rivals=there) == FitVerdict(True)
    zoneless = Node(name="n3", allocatable={"pods": 1})
    assert fits(pending(), zoneless, (), rivals=there) == FitVerdict(True)
    assert not rivals(pod("new"), [(finished, node("n2"))], {}).are_elsewhere(node())
    assert not rivals(pod("a"), [(apart, node("n2"))], {}).are_elsewhere(node())
    by_host = rivals(pod("new"), [(pod("c", anti_affinity=(term(),)), node("n2"))], {})
    assert not by_host.are_elsewhere(node())
    both = rivals(pod("new"), [(apart, node("n1")), (apart, node("n2"))], {})
    assert both.are_elsewhere(node("n1"))


def test_rivals_are_those_of_both_directions():
    new = pod("new", anti_affinity=(term(ZONE, Matcher(present=("app",))),))
    assert rivals(new, [(pod("a", labels={"app": ""}), node("n2"))], {}).are_elsewhere(node())
    assert not rivals(new, [(pod("a"), node("n2"))], {}).are_elsewhere(node())


def test_a_taint_is_shown_as_kubectl_does():
    assert json.dumps([str(Taint("a", "b", "NoSchedule")), str(Taint("a", "", "NoExecute"))]) == (
        '["a=b:NoSchedule", "a:NoExecute"]'
    )


POD = Pod(uid="u", namespace="shop", name="p")


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("a",), True),
        ("In", (), False),
        ("In", ("a", "not a value"), False),
        ("In", ("",), True),
        ("NotIn", ("a", "b"), True),
        ("NotIn", (), False),
        ("NotIn", ("-a",), False),
        ("Exists", (), True),
        ("Exists", ("a",), False),
        ("DoesNotExist", (), True),
        ("DoesNotExist", ("a",), False),
        ("Gt", ("1",), True),
        ("Gt", ("01",), True),
        ("Gt", (str(2**63 - 1),), True),
        ("Gt", (str(2**63),), False),
        ("Gt", ("1" * 5000,), False),
        ("Gt", ("-1",), False),
        ("Gt", ("1_0",), False),
        ("Gt", ("\u0661",), False),
        ("Gt", (" 1",), False),
        ("Lt", ("1", "2"), False),
        ("Lt", (), False),
        ("Lt", ("1.5",), False),
        ("Is", ("a",), False),
        ("", ("a",), False),
    ],
)
def test_valid_expressions_are_those_of_the_scheduler(operator, values, expected):
    assert is_readable(NodeRequirement("example.com/a", operator, values)) is expected
    assert not is_readable(NodeRequirement("no key", operator, values))


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("metadata.name", "In", ("n",), True),
        ("metadata.name", "NotIn", ("n",), True),
        ("metadata.name", "Exists", ("n",), False),
        ("metadata.name", "In", ("n", "m"), False),
        ("metadata.name", "In", (), False),
        ("spec.unschedulable", "In", ("n",), False),
    ],
)
def test_fields_that_the_scheduler_can_read(key, operator, values, expected):
    assert is_readable_field(NodeRequirement(key, operator, values)) is expected


@pytest.mark.parametrize(
    ("label", "operator", "expected"),
    [
        ("5", "Gt", False),
        ("6", "Gt", True),
        ("006", "Gt", True),
        ("4", "Lt", True),
        ("-4", "Lt", True),
        ("+4", "Lt", True),
        ("", "Lt", False),
        ("4x", "Lt", False),
        (str(2**63), "Gt", False),
        (str(-(2**63)), "Lt", True),
        (str(-(2**63) - 1), "Lt", False),
    ],
)
def test_numbers(label, operator, expected):
    term = NodeTerm((NodeRequirement("size", operator, ("5",)),))
    pending = PendingPod(pod=POD, node_terms=(term,))
    assert matches(pending, Node(name="n", labels={"size": label})) is expected


@pytest.mark.parametrize("case", [*CASES, *AMONG_DOMAINS], ids=lambda case: case.name)
def test_the_verdict_is_that_of_the_scheduler(case):
    node, present, pod = case.on("fit-1")
    for present_pod in present:
        if present_pod.pop("leaving", False):
            present_pod["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    judged = verdict(node, case.others_on("fit-1"), present, pod, KNOWN)
    assert (judged.fits, bool(judged.reasons)) == (case.fits, not case.fits), judged.reasons


def test_names_are_unique():
    names = [case.name for case in (*CASES, *AMONG_DOMAINS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "constraint", [{"spread": (spread({"app": "a"}),)}, {"affinity": (term(),)}], ids=str
)
def test_without_other_nodes_spread_and_affinity_are_not_judged(constraint):
    new = pending(where=constraint)
    assert fits(new, node(), ()) == FitVerdict(None, (UNKNOWN_DOMAINS,))
