"""Attacks on generated objects, derived from the tables of the controller: D18.

Each is a dry run of a user with all the permissions that RBAC can give in a namespace, so only the
guard refuses it. The gate tries a fixed part of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json

import aiohttp
import pytest

from harbourmaster.api.resources import (
    ANALYSES,
    APP_VERSIONS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVALUATIONS,
    JOBS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.gates.known_keys import KNOWN_KEYS
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import OURS, RERUN_NOTES
from harbourmaster.gates.stages import PROMOTE_BY_KEY, PROMOTE_KEY, PROMOTE_REASON_KEY
from harbourmaster.kube.errors import AlreadyExistsError
from harbourmaster.lifecycle.conversion import UNCONVERTED
from harbourmaster.lifecycle.failed_nodes import CLEAR_KEY
from harbourmaster.playground import api as playground_api
from helpers.cluster import create, role_binding, role_of
from helpers.flow.manifests import (
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
)
from helpers.manifests import NAMESPACE
from helpers.schemas import versions

pytestmark = pytest.mark.gate

GUARD = "harbourmaster-generated-guard"
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:harbourmaster-controller"
USERS = {
    "editor": ("harbourmaster-lifecycle-editor", "view"),
    "admin": ("admin",),
    "edit": ("edit",),
}
MERGE, JSON, APPLY, WHOLE = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/json",
)
CHANGES = {
    APP_VERSIONS: ("spec", "preDeploymentTasks", ["mine"]),
    WORKLOADS: ("spec", "preDeploymentTasks", ["mine"]),
    WORKLOAD_VERSIONS: ("spec", "preDeploymentTasks", ["mine"]),
    TASKS: ("spec", "taskDefinition", "mine"),
    EVALUATIONS: ("spec", "evaluationDefinition", "mine"),
    ANALYSES: ("spec", "analysisDefinition", {"name": "mine"}),
    JOBS: ("spec", "suspend", True),
    CONFIG_MAPS: ("data", "code", "mine"),
}
"""A field that decides what is checked, with another value, for each generated kind."""
STATUSES = {
    APP_VERSIONS: ("status", "status", "Succeeded"),
    WORKLOADS: ("status", "currentVersion", "9"),
    WORKLOAD_VERSIONS: ("status", "status", "Succeeded"),
    TASKS: ("status", "status", "Succeeded"),
    EVALUATIONS: ("status", "overallStatus", "Succeeded"),
    ANALYSES: ("status", "pass", True),
    JOBS: ("status", "terminating", 1),
}
REQUESTS = {CLEAR_KEY, *RERUN_NOTES, PROMOTE_KEY, PROMOTE_BY_KEY, PROMOTE_REASON_KEY}
"""The keys by which users ask for something."""
OWN_KEYS = sorted(key for key in KNOWN_KEYS - REQUESTS if key.startswith(OURS))
PART = 11
"""The gate tries each eleventh attack; prime, so that it meets all kinds, ways and users."""


def versions_of(resource):
    """The served versions of a kind."""
    if not resource.group.endswith(".sh"):
        return [resource.version]
    return [name for name, version in versions(resource.plural).items() if version["served"]]


def path_in(resource, version, namespace, *more):
    """The path of a collection, or of an object, in this version."""
    path = resource.path(namespace).replace(f"/{resource.version}/", f"/{version}/")
    return "/".join((path, *more))


class Users:
    """Requests as other users; each but ``write`` is a dry run."""

    def __init__(self, session):
        self._session = session

    async def refusal(self, *request):
        """Why the API server refuses a request, of the administrator without a user; or empty."""
        return await self.write(*request, dryRun="All")

    async def write(self, user, method, path, body, kind, **query):
        """The refusal of a request that is no dry run unless ``query`` says so."""
        headers = {"Content-Type": kind} | ({"Impersonate-User": user} if user else {})
        if kind == APPLY:
            query |= {"fieldManager": "a", "force": "true"}
        data = json.dumps(body)
        async with self._session.request(
            method, path, headers=headers, params=query, data=data
        ) as answer:
            return "" if answer.ok else (await answer.json())["message"]

    async def get(self, path):
        async with self._session.get(path) as answer:
            assert answer.ok, await answer.text()
            return await answer.json()


def bare(obj, name, **metadata):
    """A copy of an object under another name."""
    kept = {"ownerReferences": obj["metadata"].get("ownerReferences", []), "name": name}
    kept = {key: value for key, value in {**kept, **metadata}.items() if value is not None}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": kept}


def writes(resource, stored, change, subresource=()):
    """Yield the update, the patches and the apply that change one field of an object."""
    part, field, value = change
    changed = copy.deepcopy(stored)
    changed.setdefault(part, {})[field] = value
    yield "PUT", subresource, changed, WHOLE
    yield "PATCH", subresource, {part: {field: value}}, MERGE
    whole = [{"op": "add", "path": f"/{part}", "value": {**stored.get(part, {}), field: value}}]
    yield "PATCH", subresource, whole, JSON
    if resource is not JOBS or subresource:
        kind = {key: stored[key] for key in ("apiVersion", "kind")}
        applied = {**kind, "metadata": {"name": stored["metadata"]["name"]}}
        yield "PATCH", subresource, {**applied, part: changed[part]}, APPLY


def attacks_on(resource, stored):
    """Yield method, further path, body and content type of all attacks on a stored object."""
    yield from writes(resource, stored, CHANGES[resource])
    if resource in STATUSES:
        yield from writes(resource, stored, STATUSES[resource], ("status",))
    patches = [{"ownerReferences": None}, {"annotations": {UNCONVERTED: '{"spec": {}}'}}]
    patches += [{"annotations": {key: "forged"}} for key in OWN_KEYS]
    for metadata in patches:
        yield "PATCH", (), {"metadata": metadata}, MERGE
    without = copy.deepcopy(stored)
    without["metadata"].pop("ownerReferences", None)
    yield "PUT", (), without, WHOLE
    yield "PATCH", (), [{"op": "remove", "path": "/metadata/ownerReferences"}], JSON


def creations_of(resource, stored):
    """Yield what creates an object like a stored one, with each owner that counts."""
    owners = [stored["metadata"]["ownerReferences"]]
    if resource is WORKLOADS:
        owners = [[{**owners[0][0], "kind": kind}] for kind in SUPPORTED]
    named = "keptntask-mine" if resource is CONFIG_MAPS else "mine"
    for references in owners:
        forged = bare(stored, named, ownerReferences=references)
        if resource is JOBS:
            template = stored["spec"]["template"]["spec"]
            forged["spec"] = {"template": {"spec": template}}
        yield "POST", forged, WHOLE
        generated = bare(forged, None, generateName=f"{named}-")
        yield "POST", generated, WHOLE
        yield "PATCH", forged, APPLY


@pytest.fixture
async def users(harbour):
    context = playground_api.client_context(harbour.plane.layout.pki, "admin")
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(harbour.plane.server, connector=connector) as session:
        yield Users(session)


@pytest.fixture
async def generated(flow, harbour):
    """All kinds of generated objects, while their checks hang, by kind; users may write them."""
    rules = [
        {"apiGroups": [group], "resources": [plural, f"{plural}/status"], "verbs": ["*"]}
        for group, plural in {(kind.group, kind.plural) for kind in CHANGES}
    ]
    namespace = flow.namespace
    create(harbour.plane.kubectl, role_of("Role", {"name": "all", "namespace": namespace}, *rules))
    for user, roles in USERS.items():
        create(
            harbour.plane.kubectl,
            role_binding(f"{user}-all", namespace, f"{user}-of-{namespace}", "all", "Role"),
            *(role_binding(f"{user}-{r}", namespace, f"{user}-of-{namespace}", r) for r in roles),
        )
    await flow.create(
        container_task("checking", "hang"),
        evaluation_definition("value", "missing", "<1", retries=9, retryInterval="1h"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="checking")),
        deployment("till", keptn("till", pre_deployment_evaluations="value")),
    )
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    (evaluation,) = await flow.until_all(EVALUATIONS, {"status": {"overallStatus": "Progressing"}})
    # With its pod ready, its status does not change any more, so that no write conflicts.
    (job,) = await flow.until_all(JOBS, {"status": {"active": 1, "ready": 1}})
    code = of_kind("ConfigMap", f"keptntask-{task['metadata']['name']}", data={"code": ""})
    code["metadata"]["ownerReferences"] = job["metadata"]["ownerReferences"]
    spec = {"timeframe": {"recent": "5m"}, "analysisDefinition": {"name": "missing"}}
    analysis = of_kind("Analysis", "stage-1-analysis", spec)
    analysis["metadata"]["ownerReferences"] = task["metadata"]["ownerReferences"]
    await flow.create(analysis)
    (analysis,) = await flow.until_all(ANALYSES, {"status": {"state": "Pending"}})
    return {
        APP_VERSIONS: flow.all(APP_VERSIONS)[0],
        WORKLOADS: flow.find(WORKLOADS, "ledger-ledger"),
        WORKLOAD_VERSIONS: flow.find(WORKLOAD_VERSIONS, "ledger-ledger-1.0"),
        TASKS: task,
        EVALUATIONS: evaluation,
        ANALYSES: analysis,
        JOBS: job,
        CONFIG_MAPS: await flow.create(code),
    }


async def all_attacks(users, generated, namespace):
    """Return user, method, path, body and content type of every attack."""
    attacks = []
    for resource, obj in generated.items():
        name = obj["metadata"]["name"]
        for version in versions_of(resource):
            collection = path_in(resource, version, namespace)
            stored = await users.get(f"{collection}/{name}")
            stored["metadata"].pop("managedFields")
            for method, more, body, kind in attacks_on(resource, stored):
                attacks.append((method, "/".join((collection, name, *more)), body, kind))
            for method, body, kind in creations_of(resource, stored):
                path = f"{collection}/{body['metadata']['name']}" if kind == APPLY else collection
                attacks.append((method, path, body, kind))
    return [
        (f"{user}-of-{namespace}", *attack) for attack, user in itertools.product(attacks, USERS)
    ]


async def refusals(users, attacks):
    """Return why the API server refuses each attack, sixteen at a time."""
    turns = asyncio.Semaphore(16)

    async def refusal(attack):
        async with turns:
            return await users.refusal(*attack)

    return await asyncio.gather(*map(refusal, attacks))


@pytest.mark.claim("O17")
@pytest.mark.claim("O18")
async def test_each_way_of_writing_each_generated_kind_is_refused(request, flow, users, generated):
    attacks = await all_attacks(users, generated, flow.namespace)
    assert len(attacks) > 2000
    if request.config.option.gate:
        attacks = attacks[::PART]
    told = zip(attacks, await refusals(users, attacks), strict=True)
    others = [attack for attack, text in told if GUARD not in text]
    # Old versions require fields that v1 does not have, so that no user can write the object.
    told = zip(others, await refusals(users, [("", *rest) for _, *rest in others]), strict=True)
    assert [attack for attack, text in told if "Required value" not in text] == []
    assert len(others) < len(attacks) / 10


@pytest.mark.claim("O22")
async def test_the_controller_makes_all_of_these_writes(request, flow, users, generated):
    attacks = await all_attacks(users, generated, flow.namespace)
    attacks = attacks[:: PART if request.config.option.gate else len(USERS)]
    own = [(CONTROLLER, *attack) for _, *attack in attacks]
    told = zip(own, await refusals(users, own), strict=True)
    assert [(*attack, text) for attack, text in told if GUARD in text] == []


@pytest.mark.claim("O19")
async def test_requests_and_foreign_metadata_of_each_generated_kind_are_allowed(
    flow, users, generated
):
    attempts = []
    for resource, obj in generated.items():
        # Other kinds are not converted, so that an update in an old version loses fields.
        for version in versions_of(resource) if resource is APP_VERSIONS else [resource.version]:
            path = path_in(resource, version, flow.namespace, obj["metadata"]["name"])
            for metadata in (
                {"labels": {"example.com/a": "b"}},
                {"annotations": {"example.com/a": "b", CLEAR_KEY: "now"}},
                {"finalizers": ["example.com/a"]},
            ):
                body = {"metadata": metadata}
                attempts += [
                    (f"{u}-of-{flow.namespace}", "PATCH", path, body, MERGE) for u in USERS
                ]
    told = zip(attempts, await refusals(users, attempts), strict=True)
    assert [(*attempt, text) for attempt, text in told if text] == []


@pytest.mark.claim("O17")
async def test_an_update_in_an_old_version_loses_nothing_of_a_generated_object(
    flow, users, generated
):
    lost = []
    for resource, obj in generated.items():
        name = obj["metadata"]["name"]
        path = path_in(resource, resource.version, flow.namespace, name)
        stored = await users.get(path)
        for version in versions_of(resource):
            body = {"metadata": {"labels": {"example.com/by": version}}}
            old = path_in(resource, version, flow.namespace, name)
            await users.write(f"editor-of-{flow.namespace}", "PATCH", old, body, MERGE)
        now = await users.get(path)
        parts = ("spec", "status", "data")
        lost += [(resource.kind, part) for part in parts if now.get(part) != stored.get(part)]
    assert generated
    assert lost == []


@pytest.mark.claim("O32")
async def test_a_workload_that_an_administrator_forges_opens_no_gate(flow, generated):
    """The controller does not trust a workload that the guard lets pass, whatever its owner."""
    (owner,) = generated[WORKLOADS]["metadata"]["ownerReferences"]
    deployed = json.loads(await flow.client.get(DEPLOYMENTS, "ledger", flow.namespace))
    uid = deployed["metadata"]["uid"]
    for forged_owner in (owner, {**owner, "kind": "Deployment", "name": "ledger", "uid": uid}):
        before = flow.find(WORKLOADS, "ledger-ledger")["metadata"]["uid"]
        await flow.client.delete(WORKLOADS, "ledger-ledger", flow.namespace)
        forged = bare(generated[WORKLOADS], "ledger-ledger", ownerReferences=[forged_owner])
        forged["metadata"]["annotations"] = {f"{OURS}since": "9999-12-31T23:59:59Z"}
        forged["spec"] = {**forged["spec"], "preDeploymentTasks": []}
        with contextlib.suppress(AlreadyExistsError):
            await flow.client.create(WORKLOADS, forged, flow.namespace)
        checked = {"metadata": {"uid": lambda uid, b=before: uid != b}, "status": {"owners": bool}}
        checked |= {"spec": {"preDeploymentTasks": ["checking"]}}
        await flow.until_like(WORKLOADS, "ledger-ledger", checked)
        await flow.stay_gated("ledger")
    await flow.let_end()
    await flow.until_released("ledger")
