"""The verbs, against an API server that keeps the rules."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version

import msgspec
import pytest
from msgspec.json import decode

from harbourmaster.api.patches import ApplyPatch, MergePatch
from harbourmaster.api.resources import LEASES, NAMESPACES, PODS, POLICIES, SECRETS
from harbourmaster.kube.client import Client
from harbourmaster.kube.deadline import run_while
from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
)
from helpers.api_script import differences
from helpers.fake_api import FakeApi


class Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class Namespace(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: Metadata


def namespace(name, **labels):
    return Namespace("v1", "Namespace", Metadata(name, labels))


def lease(holder, **metadata):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "prod", **metadata},
        "spec": {"holderIdentity": holder},
    }


def names(page):
    return [decode(item)["metadata"]["name"] for item in page.items]


async def test_of_an_object_metadata_alone_can_be_asked_for(api, client):
    await client.create(LEASES, lease("a"), "prod")
    await client.get(LEASES, "leader", "prod", metadata_only=True)
    await client.get(LEASES, "leader", "prod")
    accepted = [request.headers["Accept"] for request in api.seen("get")]
    assert accepted == [
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "application/json",
    ]


async def test_work_whose_term_ends_within_a_step_writes_nothing_in_that_step(api, client):
    allowed = [True]

    async def work():
        # A new connection would be waited for.
        await client.list(NAMESPACES)
        # The process stands still here, and goes on when another one leads.
        allowed.clear()
        await client.create(LEASES, lease("a"), "prod")

    with pytest.raises(asyncio.CancelledError):
        await run_while(lambda: bool(allowed), work())
    assert [request.verb for request in api.requests] == ["list"]


async def test_an_object_is_created_read_replaced_and_deleted(api, client):
    created = json.loads(await client.create(LEASES, lease("a"), "prod"))
    assert created["spec"] == {"holderIdentity": "a"}
    assert json.loads(await client.get(LEASES, "leader", "prod")) == created
    changed = {**created, "spec": {"holderIdentity": "b"}}
    replaced = json.loads(await client.replace(LEASES, "leader", changed, "prod"))
    assert replaced["spec"] == {"holderIdentity": "b"}
    assert replaced["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    await client.delete(LEASES, "leader", "prod")
    with pytest.raises(NotFoundError, match='"leader" not found'):
        await client.get(LEASES, "leader", "prod")
    assert [request.verb for request in api.requests] == [
        "create", "get", "update", "delete", "get"
    ]  # fmt: skip


async def test_bodies_may_be_json_or_structs(api, client):
    await client.create(NAMESPACES, namespace("struct", a="1"))
    await client.create(NAMESPACES, msgspec.json.encode(namespace("bytes")))
    assert api.get(NAMESPACES, "struct")["metadata"]["labels"] == {"a": "1"}
    assert [name for _, name in api.objects.all(NAMESPACES)] == ["struct", "bytes"]


async def test_an_old_version_does_not_replace_a_new_one(client):
    old = json.loads(await client.create(LEASES, lease("a"), "prod"))
    await client.replace(LEASES, "leader", {**old, "spec": {"holderIdentity": "b"}}, "prod")
    with pytest.raises(ConflictError) as caught:
        await client.replace(LEASES, "leader", {**old, "spec": {"holderIdentity": "c"}}, "prod")
    assert type(caught.value) is ConflictError
    assert str(caught.value).startswith(
        "update /apis/coordination.k8s.io/v1/namespaces/prod/leases/leader: 409 Conflict: Operation"
    )


async def test_a_subresource_alone_is_replaced(api, client):
    api.put(NAMESPACES, {"metadata": {"name": "prod"}, "status": {"phase": "Active"}})
    changed = {**api.get(NAMESPACES, "prod"), "status": {"phase": "Ending"}, "spec": {"x": 1}}
    await client.replace(NAMESPACES, "prod", changed, subresource="status")
    stored = api.get(NAMESPACES, "prod")
    assert (stored["status"], "spec" in stored) == ({"phase": "Ending"}, False)
    await client.patch(
        NAMESPACES, "prod", MergePatch({"status": None, "spec": {"x": 1}}), subresource="status"
    )
    stored = api.get(NAMESPACES, "prod")
    assert (stored["status"], "spec" in stored) == (None, False)


async def test_a_dry_run_changes_nothing(api, client):
    answer = json.loads(await client.create(NAMESPACES, namespace("prod"), dry_run=True))
    assert answer["metadata"]["name"] == "prod"
    assert not api.objects.all(NAMESPACES)
    api.put(NAMESPACES, {"metadata": {"name": "prod"}})
    patch = MergePatch({"metadata": {"labels": {"a": "1"}}})
    answer = json.loads(await client.patch(NAMESPACES, "prod", patch, dry_run=True))
    assert answer["metadata"]["labels"] == {"a": "1"}
    assert "labels" not in api.get(NAMESPACES, "prod")["metadata"]


async def test_an_apply_patch_names_its_manager(api, client):
    patch = ApplyPatch(namespace("prod", a="1"), "harbourmaster")
    await client.patch(NAMESPACES, "prod", patch)
    assert api.get(NAMESPACES, "prod")["metadata"]["labels"] == {"a": "1"}
    seen = api.requests[-1]
    assert seen.query == {"fieldManager": "harbourmaster"}
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    await client.patch(NAMESPACES, "prod", ApplyPatch(b"{}", "harbourmaster", force=True))
    assert api.requests[-1].query == {"fieldManager": "harbourmaster", "force": "true"}


async def test_a_deletion_is_of_one_object(api, client):
    first = api.put(NAMESPACES, {"metadata": {"name": "prod"}})
    api.remove(NAMESPACES, "prod")
    api.put(NAMESPACES, {"metadata": {"name": "prod"}})
    with pytest.raises(ConflictError, match="the UID in the precondition"):
        await client.delete(NAMESPACES, "prod", uid=first["metadata"]["uid"])
    await client.delete(NAMESPACES, "prod", propagation="Background")
    assert json.loads(api.requests[-1].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    with pytest.raises(NotFoundError):
        await client.delete(NAMESPACES, "prod")
    await client.delete(NAMESPACES, "prod", missing_ok=True)


async def test_a_list_comes_in_pages_of_one_version(api, client):
    for number in range(5):
        api.put(NAMESPACES, {"metadata": {"name": f"n{number}"}})
    first = await client.list(NAMESPACES, limit=2)
    api.remove(NAMESPACES, "n4")
    second = await client.list(NAMESPACES, limit=2, continue_token=first.continue_token)
    third = await client.list(NAMESPACES, limit=2, continue_token=second.continue_token)
    assert [names(page) for page in (first, second, third)] == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    assert third.continue_token == ""
    assert len({page.resource_version for page in (first, second, third)}) == 1
    assert names(await client.list(NAMESPACES)) == ["n0", "n1", "n2", "n3"]


async def test_an_empty_list_may_say_null(api, client):
    api.fail_next("list", status=200, body=b'{"metadata":{"resourceVersion":"7"},"items":null}')
    page = await client.list(NAMESPACES)
    assert (page.items, page.resource_version, page.continue_token) == ((), "7", "")


@pytest.mark.parametrize(
    "body",
    [b'{"metadata":{}}', b'{"kind":"Status"}', b"[]", b'{"metadata":{"resourceVersion":"1"}}'],
)
async def test_what_is_no_list_is_an_error(api, client, body):
    api.fail_next("list", status=200, body=body)
    with pytest.raises(BadAnswerError, match="list /api/v1/namespaces: 200: "):
        await client.list(NAMESPACES)


async def test_a_table_has_cells_instead_of_objects(api, client):
    body = {
        "kind": "Table",
        "metadata": {"resourceVersion": "7", "continue": "next"},
        "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Ready"}],
        "rows": [{"cells": ["cart-1", "0/1"], "object": None}, {"cells": ["cart-2", 7]}],
    }
    api.fail_next("list", status=200, body=msgspec.json.encode(body))
    selectors = {"labelSelector": "a=b", "fieldSelector": "c=d"}
    rows, token = await client.table(PODS, "shop", "before", **selectors)
    assert rows == ({"Name": "cart-1", "Ready": "0/1"}, {"Name": "cart-2", "Ready": 7})
    assert token == body["metadata"]["continue"]
    (asked,) = api.seen("list", "/namespaces/shop/pods")
    assert asked.headers["Accept"] == "application/json;as=Table;g=meta.k8s.io;v=v1"
    assert asked.query == {
        "limit": "500",
        "continue": "before",
        "labelSelector": "a=b",
        "fieldSelector": "c=d",
        "includeObject": "None",
    }
    body |= {"metadata": {"resourceVersion": "7"}, "rows": None}
    api.fail_next("list", status=200, body=msgspec.json.encode(body))
    assert await client.table(PODS, "shop") == ((), "")


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []},
        {"metadata": {"resourceVersion": "7"}, "columnDefinitions": [{}], "rows": []},
        {"metadata": {"resourceVersion": "7"}, "columnDefinitions": [], "rows": [{"object": {}}]},
    ],
)
async def test_an_answer_that_is_no_table_is_an_error_and_not_an_empty_list(api, client, body):
    api.fail_next("list", status=200, body=msgspec.json.encode(body))
    with pytest.raises(ApiError, match="list /api/v1/namespaces/shop/pods"):
        await client.table(PODS, "shop")


async def test_metadata_alone_can_be_asked_for(api, client):
    api.put(SECRETS, {"metadata": {"name": "a", "namespace": "x"}, "data": {"key": "c2VjcmV0"}})
    (item,) = (await client.list(SECRETS, metadata_only=True)).items
    decoded = decode(item)
    assert (decoded["kind"], decoded["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    assert "data" not in decoded


async def test_other_requests(api, client):
    assert json.loads(await client.request("GET", "/version"))["gitVersion"] == "v1.36.3"
    body = msgspec.json.encode(namespace("prod"))
    await client.request(
        "POST", "/api/v1/namespaces", query={"dryRun": "All"}, body=body, content_type="text/json"
    )
    assert api.requests[-1].query == {"dryRun": "All"}
    assert api.requests[-1].headers["Content-Type"] == "text/json"
    with pytest.raises(NotFoundError, match=r"^get /nothing: 404: 404 page not found$"):
        await client.request("GET", "/nothing")


async def test_a_refusal_says_what_right_is_missing(api, client):
    api.forbid("list", POLICIES)
    with pytest.raises(ForbiddenError) as caught:
        await client.list(POLICIES)
    assert str(caught.value) == (
        "list /apis/kupid.gardener.cloud/v1alpha1/podschedulingpolicies: 403 Forbidden: "
        'podschedulingpolicies is forbidden: User "system:serviceaccount:default:app" cannot list '
        'resource "podschedulingpolicies" in API group "kupid.gardener.cloud" at the cluster scope'
    )


async def test_names_reach_the_server_as_they_are(api, client):
    with pytest.raises(NotFoundError):
        await client.get(NAMESPACES, "a/../b%2f")
    assert api.requests[-1].path == "/api/v1/namespaces/a%2F..%2Fb%252f"


async def test_the_user_agent_has_our_version(api, client):
    await client.request("GET", "/version")
    assert api.requests[-1].headers["User-Agent"] == f"harbourmaster/{version('harbourmaster')}"
    async with api.client(user_agent="tool") as tool:
        await tool.request("GET", "/version")
    assert api.requests[-1].headers["User-Agent"] == f"tool/{version('harbourmaster')}"


async def test_each_answer_is_observed(api):
    seen = []
    async with api.client(observer=lambda *values: seen.append(values), retries=0) as client:
        await client.request("GET", "/version")
        with pytest.raises(ApiError):
            await client.get(NAMESPACES, "none")
        api.fail_next(kind="reset")
        with pytest.raises(ApiError):
            await client.delete(NAMESPACES, "none")
    assert [(verb, status) for verb, status, _ in seen] == [
        ("get", 200), ("get", 404), ("delete", 0)
    ]  # fmt: skip
    assert all(seconds >= 0 for _, _, seconds in seen)


async def test_a_client_must_be_open(api):
    with pytest.raises(RuntimeError, match="not open"):
        await Client(api.connection).get(NAMESPACES, "a")


@pytest.mark.parametrize(("kind", "status"), [("garbage", 200), ("status", 401), ("status", 502)])
async def test_what_echoes_our_token_is_not_quoted_with_it(api, kind, status):
    async def token():
        return "hush-hush"

    body = b'{"you": "sent Authorization: Bearer hush-hush and more"}'
    connection = msgspec.structs.replace(api.connection, token=token)
    async with Client(connection) as client:
        api.fail_next(kind=kind, status=status, body=body)
        with pytest.raises(ApiError, match=r"Bearer \*\*\*") as raised:
            await client.list(SECRETS)
    assert "hush" not in str(raised.value)


async def test_it_answers_the_script():
    async with FakeApi(rules=True) as api, api.client() as client:
        assert await differences(client, "default") == []
