"""Shadow mode: objects before and after other webhooks are compared, and nothing is changed."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import itertools
import json
import tracemalloc
from collections import Counter

import msgspec
import pytest

from harbourmaster.kube.errors import ConflictError
from harbourmaster.policies.keys import node_term_key
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.tolerations import DEFAULTS
from harbourmaster.webhook import shadow
from harbourmaster.webhook.handlers import answer, answer_failed
from harbourmaster.webhook.review import ReviewBody
from harbourmaster.webhook.server import MUTATE_PATHS, VALIDATE_PATHS
from harbourmaster.webhook.shadow import (
    INTENDED,
    MAX_DIFFERENCES,
    MAX_OF_OWNER,
    MAX_PENDING,
    PAIR_SECONDS,
    WRITE_SECONDS,
    Shadow,
    keep_written,
    projection,
    report_in,
)
from helpers.admission import GATE, THEIRS, Admission, engine_of, keys, owner, pod
from helpers.objects import body, cluster_policy, required, workload
from helpers.oracles import apply_patch
from helpers.raw_http import post, post_chunked
from helpers.virtual_time import virtual

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
        result = self.shadow.observe(ReviewBody(data), self.engine, decision, is_first=is_first)
        return json.loads(result)["response"]

    def ours(self, document):
        """Return the object with our patch."""
        result, _ = answer(body(document), self.engine)
        return apply_patch(document, json.loads(result)["response"])

    def create(self, document, final=None, **request):
        """Create an object; ``final`` is its state after all webhooks, by default ours."""
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
        """Return the counts that are not 0."""
        return {name: number for name, number in self.report.counts.items() if number}

    def found(self):
        """Return the number of objects by difference: owner, field and reason."""
        return {
            (
                f"{difference.kind} {difference.namespace}/{difference.name}",
                difference.field,
                difference.reason,
            ): difference.objects
            for difference in self.report.differences
        }


def of_web(**fields):
    """The ReplicaSet of a Deployment web."""
    return owner(name="web-5d9c", controller=True, **fields)


def pod_of_web(annotations=None, **spec):
    labels = {"app": "web", "pod-template-hash": "5d9c"}
    return pod(annotations, owners=[of_web()], labels=labels, **spec)


def test_what_is_answered_changes_nothing_and_refuses_nothing():
    observed = Observed(POLICY)
    first, last = observed.create(workload(), uid="u-7")
    plain = {"uid": "u-7", "allowed": True, "status": {"metadata": {}, "code": 200}}
    assert (first, last) == (plain, plain)


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
    (difference,) = observed.report.differences
    assert (difference.field, difference.reason) == (SELECTOR, "only-harbourmaster")
    assert (difference.ours, difference.theirs, difference.intended) == ('{disk: "ssd"}', "", "")


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
    (difference,) = observed.report.differences
    assert difference.reason == "kupid-excluded-namespace"
    assert difference.intended == INTENDED[difference.reason]


def test_a_kind_that_kupid_does_not_change_is_an_intended_difference():
    observed = Observed(POLICY)
    bare = workload("Pod", name="one")
    observed.create(bare, bare)
    assert observed.found() == {("Pod ns1/one", "spec.nodeSelector", "kupid-excluded-kind"): 1}


def test_a_template_that_an_operator_made_is_one_of_kupid_s():
    observed = Observed(POLICY)
    document = workload()
    stack = owner("Stack", "shop", controller=True)
    document["metadata"]["ownerReferences"] = [stack]
    observed.create(document, document)
    assert observed.found() == {("Stack ns1/shop", SELECTOR, "only-harbourmaster"): 1}


def test_a_pod_of_a_template_without_the_policy_is_a_difference_that_is_not_intended():
    observed = Observed(POLICY)
    observed.create(pod_of_web(), pod_of_web())
    assert [difference.intended for difference in observed.report.differences] == [""]
    assert observed.found() == {("Deployment ns1/web", "spec.nodeSelector", "not-by-template"): 1}


def test_a_replaced_default_scheduler_is_an_intended_difference():
    observed = Observed(cluster_policy(schedulerName="special"))
    document = workload(schedulerName="default-scheduler")
    observed.create(document, document)
    at = "spec.template.spec.schedulerName"
    assert observed.found() == {("Deployment ns1/web", at, "default-scheduler"): 1}


def test_replaced_default_tolerations_are_no_difference():
    soon = [{**item, "tolerationSeconds": 30} for item in DEFAULTS.values()]
    observed = Observed(cluster_policy(tolerations=soon))
    document = pod_of_web(tolerations=[*DEFAULTS.values()])
    kept = copy.deepcopy(document)
    kept["spec"]["tolerations"] += soon
    observed.create(document, kept)
    assert observed.found() == {}


def test_a_pod_that_keptn_admits_without_its_gate_is_a_difference():
    observed = Observed(namespaces=None)
    document = pod_of_web(keys(workload="web", version="1", app="shop"))
    observed.create(document, document)
    assert observed.found() == {("Deployment ns1/web", GATE_FIELD, "only-harbourmaster"): 1}


def test_a_pod_that_keptn_admits_without_its_scheduler_is_a_difference():
    observed = Observed(namespaces=None, gating="schedulerName")
    document = pod_of_web(keys(workload="web", version="1", app="shop"))
    observed.create(document, document)
    at = "spec.schedulerName"
    assert observed.found() == {("Deployment ns1/web", at, "only-harbourmaster"): 1}


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


@pytest.mark.parametrize(
    ("former", "left", "reason"),
    [
        ([], ["a"], None),
        (["a"], ["a", "b"], None),
        (["a", "b"], ["b"], "other-gates"),
        (["a"], ["b"], "other-gates"),
        (["a" * 300], [], "only-kupid-or-keptn"),
    ],
    ids=["added", "one more", "removed", "replaced", "too long to know"],
)
def test_only_gates_of_others_that_are_removed_are_an_intended_difference(former, left, reason):
    observed = Observed(namespaces=None)
    gates = [{"name": name} for name in former]
    document = pod_of_web(keys(workload="web", version="1"), schedulingGates=gates)
    final = observed.ours(document)
    final["spec"]["schedulingGates"] = [GATE, *({"name": name} for name in left)]
    observed.create(document, final)
    assert [difference.reason for difference in observed.report.differences] == (
        [reason] if reason else []
    )


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


@pytest.mark.parametrize("terms", [64, 600], ids=["few", "many"])
def test_the_key_of_a_term_is_made_once_at_most(monkeypatch, terms):
    calls = Counter()

    def count_call(term):
        calls["made"] += 1
        return node_term_key(term)

    monkeypatch.setattr(shadow, "node_term_key", count_call)
    document = workload(affinity=required(*({"zone": f"z{n}"} for n in range(terms))))
    projection(document, KINDS[("apps", "v1", "Deployment")])
    assert calls["made"] == (terms if terms == 64 else 0)


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
    assert observed.found() == {("Deployment ns1/web", "spec.nodeSelector", "not-by-template"): 3}


def test_pods_of_jobs_count_for_the_cron_job():
    observed = Observed(POLICY)
    for name in ("backup-28374650", "backup-28374651"):
        document = pod(owners=[owner("Job", name, controller=True)])
        observed.create(document, document)
    assert observed.found() == {("CronJob ns1/backup", "spec.nodeSelector", "not-by-template"): 2}


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


def test_different_objects_of_one_owner_at_the_same_time_are_paired_with_their_own():
    observed = Observed(POLICY)
    disks = ("a", "b", "c")
    documents = [workload("Pod", {"app": disk}, nodeSelector={"own": disk}) for disk in disks]
    for document in documents:
        observed.review(document, is_first=True)
    for document in documents:
        observed.review(observed.ours(document), is_first=False)
    assert observed.counts == {"equal": 3}


def test_different_objects_of_one_owner_are_bounded_and_the_oldest_count_as_unpaired():
    observed = Observed(POLICY)
    for number in range(MAX_OF_OWNER + 2):
        observed.review(workload(nodeSelector={"own": str(number)}), is_first=True)
    assert observed.counts == {"unpaired": 2}


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


def test_a_report_fits_into_a_config_map_whatever_the_names_are():
    observed = Observed(POLICY)
    for number in range(MAX_DIFFERENCES):
        document = pod_of_web()
        long_owner = owner(
            kind="\U00020000" * 300, name=f"{number}-" + "\U00020000" * 300, controller=True
        )
        document["metadata"]["ownerReferences"] = [long_owner]
        observed.create(document, document)
    report = observed.report
    assert len(msgspec.json.encode(report)) < 2**20
    assert {len(difference.kind) for difference in report.differences} == {253}
    assert {len(difference.name) for difference in report.differences} == {253}
    assert len(report.differences) + report.counts["more"] == MAX_DIFFERENCES
    assert report.counts["more"] > 0


def test_objects_with_long_names_take_no_more_memory_between_the_webhooks():
    observed = Observed(POLICY)
    document = pod_of_web()
    document["metadata"]["ownerReferences"][0]["uid"] = "u" * 1_000_000
    tracemalloc.start()
    try:
        observed.review(document, is_first=True)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
    observed.review(observed.ours(document), is_first=False)
    assert observed.counts == {"equal": 1}


def test_a_long_value_is_shortened_and_still_compared():
    selector = {f"key-{number}": "x" * 60 for number in range(20)}
    observed = Observed(cluster_policy(nodeSelector=selector))
    observed.create(workload())
    observed.create(workload(), workload(nodeSelector={**selector, "key-19": "y"}))
    (difference,) = observed.report.differences
    assert len(difference.ours) <= 100
    assert observed.counts == {"equal": 1, "different": 1}


@pytest.mark.parametrize("data", [b"", b"{", b'{"request": {"object": 1}}', b"[]"])
def test_what_is_not_a_review_is_allowed(data):
    observed = Observed(POLICY)
    for is_first in (True, False):
        _, decision = answer(data, observed.engine, may_patch=is_first)
        result = observed.shadow.observe(
            ReviewBody(data), observed.engine, decision, is_first=is_first
        )
        assert json.loads(result)["response"]["allowed"]


def test_a_pod_with_fields_of_wrong_types_is_allowed():
    observed = Observed(POLICY)
    document = workload("Pod", affinity="soft")
    document["metadata"]["ownerReferences"] = "none"
    assert [response["allowed"] for response in observed.create(document, document)] == [True, True]


def test_what_was_found_before_the_former_report_was_read_is_added():
    observed = Observed(POLICY)
    observed.create(workload(), workload())
    observed.shadow.restore(observed.report)
    assert observed.found() == {("Deployment ns1/web", SELECTOR, "only-harbourmaster"): 2}
    assert observed.counts == {"different": 2}


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


class Writes:
    """A client that keeps the reports that are written, with their times."""

    def __init__(self, former=b"{}"):
        self.former, self.faults, self.written = former, [], []
        self.unreadable = []

    async def get(self, *_):
        if self.unreadable:
            raise self.unreadable.pop()
        return self.former

    async def patch(self, _resource, _name, patch, _namespace):
        if self.faults:
            raise self.faults.pop()
        report = report_in(json.dumps(patch.value).encode())
        self.written.append((asyncio.get_running_loop().time(), report.counts["unpaired"]))


@contextlib.asynccontextmanager
async def written_shadow(client):
    """Shadow mode whose report is written."""
    changed = asyncio.Event()
    observed = Observed(POLICY)
    observed.shadow = Shadow(changed.set, asyncio.get_running_loop().time)
    task = asyncio.create_task(keep_written(observed.shadow, changed, client, "own"))
    yield observed
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@virtual
async def test_the_report_is_written_after_changes_and_not_more_often():
    client = Writes()
    async with written_shadow(client) as observed:
        await asyncio.sleep(60)
        assert client.written == []
        for _ in range(10):
            observed.review(workload(), is_first=False)
            await asyncio.sleep(1)
        await asyncio.sleep(60)
    times = [at for at, _ in client.written]
    assert (client.written[0][1], client.written[-1][1], len(client.written)) == (1, 10, 3)
    assert all(later - at >= WRITE_SECONDS for at, later in itertools.pairwise(times))


@virtual
async def test_objects_that_others_refuse_are_counted_and_written_without_another_change():
    client = Writes()
    async with written_shadow(client) as observed:
        for name in ("a", "b", "b"):
            observed.review(workload(name=name), is_first=True)
        await asyncio.sleep(PAIR_SECONDS - 1)
        observed.review(workload(name="b"), is_first=True)
        observed.review(observed.ours(workload(name="b")), is_first=False)
        await asyncio.sleep(PAIR_SECONDS * 3)
    assert observed.counts == {"unpaired": 3, "equal": 1}
    assert client.written[-1][1] == 3


@virtual
async def test_a_report_that_could_not_be_written_is_written_later():
    client = Writes()
    client.faults.append(ConflictError("it failed"))
    async with written_shadow(client) as observed:
        observed.review(workload(), is_first=False)
        await asyncio.sleep(60)
    assert [number for _, number in client.written] == [1]


@virtual
async def test_nothing_is_written_before_the_former_report_is_read():
    former = json.dumps({"data": {"report.json": '{"counts": {"unpaired": 7}}'}}).encode()
    client = Writes(former)
    client.unreadable.extend([ConflictError("it failed")] * 2)
    async with written_shadow(client) as observed:
        observed.review(workload(), is_first=False)
        await asyncio.sleep(60)
    assert [number for _, number in client.written] == [8]


@virtual
async def test_a_malformed_report_is_replaced():
    client = Writes(b'{"data": {"report.json": "{"}}')
    async with written_shadow(client) as observed:
        observed.review(workload(), is_first=False)
        await asyncio.sleep(60)
    assert [number for _, number in client.written] == [1]


@pytest.mark.parametrize("send", [post, post_chunked], ids=["at once", "in parts"])
async def test_served_reviews_are_compared_and_not_patched(log, send):
    observed = Observed(POLICY)
    admission = Admission(log, observed.engine, shadow=observed.shadow)
    for path, document in (
        ("/shadow/mutate", workload()),
        ("/shadow/validate", workload(nodeSelector={"disk": "hdd"})),
    ):
        answered = await admission.ask(send(body(document), path=path))
        response = json.loads(answered.body)["response"]
        assert response["allowed"]
        assert "patch" not in response
    assert observed.counts == {"different": 1}


@pytest.mark.parametrize("path", [*MUTATE_PATHS, *VALIDATE_PATHS])
async def test_in_shadow_mode_paths_that_decide_are_not_served(log, path):
    observed = Observed(POLICY)
    admission = Admission(log, observed.engine, shadow=observed.shadow)
    answered = await admission.ask(post(body(workload()), path=path))
    assert answered.status == 404


async def test_without_shadow_mode_its_paths_are_not_served(log):
    admission = Admission(log, Observed(POLICY).engine)
    answered = await admission.ask(post(body(workload()), path="/shadow/mutate"))
    assert answered.status == 404


def test_a_pod_on_which_nothing_could_be_decided_is_not_gated():
    observed = Observed(namespaces=None)
    data = body(pod_of_web(keys(workload="web")))
    _, decision = answer_failed(ReviewBody(data), observed.engine, "deadline", "too late")
    assert decision.verdict.response.patch
    result = observed.shadow.observe(ReviewBody(data), observed.engine, decision, is_first=True)
    assert "patch" not in json.loads(result)["response"]
