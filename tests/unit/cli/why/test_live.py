"""``harbourmaster why`` for a cluster: its requests, its output, and missing permissions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    POLICIES,
    REPLICA_SETS,
)
from harbourmaster.cli.main import main
from helpers.command import kubeconfig
from helpers.explanations import NAMESPACE, pod, put_owner, reference, registration, template
from helpers.objects import cluster_policy

HOME = "harbourmaster-system"


def install(api, *flags, settings=None):
    """Put the webhook's Deployment, with a file of a ConfigMap; without ``settings`` that is gone.

    ``--config=/etc/hm/webhook.yaml`` names the file.
    """
    container = {
        "args": ["webhook", *flags],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/hm"}],
    }
    volume = {"name": "config", "configMap": {"name": "settings"}}
    spec = {"template": {"spec": {"containers": [container], "volumes": [volume]}}}
    metadata = {"name": "harbourmaster-webhook", "namespace": HOME}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    if settings is not None:
        data = {"metadata": {"name": "settings", "namespace": HOME}}
        api.put(CONFIG_MAPS, {**data, "data": {"webhook.yaml": settings}})


def detail(out, name="policies"):
    report = json.loads(out)
    (section,) = [part for part in report["sections"] if part["name"] == name]
    return section


async def test_each_policy_matches_or_names_the_selector_that_failed(api, why):
    api.put(PODS, pod(nodeSelector={"disk": "hdd"}))
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


async def test_objects_are_read_by_name_and_pods_are_not_listed(api, why):
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
    assert not [
        request for request in seen if request.verb != "get" and request.path.endswith("/pods")
    ]
    listed = {request.path.rpartition("/")[2] for request in seen if request.verb == "list"}
    policies = {"clusterpodschedulingpolicies", "podschedulingpolicies"}
    others = {"events", "nodes", "mutatingwebhookconfigurations", "runtimeclasses"}
    assert policies <= listed <= {*policies, *others}
    assert len(seen) <= 20
    assert all(request.method == "GET" for request in seen)


async def test_a_missing_pod_is_one_line(why):
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1")
    assert (code, out) == (1, "")
    assert err == (
        f"harbourmaster: Pod {NAMESPACE}/cart-1 not found: "
        f"kubectl -n {NAMESPACE} get pods lists those that exist\n"
    )


async def test_a_missing_permission_on_the_pod_is_named(api, why):
    api.put(PODS, pod())
    api.forbid("get", PODS)
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1")
    assert (code, out) == (1, "")
    assert err == (
        f"harbourmaster: Pod {NAMESPACE}/cart-1 could not be read: missing permission to get pods\n"
    )


async def test_missing_permissions_are_named_and_the_rest_is_reported(api, why):
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
    assert [policy["reference"] for policy in section["detail"]["policies"]] == [
        f"PodSchedulingPolicy {NAMESPACE}/local"
    ]


async def test_missing_kinds_are_named(api, why):
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


async def test_an_invalid_policy_does_not_affect_others(api, why):
    api.put(PODS, pod())
    api.put(CLUSTER_POLICIES, cluster_policy("broken", pods={"app": "cart"}, nodeSelector="x"))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
    section = detail(out)
    assert section["state"] == "fault"
    by_name = {policy["reference"]: policy for policy in section["detail"]["policies"]}
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
async def test_a_policy_that_is_not_applied_yet_has_a_reason(api, why, made, generation, hint):
    api.put(PODS, pod())
    api.get(PODS, "cart-1", NAMESPACE)["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    metadata = api.get(CLUSTER_POLICIES, "disks")["metadata"]
    metadata.update(creationTimestamp=made, generation=generation)
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
async def test_an_object_that_the_webhook_never_gets_is_reported(api, why, configuration, told):
    api.put(PODS, pod())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "never" not in out
    api.put(MUTATING_WEBHOOKS, configuration)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert told in out
    assert "which is never sent to the webhook" in out
    assert "older than the object" not in out


async def test_a_workload_is_explained_by_its_template(api, why):
    put_owner(api, DEPLOYMENTS, template())
    for words in (("deployment", f"{NAMESPACE}/cart"), ("workload", "deploy", f"{NAMESPACE}/cart")):
        code, out, _ = await why(*words, "-o", "json")
        assert code == 0
        disks = detail(out)["detail"]["policies"][0]
        assert disks["contributions"][0]["path"] == 'spec.template.spec.nodeSelector["disk"]'


async def test_a_manifest_is_explained_by_the_policies_of_the_cluster(api, why, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod()}))
    code, out, _ = await why("-f", str(path))
    assert code == 0
    assert 'adds  nodeSelector["disk"] = ssd' in out
    assert "2 of 3 select the pod and change 2 fields" in out


async def test_the_settings_are_those_of_the_installation(api, why):
    api.put(PODS, pod())
    api.put(CLUSTER_POLICIES, cluster_policy("packer", schedulerName="packer"))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "would set  schedulerName = packer, which was default-scheduler" in out
    install(api, "--host=0.0.0.0", "--treat-default-scheduler-as-unset=false")
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "yields  schedulerName: packer to what is there: default-scheduler" in out
    assert "assuming the default settings" not in out


async def test_settings_are_read_from_a_mounted_file(api, why):
    api.put(PODS, pod())
    install(api, "--config", "/etc/hm/webhook.yaml", settings="features: [gates]\n")
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "Policies: no policy is evaluated: policies are not among the features" in out
    assert "assuming the default settings" not in out


async def test_a_missing_configmap_is_not_reported_as_a_missing_deployment(api, why):
    api.put(PODS, pod())
    install(api, "--config=/etc/hm/webhook.yaml")
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert f"Deployment {HOME}/harbourmaster-webhook: there is no ConfigMap" in out


async def test_a_template_gets_a_younger_policy_at_its_next_update(api, why):
    put_owner(api, DEPLOYMENTS, template())
    metadata = api.get(DEPLOYMENTS, "cart", NAMESPACE)["metadata"]
    metadata["creationTimestamp"] = "2026-03-01T12:00:00Z"
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


async def test_a_missing_installation_is_reported_once(api, why):
    api.put(PODS, pod(schedulingGates=[{"name": "keptn-prechecks-gate"}]))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert out.count(HOME) == 1
    assert f"no Deployment of Harbourmaster in namespace {HOME} (--installed-in)" in out
    assert "unknown: the settings could not be read" in out


@pytest.mark.slow
def test_a_report_of_a_plain_pod_loads_no_heavy_module():
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


async def test_a_pod_that_is_being_deleted_is_not_reported_as_unscheduled(api, why):
    waiting = pod()
    ending = {"deletionTimestamp": "2026-03-01T13:00:00Z", "finalizers": ["example.com/stay"]}
    waiting["metadata"] |= ending
    api.put(PODS, waiting)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "being deleted" in out
    assert "scheduler has looked" not in out


async def test_control_characters_are_escaped(api, why):
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
        ("pod",),
        ("-f", "y", "pod", "x"),
        ("--policies", "y", "pod", "x"),
    ],
)
async def test_arguments_that_do_not_go_together_are_one_line(why, words):
    code, out, err = await why(*words)
    assert (code, out) == (2, "")
    assert err.startswith("harbourmaster: why: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["a/b/c", "/b", ""])
@pytest.mark.parametrize("form", ["pod {}", "pod/{}"])
def test_what_names_no_object_is_one_line(capsys, form, name):
    with pytest.raises(SystemExit) as ended:
        main(["why", *form.format(name).split(" ")])
    assert ended.value.code == 2
    assert f'invalid name "{name}": expected [NAMESPACE/]NAME' in capsys.readouterr().err


async def test_two_namespaces_for_one_object_are_refused(why):
    code, out, err = await why("pod", f"{NAMESPACE}/cart-1", "-n", "other")
    assert (code, out) == (2, "")
    assert f"{NAMESPACE}/cart-1 is not in the namespace other" in err


@pytest.mark.parametrize(
    "words",
    ["pod cart-1", "pod/cart-1", "pods/cart-1", "po/cart-1", "Pod/cart-1", "pods.v1/cart-1"],
)
async def test_an_object_is_named_as_for_kubectl(api, why, words):
    api.put(PODS, pod())
    for given in (["-n", NAMESPACE, *words.split()], [*words.split(), "-n", NAMESPACE]):
        code, out, _ = await why(*given)
        assert (code, out.splitlines()[0]) == (0, f"Pod {NAMESPACE}/cart-1")


async def test_the_namespace_of_the_context_is_used(api, tmp_path, why):
    api.put(PODS, pod())
    assert (await why("pod/cart-1"))[0] == 1
    kubeconfig(tmp_path, api.url, namespace=NAMESPACE)
    code, out, _ = await why("pod/cart-1")
    assert (code, out.splitlines()[0]) == (0, f"Pod {NAMESPACE}/cart-1")


async def test_labels_select_several_objects(api, why):
    for name, place in (("cart-1", NAMESPACE), ("cart-2", NAMESPACE), ("cart-3", "other")):
        pod_object = pod()
        pod_object["metadata"] |= {"name": name, "namespace": place}
        api.put(PODS, pod_object)
    code, out, _ = await why("pods", "-l", "app=cart", "-n", NAMESPACE, "-o", "yaml")
    assert (code, [pod["name"] for pod in yaml.safe_load_all(out)]) == (0, ["cart-1", "cart-2"])
    code, out, _ = await why("pods", "-l", "app=cart", "-A", "-o", "yaml")
    assert (code, len(list(yaml.safe_load_all(out)))) == (0, 3)
    code, out, err = await why("pods", "-l", "app=none", "-n", NAMESPACE)
    assert (code, out) == (1, "")
    assert err == f"harbourmaster: no Pod matches app=none in namespace {NAMESPACE}\n"
    api.forbid("list", PODS)
    code, out, err = await why("pods", "-l", "app=cart", "-A")
    assert (code, out) == (1, "")
    said = "harbourmaster: pods could not be read: missing permission to list pods"
    assert err.startswith(said)
    assert err.count("\n") == 1


async def test_a_mistyped_name_or_type_is_answered_with_what_is_meant(api, why, capsys):
    api.put(PODS, pod())
    code, _, err = await why("pod", "crat-1", "-n", NAMESPACE)
    said = f'harbourmaster: Pod {NAMESPACE}/crat-1 not found: did you mean "cart-1"?\n'
    assert (code, err) == (1, said)
    with pytest.raises(SystemExit):
        main(["why", "deploymnet/cart"])
    assert 'invalid choice "deploymnet": did you mean "deployment"?' in capsys.readouterr().err
