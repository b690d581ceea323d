"""The API server makes of pods what our engine makes of them, by policies that are compiled."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from harbourmaster.cli.compile.probe import fields_by_webhook, object_of, owned_fields_of
from harbourmaster.cli.offline import pod_in
from harbourmaster.policies.admission_policies import MAX_FACTOR_VALUES, MAX_TOLERATIONS
from harbourmaster.policies.cel import MAX_REQUIREMENTS, MAX_TERMS, MAX_VALUES, OWN_ITEMS, OWN_TERMS
from harbourmaster.policies.cel_paths import NAMESPACE_NAME, PROBE_NAMESPACE
from harbourmaster.policies.model import ON_TOO_LARGE, PREFERRED, REQUIRED
from harbourmaster.policies.targets import ALL_CONTROLLERS, EXCLUDED_KEY, TARGETS_KEY
from harbourmaster.policies.tolerations import DEFAULTS
from helpers.compiler_faults import FAULTS
from helpers.delegation import (
    ASKS,
    PODS_ONLY,
    REFUSED,
    REGISTERED,
    SET,
    Chance,
    Delegation,
    session_of,
)
from helpers.objects import API, RESOURCES, cluster_policy, required
from helpers.patience import WAIT

pytestmark = pytest.mark.gate
GOLDEN = Path(__file__).parents[1] / "conformance/kupid-golden.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
OWNED = ("affinity", "nodeSelector", "schedulerName", "tolerations")
FAULT = "set.example.com/fault"
NOT_READY, UNREACHABLE = DEFAULTS.values()
SOON = [{**toleration, "tolerationSeconds": 30} for toleration in DEFAULTS.values()]
WIDE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
OTHER = {"key": "x", "operator": "Exists"}
TOLERATING = {
    "both": [SOON],
    "wide": [[OTHER], [WIDE]],
    "default-first": [[UNREACHABLE], SOON],
    "default-later": [[WIDE], [UNREACHABLE, NOT_READY]],
}
"""Tolerations of the policies of a set."""
OWN_TOLERATIONS = (
    [],
    [SOON[0]],
    [WIDE, UNREACHABLE],
    [UNREACHABLE, SOON[1]],
    [OTHER, {"key": NOT_READY["key"], "operator": "Equal", "value": "v", "effect": "NoExecute"}],
)


@pytest.fixture
async def delegation(control_plane):
    """Admission policies in the namespace where objects are tried; gone after the test."""
    kubectl = control_plane.kubectl
    kubectl("create", "namespace", PROBE_NAMESPACE)
    account = "serviceaccount/default"
    kubectl("wait", "--for=create", account, "-n", PROBE_NAMESPACE, WAIT)
    async with session_of(control_plane) as session:
        delegation = Delegation(session)
        yield delegation
        await delegation.remove()
    kubectl("delete", "namespace", PROBE_NAMESPACE)


async def bind_groups(delegation, chance, groups, sets, registered):
    """Groups of random sets of policies, in force; the names of the sets, by group."""
    objects, names = [], {}
    for group in groups:
        names[group] = [f"{group}.{number}" for number in range(sets)]
        documents = [
            chance.policy(f"p{name}-{index}", name)
            for name in names[group]
            for index in range(chance.randint(1, 4))
        ]
        objects += delegation.compile_group(group, documents, registered)
    await delegation.bind(objects, registered)
    return names


@pytest.mark.parametrize(
    ("registered", "groups", "sets", "count", "least"),
    [
        pytest.param(REGISTERED, range(1), 4, 25, 50, id="some"),
        pytest.param(
            REGISTERED,
            range(10, 13),
            10,
            90,
            1200,
            id="of every kind",
            marks=[pytest.mark.full, pytest.mark.timeout(900)],
        ),
        pytest.param(
            PODS_ONLY,
            range(20, 26),
            12,
            90,
            4000,
            id="pods",
            marks=[pytest.mark.full, pytest.mark.timeout(1800)],
        ),
    ],
)
async def test_the_api_server_makes_what_the_webhook_makes(
    delegation, registered, groups, sets, count, least
):
    chance = Chance(groups[0])
    bound_groups = await bind_groups(delegation, chance, groups, sets, registered)
    parts = list(registered.rules)
    tried = await delegation.all_tried(
        (group, chance.choice(parts), chance.labels(), chance.pod(name))
        for group, names in bound_groups.items()
        for name in names
        for _ in range(count)
    )
    assert [trial for trial in tried if trial.differs] == []
    assert sum(trial.is_changed and not trial.is_large for trial in tried) >= least


LEFT_OUT = [
    {},
    {TARGETS_KEY: "Pods"},
    {EXCLUDED_KEY: "DaemonSet,CronJob"},
    {EXCLUDED_KEY: "ReplicaSet"},
    {EXCLUDED_KEY: "Pod,Deployment"},
]
"""Annotations of policies."""
ACCOUNT = "system:serviceaccount:kube-system:{}-controller"


def owned_by(kind, number):
    """A pod of that set, with such a controller unless the kind is empty."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "a", "uid": "u", "controller": True}
    metadata = {"labels": {SET: f"kinds-{number}"}, "ownerReferences": [owner] if kind else []}
    return {"metadata": metadata, "spec": {}}


@pytest.mark.claim("O31")
async def test_kinds_and_pods_of_daemonsets_are_left_out_as_by_the_webhook(delegation):
    rules = {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "affinity": required({"zone": "a"}, {"zone": "b"}),
    }
    documents = []
    for number, left_out in enumerate(LEFT_OUT):
        (document,) = of_set([cluster_policy(f"kinds-{number}", **rules)], f"kinds-{number}")
        document["metadata"]["annotations"] = {**ASKS, **left_out}
        documents.append(document)
    await delegation.bind(delegation.compile_group("kinds", documents))
    for number in range(len(LEFT_OUT)):
        for part in ("templates", "cronjobs"):
            tried = await delegation.try_object("kinds", part, {}, owned_by("", number))
            assert tried.theirs == tried.ours, (number, part)
        # The user of a request decides for which kind it creates a pod, not the pod.
        for user, claimed, kind in (
            (ALL_CONTROLLERS, "DaemonSet", "DaemonSet"),
            (ALL_CONTROLLERS, "ReplicaSet", "ReplicaSet"),
            (ACCOUNT.format("daemon-set"), "", "DaemonSet"),
            (ACCOUNT.format("replicaset"), "DaemonSet", "ReplicaSet"),
            ("jane", "DaemonSet", ""),
        ):
            pod = owned_by(claimed, number)
            tried = await delegation.try_object("kinds", "pods", {}, pod, user=user)
            same = object_of("pods", "probe", {}, owned_by(kind, number))
            expected = fields_by_webhook(same, delegation.policies("kinds"))
            assert tried.theirs == expected, (number, user, claimed)


def tolerating():
    """Policies that cover the taints of failed nodes, and pods that they select."""
    documents = [
        cluster_policy(f"{name}-{index}", pods={SET: name}, tolerations=tolerations)
        for name, policies in TOLERATING.items()
        for index, tolerations in enumerate(policies)
    ]
    for document in documents:
        document["metadata"]["annotations"] = ASKS
    return documents, [
        {"metadata": {"labels": {SET: name}}, "spec": {"tolerations": tolerations}}
        for name in TOLERATING
        for tolerations in OWN_TOLERATIONS
    ]


async def test_what_others_set_is_replaced_or_left_to_them(delegation):
    documents, pods = tolerating()
    linux = cluster_policy("linux", pods={SET: "class"}, nodeSelector={"os": "linux"})
    linux["metadata"]["annotations"] = ASKS
    await delegation.bind(delegation.compile_group("others", [*documents, linux]))
    tried = await delegation.all_tried(
        ("others", part, {}, pod) for part in ("pods", "templates") for pod in pods
    )
    assert [trial for trial in tried if trial.differs] == []
    assert sum(NOT_READY not in trial.theirs["tolerations"] for trial in tried) > len(pods) / 2
    for part in ("templates", "cronjobs"):
        for runtime_class, labels in (("", {"os": "linux"}), ("gvisor", None)):
            pod = {
                "metadata": {"labels": {SET: "class"}},
                "spec": {"runtimeClassName": runtime_class} if runtime_class else {},
            }
            trial = await delegation.try_object("others", part, {}, pod)
            assert trial.theirs.get("nodeSelector") == labels


@pytest.mark.full
async def test_most_observed_policies_compile_and_have_the_same_effect(delegation):
    documents, namespaces = [], set()
    for number, case in enumerate(CASES):
        policies = of_set(case["given"]["clusterPolicies"] + case["given"]["policies"], number)
        for obj in policies:
            obj["metadata"]["name"] += f"-{number}"
            namespaces.add(obj["metadata"].get("namespace"))
        documents += policies
    objects = delegation.compile_group("observed", documents, namespaces=namespaces)
    compiled = {policy.rank[2] for policy in delegation.policies("observed")}
    assert len(compiled) >= len(documents) * 0.6
    await delegation.bind(objects)
    asked = [
        ("observed", part, *parts)
        for number, case in enumerate(CASES)
        for parts in observed_pods(case["given"], number)
        for part in REGISTERED.rules
    ]
    tried = await delegation.all_tried(asked)
    # The pods of five observed cases are such that no API server takes them.
    invalid = [trial for trial in tried if "is invalid" in trial.theirs.get(REFUSED, "")]
    assert len(invalid) <= 5 * len(REGISTERED.rules)
    assert [trial for trial in tried if trial.differs and trial not in invalid] == []
    assert sum(trial.is_changed for trial in tried) > 100


@pytest.mark.full
@pytest.mark.parametrize(
    "excess",
    ["none", "terms", "requirements", "values", "all values", "tolerations", "preferences", "many"],
)
async def test_exactly_the_pods_beyond_a_bound_are_refused_by_a_policy_that_denies_them(
    delegation, excess
):
    policies = of_set([*largest_policies(), *multiplying()], "large")
    for policy in policies:
        policy["metadata"]["annotations"] = {**ASKS, ON_TOO_LARGE: "Deny"}
    await delegation.bind(delegation.compile_group("large", policies, PODS_ONLY), PODS_ONLY)
    for labels, spec in (({"few": "no"}, largest(excess)), ({"few": "yes"}, smaller(excess))):
        pod = {"metadata": {"labels": {SET: "large", **labels}}, "spec": spec}
        tried = await delegation.try_object("large", "pods", {}, pod)
        if tried.theirs == owned_fields_of(tried.sent):
            # The policy that denies can be taken up a moment later than the one that changes.
            tried = await delegation.await_refused("large", pod)
        assert tried.ours["nodeSelector"] == {"a": "b"}
        is_small = labels == {"few": "yes"} and excess not in {"many", "tolerations"}
        if is_small or excess == "none":
            assert tried.theirs == tried.ours
        else:
            assert "pod is too large for ClusterPodSchedulingPolicy" in tried.theirs[REFUSED]


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_every_fault_in_the_compiler_is_found(delegation):
    chance = Chance(20)
    pods = [(chance.labels(), chance.pod(chance.randrange(6))) for _ in range(150)]
    documents = [chance.policy(f"p{index}", index % 6) for index in range(24)]
    more, tolerant = tolerating()
    documents += more
    pods += [({}, pod) for pod in tolerant]
    objects = []
    for number, (name, fault) in enumerate(FAULTS.items()):
        with fault.apply():
            own = copy.deepcopy(documents)
            for obj in own:
                obj["spec"]["podSelector"]["matchLabels"][FAULT] = str(number)
            objects += delegation.compile_group(name, own, PODS_ONLY)
    await delegation.bind(objects, PODS_ONLY)
    tried = await delegation.all_tried(
        (name, "pods", labels, with_labels(pod, {FAULT: str(number)}))
        for number, name in enumerate(FAULTS)
        for labels, pod in pods
    )
    noticed = {
        list(FAULTS)[index // len(pods)] for index, trial in enumerate(tried) if trial.differs
    }
    assert FAULTS.keys() - noticed == set()


def with_labels(pod, labels):
    """The pod with more labels."""
    return {**pod, "metadata": {"labels": {**pod["metadata"]["labels"], **labels}}}


def of_set(documents, number):
    """Copies of the policies, each with the label of a set among what it selects."""
    manifest = copy.deepcopy(documents)
    for obj in manifest:
        obj.setdefault("apiVersion", API)
        obj["metadata"]["annotations"] = ASKS
        selector = obj["spec"].get("podSelector")
        if selector is not None:
            selector["matchLabels"] = {**(selector.get("matchLabels") or {}), SET: str(number)}
    return manifest


def observed_pods(given, number):
    """Labels of the namespace, and the pod of an observed case."""
    review, namespace = given["admissionReview"], given["namespace"]
    request = review.get("request") if isinstance(review, dict) else None
    obj = request.get("object") if isinstance(request, dict) else None
    if not isinstance(obj, dict) or not namespace or obj.get("kind") not in RESOURCES:
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


def requirements(count, values=1, prefix="k"):
    """So many requirements with so many values each."""
    texts = [f"v{index}" for index in range(values)]
    return [{"key": f"{prefix}{i}", "operator": "In", "values": texts} for i in range(count)]


def largest_policies():
    """The largest policies for a pod whose own fields are the largest."""
    wanted = [
        {"weight": 1, "preference": {"matchExpressions": requirements(4, 4, f"p{index}-")}}
        for index in range(16)
    ]
    near = [
        {"topologyKey": f"t{index}", "labelSelector": {"matchExpressions": requirements(4, 4)}}
        for index in range(16)
    ]
    for index in range(2):
        affinity = required({f"r{index}-{number}": "v" for number in range(8)})
        affinity["nodeAffinity"][PREFERRED] = wanted[index * 8 :][:8]
        affinity["podAffinity"] = {REQUIRED: near[index * 8 :][:8]}
        pods = {"few": "no"}
        yield cluster_policy(f"p{index}", pods=pods, nodeSelector={"a": "b"}, affinity=affinity)


def multiplying():
    """Policies that together make as many terms as there can be."""
    for index in range(3):
        affinity = required({f"m{index}": "a"}, {f"m{index}": "b"})
        pods = {"few": "yes"}
        yield cluster_policy(f"m{index}", pods=pods, nodeSelector={"a": "b"}, affinity=affinity)


def largest(excess):
    """A pod spec at the bounds, or with one more of something."""
    size = OWN_TERMS.requirements // MAX_TERMS
    terms = [
        {"matchExpressions": requirements(size, 4, f"own{index}-")} for index in range(MAX_TERMS)
    ]
    if excess == "terms":
        terms.append({"matchExpressions": requirements(1)})
    elif excess == "requirements":
        terms = [{"matchExpressions": requirements(MAX_REQUIREMENTS + 1)}]
    elif excess == "values":
        terms = [{"matchExpressions": requirements(1, MAX_VALUES + 1)}]
    elif excess == "all values":
        terms[0]["matchExpressions"][0]["values"] = [f"v{index}" for index in range(5)]
    preferences = [
        {"weight": 1, "preference": {"matchExpressions": requirements(2, 4, f"w{index}-")}}
        for index in range(OWN_ITEMS.items + (excess == "preferences"))
    ]
    near = [
        {"topologyKey": f"n{index}", "labelSelector": {"matchExpressions": requirements(2, 4)}}
        for index in range(OWN_ITEMS.items)
    ]
    # Two more come from the API server.
    count = MAX_TOLERATIONS - 2 + (excess in {"tolerations", "many"})
    return {
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: preferences},
            "podAffinity": {REQUIRED: near},
        },
        "tolerations": [{"key": f"t{index}", "operator": "Exists"} for index in range(count)],
    }


def smaller(excess):
    """A pod spec of two terms, or three, which policies multiply by eight."""
    count = 2 + (excess == "many")
    values = MAX_FACTOR_VALUES // 8 // 2 // 2
    terms = [
        {"matchExpressions": requirements(2, values, f"own{index}-")} for index in range(count)
    ]
    more = largest(excess)["tolerations"] if excess == "tolerations" else []
    return {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
        "tolerations": more,
    }
