"""Shadow mode: objects before and after other webhooks are compared, and nothing is changed."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest

from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.shadow import (
    INTENDED,
    MAX_DIFFERENCES,
    MAX_PENDING,
    Shadow,
    report_in,
)
from helpers.admitted import GATE, THEIRS, engine_of, keys, owner, pod
from helpers.objects import body, cluster_policy, required, workload
from helpers.patching import patched

POLICY = cluster_policy(pods={"app": "web"}, nodeSelector={"disk": "ssd"})
SELECTOR = "spec.template.spec.nodeSelector"
GATE_FIELD = "spec.schedulingGates[keptn-prechecks-gate]"
PLAIN = [{"metadata": {"name": "ns1"}}]
OF_KUPID = [{"metadata": {"name": "ns1", "labels": {"role": "kube-system"}}}]


class Observed:
    """Shadow mode over an engine; ``create`` is what the API server does with an object."""

    def __init__(self, *policies, namespaces=PLAIN, parents=(), **settings):
        self.engine = engine_of(parents, *policies, namespaces=namespaces, **settings)
        self.changes = []
        self.shadow = Shadow(lambda: self.changes.append(1))

    def review(self, document, *, is_first, **request):
        data = body(document, **request)
        _, decision = answer(data, self.engine, may_patch=is_first)
        result, _ = self.shadow.observe(data, self.engine, decision, is_first=is_first)
        return json.loads(result)["response"]

    def ours(self, document):
        """The object as we would make it."""
        result, _ = answer(body(document), self.engine)
        return patched(document, json.loads(result)["response"])

    def create(self, document, final=None, **request):
        """The object is created; ``final`` is it after all others, by default as with us."""
        final = self.ours(document) if final is None else final
        return [
            self.review(document, is_first=True, **request),
            self.review(final, is_first=False, **request),
        ]

    @property
    def report(self):
        return self.shadow.report()

    @property
    def counts(self):
        """Those that are not 0."""
        return {name: number for name, number in self.report.counts.items() if number}

    def found(self):
        """The differences, as owner, field and reason."""
        return {
            (f"{each.kind} {each.namespace}/{each.name}", each.field, each.reason): each.objects
            for each in self.report.differences
        }


def of_web(**fields):
    """The ReplicaSet of a Deployment web."""
    return owner(name="web-5d9c", controller=True, **fields)


def pod_of_web(annotations=None, **spec):
    labels = {"app": "web", "pod-template-hash": "5d9c"}
    return pod(annotations, owners=[of_web()], labels=labels, **spec)


def test_what_is_answered_changes_nothing_and_refuses_nothing():
    observed = Observed(POLICY)
    for response in observed.create(workload(), uid="u-7"):
        assert response["allowed"]
        assert response["uid"] == "u-7"
        assert "patch" not in response
        assert "warnings" not in response


def test_an_object_that_would_be_refused_is_admitted_and_reported():
    observed = Observed(namespaces=None, onForeignScheduler="deny", gating="schedulerName")
    document = pod_of_web(keys(workload="web", version="1"), schedulerName="other")
    first, _ = observed.create(document, document)
    assert first["allowed"]
    assert observed.found() == {("Deployment ns1/web", "", "refused"): 1}


def test_equal_changes_are_counted_and_not_listed():
    observed = Observed(POLICY)
    observed.create(workload())
    assert observed.counts == {"equal": 1}
    assert observed.report.differences == ()


def test_what_only_harbourmaster_changes_is_a_difference_with_both_values():
    observed = Observed(POLICY)
    observed.create(workload(), workload())
    (found,) = observed.report.differences
    assert (found.field, found.reason) == (SELECTOR, "only-harbourmaster")
    assert (found.ours, found.theirs, found.intended) == ('{disk: "ssd"}', "", "")


def test_what_only_the_others_change_is_a_difference():
    observed = Observed(POLICY)
    document = workload(labels={"app": "other"})
    observed.create(document, workload(labels={"app": "other"}, nodeSelector={"disk": "ssd"}))
    assert observed.found() == {("Deployment ns1/web", SELECTOR, "only-kupid-or-keptn"): 1}


def test_different_values_are_a_difference():
    observed = Observed(POLICY)
    observed.create(workload(), workload(nodeSelector={"disk": "hdd"}))
    assert observed.found() == {("Deployment ns1/web", SELECTOR, "different-values"): 1}


def test_the_order_of_several_policies_is_an_intended_difference():
    second = cluster_policy("c2", nodeSelector={"disk": "hdd"})
    observed = Observed(POLICY, second)
    observed.create(workload(), workload(nodeSelector={"disk": "hdd"}))
    assert observed.found() == {("Deployment ns1/web", SELECTOR, "policy-order"): 1}


def test_a_namespace_that_kupid_excludes_by_its_label_is_an_intended_difference():
    observed = Observed(POLICY, namespaces=OF_KUPID)
    observed.create(workload(), workload())
    (found,) = observed.report.differences
    assert found.reason == "kupid-excluded-namespace"
    assert found.intended == INTENDED[found.reason]


def test_a_kind_that_kupid_does_not_change_is_an_intended_difference():
    observed = Observed(POLICY)
    bare = workload("Pod", name="one")
    observed.create(bare, bare)
    assert observed.found() == {("Pod ns1/one", "spec.nodeSelector", "kupid-excluded-kind"): 1}


def test_a_pod_of_a_template_without_the_policy_is_an_intended_difference():
    observed = Observed(POLICY)
    observed.create(pod_of_web(), pod_of_web())
    assert observed.found() == {("Deployment ns1/web", "spec.nodeSelector", "older-template"): 1}


def test_a_replaced_default_scheduler_is_an_intended_difference():
    observed = Observed(cluster_policy(schedulerName="special"))
    document = workload(schedulerName="default-scheduler")
    observed.create(document, document)
    at = "spec.template.spec.schedulerName"
    assert observed.found() == {("Deployment ns1/web", at, "default-scheduler"): 1}


def test_a_pod_that_keptn_admits_without_its_gate_is_a_difference():
    observed = Observed(namespaces=None)
    document = pod_of_web(keys(workload="web", version="1", app="shop"))
    observed.create(document, document)
    assert observed.found() == {("Deployment ns1/web", GATE_FIELD, "only-harbourmaster"): 1}


def test_another_version_is_a_difference():
    observed = Observed(namespaces=None)
    document = pod_of_web(keys(workload="web", app="shop"))
    final = observed.ours(document)
    final["metadata"]["annotations"]["keptn.sh/version"] = "7"
    observed.create(document, final)
    at = "metadata.annotations[keptn.sh/version]"
    assert observed.found() == {("Deployment ns1/web", at, "different-values"): 1}


def test_a_gate_of_others_that_keptn_removes_is_an_intended_difference():
    observed = Observed(namespaces=None)
    document = pod_of_web(keys(workload="web", version="1"), schedulingGates=[THEIRS])
    final = observed.ours(document)
    final["spec"]["schedulingGates"] = [GATE]
    observed.create(document, final)
    assert observed.found() == {("Deployment ns1/web", "spec.schedulingGates", "other-gates"): 1}


def test_a_pod_of_an_unknown_owner_is_an_intended_difference():
    observed = Observed(namespaces=None)
    observed.create(pod_of_web(), pod_of_web())
    assert observed.found() == {("Deployment ns1/web", GATE_FIELD, "gate-owner-unknown"): 1}


def test_a_node_name_that_becomes_affinity_is_an_intended_difference():
    observed = Observed(cluster_policy(nodeName="node-1"), namespaces=None)
    document = pod_of_web(keys(workload="web", version="1"))
    final = observed.ours(document)
    final["spec"].pop("affinity")
    final["spec"]["nodeName"] = "node-1"
    observed.create(document, final)
    assert observed.found() == {
        ("Deployment ns1/web", "spec.affinity", "node-name-as-affinity"): 1,
        ("Deployment ns1/web", "spec.nodeName", "node-name-as-affinity"): 1,
    }


@pytest.mark.parametrize(
    "theirs",
    [
        required({"zone": "b"}, {"zone": "a"}),
        required({"zone": "a"}, {"zone": "b"}, {"zone": "a"}),
        required({"zone": "a"}, {"zone": "b"}, {"zone": "a", "disk": "ssd"}),
    ],
    ids=["another order", "repeated terms", "a term that another one contains"],
)
def test_affinity_of_the_same_meaning_is_equal(theirs):
    observed = Observed(cluster_policy(affinity=required({"zone": "a"}, {"zone": "b"})))
    observed.create(workload(), workload(affinity=theirs))
    assert observed.counts == {"equal": 1}


def test_affinity_of_another_meaning_is_a_difference():
    observed = Observed(cluster_policy(affinity=required({"zone": "a"}, {"zone": "b"})))
    observed.create(workload(), workload(affinity=required({"zone": "a"})))
    assert observed.counts == {"different": 1}


def test_pods_of_one_owner_count_as_one_difference_with_their_number():
    observed = Observed(POLICY)
    for name in ("a", "b", "c"):
        final = copy.deepcopy(pod_of_web())
        final["metadata"]["name"] = f"web-5d9c-{name}"
        observed.create(pod_of_web(), final)
    assert observed.found() == {("Deployment ns1/web", "spec.nodeSelector", "older-template"): 3}


def test_pods_of_jobs_count_for_the_cron_job():
    observed = Observed(POLICY)
    for name in ("backup-28374650", "backup-28374651"):
        document = pod(owners=[owner("Job", name, controller=True)])
        observed.create(document, document)
    assert observed.found() == {("CronJob ns1/backup", "spec.nodeSelector", "older-template"): 2}


def test_pods_that_are_created_at_the_same_time_are_paired():
    observed = Observed(POLICY)
    final = observed.ours(pod_of_web())
    for is_first in (True, False):
        for _ in range(5):
            observed.review(final if not is_first else pod_of_web(), is_first=is_first)
    assert observed.counts == {"equal": 5}


def test_an_update_is_not_compared_with_a_former_one_that_was_refused():
    observed = Observed(POLICY)
    observed.review(workload(nodeSelector={"disk": "hdd"}), is_first=True, operation="UPDATE")
    observed.create(workload(), operation="UPDATE")
    assert observed.counts == {"equal": 1}


def test_dry_runs_do_not_count():
    observed = Observed(POLICY)
    observed.create(workload(), workload(), dryRun=True)
    assert observed.counts == {}
    assert observed.changes == []


def test_an_object_that_only_the_last_webhook_saw_counts_as_unpaired():
    observed = Observed(POLICY)
    observed.review(workload(), is_first=False)
    assert observed.counts == {"unpaired": 1}


def test_objects_between_the_webhooks_are_bounded_and_the_oldest_count_as_unpaired():
    observed = Observed(POLICY)
    for number in range(MAX_PENDING + 10):
        observed.review(workload(name=f"w-{number}"), is_first=True)
    assert observed.counts == {"unpaired": 10}
    observed.review(observed.ours(workload(name="w-10")), is_first=False)
    assert observed.counts == {"unpaired": 10, "equal": 1}


def test_differences_are_bounded_and_the_rest_is_counted():
    observed = Observed(POLICY)
    for number in range(MAX_DIFFERENCES + 5):
        document = workload(name=f"w-{number}")
        observed.create(document, document)
    assert len(observed.report.differences) == MAX_DIFFERENCES
    assert observed.counts["more"] == 5


def test_a_long_value_is_shortened_and_still_compared():
    selector = {f"key-{number}": "x" * 60 for number in range(20)}
    observed = Observed(cluster_policy(nodeSelector=selector))
    observed.create(workload())
    observed.create(workload(), workload(nodeSelector={**selector, "key-19": "y"}))
    (found,) = observed.report.differences
    assert len(found.ours) <= 100
    assert observed.counts == {"equal": 1, "different": 1}


@pytest.mark.parametrize("data", [b"", b"{", b'{"request": {"object": 1}}', b"[]"])
def test_what_is_not_a_review_is_allowed(data):
    observed = Observed(POLICY)
    for is_first in (True, False):
        _, decision = answer(data, observed.engine, may_patch=is_first)
        result, _ = observed.shadow.observe(data, observed.engine, decision, is_first=is_first)
        assert json.loads(result)["response"]["allowed"]


def test_a_pod_with_fields_of_wrong_types_is_allowed():
    observed = Observed(POLICY)
    document = workload("Pod", affinity="soft")
    document["metadata"]["ownerReferences"] = "none"
    for response in observed.create(document, document):
        assert response["allowed"]


def test_a_report_is_continued_after_a_restart():
    observed = Observed(POLICY)
    observed.create(workload(), workload())
    text = msgspec.json.encode(observed.report).decode()
    former = report_in(json.dumps({"data": {"report.json": text}}).encode())
    again = Observed(POLICY)
    again.shadow.restore(former)
    again.create(workload(), workload())
    assert again.counts == {"different": 2}
    assert again.found() == {("Deployment ns1/web", SELECTOR, "only-harbourmaster"): 2}


@pytest.mark.parametrize(
    "creations", [300, pytest.param(10_000, marks=pytest.mark.full)], ids=["some", "many"]
)
def test_the_report_lists_exactly_the_differences_of_a_stand_in(creations):
    """Every tenth object is changed otherwise than by us, in one of three ways."""
    observed = Observed(POLICY)
    expected = {}
    for number in range(creations):
        name = f"w-{number % 100}"
        document = workload(name=name)
        final, reason = {
            0: (document, "only-harbourmaster"),
            1: (workload(name=name, nodeSelector={"disk": "hdd"}), "different-values"),
        }.get(number % 10, (None, ""))
        observed.create(document, final)
        if reason:
            key = (f"Deployment ns1/{name}", SELECTOR, reason)
            expected[key] = expected.get(key, 0) + 1
    assert observed.found() == expected
    assert observed.counts == {"equal": creations * 8 // 10, "different": creations * 2 // 10}
