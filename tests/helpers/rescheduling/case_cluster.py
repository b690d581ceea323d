"""The nodes, pods and budgets of one conformance case, and how to ask about them."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import EVENTS, NAMESPACES, PODS, VOLUME_CLAIMS, VOLUMES
from helpers.rescheduling.objects import (
    CASE,
    CRITICAL,
    RESERVATIONS,
    critical,
    is_clean,
    node,
    owned_taints,
    removable,
)
from helpers.rescheduling.toy_kubelet import BUDGETS, NODES

SETTLED = 30.0
"""Seconds for what is to come within five; others use this machine too."""


class CaseCluster:
    """The nodes, pods and budgets of one case, and what may be asked of them."""

    def __init__(self, field, case, begun):
        self.field = field
        self.client = field.client
        self.cluster = field.cluster
        self.label = case.id.lower()
        self.namespace = f"case-{self.label}"
        self.controller = None
        self.proxy = None
        self.waits = asyncio.Event()
        self.nodes = []
        self._begun = begun
        self._before = {}
        self._critical = {}

    async def open(self):
        """Make the namespace."""
        await self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})

    async def begin(self):
        """Wait until the controller runs."""
        self.waits.set()
        await self._begun.wait()

    async def leave(self):
        """Take the critical pods away, so that nothing makes room for them later."""
        for uid, (namespace, name) in self._critical.items():
            await self.delete(name, namespace, grace=0, uid=uid)

    async def node(self, name="n1", cpu="4", *, labels=None, **options):
        """Make a node; its whole name, which has that of the case at the end."""
        full = f"{name}-{self.label}"
        labels = {CASE: self.label, **(labels or {})}
        await self.client.create(NODES, node(full, cpu, labels=labels, **options))
        self.nodes.append(full)
        return full

    async def pods(self, *manifests, namespace=None):
        """Make pods, one after the other, and wait until each is as it will be; their uids."""
        uids = []
        for manifest in manifests:
            stored = await self.client.create(PODS, manifest, namespace or self.namespace)
            uids.append(msgspec.json.decode(stored)["metadata"]["uid"])
        for uid in uids:
            await self.cluster.until(lambda uid=uid: is_settled(self.latest(uid)), why=self.why)
        return uids

    async def full(self, on, *names, cpu=1, **options):
        """Fill a node with removable pods of these names."""
        return await self.pods(*(removable(name, on, cpu, **options) for name in names))

    async def budget(self, manifest, allowed):
        """Make a budget, and wait until it allows so many disruptions."""
        await self.client.create(BUDGETS, manifest, self.namespace)
        key = f"{self.namespace}/{manifest['metadata']['name']}"

        def is_so():
            budget = self.cluster.find(BUDGETS, key) or {}
            status = budget.get("status", {})
            return status.get("observedGeneration") and status["disruptionsAllowed"] == allowed

        await self.cluster.until(is_so, why=self.why)

    async def claim(self, on):
        """Make a bound claim of a volume that can only be used on a node; its name."""
        name = f"data-{self.label}"
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
        basic = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        volume = {
            **basic,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        claim = {**basic, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
        await self.client.create(VOLUMES, {"metadata": {"name": name}, "spec": volume})
        metadata = {"name": name, "annotations": bound}
        await self.client.create(VOLUME_CLAIMS, {"metadata": metadata, "spec": claim}, CRITICAL)
        status = MergePatch({"status": {"phase": "Bound"}})
        await self.client.patch(VOLUME_CLAIMS, name, status, CRITICAL, subresource="status")
        return name

    async def critical(self, name="c", cpu=1, **options):
        """Make a critical pod; its uid. From now on what is there counts as untouched, or not."""
        manifest = critical(f"{name}-{self.label}", self.label, cpu, **options)
        return await self.want_pod(manifest)

    async def want_pod(self, manifest, namespace=CRITICAL):
        """Make a pod that is to be helped, or not."""
        self.remember()
        stored = msgspec.json.decode(await self.client.create(PODS, manifest, namespace))
        metadata = stored["metadata"]
        self._critical[metadata["uid"]] = (namespace, metadata["name"])
        return metadata["uid"]

    def remember(self):
        """Let what is on nodes now be what counts as untouched."""
        self._before = {
            obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"]
            for obj in self.cluster.all(PODS)
            if obj["metadata"]["namespace"] == self.namespace and "nodeName" in obj["spec"]
        }

    async def delete(self, name, namespace=None, *, grace=None, uid=None):
        """Delete a pod as its owner would."""
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        with contextlib.suppress(Exception):
            await self.client.request(
                "DELETE",
                PODS.path(namespace or self.namespace, name),
                body=msgspec.json.encode(body),
                content_type="application/json",
            )

    def latest(self, uid):
        """The last version of an object; an empty one where none was heard of."""
        history = self.cluster.history(uid)
        return history[-1].object if history else {}

    def is_bound(self, uid, on=None):
        """Whether a pod has a node, or that one."""
        name = self.latest(uid).get("spec", {}).get("nodeName")
        return name is not None and on in {None, name}

    async def until_bound(self, uid, on=None, patience=SETTLED):
        """Wait until a pod has a node."""
        await self.cluster.until(lambda: self.is_bound(uid), patience, self.why)
        assert self.is_bound(uid, on), self.latest(uid)["spec"]["nodeName"]

    async def clean(self):
        """Wait until nothing of ours is on any node."""
        await self.cluster.until(lambda: not self.marked_nodes(), SETTLED, self.why)

    def marked_nodes(self):
        """The nodes of the case that carry something of ours."""
        nodes = [self.cluster.find(NODES, name) for name in self.nodes]
        return [node["metadata"]["name"] for node in nodes if node and not is_clean(node)]

    def uid_of_node(self, name):
        """The uid of a node that is there."""
        return self.cluster.find(NODES, name)["metadata"]["uid"]

    def taints_of(self, name):
        """The values of our taint that a node has ever had, in order and without repetition."""
        changes = [
            tuple(taint["value"] for taint in owned_taints(seen.object))
            for seen in self.cluster.history(self.uid_of_node(name))
        ]
        return [now for before, now in zip([(), *changes], changes, strict=False) if now != before]

    def reservation_texts(self, name):
        """The texts of our annotation that a node has ever had."""
        history = self.cluster.history(self.uid_of_node(name))
        texts = [
            seen.object["metadata"].get("annotations", {}).get(RESERVATIONS) for seen in history
        ]
        return [text for text in dict.fromkeys(texts) if text]

    def was_marked(self):
        """Whether any node of the case ever carried anything of ours."""
        uids = [self.uid_of_node(name) for name in self.nodes if self.cluster.find(NODES, name)]
        return any(not is_clean(seen.object) for uid in uids for seen in self.cluster.history(uid))

    def ends_of(self, *names):
        """The first version with an end of each pod of the case that got one, by name."""
        ends_by_name = {}
        for versions in self.cluster.versions.values():
            metadata = versions[0].object["metadata"]
            # Objects of a list have no kind.
            is_pod = "containers" in versions[0].object.get("spec", {})
            if not is_pod or metadata["namespace"] != self.namespace:
                continue
            ends = [
                version for version in versions if "deletionTimestamp" in version.object["metadata"]
            ]
            if ends and (not names or metadata["name"] in names):
                ends_by_name[metadata["name"]] = ends[0]
            elif metadata["uid"] in self.cluster.gone:
                ends_by_name[metadata["name"]] = versions[-1]
        return ends_by_name

    def taken_pods(self):
        """The names of the pods of the case that have to go, or went; not those of passers-by."""
        return {name for name in self.ends_of() if not name.startswith("passer")}

    def grace_of(self, name):
        """The grace that a pod was given."""
        return self.ends_of(name)[name].object["metadata"]["deletionGracePeriodSeconds"]

    def reason_of(self, name):
        """Why a pod is said to have been disrupted; empty for nothing said."""
        for condition in self.ends_of(name)[name].object["status"].get("conditions", ()):
            if condition["type"] == "DisruptionTarget":
                return condition["reason"]
        return ""

    def events(self, uid):
        """The events about an object, each reason as often as it was reported."""
        return [
            event["reason"]
            for event in self.cluster.all(EVENTS)
            if event.get("regarding", {}).get("uid") == uid
            and event.get("reportingController", "").startswith("harbourmaster")
        ]

    async def until_event(self, uid, reason, patience=SETTLED):
        """Wait until an event of ours tells this of an object."""
        await self.cluster.until(lambda: reason in self.events(uid), patience, self.why)

    async def assert_helped(self, uid, on, victims):
        """Wait until a pod was helped so, and everything else is as before."""
        await self.until_bound(uid, on)
        await self.clean()
        assert self.taken_pods() == set(victims)
        self.assert_untouched()

    async def left_alone(self, uid, reason=None, *, passes=True):
        """Nothing is done for a pod, which an event may tell, while another one is helped."""
        if reason is not None:
            await self.until_event(uid, reason)
        if passes:
            await self.passer_by()
        assert self.taken_pods() == set()
        assert not self.is_bound(uid)
        assert not self.was_marked()
        self.assert_untouched()

    def assert_untouched(self):
        """Those that were not taken are exactly as they were."""
        for uid, version in self._before.items():
            metadata = self.latest(uid)["metadata"]
            if metadata["name"] not in self.taken_pods():
                assert uid not in self.cluster.gone, metadata["name"]
                assert metadata["resourceVersion"] == version, metadata["name"]

    async def passer_by(self):
        """Have another pod helped from its beginning: what would be done now, is done then."""
        number = len(self._critical)
        label = f"{self.label}-{number}"
        name = f"passer-{number}-{self.label}"
        await self.client.create(NODES, node(name, 1, labels={CASE: label}))
        await self.pods(removable(f"passer-{number}", name, 1))
        before = self._before
        uid = await self.want_pod(critical(name, label))
        self._before = before
        await self.until_bound(uid, name)

    def requests(self, text):
        """The requests of our controllers with this in their URI."""
        return self.field.audit(text)

    async def metric(self, sample):
        """The value of a sample of the controller, 0 where there is none."""
        lines = (await self.controller.metrics()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{sample} "))

    def why(self):
        """The state of the case, for the reader of a failure."""
        pods = [
            pod
            for pod in self.cluster.all(PODS)
            if pod["metadata"]["namespace"] == self.namespace
            or pod["metadata"]["uid"] in self._critical
        ]
        lines = [
            " ".join(
                [
                    pod["metadata"]["name"],
                    f"on {pod['spec'].get('nodeName')}",
                    pod["status"].get("phase", ""),
                    "ends" if "deletionTimestamp" in pod["metadata"] else "",
                    f"nominated {pod['status'].get('nominatedNodeName')}",
                    str(self.events(pod["metadata"]["uid"])),
                ]
            )
            for pod in pods
        ]
        return "\n".join(
            [*lines, f"marked: {self.marked_nodes()}", f"taken: {sorted(self.taken_pods())}"]
        )


def is_settled(pod):
    """Whether a toy kubelet has nothing more to do for a pod."""
    if not pod:
        return False
    labels = pod["metadata"].get("labels", {})
    return "example.com/unstarted" in labels or pod["status"].get("phase") != "Pending"
