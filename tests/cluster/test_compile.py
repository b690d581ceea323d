"""The API server makes of pods what our engine makes of them, by policies that are compiled."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from harbourmaster.cli.compile.probe import owned
from harbourmaster.cli.reviews import pod_in
from harbourmaster.policies.admission_policies import NAMESPACE_NAME, PROBE_NAMESPACE
from harbourmaster.policies.cel import MAX_ITEMS, MAX_REQUIREMENTS, MAX_VALUES
from harbourmaster.policies.model import REQUIRED
from helpers.compiler_faults import FAULTS
from helpers.delegated import ASKS, PODS_ONLY, REGISTERED, SET, Chance, Delegation, session_of
from helpers.objects import API, RESOURCES, cluster_policy, required
from helpers.patience import WAIT

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]
GOLDEN = Path(__file__).parents[1] / "conformance/kupid-golden.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
OWNED = ("affinity", "nodeSelector", "schedulerName", "tolerations")
TEMPLATES = set(RESOURCES) - {"Pod"}


@pytest.fixture
async def delegation(control_plane):
    """Admission policies in the namespace where objects are tried; gone after the test."""
    kubectl = control_plane.kubectl
    kubectl("create", "namespace", PROBE_NAMESPACE)
    account = "serviceaccount/default"
    kubectl("wait", "--for=create", account, "-n", PROBE_NAMESPACE, WAIT)
    async with session_of(control_plane) as session:
        found = Delegation(session)
        yield found
        await found.remove()
    kubectl("delete", "namespace", PROBE_NAMESPACE)


async def bound(delegation, chance, sets, registered):
    """So many random sets of policies, in force; returns the numbers of those that compile."""
    objects = []
    for number in sets:
        documents = [chance.policy(f"p{each}", number) for each in range(chance.randint(1, 4))]
        objects += delegation.compiled(number, documents, registered)
    await delegation.bind(objects, registered)
    return [number for number in sets if delegation.policies(number)]


async def changed(delegation, chance, numbers, registered, count):
    """Try so many objects with each set; those that policies change, all as by the webhook."""
    parts = list(registered.rules)
    asked = [
        (number, chance.choice(parts), chance.labels(), chance.pod(number))
        for number in numbers
        for _ in range(count)
    ]
    tried = await delegation.all_tried(asked)
    assert [each for each in tried if each.differs] == []
    return [each for each in tried if each.is_changed]


@pytest.mark.parametrize(
    ("registered", "sets", "count"),
    [
        pytest.param(REGISTERED, range(3), 30, id="some"),
        pytest.param(
            REGISTERED,
            range(10, 40),
            60,
            id="1,000 of every kind",
            marks=[pytest.mark.full, pytest.mark.timeout(900)],
        ),
        pytest.param(
            PODS_ONLY,
            range(50, 130),
            80,
            id="4,000 pods",
            marks=[pytest.mark.full, pytest.mark.timeout(1800)],
        ),
    ],
)
async def test_the_api_server_makes_what_the_webhook_makes(delegation, registered, sets, count):
    chance = Chance(sets[0])
    numbers = await bound(delegation, chance, sets, registered)
    found = await changed(delegation, chance, numbers, registered, count)
    assert len(found) > len(numbers) * count / 2


@pytest.mark.full
async def test_most_observed_policies_compile_and_have_the_same_effect(delegation):
    objects, asked, policies, compiled = [], [], 0, 0
    for number, case in enumerate(CASES):
        documents = of_set(case["given"]["clusterPolicies"] + case["given"]["policies"], number)
        namespaces = {each["metadata"].get("namespace") for each in documents}
        objects += delegation.compiled(number, documents, namespaces=namespaces)
        policies += len(documents)
        compiled += len(delegation.policies(number))
        if len(delegation.policies(number)) == len(documents) > 0:
            asked += [(number, *each) for each in observed(case["given"], number)]
    assert compiled >= policies * 0.6
    await delegation.bind(objects)
    tried = await delegation.all_tried(asked)
    assert [each for each in tried if each.differs] == []
    assert len(asked) > 40
    assert sum(each.is_changed for each in tried) > len(tried) / 2


@pytest.mark.full
@pytest.mark.parametrize("excess", ["terms", "values", "tolerations", "none"])
async def test_a_pod_beyond_a_bound_stays_as_it_is(delegation, excess):
    more = {"affinity": required({"p": "1"}), "tolerations": [{"key": "p", "operator": "Exists"}]}
    [policy] = of_set([cluster_policy("p", nodeSelector={"a": "b"}, **more)], "large")
    await delegation.bind(delegation.compiled("large", [policy]))
    pod = {"metadata": {"labels": {SET: "large"}}, "spec": largest(excess)}
    tried = await delegation.tried("large", "pods", {}, pod)
    if excess == "none":
        assert tried.theirs == tried.ours
    else:
        assert tried.theirs == owned(tried.sent)
    assert tried.ours["nodeSelector"] == {"a": "b"}


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_every_fault_in_the_compiler_is_found(delegation):
    chance = Chance(20)
    pods = [(chance.labels(), chance.pod("")) for _ in range(60)]
    sets = [[chance.policy(f"p{each}", "") for each in range(4)] for _ in range(4)]
    objects, asked = [], []
    for name, fault in FAULTS.items():
        for index, documents in enumerate(sets):
            number = f"{list(FAULTS).index(name)}.{index}"
            with fault.applied():
                found = delegation.compiled(number, of_set(documents, number), PODS_ONLY)
            objects += found
            for labels, pod in pods:
                metadata = {"labels": {**pod["metadata"]["labels"], SET: number}}
                asked.append((number, "pods", labels, {**pod, "metadata": metadata}))
    await delegation.bind(objects, PODS_ONLY)
    tried = await delegation.all_tried(asked)
    noticed = {
        number.partition(".")[0]
        for (number, *_), each in zip(asked, tried, strict=True)
        if each.differs
    }
    assert [name for index, name in enumerate(FAULTS) if str(index) not in noticed] == []


def of_set(documents, number):
    """The same policies, each with the label of a set among what it selects."""
    found = copy.deepcopy(documents)
    for each in found:
        each.setdefault("apiVersion", API)
        each["metadata"]["annotations"] = ASKS
        selector = each["spec"].get("podSelector")
        if selector is not None:
            selector["matchLabels"] = {**(selector.get("matchLabels") or {}), SET: str(number)}
    return found


def observed(given, number):
    """Labels of the namespace, and the pod of an observed case."""
    request = (given["admissionReview"] or {}).get("request") or {}
    obj, namespace = request.get("object"), given["namespace"]
    if not isinstance(obj, dict) or not namespace or obj.get("kind") not in {"Pod", *TEMPLATES}:
        return
    pod = pod_in(obj, obj["kind"])
    labels = {**((pod.get("metadata") or {}).get("labels") or {}), SET: str(number)}
    spec = {name: pod["spec"][name] for name in OWNED if pod.get("spec", {}).get(name)}
    name = {NAMESPACE_NAME: namespace["metadata"]["name"]}
    yield (
        {**name, **namespace["metadata"].get("labels", {})},
        {
            "metadata": {"labels": labels},
            "spec": spec,
        },
    )


def largest(excess):
    """A pod spec at the bounds, or with one more of something."""
    each = MAX_REQUIREMENTS // MAX_ITEMS
    values = [f"v{index}" for index in range(MAX_VALUES // MAX_REQUIREMENTS)]
    expressions = [
        {"key": f"k{index}", "operator": "In", "values": values} for index in range(each)
    ]
    terms = [{"matchExpressions": copy.deepcopy(expressions)} for _ in range(MAX_ITEMS)]
    for index, term in enumerate(terms):
        term["matchExpressions"][0]["key"] = f"own{index}"
    if excess == "terms":
        terms[-1]["matchExpressions"].pop()
        terms.append({"matchExpressions": expressions[:1]})
    elif excess == "values":
        terms[0]["matchExpressions"][0]["values"] = [*values, "more"]
    # Two more come from the API server.
    tolerations = MAX_ITEMS - 2 + (excess == "tolerations")
    return {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
        "tolerations": [{"key": f"t{index}", "operator": "Exists"} for index in range(tolerations)],
    }
