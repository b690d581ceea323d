"""A pod that fits also fits where more is free, and no JSON breaks the reader."""

from __future__ import annotations

import copy
import json
from fractions import Fraction

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.selectors import Matcher
from harbourmaster.cli.lines import answer_lines
from harbourmaster.cli.reschedule.fit import judge
from harbourmaster.rescheduling.anti_affinity import rivals
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pod,
)
from harbourmaster.rescheduling.fit import fits
from harbourmaster.rescheduling.model import (
    HostPort,
    Node,
    PendingPod,
    Pod,
    PodTerm,
    Taint,
    Toleration,
)
from harbourmaster.rescheduling.requests import Asking, Container, Resources, effective
from helpers.fit_cases import CASES, KNOWN
from helpers.properties import cases

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "x", "y"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
AMOUNTS = st.integers(0, 6)
RESOURCES = st.sampled_from(["cpu", "memory", "example.com/gpu"])
REQUESTS = st.dictionaries(RESOURCES, st.integers(1, 4), max_size=3).map(
    lambda value: tuple(sorted(value.items()))
)
PORTS = st.lists(
    st.builds(
        HostPort,
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from(["", "::", "192.0.2.1"]),
        st.integers(1, 3),
    ),
    max_size=2,
).map(tuple)
SPACES = st.sampled_from(["one", "two"])
SELECTORS = st.builds(
    Matcher,
    one_of=st.lists(st.tuples(KEYS, st.frozensets(VALUES)), max_size=1).map(tuple),
    absent=st.lists(KEYS, max_size=1).map(tuple),
)
TERMS = st.lists(
    st.builds(
        PodTerm,
        st.none() | SELECTORS,
        st.frozensets(SPACES),
        st.none() | SELECTORS,
        KEYS,
    ),
    max_size=2,
).map(tuple)
SPACE_LABELS = st.dictionaries(SPACES, LABELS, max_size=2)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(st.builds(Taint, KEYS, VALUES, EFFECTS), max_size=2).map(tuple)
TOLERATIONS = st.builds(
    Toleration,
    st.just("") | KEYS,
    st.sampled_from(["", "Equal", "Exists", "Gt"]),
    VALUES,
    st.just("") | EFFECTS,
)


@st.composite
def pods(draw, uid):
    return Pod(
        uid=uid,
        namespace=draw(SPACES),
        name=uid,
        labels=draw(LABELS),
        requests=draw(REQUESTS),
        ports=draw(PORTS),
        phase=draw(st.sampled_from(["Running", "Pending", "Succeeded"])),
        anti_affinity=draw(TERMS),
    )


@st.composite
def worlds(draw):
    """A waiting pod, a node, and what is on it."""
    present = [draw(pods(f"p{number}")) for number in range(draw(st.integers(0, 4)))]
    pending = PendingPod(
        pod=draw(pods("new")),
        tolerations=tuple(draw(st.lists(TOLERATIONS, max_size=2))),
        unsupported=draw(st.sampled_from([(), (), ("volumes",)])),
    )
    amounts = draw(st.dictionaries(RESOURCES, st.integers(0, 12), max_size=3))
    node = Node(
        name="n",
        labels=draw(LABELS),
        taints=draw(TAINTS),
        allocatable={**amounts, "pods": draw(st.integers(0, 5))},
    )
    return pending, node, present


RANK = {False: 0, None: 1, True: 2}


@settings(max_examples=cases(300))
@given(worlds(), SPACE_LABELS, st.data())
def test_less_on_the_node_is_never_worse(world, namespaces, data):
    pending, node, present = world
    before = fits(pending, node, present, namespaces=namespaces)
    fewer = data.draw(st.lists(st.sampled_from(present), unique_by=id)) if present else []
    after = fits(pending, node, fewer, namespaces=namespaces)
    assert RANK[after.fits] >= RANK[before.fits]
    # Whoever is gone has nothing to say elsewhere either.
    elsewhere = rivals(
        pending.pod, [(pod, Node(name="m", labels=node.labels)) for pod in present], {}
    )
    assert (
        RANK[fits(pending, node, fewer, rivals=elsewhere).fits]
        <= RANK[fits(pending, node, fewer).fits]
    )


@settings(max_examples=cases(300))
@given(worlds(), SPACE_LABELS, TOLERATIONS, st.data())
def test_more_room_and_more_patience_are_never_worse(world, namespaces, toleration, data):
    pending, node, present = world
    before = fits(pending, node, present, namespaces=namespaces)
    larger = {
        name: node.allocatable.get(name, 0) + data.draw(AMOUNTS)
        for name in (*node.allocatable, "cpu", "pods")
    }
    roomier = msgspec.structs.replace(node, allocatable=larger)
    patient = msgspec.structs.replace(pending, tolerations=(*pending.tolerations, toleration))
    for after in (
        fits(pending, roomier, present, namespaces=namespaces),
        fits(patient, node, present, namespaces=namespaces),
        fits(pending, node, list(reversed(present)), namespaces=namespaces),
    ):
        assert RANK[after.fits] >= RANK[before.fits]
        assert bool(after.reasons) is (after.fits is not True)


@settings(max_examples=cases(300))
@given(worlds(), SPACE_LABELS)
def test_what_is_added_up_is_what_is_there(world, namespaces):
    """The resources alone, recounted in the simplest way."""
    pending, node, present = world
    verdict = fits(pending, node, present, namespaces=namespaces)
    running = [pod for pod in present if pod.phase != "Succeeded"]
    asked = dict(pending.pod.requests)
    lacking = [
        name
        for name in asked
        if asked[name] + sum(dict(pod.requests).get(name, 0) for pod in running)
        > node.allocatable.get(name, 0)
    ]
    assert [reason for reason in verdict.reasons if reason.startswith("too little")] == [
        f"too little {name}" for name in sorted(lacking)
    ]
    assert ("too many pods" in verdict.reasons) is (len(running) >= node.allocatable["pods"])


QUANTITIES = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(0, 2000),
    st.sampled_from(["", "m", "u", "k", "Ki", "e1"]),
)
SIZES = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "u": Fraction(1, 10**6),
    "k": Fraction(1000),
    "Ki": Fraction(1024),
    "e1": Fraction(10),
}
ASKED = st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES, max_size=2)
LISTS = st.lists(st.tuples(ASKED, st.booleans()), max_size=4)


def exact(text):
    """The quantity in thousandths, rounded up."""
    suffix = max((size for size in SIZES if text.endswith(size)), key=len)
    value = int(text.removesuffix(suffix)) * SIZES[suffix] * 1000
    return -(-value.numerator // value.denominator)


def most_at_a_time(inits, containers, resource):
    """Start one after the other, as a kubelet does, and look at what runs at each moment."""
    running, most = 0, 0
    for requests, is_sidecar in inits:
        amount = exact(requests.get(resource, "0"))
        most = max(most, running + amount)
        running += amount if is_sidecar else 0
    running += sum(exact(requests.get(resource, "0")) for requests in containers)
    return max(most, running)


@settings(max_examples=cases(300))
@given(LISTS, st.lists(ASKED, min_size=1, max_size=3), ASKED)
def test_a_pod_asks_for_what_runs_at_a_time(inits, containers, overhead):
    requested = effective(
        Asking(
            tuple(Container("c", Resources(container)) for container in containers),
            tuple(
                Container("i", Resources(resources), restart_policy="Always" if stays else None)
                for resources, stays in inits
            ),
            overhead=overhead,
        )
    )
    expected = {}
    for name, divisor in (("cpu", 1), ("memory", 1000)):
        amount = most_at_a_time(inits, containers, name) + exact(overhead.get(name, "0"))
        if amount:
            expected[name] = -(-amount // divisor)
    assert dict(requested) == expected


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["-1", "9E", "1e300", "Exists", "Always", "2026-01-01T00:00:00Z", "0.0.0.0"]),  # noqa: S104
    lambda value: (
        st.lists(value, max_size=3)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["metadata", "spec"]), value, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value, at=()):
    """Every place in a JSON value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*at, key)
        if isinstance(item, dict | list):
            yield from places(item, (*at, key))


def replace_at(value, at, replacement):
    if not at:
        return replacement
    manifest = copy.deepcopy(value)
    inner = manifest
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = replacement
    return manifest


def answers_to(line):
    return [
        msgspec.json.decode(msgspec.json.encode(answer)) for answer in answer_lines([line], judge)
    ]


@settings(max_examples=cases(500))
@given(st.sampled_from(CASES), st.data(), ANYTHING)
def test_no_json_breaks_the_reader(case, data, replacement):
    node, present, pod = case.on("fit-1")
    line = {"id": 1, "node": node, "pods": present, "pod": pod, "namespaces": KNOWN}
    at = data.draw(st.sampled_from(list(places(line))))
    text = json.dumps(replace_at(line, at, replacement)).encode()
    (answer,) = answers_to(text)
    assert set(answer) in ({"id", "fits", "reasons"}, {"line", "id", "error"})
    assert "\n" not in answer.get("error", "")


def refusal(read, text):
    """Why a text is malformed; empty where it is not."""
    try:
        read(text)
    except MalformedError as error:
        return str(error)
    return ""


@settings(max_examples=cases(500))
@given(st.sampled_from(CASES), st.data(), ANYTHING)
def test_readers_raise_one_error_only(case, data, replacement):
    node, _, pod = case.on("fit-1")
    given = data.draw(st.sampled_from([node, pod]))
    at = data.draw(st.sampled_from(list(places(given))))
    text = json.dumps(replace_at(given, at, replacement)).encode()
    for read in (decode_pod, decode_node, decode_budget, decode_namespace):
        for variant in (text, text[:-1]):
            assert "\n" not in refusal(read, variant)


@settings(max_examples=cases(500))
@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(line):
    answers = answers_to(line)
    # A blank line has no answer.
    assert len(answers) == bool(line.strip())
    for answer in answers:
        assert set(answer) in ({"id", "fits", "reasons"}, {"line", "id", "error"})
