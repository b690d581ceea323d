"""Objects that a cluster refuses, and kinds that come later (krake-spec 7.9)."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import (
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    JOBS,
    Resource,
    of_kind,
)
from harbourmaster.placement.apply_rules import REPLACE
from helpers.fake_store import encode, status
from helpers.placement_flow import config_map, deployment, is_true

ISSUERS = Resource("demo.example.com", "v1", "issuers", "Issuer", namespaced=False)
TEMPLATES = Resource("templates.gatekeeper.sh", "v1", "constrainttemplates", "ConstraintTemplate",
                     namespaced=False)  # fmt: skip
LABELS = Resource("constraints.gatekeeper.sh", "v1beta1", "k8srequiredlabels", "K8sRequiredLabels",
                  namespaced=False)  # fmt: skip
ROLES = of_kind("rbac.authorization.k8s.io", "Role")


def object_of(resource, name):
    metadata = {"name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def image_of(member, name="web"):
    workload = member.get(DEPLOYMENTS, name, "default")
    return workload["spec"]["template"]["spec"]["containers"][0]["image"]


def counts(member, *resources):
    return [len(member.objects.all(resource)) for resource in resources]


async def until_message(env, text):
    """Wait until a condition says this."""
    await env.until(lambda status: text in {entry.message for entry in status.conditions})


async def add_cluster(env, member, **spec):
    await env.cluster("one", text=env.kubeconfig_of(member), allowClusterScoped=True, **spec)
    await env.until_online("one")


async def test_a_fixed_image_arrives_although_the_webhook_of_the_operator_is_down(env, member):
    member.define(ISSUERS)
    issuer = object_of(ISSUERS, "main")
    async with env.deploying():
        await add_cluster(env, member)
        await env.application(issuer, deployment("web", image="operator:broken"), to="one")
        await env.until_running("one")
        down = encode(status(500, 'failed calling webhook "issuers": connection refused'))
        member.fail_next("patch", "/issuers/main$", None, status=500, body=down)
        fixed = deployment("web", image="operator:fixed")
        await env.update(issuer, fixed, config_map("more"))
        message = await env.until_fault("ApplyFailed")
        assert message == 'Issuer main: failed calling webhook "issuers": connection refused'
        assert image_of(member) == "operator:fixed"
        assert counts(member, CONFIG_MAPS) == [1]
        patches = len(member.seen("patch", "/(deployments|configmaps)/"))
        # Only what was refused is sent again.
        await member.until_seen("patch", "/issuers/main$", len(member.seen("patch", "issuers")) + 2)
        assert len(member.seen("patch", "/(deployments|configmaps)/")) == patches
        member.heal()
        await env.until_running("one")


async def test_a_refused_role_holds_new_workloads_but_no_updates(env, member):
    member.define(ROLES)
    role = object_of(ROLES, "app")
    async with env.deploying():
        await add_cluster(env, member)
        await env.application(deployment("web"), to="one")
        await env.until_running("one")
        member.forbid("patch", ROLES)
        newer = deployment("web", image="example.com/web:2")
        await env.update(role, newer, deployment("other"), config_map("a"))
        message = await env.until_fault("Forbidden")
        assert message.startswith("Role default/app: roles is forbidden: ")
        assert message.endswith("; Deployment default/other: waits for Role default/app")
        assert image_of(member) == "example.com/web:2"
        assert counts(member, DEPLOYMENTS, CONFIG_MAPS) == [1, 1]
        member.heal()
        await env.until_running("one")
        assert counts(member, DEPLOYMENTS) == [2]


async def test_an_object_waits_until_its_definition_is_established(env, member):
    member.define(ISSUERS)
    names = {"kind": "Issuer", "plural": "issuers"}
    spec = {"group": ISSUERS.group, "names": names, "versions": [{"name": "v1"}]}
    definition = {**object_of(DEFINITIONS, ISSUERS.name), "spec": {**spec, "scope": "Cluster"}}
    async with env.deploying():
        await add_cluster(env, member)
        await env.application(object_of(ISSUERS, "main"), definition, config_map("a"), to="one")
        text = f"Issuer main: waits for CustomResourceDefinition {ISSUERS.name}"
        await until_message(env, text)
        assert counts(member, CONFIG_MAPS) == [1]
        live = member.get(DEFINITIONS, ISSUERS.name)
        conditions = [{"type": "Established", "status": "True"}]
        member.put(DEFINITIONS, {**live, "status": {"conditions": conditions}})
        await env.until_running("one")
        assert len(member.seen("patch", "/customresourcedefinitions/")) == 1


@pytest.mark.parametrize("discover", [True, pytest.param(False, marks=pytest.mark.full)])
async def test_an_object_is_applied_when_another_one_has_brought_its_kind(env, member, discover):
    member.define(TEMPLATES)
    template, labels = object_of(TEMPLATES, "labels"), object_of(LABELS, "owner")
    async with env.deploying():
        await add_cluster(env, member, discoverCustomResources=discover)
        await env.application(labels, template, config_map("a"), to="one")
        message = await env.until_fault("WaitingForKind")
        text = "K8sRequiredLabels owner: the cluster does not serve kind K8sRequiredLabels in "
        assert message.startswith(text)
        assert counts(member, TEMPLATES, CONFIG_MAPS) == [1, 1]
        member.define(LABELS)
        member.put(DEFINITIONS, object_of(DEFINITIONS, LABELS.name))
        await env.until_running("one")
        assert counts(member, LABELS) == [1]
        # Once with each set of manifests, however often it was tried.
        assert len(member.seen("patch", "/configmaps/")) == 2


async def test_what_has_a_kind_that_is_gone_for_a_while_is_not_pruned(env, member):
    member.define(TEMPLATES)
    member.define(LABELS)
    manifests = object_of(TEMPLATES, "labels"), object_of(LABELS, "owner"), config_map("a")
    async with env.deploying():
        await add_cluster(env, member)
        await env.application(*manifests, to="one")
        await env.until_running("one")
        member.undefine(LABELS)
        member.put(DEFINITIONS, object_of(DEFINITIONS, "other.example.com"))
        await env.update(*manifests, config_map("b"))
        await env.until_fault("WaitingForKind")
        recorded = (await env.fetch())["status"]["inventory"][0]["objects"]
        assert "K8sRequiredLabels" in {obj["kind"] for obj in recorded}
        assert not member.seen("delete")


UNTYPED = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): "
DUPLICATE = '.spec.template.spec.containers[name="web"].env: duplicate entries for key [name="A"]'


async def test_a_manifest_that_no_cluster_takes_is_named(env, member):
    body = encode(status(500, UNTYPED + DUPLICATE, ""))
    member.fail_next("patch", "/deployments/", None, status=500, body=body)
    async with env.deploying():
        await add_cluster(env, member)
        await env.application(deployment("web"), config_map("a"), to="one")
        message = await env.until_fault("MalformedManifest")
        assert message == f"Deployment default/web: {UNTYPED}{DUPLICATE}"
        assert counts(member, CONFIG_MAPS) == [1]


async def test_a_list_among_the_manifests_is_refused_by_every_cluster(env, member):
    async with env.deploying():
        await add_cluster(env, member)
        everything = {"apiVersion": "v1", "kind": "List", "metadata": {"name": "all"}}
        await env.application(everything, to="one")
        await env.until_fault("MalformedManifest")


def refuse(member, path, field, fault, count=1):
    """Refuse patches as the API server does for an invalid field."""
    details = {"causes": [{"field": field, "message": fault, "reason": "FieldValueInvalid"}]}
    body = encode(status(422, f"Job is invalid: {field}: {fault}", details=details))
    member.fail_next("patch", path, count, status=422, body=body)


IMMUTABLE = f'Invalid value: {{"labels":{{"a":"{"x" * 500}"}}}}: field is immutable'


def job(image, **annotations):
    template = {"spec": {"containers": [{"name": "a", "image": image}]}}
    metadata = {"name": "migrate", "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": {"template": template}}  # fmt: skip


async def test_a_change_of_an_immutable_field_is_told_to_its_end(env, member):
    async with env.deploying():
        await env.deploy(member, job("a:1"))
        refuse(member, "/jobs/", "spec.template", IMMUTABLE, None)
        await env.update(job("a:2"), config_map("a"))
        message = await env.until_fault("Invalid")
        assert message == ("Job default/migrate: spec.template: Invalid value: field is immutable")
        assert counts(member, CONFIG_MAPS) == [1]
        (asked,) = member.seen("create", "/jobs")[:1]
        assert asked.query["dryRun"] == "All"
        assert not member.seen("delete")


async def test_an_object_is_replaced_where_its_manifest_allows_it(env, member):
    allowed = {REPLACE: "true"}
    async with env.deploying():
        await env.deploy(member, job("a:1", **allowed))
        uid = member.get(JOBS, "migrate", "default")["metadata"]["uid"]
        refuse(member, "/jobs/", "spec.template", IMMUTABLE)
        await env.update(job("a:2", **allowed))
        await env.until_running("one")
        live = member.get(JOBS, "migrate", "default")
        assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "a:2"
        assert live["metadata"]["uid"] != uid
        (deletion,) = member.seen("delete", "/jobs/")
        options = json.loads(deletion.body)
        assert options["preconditions"] == {"uid": uid}
        assert options["propagationPolicy"] == "Background"
        ((_, text),) = [event[-2:] for event in env.events.sent if event[-2] == "Replacing"]
        assert text == (
            "on cluster one: deletes and creates Job default/migrate: "
            "spec.template: Invalid value: field is immutable"
        )
        # Once for each manifest, whatever else refuses it.
        refuse(member, "/jobs/", "spec.template", IMMUTABLE, None)
        await env.update(job("a:2", **allowed), config_map("a"))
        message = await env.until_fault("Invalid")
        assert message.endswith("not replaced: it has this manifest, and another client changes it")
        assert len(member.seen("delete", "/jobs/")) == 1


async def test_what_existed_before_the_application_is_not_replaced(env, member):
    allowed = {REPLACE: "true"}
    member.put(JOBS, {**job("a:1"), "metadata": {"name": "migrate", "namespace": "default"}})
    async with env.deploying():
        await env.add_member(member)
        refuse(member, "/jobs/", "spec.template", IMMUTABLE, None)
        await env.application(job("a:2", **allowed), to="one")
        message = await env.until_fault("Invalid")
        assert message.endswith("not replaced: it existed before the application")
        assert not member.seen("delete")


async def test_a_replaced_object_is_created_when_the_old_one_has_ended(env, member):
    allowed = {REPLACE: "true"}
    async with env.deploying():
        await env.deploy(member, job("a:1", **allowed))
        live = member.get(JOBS, "migrate", "default")
        metadata = {**live["metadata"], "finalizers": ["example.com/held"]}
        member.put(JOBS, {**live, "metadata": metadata})
        refuse(member, "/jobs/", "spec.template", IMMUTABLE, None)
        await env.update(job("a:2", **allowed))
        await until_message(env, "Job default/migrate: is being deleted")
        member.heal()
        live = member.get(JOBS, "migrate", "default")
        member.put(JOBS, {**live, "metadata": {**live["metadata"], "finalizers": []}})
        await env.until_running("one")
        assert member.get(JOBS, "migrate", "default")["metadata"]["uid"] != metadata["uid"]
        assert len(member.seen("delete", "/jobs/")) == 1


@pytest.mark.parametrize(
    ("field", "reason"),
    [("spec.template.spec", "MalformedManifest"), ("spec.ports[0].nodePort", "Invalid")],
)
async def test_an_invalid_object_is_invalid_everywhere_unless_a_value_is_taken(
    env, member, field, reason
):
    fault = "Invalid value: 7: no"
    refuse(member, "/jobs/", field, fault, None)
    details = {"causes": [{"field": field, "message": fault}]}
    body = encode(status(422, "Job is invalid", details=details))
    member.fail_next("create", "/jobs", None, status=422, body=body)
    async with env.deploying():
        await env.add_member(member)
        await env.application(job("a:1"), to="one")
        message = await env.until_fault(reason)
        assert message == f"Job default/migrate: {field}: Invalid value: no"
        assert not is_true(await env.until(lambda status: status.conditions), "Deployed")
