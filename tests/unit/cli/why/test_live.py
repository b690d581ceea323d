"""``harbourmaster why`` of a cluster: what it asks for, what it says, and what it may not read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    POLICIES,
    REPLICA_SETS,
    ROLLOUTS,
)
from harbourmaster.cli.main import main
from helpers.commands import kubeconfig
from helpers.fake_api import FakeApi
from helpers.objects import cluster_policy, policy

NAMESPACE = "shop"
ITEM = {"key": "webhook.yaml", "path": "a/in.yaml"}
SSD = cluster_policy("disks", pods={"app": "cart"}, nodeSelector={"disk": "ssd"})
OTHERS = cluster_policy("others", pods={"app": "till"}, nodeName="n1")
LOCAL = policy("local", NAMESPACE, tolerations=[{"key": "pool", "operator": "Exists"}])


def pod(name="cart-1", owner=None, labels=None, **spec):
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "labels": {"app": "cart"} if labels is None else labels,
        "creationTimestamp": "2026-03-01T12:00:00Z",
    }
    if owner:
        metadata["ownerReferences"] = [owner]
    containers = [{"name": "c", "image": "registry.example.com/cart:1"}]
    spec = {"containers": containers, "schedulerName": "default-scheduler", **spec}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def reference(kind, name):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }


def template(**spec):
    found = pod(**spec)
    return {"metadata": {"labels": found["metadata"]["labels"]}, "spec": found["spec"]}


def put_owner(api, resource, found, **metadata):
    """Put a workload with a template under the uid by which ``reference`` names it."""
    metadata = {"name": "cart", "namespace": NAMESPACE, **metadata}
    api.put(resource, {"metadata": metadata, "spec": {"template": found}})
    api.get(resource, "cart", NAMESPACE)["metadata"]["uid"] = "uid-cart"


def registration(**entry):
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    webhook = {"name": "pods.harbourmaster.dev", "rules": [rule], **entry}
    return {"metadata": {"name": "harbourmaster"}, "webhooks": [webhook]}


@pytest.fixture
async def api():
    async with FakeApi() as found:
        found.put(MUTATING_WEBHOOKS, registration())
        found.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for each in (SSD, OTHERS):
            found.put(CLUSTER_POLICIES, each)
        found.put(POLICIES, LOCAL)
        yield found


@pytest.fixture
def why(api, tmp_path, capsys):
    """Return ``why(*arguments)``: the exit code, and what was printed on both streams."""
    path = kubeconfig(tmp_path, api.url)

    async def run(*arguments):
        command = ["why", *arguments, "--kubeconfig", path]
        code = await asyncio.to_thread(main, command)
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


def detail(out, name="policies"):
    report = json.loads(out)
    (section,) = [each for each in report["sections"] if each["name"] == name]
    return section


async def test_each_policy_is_said_to_match_or_where_it_fails(api, why):
    selector = {"nodeSelector": {"disk": "hdd"}}
    api.put(PODS, pod(**selector))
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
    assert (code, err) == (0, "")
    section = detail(out)
    disks, local, others = section["detail"]["policies"]
    assert disks["contributions"] == [
        {
            "path": 'spec.nodeSelector["disk"]',
            "value": "ssd",
            "rule": "kept-own",
            "by": [""],
            "present": "hdd",
        }
    ]
    assert local["contributions"] == [
        {
            "path": "spec.tolerations[0]",
            "value": {"key": "pool", "operator": "Exists"},
            "rule": "added",
        }
    ]
    assert not others["matched"]
    assert others["mismatch"] == {
        "path": 'spec.podSelector.matchLabels["app"]',
        "wants": 'wants "till"',
        "found": 'the pod has "cart"',
    }
    _, text, _ = await why("pod", "cart-1", "-n", NAMESPACE)
    assert "2 of 3 select the pod; created now, it would differ in 1 field" in text
    assert 'yields  nodeSelector["disk"]: ssd to what is there: hdd' in text
    assert 'cluster policy others  spec.podSelector.matchLabels["app"] wants "till"' in text


async def test_it_gets_what_it_needs_by_name_and_lists_no_pods(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart")))
    above = reference("Deployment", "cart")
    put_owner(api, REPLICA_SETS, template(), ownerReferences=[above])
    put_owner(api, DEPLOYMENTS, template())

    for index in range(20):
        api.put(PODS, pod(f"noise-{index}"))
    code, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert code == 0
    assert "of Deployment cart" in out
    seen = api.requests
    assert not [each for each in seen if each.verb != "get" and each.path.endswith("/pods")]
    listed = {each.path.rpartition("/")[2] for each in seen if each.verb == "list"}
    policies = {"clusterpodschedulingpolicies", "podschedulingpolicies"}
    assert policies <= listed <= {*policies, "events", "nodes", "mutatingwebhookconfigurations"}
    assert len(seen) <= 20
    assert all(each.method == "GET" for each in seen)


async def test_a_pod_that_is_gone_is_one_line(why):
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1")
    assert (code, out) == (1, "")
    assert err == (
        f"harbourmaster: Pod {NAMESPACE}/cart-1 not found: "
        f"kubectl -n {NAMESPACE} get pods lists those that exist\n"
    )


async def test_who_may_not_get_the_pod_is_told_which_right_to_ask_for(api, why):
    api.put(PODS, pod())
    api.forbid("get", PODS)
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1")
    assert (code, out) == (1, "")
    assert err == (
        f"harbourmaster: Pod {NAMESPACE}/cart-1 could not be read: missing permission to get pods\n"
    )


async def test_what_else_may_not_be_read_is_told_and_the_rest_is_said(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart")))
    for verb, resource in (
        ("list", CLUSTER_POLICIES),
        ("get", NAMESPACES),
        ("get", REPLICA_SETS),
        ("get", DEPLOYMENTS),
    ):
        api.forbid(verb, resource)
    code, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert code == 0
    plural = "clusterpodschedulingpolicies.kupid.gardener.cloud"
    assert f"cluster policies could not be read: missing permission to list {plural}" in out
    assert f"namespace {NAMESPACE} could not be read: missing permission to get namespaces" in out
    assert (
        "its owner, ReplicaSet cart could not be read: missing permission to get replicasets.apps"
        in out
    )
    assert "assuming the default settings" in out
    assert "would add  tolerations[0] = pool" in out
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
    section = detail(out)
    assert section["detail"]["problems"]
    assert [each["reference"] for each in section["detail"]["policies"]] == [
        f"PodSchedulingPolicy {NAMESPACE}/local"
    ]


async def test_half_an_installation_is_told_by_what_is_missing(api, why):
    api.put(PODS, pod())
    for resource in (CLUSTER_POLICIES, POLICIES):
        api.undefine(resource)
    code, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert code == 0
    assert "cluster policies: the cluster does not know the kind: install its definition" in out
    assert f"policies of {NAMESPACE}: the cluster does not know the kind" in out


async def test_no_cluster_is_one_line(api, why):
    await api.stop()
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1")
    assert (code, out) == (2, "")
    assert err.startswith("harbourmaster: ")
    assert err.count("\n") == 1
    await api.start()


async def test_a_broken_policy_harms_nothing_but_itself(api, why):
    api.put(PODS, pod())
    broken = cluster_policy("broken", pods={"app": "cart"}, nodeSelector="x")
    api.put(CLUSTER_POLICIES, broken)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
    section = detail(out)
    assert section["state"] == "fault"
    by_name = {each["reference"]: each for each in section["detail"]["policies"]}
    assert by_name["ClusterPodSchedulingPolicy broken"]["fault"].startswith("spec.nodeSelector")
    assert by_name["ClusterPodSchedulingPolicy disks"]["contributions"]


@pytest.mark.parametrize(
    ("made", "generation", "hint"),
    [
        ("2026-03-01T13:00:00Z", 1, "it was created after the object"),
        ("2026-03-01T11:00:00Z", 2, "it was changed since it was created"),
        ("2026-03-01T11:00:00Z", 1, "it is older than the object"),
    ],
)
async def test_a_policy_that_did_nothing_yet_is_given_a_reason(api, why, made, generation, hint):
    api.put(PODS, pod())
    api.get(PODS, "cart-1", NAMESPACE)["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    found = api.get(CLUSTER_POLICIES, "disks")["metadata"]
    found.update(creationTimestamp=made, generation=generation)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert hint in " ".join(out.split())


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        (
            registration(namespaceSelector={"matchLabels": {"team": "a"}}),
            'namespaceSelector.matchLabels["team"] wants "a", the namespace has no label team',
        ),
        (
            registration(objectSelector={"matchLabels": {"app": "till"}}),
            'objectSelector.matchLabels["app"] wants "till", the object has "cart"',
        ),
        (registration(rules=[]), "no webhook of ours is registered for pods"),
        (registration(name="pods.example.com"), "no webhook of ours is registered: harbour"),
    ],
)
async def test_an_object_that_is_never_sent_to_the_webhook_is_said_to_be_so(
    api, why, configuration, told
):
    api.put(PODS, pod())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "never" not in out
    api.put(MUTATING_WEBHOOKS, configuration)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert told in out
    assert "which is never sent to the webhook" in out
    assert "older than the object" not in out


async def test_fields_are_told_apart_by_the_template_and_the_policies(api, why):
    selector = {"disk": "ssd", "zone": "a", "odd": "1"}
    default = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    owner = reference("ReplicaSet", "cart")
    api.put(PODS, pod(owner=owner, nodeSelector=selector, tolerations=[default]))
    found = template(nodeSelector={"zone": "a"})
    put_owner(api, REPLICA_SETS, found)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("    ")}
    assert lines['nodeSelector["disk"]'].endswith("cluster policy disks")
    assert lines['nodeSelector["zone"]'].endswith("the template")
    assert lines['nodeSelector["odd"]'].endswith("no current policy")
    assert lines["tolerations[0]"].endswith("Kubernetes, for every pod")


async def test_a_workload_is_asked_about_by_its_template(api, why):
    metadata = {"name": "cart", "namespace": NAMESPACE}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": {"template": template()}})
    for words in (("deployment", f"{NAMESPACE}/cart"), ("workload", "deploy", f"{NAMESPACE}/cart")):
        code, out, _ = await why(*words, "-o", "json")
        assert code == 0
        disks = detail(out)["detail"]["policies"][0]
        assert disks["contributions"][0]["path"] == 'spec.template.spec.nodeSelector["disk"]'


async def test_a_manifest_is_judged_by_the_policies_of_the_cluster(api, why, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod()}))
    code, out, _ = await why("-f", str(path))
    assert code == 0
    assert 'adds  nodeSelector["disk"] = ssd' in out
    assert "2 of 3 select the pod and change 2 fields" in out


async def test_the_settings_are_those_of_the_installation(api, why):
    api.put(PODS, pod())
    api.put(CLUSTER_POLICIES, cluster_policy("packer", schedulerName="packer"))
    container = {"args": ["webhook", "--host=0.0.0.0", "--treat-default-scheduler-as-unset=false"]}
    metadata = {"name": "harbourmaster-webhook", "namespace": "harbourmaster-system"}
    spec = {"template": {"spec": {"containers": [container]}}}
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "would set  schedulerName = packer, which was default-scheduler" in out
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "yields  schedulerName: packer to what is there: default-scheduler" in out
    assert "assuming the default settings" not in out


async def test_settings_of_a_mounted_file_count_too(api, why):
    api.put(PODS, pod())
    metadata = {"name": "harbourmaster-webhook", "namespace": "harbourmaster-system"}
    container = {
        "args": ["webhook", "--config", "/etc/harbourmaster/config/webhook.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/harbourmaster/config"}],
    }
    volume = {"name": "config", "configMap": {"name": "settings"}}
    spec = {"template": {"spec": {"containers": [container], "volumes": [volume]}}}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    data = {"webhook.yaml": "features: [gates]\n"}
    found = {"name": "settings", "namespace": "harbourmaster-system"}
    api.put(CONFIG_MAPS, {"metadata": found, "data": data})
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "Policies: no policy is evaluated: policies are not among the features" in out


@pytest.mark.parametrize(
    ("flag", "mount", "items"),
    [
        (["--config=/etc/hm/config.yaml"], {}, [{"key": "webhook.yaml", "path": "config.yaml"}]),
        (["--config", "/etc/hm/in.yaml"], {"subPath": "a"}, [ITEM]),
        (["--config=/etc/hm/a/in.yaml"], {}, [ITEM]),
        (["--config=/etc/hm"], {"subPath": "webhook.yaml"}, None),
    ],
    ids=["items", "items-and-sub-path", "items-in-a-folder", "sub-path"],
)
async def test_settings_count_however_their_file_is_mounted(api, why, flag, mount, items):
    api.put(PODS, pod())
    metadata = {"name": "harbourmaster-webhook", "namespace": "harbourmaster-system"}
    container = {
        "args": ["webhook", *flag],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/hm", **mount}],
    }
    source = {"name": "settings"} if items is None else {"name": "settings", "items": items}
    volume = {"name": "config", "configMap": source}
    spec = {"template": {"spec": {"containers": [container], "volumes": [volume]}}}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    found = {"name": "settings", "namespace": "harbourmaster-system"}
    api.put(CONFIG_MAPS, {"metadata": found, "data": {"webhook.yaml": "features: [gates]\n"}})
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "Policies: no policy is evaluated: policies are not among the features" in out
    assert "assuming the default settings" not in out


async def test_what_is_yielded_is_not_said_to_be_there(api, why):
    api.remove(POLICIES, "local", NAMESPACE)
    api.put(PODS, pod(nodeSelector={"disk": "hdd"}))
    api.put(PODS, pod("cart-2", nodeSelector={"disk": "ssd"}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "1 of 2 selects the pod; it changes nothing" in out
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-2")
    assert "1 of 2 selects the pod; everything that it sets is present" in out


async def test_an_owner_that_is_gone_is_told_and_one_of_its_name_is_another(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), nodeSelector={"zone": "a"}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, ReplicaSet cart, is gone\n" in out
    put_owner(api, REPLICA_SETS, template(nodeSelector={"zone": "a"}))
    api.get(REPLICA_SETS, "cart", NAMESPACE)["metadata"]["uid"] = "another"
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, ReplicaSet cart, is gone: another one has its name" in out
    assert "the template" not in out


async def test_a_nearer_owner_counts_where_the_next_is_unknown(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), nodeSelector={"zone": "a"}))
    owner = {**reference("Rollout", "cart"), "apiVersion": "argoproj.io/v1alpha1"}
    found = template(nodeSelector={"zone": "a"})
    put_owner(api, REPLICA_SETS, found, ownerReferences=[owner])
    api.undefine(ROLLOUTS)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, Rollout cart, is of a kind that the cluster no longer knows" in out
    assert "install its definition" not in out
    assert 'nodeSelector["zone"] a the template' in " ".join(out.split())


async def test_what_the_daemonset_controller_sets_is_said_to_be_of_it(api, why):
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    key = "node.kubernetes.io/unschedulable"
    toleration = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    own = {"affinity": {"nodeAffinity": node}, "tolerations": [toleration]}
    api.put(PODS, pod(owner=reference("DaemonSet", "cart"), **own))
    put_owner(api, DAEMON_SETS, template())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("    ")}
    for path in ("tolerations[0]", "affinity.nodeAffinity.required"):
        assert lines[path].endswith("the DaemonSet controller")


async def test_required_terms_that_a_policy_narrowed_are_the_templates_too(api, why):
    def affinity(*asked):
        found = [{"key": key, "operator": "In", "values": [value]} for key, value in asked]
        node = {"nodeSelectorTerms": [{"matchExpressions": found}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node}}

    narrow = cluster_policy("narrow", pods={"app": "cart"}, affinity=affinity(("disk", "ssd")))
    api.put(CLUSTER_POLICIES, narrow)
    both = affinity(("zone", "a"), ("disk", "ssd"))
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), affinity=both))
    found = template(affinity=affinity(("zone", "a")))
    put_owner(api, REPLICA_SETS, found)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "zone=a and disk=ssd  the template and cluster policy narrow" in out


async def test_a_template_gets_a_younger_policy_at_its_next_update(api, why):
    metadata = {"name": "cart", "namespace": NAMESPACE}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": {"template": template()}})
    found = api.get(DEPLOYMENTS, "cart", NAMESPACE)["metadata"]
    found["creationTimestamp"] = "2026-03-01T12:00:00Z"
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["CREATE"]}
    api.put(MUTATING_WEBHOOKS, registration(rules=[rule]))
    api.get(CLUSTER_POLICIES, "disks")["metadata"]["creationTimestamp"] = "2026-03-01T13:00:00Z"
    _, out, _ = await why("deployment", f"{NAMESPACE}/cart")
    assert "it was created after the object and applies at the object's next update" in out
    assert 'wants "till", the template has "cart"' in out


async def test_many_policies_that_fail_at_one_part_are_one_line(api, why):
    api.put(PODS, pod())
    for number in range(12):
        pods = {"app": "cart", "many": str(number)}
        api.put(CLUSTER_POLICIES, cluster_policy(f"many-{number:02}", pods=pods, nodeName="n"))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert out.count("many-") == 1
    assert (
        'cluster policy many-00 and 11 more  spec.podSelector.matchLabels["many"] wants '
        "something else, the pod has no label many; --all lists them"
    ) in out
    assert 'cluster policy others spec.podSelector.matchLabels["app"]' in " ".join(out.split())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "--all")
    assert out.count("many-") == 12
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
    assert out.count('"ClusterPodSchedulingPolicy many-') == 12


async def test_that_nothing_of_ours_is_installed_is_told_once(api, why):
    api.put(PODS, pod(schedulingGates=[{"name": "keptn-prechecks-gate"}]))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert out.count("harbourmaster-system") == 1
    assert (
        "no Deployment of Harbourmaster in namespace harbourmaster-system (--installed-in)" in out
    )
    assert "unknown: the settings could not be read" in out


async def test_a_configmap_that_is_missing_is_no_missing_deployment(api, why):
    api.put(PODS, pod())
    metadata = {"name": "harbourmaster-webhook", "namespace": "harbourmaster-system"}
    container = {
        "args": ["webhook", "--config=/etc/hm/webhook.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/hm"}],
    }
    volume = {"name": "config", "configMap": {"name": "settings"}}
    spec = {"template": {"spec": {"containers": [container], "volumes": [volume]}}}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "Deployment harbourmaster-system/harbourmaster-webhook: there is no ConfigMap" in out


@pytest.mark.slow
def test_what_no_report_of_a_plain_pod_needs_is_not_loaded():
    code = (
        "import sys, harbourmaster.cli.main, harbourmaster.cli.why.run\n"
        "for name in harbourmaster.cli.why.run.SECTIONS:\n"
        "    __import__(f'harbourmaster.cli.why.sections.{name}')\n"
        "heavy = {'structlog', 'harbourmaster.rescheduling.planner', "
        "'harbourmaster.cli.why.offline', 'jinja2'}\n"
        "print(*heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "\n"


async def test_no_scheduler_is_blamed_for_a_pod_that_is_being_deleted(api, why):
    waiting = pod()
    waiting["metadata"]["deletionTimestamp"] = "2026-03-01T13:00:00Z"
    waiting["metadata"]["finalizers"] = ["example.com/stay"]
    api.put(PODS, waiting)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "being deleted" in out
    assert "scheduler has looked" not in out


async def test_control_characters_of_others_stay_text(api, why):
    evil = "\x1b[31mred\u202e"
    api.put(PODS, pod(nodeSelector={"disk": evil}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "red" in out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("pod", "a/b/c"),
        ("pod", "/b"),
        ("pod", f"{NAMESPACE}/cart-1", "-n", "other"),
        ("-f", "y", "pod", "x"),
        ("--policies", "y", "pod", "x"),
    ],
)
async def test_words_that_are_no_question_are_one_line(why, words):
    code, out, err = await why(*words)
    assert (code, out) == (2, "")
    assert err.startswith("harbourmaster: why: ")
    assert err.count("\n") == 1
