"""The final-state check reports what the engine would have added, on the real API server."""

from __future__ import annotations

import copy
import http.client
import json
import random

import jsonpatch
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from harbourmaster.policies.index import policy_set
from harbourmaster.policies.targets import ALL_CONTROLLERS, CREATORS, EXCLUDED_KEY
from harbourmaster.policies.tolerations import DEFAULTS, counting
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from helpers.cluster import bare_pod, eventually
from helpers.manifests import objects
from helpers.objects import API, cluster_policy, required
from helpers.oracles import decode_patch
from helpers.policies import apart, expressions, node_terms, requirement
from helpers.properties import pod_specs, policy_specs

CASE = "example.com/case"
POLICIES = 60
PODS_OF_EACH = 8
LABELS = {"example.com/app": "checked"}


class Checked:
    """A namespace in which the check denies."""

    def __init__(self, plane, namespace):
        self.connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=plane.admin)
        self.namespace = namespace

    def refusal(self, pod, user=""):
        """The check's message about a pod, by dry run; None if the API server refuses the pod.

        ``user`` is impersonated, with the permissions of the administrator.
        """
        path = f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All"
        headers = {"Content-Type": "application/json"}
        if user:
            headers |= {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        self.connection.request("POST", path, json.dumps(pod), headers)
        with self.connection.getresponse() as answer:
            text = answer.read().decode()
            if answer.status == http.HTTPStatus.CREATED:
                return ""
            return text if "harbourmaster:" in text else None


@pytest.fixture
def checker(control_plane, namespace, kubectl):
    items = [
        copy.deepcopy(obj)
        for obj in objects("default", "final-state-check")
        if obj["metadata"]["name"].startswith("harbourmaster-final-state")
    ]
    for item in items:
        if item["kind"].endswith("Binding"):
            by_name = {"kubernetes.io/metadata.name": namespace}
            item["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": by_name}}
            item["spec"]["validationActions"] = ["Deny"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("apply", "-f=-", stdin=text)
    checked = Checked(control_plane, namespace)
    yield checked
    checked.connection.close()
    kubectl("delete", "-f=-", stdin=text)


def pod(spec, **metadata):
    # As the API server fills it in before admission.
    scheduler = spec.get("schedulerName") or "default-scheduler"
    own = spec.get("tolerations") or []
    defaults = [item for taint, item in DEFAULTS.items() if counting(own, taint) is None]
    filled = {**spec, "schedulerName": scheduler, "tolerations": [*own, *defaults]}
    metadata = {"generateName": "checked-", **metadata}
    return {**bare_pod("", **filled), "metadata": metadata}


def mutate_pod(obj, namespace, documents):
    """The pod as the engine makes it."""
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": namespace,
        "operation": "CREATE",
        "object": obj,
    }
    snapshot = Snapshot(policy_set(read_policy(document)[0] for document in documents))
    body = json.dumps({"request": request}).encode()
    result, _ = answer(body, Engine(snapshot, AdmissionSettings()))
    operations = decode_patch(json.loads(result)["response"])
    return jsonpatch.apply_patch(copy.deepcopy(obj), operations)


def one_of(operator, *values, key="example.com/app"):
    """A selector of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def with_labels(selector, labels):
    """The selector that requires these labels as well."""
    return {**selector, "matchLabels": {**selector.get("matchLabels", {}), **labels}}


def draw_examples(strategy, count):
    """Draw as many examples of a strategy, the same in each run."""
    examples = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example):
        examples.append(example)

    collect()
    return examples


@pytest.mark.claim("O28")
def test_pods_that_a_policy_leaves_out_are_not_reported(checker, kubectl):
    rules = {"nodeSelector": {"a": "b"}, "affinity": required({"c": "d"})}
    toleration = {"tolerations": [{"key": "a", "operator": "Exists"}]}
    policies = [
        cluster_policy("constraints", pods={CASE: "constraints"}, **rules),
        cluster_policy("kinds", pods={CASE: "kinds"}, **toleration),
        cluster_policy("pods", pods={CASE: "pods"}, **toleration),
    ]
    policies[1]["metadata"]["annotations"] = {EXCLUDED_KEY: "DaemonSet, Deployment,CronJob"}
    policies[2]["metadata"]["annotations"] = {EXCLUDED_KEY: "Pod"}
    kubectl(
        "apply", "-f=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": policies})
    )
    jane = {name: pod({}, labels={CASE: name}) for name in ("constraints", "kinds", "pods")}
    for name in ("constraints", "kinds"):
        eventually(lambda name=name: checker.refusal(jane[name]), is_right=bool)
    reported = {
        (name, user): bool(checker.refusal(manifest, user))
        for name, manifest in jane.items()
        for user in (*CREATORS, ALL_CONTROLLERS)
    }
    kinds = {user: CREATORS.get(user, "") for user in (*CREATORS, ALL_CONTROLLERS)}
    assert reported == {
        **{("constraints", user): kind != "DaemonSet" for user, kind in kinds.items()},
        **{
            ("kinds", user): kind not in {"DaemonSet", "ReplicaSet", "Job"}
            for user, kind in kinds.items()
        },
        **{("pods", user): False for user in kinds},
    }
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u"}
    owned = pod({}, labels={CASE: "constraints"}, ownerReferences=[{**owner, "controller": True}])
    assert not checker.refusal(owned, ALL_CONTROLLERS)
    assert checker.refusal(owned)


@pytest.mark.claim("O28")
def test_a_pod_is_reported_if_the_engine_would_change_it_and_only_then(checker, kubectl):
    cases = []
    for number, drawn_spec in enumerate(draw_examples(policy_specs, POLICIES)):
        spec = {**drawn_spec, "podSelector": {"matchLabels": {CASE: f"{number}"}}}
        metadata = {"name": f"case-{number}"}
        kind = "ClusterPodSchedulingPolicy"
        if number % 2:
            kind, metadata["namespace"] = "PodSchedulingPolicy", checker.namespace
            del spec["namespaceSelector"]
        cases.append({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": cases})
    kubectl("apply", "-f=-", stdin=text)
    lacking = pod({}, labels={CASE: "last"})
    last = cluster_policy("last", pods={CASE: "last"}, nodeSelector={"a": "b"})
    kubectl("apply", "-f=-", stdin=json.dumps(last))
    eventually(lambda: checker.refusal(lacking))
    specs = draw_examples(pod_specs, 3 * POLICIES)
    chance = random.Random(0)  # noqa: S311
    reported = passed = 0
    for number, case in enumerate(cases):
        for spec in chance.sample(specs, PODS_OF_EACH):
            bare = pod(spec, labels={CASE: f"{number}"})
            full = mutate_pod(bare, checker.namespace, [case])
            told = checker.refusal(bare)
            if told is None:
                continue
            assert bool(told) == (full != bare), (case, bare, full, told)
            assert not checker.refusal(full), (case, full)
            reported, passed = reported + bool(told), passed + (not told)
    kubectl("delete", "-f=-", stdin=text)
    kubectl("delete", "clusterpodschedulingpolicy", "last")
    assert reported > 3 * POLICIES
    assert passed > POLICIES


def terms(count, size):
    """Required node affinity of that many terms with as many requirements each."""
    term = {"matchExpressions": [requirement(f"k{number}") for number in range(size)]}
    return node_terms(*[term] * count)


def pods_near(count, size):
    """Preferred pod affinity of that many items with as many requirements each."""
    requirements = [requirement(f"k{index}", values=["x", "y"]) for index in range(size)]
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": requirements}}
    return apart(*[{"weight": number + 1, "podAffinityTerm": term} for number in range(count)])


LARGE = {
    "tolerations": (
        {"tolerations": [{"key": f"t{index}", "operator": "Exists"} for index in range(1000)]},
        {"tolerations": [{"key": f"u{index}", "operator": "Exists"} for index in range(4)]},
    ),
    "more tolerations": (
        {"tolerations": [{"key": f"t{index}", "operator": "Exists"} for index in range(4000)]},
        {"tolerations": [{"key": f"u{index}", "operator": "Exists"} for index in range(4)]},
    ),
    "terms": (terms(100, 7), node_terms(expressions(*[requirement("k6"), requirement("z")]))),
    "more terms": (terms(512, 40), terms(20, 10)),
    "values": (
        node_terms(*[expressions(requirement(values=[f"v{index}" for index in range(3000)]))] * 20),
        node_terms(expressions(requirement(values=[f"w{index}" for index in range(200)]))),
    ),
    "items": (pods_near(8, 8), pods_near(9, 4)),
    "more items": (pods_near(90, 90), pods_near(9, 9)),
}


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.claim("O29")
def test_no_pod_is_too_large_to_be_reported(checker, kubectl, case):
    spec, added = LARGE[case]
    text = json.dumps(cluster_policy("large", pods={CASE: "large"}, **added))
    kubectl("create", "-f=-", stdin=text)
    eventually(lambda: checker.refusal(pod(spec, labels={CASE: "large"})))
    kubectl("delete", "-f=-", stdin=text)


SELECTORS = {
    "everything": ({}, True),
    "nothing": (None, False),
    "label": ({"matchLabels": LABELS}, True),
    "other value": ({"matchLabels": {"example.com/app": "other"}}, False),
    "in": (one_of("In", "other", "checked"), True),
    "in others": (one_of("In", "other"), False),
    "not in": (one_of("NotIn", "other"), True),
    "not in these": (one_of("NotIn", "checked"), False),
    "exists": (one_of("Exists"), True),
    "does not exist": (one_of("DoesNotExist"), False),
    "not in without the key": (one_of("NotIn", "checked", key="example.com/none"), True),
    "in without the key": (one_of("In", "checked", key="example.com/none"), False),
    "exists without the key": (one_of("Exists", key="example.com/none"), False),
    "does not exist without the key": (one_of("DoesNotExist", key="example.com/none"), True),
}


@pytest.mark.parametrize("side", ["podSelector", "namespaceSelector"])
def test_a_policy_is_checked_where_it_selects_the_pod(checker, kubectl, side):
    kubectl("label", "namespace", checker.namespace, *(f"{k}={v}" for k, v in LABELS.items()))
    items = []
    for number, (selector, _) in enumerate(SELECTORS.values()):
        manifest = cluster_policy(
            f"case-{number}", pods={CASE: f"{number}"}, nodeSelector={"a": "b"}
        )
        if selector is None:
            del manifest["spec"][side]
        elif side == "podSelector":
            manifest["spec"][side] = with_labels(selector, {CASE: f"{number}"})
        else:
            manifest["spec"][side] = selector
        items.append(manifest)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("apply", "-f=-", stdin=text)
    eventually(lambda: checker.refusal(pod({}, labels={**LABELS, CASE: "2"})))
    for number, (name, (_, is_selected)) in enumerate(SELECTORS.items()):
        told = checker.refusal(pod({}, labels={**LABELS, CASE: f"{number}"}))
        assert bool(told) == is_selected, name
    kubectl("delete", "-f=-", stdin=text)
