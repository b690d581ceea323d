"""Pods that wait for objects: ``why`` for a cluster and for files, and ``gate list``."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import yaml

from harbourmaster.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    SERVICES,
    SLICES,
    STATEFUL_SETS,
    Resource,
)
from harbourmaster.cli.main import main
from helpers.command import kubeconfig
from helpers.explanations import NAMESPACE, pod, reference

GATE = {"schedulingGates": [{"name": "keptn-prechecks-gate"}]}
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "1"}


def named(name, **more):
    return {"metadata": {"name": name, "namespace": NAMESPACE, **more.pop("metadata", {})}, **more}


def waits(text, timeout=None, on_timeout=None):
    keys = {"wait-for": text, "wait-timeout": timeout, "wait-on-timeout": on_timeout}
    return {f"gates.harbourmaster.dev/{key}": value for key, value in keys.items() if value}


def waiting(text, name="cart-1", owner=None, labels=None, **limits):
    """A pod behind our gate, without checks."""
    pod_object = pod(name, owner, labels, **GATE)
    none = {"gates.harbourmaster.dev/checks": "none"}
    pod_object["metadata"]["annotations"] = {**waits(text, **limits), **none}
    return pod_object


def made(kind, name, text, **labels):
    """A manifest of a workload whose pods wait."""
    metadata = {"annotations": waits(text) if text else {}, "labels": labels}
    containers = [{"name": "c", "image": "registry.example.com/cart:1"}]
    template = {"metadata": metadata, "spec": {"containers": containers}}
    spec = (
        {"template": template}
        if kind != "CronJob"
        else {"jobTemplate": {"spec": {"template": template}}}
    )
    version = "apps/v1" if kind == "Deployment" else "batch/v1"
    return {"apiVersion": version, "kind": kind, **named(name), "spec": spec}


@pytest.fixture
def gate(why):
    """Return ``gate(*words)``: the section on the gate."""

    async def ask(*words):
        code, out, _ = await why(*words, "-o", "json")
        assert code == 0
        return {section["name"]: section for section in json.loads(out)["sections"]}["gate"]

    return ask


def stands(section):
    return [
        (item["item"], item["state"], item["text"]) for item in section["detail"]["report"]["items"]
    ]


@pytest.fixture
def run(api, tmp_path, capsys):
    """Return ``run(*arguments)`` of ``gate``: the exit code and both streams."""
    path = kubeconfig(tmp_path, api.url)

    async def start(*arguments):
        code = await asyncio.to_thread(
            main, ["gate", *arguments, "-n", NAMESPACE, "--kubeconfig", path]
        )
        return code, *capsys.readouterr()

    return start


def put_objects(api):
    api.put(JOBS, named("migrate"))
    api.put(JOBS, named("seed", status={"conditions": [FAILED]}))
    api.put(DEPLOYMENTS, named("database"))
    api.put(SERVICES, named("queue"))
    api.put(SERVICES, named("web"))
    labels = {"kubernetes.io/service-name": "web"}
    api.put(SLICES, named("web-1", metadata={"labels": labels}, endpoints=[{}]))
    api.put(CONFIG_MAPS, named("settings", data={"mode": "new"}))


ITEMS = (
    ("job/migrate", "Pending", "is not complete"),
    ("deployment/databas", "Pending", 'does not exist: did you mean "database"?'),
    ("svc/queue", "Pending", "has no ready endpoint"),
    ("svc/web", "Met", ""),
    ("cm/settings#field=data.mode:new", "Met", ""),
    ("pod/app=cache", "Pending", "no pod has this label"),
    ("configmap/none", "Met", ""),
)


async def test_why_tells_how_each_object_stands(api, gate, why):
    put_objects(api)
    text = ", ".join(item for item, *_ in ITEMS).replace("configmap/", "optional:configmap/")
    api.put(PODS, waiting(text, timeout="10m", on_timeout="Fail"))
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    assert (section["code"], section["state"]) == ("waits-for-objects", "waits")
    assert stands(section) == list(ITEMS)
    out = (await why("pod", f"{NAMESPACE}/cart-1"))[1]
    assert "object    job/migrate: Pending: is not complete\n" in out
    assert "object    svc/web: Met\n" in out
    assert re.search(r"deadline  \S+, then: it is Blocked\n", out)


async def test_a_failed_job_and_a_syntax_error_are_faults(api, gate):
    put_objects(api)
    api.put(PODS, waiting("job/seed", "cart-1"))
    api.put(PODS, waiting("jbo/migrate", "cart-2"))
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    assert (section["code"], section["state"]) == ("wait-blocked", "fault")
    assert "Blocked: job/seed: failed: BackoffLimitExceeded: 1" in section["summary"]
    section = await gate("pod", f"{NAMESPACE}/cart-2")
    assert (section["code"], section["state"]) == ("wait-blocked", "fault")
    assert '"jbo" is not a kind' in section["summary"]


async def test_a_cycle_is_named_in_why_and_in_the_list(api, gate, run):
    for name, target in (("a", "b"), ("b", "a")):
        owner = reference("StatefulSet", name)
        api.put(PODS, waiting(f"statefulset/{target}", f"{name}-0", owner, {"app": name}))
        api.put(STATEFUL_SETS, named(name))
    cycle = "a cycle of waits: statefulset/a -> statefulset/b -> statefulset/a"
    section = await gate("pod", f"{NAMESPACE}/a-0")
    assert (section["code"], f"Blocked: {cycle}" in section["summary"]) == ("wait-blocked", True)
    code, out, err = await run("list", "-l", "app=a", "-o", "json")
    assert (code, err) == (0, "")
    (document,) = json.loads(out)
    assert (document["code"], document["waitsFor"]) == ("wait-blocked", f"nothing: {cycle}")
    assert [item["item"] for item in document["items"]] == ["statefulset/b"]


@pytest.mark.parametrize(("text", "state"), [("", "is not complete"), ("Complete", "")])
async def test_a_workload_whose_pods_wait_is_explained_by_its_template(api, gate, text, state):
    conditions = [{"type": text, "status": "True"}] if text else []
    api.put(JOBS, named("migrate", status={"conditions": conditions}))
    api.put(DEPLOYMENTS, made("Deployment", "cart", "job/migrate"))
    section = await gate("deployment", f"{NAMESPACE}/cart")
    assert [stand[2] for stand in stands(section)] == [state]
    expected = "its pods wait for job/migrate: is not complete"
    met = "its pods can be released: all that they wait for is there"
    assert section["summary"] == (expected if state else met)


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_workload_is_explained_by_its_oldest_waiting_pod(api, gate, is_waiting):
    """Without a version nothing was said of a Deployment, however long its pods waited."""
    keys = {"keptn.sh/workload": "cart", "keptn.sh/version": "1"}
    manifest = made("Deployment", "cart", "")
    manifest["spec"]["template"]["metadata"]["annotations"] = keys
    api.put(DEPLOYMENTS, manifest)
    held = pod("cart-5d4f8-1", reference("ReplicaSet", "cart-5d4f8"), **GATE)
    held["metadata"]["labels"] = {"pod-template-hash": "5d4f8" if is_waiting else "0"}
    held["metadata"]["annotations"] = keys
    api.put(PODS, held)
    stored = api.get(PODS, "cart-5d4f8-1", NAMESPACE)["metadata"]
    stored["creationTimestamp"] = "2026-03-01T12:00:00Z"
    section = await gate("deployment", f"{NAMESPACE}/cart")
    assert (section["code"] == "waits-for-version") == is_waiting
    assert ("its workload version, which is not there yet" in section["summary"]) == is_waiting
    assert ("release shop/cart-5d4f8-1 --reason" in section["next"]) == is_waiting


async def test_what_may_not_be_read_is_named_in_one_line(api, gate, run):
    put_objects(api)
    api.put(PODS, waiting("job/migrate cm/settings"))
    api.forbid("GET", JOBS, user="ada")
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    (job, config_map) = stands(section)
    assert job[1:] == ("Pending", "could not be read: missing permission to GET jobs.batch")
    assert config_map[1] == "Met"
    code, out, err = await run("list")
    assert (code, "job/migrate: could not be read: missing permission" in out) == (1, True)
    assert (
        err
        == "harbourmaster: job/migrate could not be read: missing permission to GET jobs.batch\n"
    )


async def test_other_kinds_are_found_by_discovery(api, gate):
    api.define(WIDGETS)
    api.put(WIDGETS, named("one"))
    api.put(PODS, waiting("widgets.example.com/one gadgets.example.com/two"))
    assert stands(await gate("pod", f"{NAMESPACE}/cart-1")) == [
        ("widgets.example.com/one", "Met", ""),
        ("gadgets.example.com/two", "Pending", "is of a kind that the API server does not have"),
    ]


@pytest.mark.parametrize("kind", ["Job", "CronJob", "Deployment", "Pod"])
async def test_files_are_explained_as_far_as_they_have_the_objects(gate, tmp_path, kind):
    manifest = made(kind, "cart", "cm/other cm/settings deployment/databas")
    if kind == "Pod":
        template = manifest["spec"]["template"]
        manifest = {"apiVersion": "v1", "kind": kind, **template}
        manifest["metadata"] |= named("cart")["metadata"]
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", **named("settings")}
    (tmp_path / "policies").mkdir()
    file = tmp_path / "files.yaml"
    file.write_text(yaml.safe_dump_all([manifest, config_map, elsewhere]))
    section = await gate("-f", str(file), "--policies", str(tmp_path / "policies"))
    assert section["code"] == "to-be-gated"
    assert stands(section) == [
        ("cm/other", "Pending", "is not in these files"),
        ("cm/settings", "Met", ""),
        ("deployment/databas", "Pending", "is not in these files"),
    ]


async def test_a_cycle_in_files_is_a_fault(why, tmp_path):
    (tmp_path / "policies").mkdir()
    file = tmp_path / "files.yaml"
    pair = [made("Deployment", "a", "deployment/b"), made("Deployment", "b", "pod/app=a", app="b")]
    pair[0]["spec"]["template"]["metadata"]["labels"] = {"app": "a"}
    file.write_text(yaml.safe_dump_all(pair))
    out = (await why("-f", str(file), "--policies", str(tmp_path / "policies")))[1]
    assert "Blocked: a cycle of waits: deployment/a -> deployment/b -> deployment/a" in out


async def test_a_manifest_is_explained_by_the_cluster_and_the_files(api, gate, tmp_path):
    put_objects(api)
    file = tmp_path / "files.yaml"
    manifest = made("Deployment", "cart", "job/migrate cm/new")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", **named("new")}
    file.write_text(yaml.safe_dump_all([manifest, config_map]))
    section = await gate("-f", str(file))
    assert section["summary"] == "its pods will wait for job/migrate, cm/new"
    assert [stand[1] for stand in stands(section)] == ["Pending", "Met"]


async def test_a_namespace_may_forbid_to_wait(api, gate):
    label = {"gates.harbourmaster.dev/wait-for": "disabled"}
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": label}})
    api.put(DEPLOYMENTS, made("Deployment", "cart", "job/migrate"))
    section = await gate("deployment", f"{NAMESPACE}/cart")
    assert (section["code"], section["state"]) == ("waits-forbidden", "fault")


@pytest.mark.parametrize("subject", [f"{NAMESPACE}/cart-1", "job/cart"])
async def test_a_pod_without_a_supported_owner_is_released(api, run, subject):
    api.put(PODS, waiting("job/migrate", owner=reference("Job", "cart")))
    code, out, err = await run("release", subject, "--reason", "4711")
    assert (code, err) == (0, "")
    assert out.startswith(f"released {NAMESPACE}/cart-1 for ")
    assert not api.get(PODS, "cart-1", NAMESPACE)["spec"]["schedulingGates"]
