"""Requests whose answers every API server gives alike: the simulated ones are held to them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from msgspec.json import decode

from harbourmaster.api.patches import ApplyPatch, JsonPatch, MergePatch
from harbourmaster.api.resources import CONFIG_MAPS, LEASES, PODS, TASKS
from harbourmaster.kube.errors import ApiError

GATES = [{"name": "example.com/first"}, {"name": "example.com/second"}]
EXPECTED = [
    ("create", "ok"),
    ("create again", "409 AlreadyExists"),
    ("create with a version", "500 "),
    ("create of another kind", "400 BadRequest"),
    ("create without a name", "422 Invalid"),
    ("create by generateName", "named"),
    ("get what is not there", "404 NotFound"),
    ("list in pages", ["list-1", "list-2", "list-3"]),
    ("list by label", ["list-2"]),
    ("list by name", ["list-3"]),
    ("merge patch", {"a": "1", "b": "2"}),
    ("merge patch takes away", {"b": "2"}),
    ("merge patch of an old version", "409 Conflict"),
    ("merge patch of another uid", "422 Invalid"),
    ("json patch", {"b": "3"}),
    ("json patch whose test fails", "422 Invalid"),
    ("json patch: what is absent is null", {"b": "4"}),
    ("json patch of an old version", "409 Conflict"),
    ("json patch of what is not there", "404 NotFound"),
    ("a patch that changes nothing keeps the version", True),
    ("apply makes", {"d": "1"}),
    ("replace with an old version", "409 Conflict"),
    ("replace a Lease without a version", "422 Invalid"),
    ("watch", [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]),
    ("watch of a label ends with it", ["ADDED", "DELETED"]),
    ("versions grow", True),
    ("delete of another uid", "409 Conflict"),
    ("delete", "ok"),
    ("delete again", "404 NotFound"),
    ("delete with a finalizer", True),
    ("the last finalizer ends it", "404 NotFound"),
    ("a new object has no status", None),
    ("a change of the spec leaves the status", {"status": "Pending"}),
    ("a change of the status leaves the spec", "first"),
    ("generations count changes of the spec", [1, 1, 2]),
    ("a pod begins", "Pending"),
    ("a gate is added", "422 Invalid"),
    ("a gate is taken away", ["example.com/second"]),
    ("a pod's spec is changed", "422 Invalid"),
    ("a pod's toleration is added", True),
    ("pods that are pending and on no node", ["gated"]),
]


async def differences(client, namespace):
    """The answers to the script that differ from the expected ones, as (actual, expected)."""
    script = _Script(client, namespace)
    for act in (script.verbs, script.patches, script.watches, script.endings, script.kinds):
        await act()
    return [pair for pair in zip(script.found, EXPECTED, strict=True) if pair[0] != pair[1]]


class _Script:
    def __init__(self, client, namespace):
        self.found = []
        self._client = client
        self._namespace = namespace

    async def _try(self, what, call, look=lambda _obj: "ok"):
        try:
            answer = await call
        except ApiError as error:
            self.found.append((what, f"{error.status} {error.reason}"))
            return None
        obj = decode(answer) if isinstance(answer, bytes) else answer
        self.found.append((what, look(obj)))
        return obj

    def _create(self, name, resource=CONFIG_MAPS, **fields):
        metadata = {"name": name, **fields.pop("metadata", {})}
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        return self._client.create(
            resource, {**kinds, "metadata": metadata, **fields}, self._namespace
        )

    def _patch(self, name, patch, resource=CONFIG_MAPS, **options):
        return self._client.patch(resource, name, patch, self._namespace, **options)

    async def _names(self, **options):
        token, names = "", []
        while True:
            page = await self._client.list(
                CONFIG_MAPS, self._namespace, limit=2, continue_token=token, **options
            )
            names += [decode(item)["metadata"]["name"] for item in page.items]
            token = page.continue_token
            if not token:
                return [name for name in names if name.startswith("list-")]

    async def verbs(self):
        await self._try("create", self._create("one"))
        await self._try("create again", self._create("one"))
        versioned = {"resourceVersion": "1"}
        await self._try("create with a version", self._create("two", metadata=versioned))
        wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two"}}
        await self._try(
            "create of another kind", self._client.create(CONFIG_MAPS, wrong, self._namespace)
        )
        await self._try("create without a name", self._create(""))
        await self._try(
            "create by generateName",
            self._create("", metadata={"generateName": "made-"}),
            lambda obj: "named" if len(obj["metadata"]["name"]) == len("made-") + 5 else obj,
        )
        await self._try(
            "get what is not there", self._client.get(CONFIG_MAPS, "none", self._namespace)
        )
        for number in (1, 2, 3):
            await self._create(f"list-{number}", metadata={"labels": {"number": str(number)}})
        for what, options in (
            ("list in pages", {}),
            ("list by label", {"label_selector": "number=2"}),
            ("list by name", {"field_selector": "metadata.name=list-3"}),
        ):
            await self._try(what, self._names(**options), list)

    async def patches(self):
        def data(obj):
            return obj["data"]

        first = decode(await self._create("p", data={"a": "1"}))["metadata"]["resourceVersion"]
        await self._try("merge patch", self._patch("p", MergePatch({"data": {"b": "2"}})), data)
        gone = MergePatch({"data": {"a": None}})
        await self._try("merge patch takes away", self._patch("p", gone), data)
        old = MergePatch({"metadata": {"resourceVersion": first}, "data": {"c": "1"}})
        await self._try("merge patch of an old version", self._patch("p", old), data)
        patch = MergePatch({"metadata": {"uid": "another"}, "data": {"c": "1"}})
        await self._try("merge patch of another uid", self._patch("p", patch), data)
        for what, operations in (
            ("json patch", [{"op": "replace", "path": "/data/b", "value": "3"}]),
            (
                "json patch whose test fails",
                [{"op": "test", "path": "/data/b", "value": "x"}],
            ),
            (
                "json patch: what is absent is null",
                [
                    {"op": "test", "path": "/data/none", "value": None},
                    {"op": "replace", "path": "/data/b", "value": "4"},
                ],
            ),
            (
                "json patch of an old version",
                [
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": first},
                    {"op": "replace", "path": "/data/b", "value": "5"},
                ],
            ),
        ):
            await self._try(what, self._patch("p", JsonPatch(operations)), data)
        await self._try("json patch of what is not there", self._patch("none", JsonPatch([])))
        before = decode(await self._client.get(CONFIG_MAPS, "p", self._namespace))
        await self._try(
            "a patch that changes nothing keeps the version",
            self._patch("p", MergePatch({"data": {"b": "4"}})),
            lambda obj: obj["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"],
        )
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}
        apply = ApplyPatch({**body, "data": {"d": "1"}}, "a-test")
        await self._try("apply makes", self._patch("applied", apply), data)
        stale = {**before, "metadata": {**before["metadata"], "resourceVersion": first}}
        await self._try(
            "replace with an old version",
            self._client.replace(CONFIG_MAPS, "p", stale, self._namespace),
        )
        await self._create("lease", LEASES, spec={})
        unversioned = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": {}}
        unversioned["metadata"] = {"name": "lease"}
        await self._try(
            "replace a Lease without a version",
            self._client.replace(LEASES, "lease", unversioned, self._namespace),
        )

    async def watches(self):
        page = await self._client.list(CONFIG_MAPS, self._namespace)
        await self._create("w", metadata={"labels": {"watched": "yes"}})
        await self._patch("w", MergePatch({"data": {"a": "1"}}))
        await self._client.delete(CONFIG_MAPS, "w", self._namespace)
        events = await self._events(3, page.resource_version)
        told = [(event.type, decode(event.object)["metadata"]["name"]) for event in events]
        self.found.append(("watch", told))
        await self._create("x", metadata={"labels": {"watched": "yes"}})
        await self._patch("x", MergePatch({"metadata": {"labels": {"watched": "no"}}}))
        labelled = await self._events(
            2,
            decode(events[-1].object)["metadata"]["resourceVersion"],
            label_selector="watched=yes",
        )
        self.found.append(("watch of a label ends with it", [event.type for event in labelled]))
        versions = [int(decode(event.object)["metadata"]["resourceVersion"])
                    for event in (*events, *labelled)]  # fmt: skip
        self.found.append(("versions grow", versions == sorted(set(versions))))

    async def _events(self, count, version, **options):
        stream = self._client.watch(
            CONFIG_MAPS,
            self._namespace,
            resource_version=version,
            timeout_seconds=60,
            idle_timeout=60,
            bookmarks=False,
            **options,
        )
        received = []
        async with asyncio.timeout(30), aclosing(stream):
            async for event in stream:
                received.append(event)
                if len(received) == count:
                    return received
        return received

    async def endings(self):
        def delete(name, **options):
            return self._client.delete(CONFIG_MAPS, name, self._namespace, **options)

        await self._try("delete of another uid", delete("one", uid="another"))
        await self._try("delete", delete("one"))
        await self._try("delete again", delete("one"))
        await self._create("held", metadata={"finalizers": ["example.com/held"]})
        await delete("held")
        await self._try(
            "delete with a finalizer",
            self._client.get(CONFIG_MAPS, "held", self._namespace),
            lambda obj: "deletionTimestamp" in obj["metadata"],
        )
        await self._patch("held", MergePatch({"metadata": {"finalizers": None}}))
        await self._try(
            "the last finalizer ends it", self._client.get(CONFIG_MAPS, "held", self._namespace)
        )

    async def kinds(self):
        generations = []

        def generation(obj):
            generations.append(obj["metadata"]["generation"])

        spec = {"taskDefinition": "first", "context": {}}
        made = await self._try(
            "a new object has no status",
            self._create("task", TASKS, spec=spec, status={"status": "Failed"}),
            lambda obj: (obj.get("status") or {}).get("status"),
        )
        generation(made)
        status = MergePatch({"status": {"status": "Pending"}, "spec": {"taskDefinition": "second"}})
        told = decode(await self._patch("task", status, TASKS, subresource="status"))
        generation(told)
        spec = MergePatch({"status": {"status": "Failed"}, "spec": {"taskDefinition": "third"}})
        changed = decode(await self._patch("task", spec, TASKS))
        generation(changed)
        self.found += [
            ("a change of the spec leaves the status", changed["status"]),
            ("a change of the status leaves the spec", told["spec"]["taskDefinition"]),
            ("generations count changes of the spec", generations),
        ]
        container = {"name": "main", "image": "registry.example.com/main:1"}
        pod = {"containers": [container], "schedulingGates": GATES}
        await self._try(
            "a pod begins",
            self._create("gated", PODS, spec=pod),
            lambda obj: obj["status"]["phase"],
        )
        for what, operations, look in (
            (
                "a gate is added",
                [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "a/b"}}],
                None,
            ),
            (
                "a gate is taken away",
                [{"op": "remove", "path": "/spec/schedulingGates/0"}],
                lambda obj: [gate["name"] for gate in obj["spec"]["schedulingGates"]],
            ),
            (
                "a pod's spec is changed",
                [{"op": "replace", "path": "/spec/containers/0/name", "value": "other"}],
                None,
            ),
            (
                "a pod's toleration is added",
                [
                    {
                        "op": "add",
                        "path": "/spec/tolerations",
                        "value": [*(_tolerations(await self._pod())), {"operator": "Exists"}],
                    }
                ],
                lambda obj: {"operator": "Exists"} in obj["spec"]["tolerations"],
            ),
        ):
            await self._try(what, self._patch("gated", JsonPatch(operations), PODS), look)
        page = await self._client.list(
            PODS, self._namespace, field_selector="spec.nodeName=,status.phase=Pending"
        )
        names = [decode(item)["metadata"]["name"] for item in page.items]
        self.found.append(("pods that are pending and on no node", names))

    async def _pod(self):
        return decode(await self._client.get(PODS, "gated", self._namespace))


def _tolerations(pod):
    return pod["spec"].get("tolerations", [])
