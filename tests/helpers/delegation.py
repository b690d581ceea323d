"""Compiled admission policies: fixed ones, and random ones tried by dry run on an API server.

Every policy of a set selects a label that only the pods of that set have, so many sets can be in
one group, which is compiled to one admission policy for each part: to make these is what takes
time. Groups are bound side by side in the namespace where objects are tried.
"""

from __future__ import annotations

import asyncio
import json
import random
from math import prod
from typing import NamedTuple

import aiohttp
from msgspec import structs

from harbourmaster.cli.compile.probe import KINDS, fields_by_webhook, object_of, owned_fields_of
from harbourmaster.cli.compile.run import registered_by
from harbourmaster.policies.admission_policies import MAX_ADDED_VALUES
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.cel import MAX_REQUIREMENTS, MAX_TERMS, count_parts
from harbourmaster.policies.cel_paths import PROBE_NAMESPACE
from harbourmaster.policies.delegation import compile_objects, select
from harbourmaster.policies.enforcement import COMPILED_KEY, policy_hash
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import PREFERRED, REQUIRED
from harbourmaster.policies.tolerations import DEFAULTS
from harbourmaster.registration.settings import RegistrationSettings
from harbourmaster.webhook.policy_objects import convert_policy
from harbourmaster.webhook.sources import read_policy
from helpers.objects import API, cluster_policy
from helpers.patience import PATIENCE

KEY = "harbourmaster.dev/compiled"
FIRST, SECOND = "0a1b2c3d", "4e5f6a7b"
"""Two sets."""
MODED = "example.com/moded"
TOLERATION = {"key": MODED, "operator": "Exists", "effect": "NoSchedule"}
RULES = {"nodeSelector": {MODED: "yes"}, "tolerations": [TOLERATION]}
"""The fields that ``SPEC`` adds to pods with the label MODED."""
_TOLERATIONS = "object.spec.?tolerations.orValue([])"
_VALUE = f'{{"key": "{MODED}", "operator": "Exists", "effect": "NoSchedule"}}'
EXPRESSION = f"""
(has(object.spec.nodeSelector) ? [] : [JSONPatch{{
  op: "add", path: "/spec/nodeSelector", value: {{"{MODED}": "yes"}}
}}]) + ({_TOLERATIONS}.exists(t, t.?key.orValue("") == "{MODED}") ? [] : [JSONPatch{{
  op: "add", path: "/spec/tolerations", value: {_TOLERATIONS} + [Object.spec.tolerations{{
    key: "{MODED}", operator: "Exists", effect: "NoSchedule"
  }}]
}}])
"""
SPEC = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "objectSelector": {"matchExpressions": [{"key": MODED, "operator": "Exists"}]},
    },
    "failurePolicy": "Ignore",
    "reinvocationPolicy": "IfNeeded",
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EXPRESSION}}],
}


def hash_of(manifest):
    """The hash of a policy as compiled objects have it."""
    return policy_hash(convert_policy(manifest))


def mutation(hashes, policy_hash=FIRST, part="pods", parts="pods", **metadata):
    """A MutatingAdmissionPolicy of one part; ``hashes`` are by reference."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {
            "name": f"harbourmaster-compiled-{policy_hash}-{part}",
            "labels": {"app.kubernetes.io/name": "harbourmaster", KEY: "policy"},
            "annotations": {
                "harbourmaster.dev/policy-hashes": json.dumps(hashes),
                "harbourmaster.dev/compiled-set": policy_hash,
                "harbourmaster.dev/compiled-parts": parts,
                "harbourmaster.dev/bound": "{}",
            },
            **metadata,
        },
        "spec": SPEC,
    }


def binding(policy_hash=FIRST, part="pods", label="final", matched=None, **metadata):
    """A binding of that part to that set; ``matched`` is for what it counts."""
    probe = "" if label == "final" else f"{label}-"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {
            "name": f"harbourmaster-compiled-{probe}{part}",
            "labels": {"app.kubernetes.io/name": "harbourmaster", KEY: label},
            **metadata,
        },
        "spec": {
            "policyName": f"harbourmaster-compiled-{policy_hash}-{part}",
            "matchResources": matched,
        },
    }


SET = "set.example.com/name"
ASKS = {"harbourmaster.dev/enforcement": "APIServer"}
AT_ONCE = 4
CREATED = 201
REFUSED = "refused"
WAITING = "keptn-scheduler"
REGISTERED = registered_by(RegistrationSettings(), "harbourmaster-system")
PODS_ONLY = structs.replace(REGISTERED, rules={"pods": REGISTERED.rules["pods"]})
PATHS = {"v1": "/api/v1", "apps/v1": "/apis/apps/v1", "batch/v1": "/apis/batch/v1"}


class Tried(NamedTuple):
    """One object: as it was sent, what the webhook makes of its pod, and what came back."""

    sent: dict
    ours: dict
    theirs: dict
    is_large: bool
    """Whether policies could multiply its required terms beyond the bound."""

    @property
    def is_changed(self):
        """Whether policies change it."""
        return owned_fields_of(self.sent) != self.ours

    @property
    def differs(self):
        """Whether the API server made something else of it than it should."""
        return self.theirs != (owned_fields_of(self.sent) if self.is_large else self.ours)


class Chance(random.Random):
    """Random parts of policies and pods, of few keys and values, so that many are equal."""

    def maybe(self, make, share=0.5):
        """Make the value in that share of the cases; nothing in the others."""
        return make() if self.random() < share else None

    def several(self, make, least=0, most=3):
        """A list of what is made."""
        return [make() for _ in range(self.randint(least, most))]

    def labels(self, least=0, most=2):
        """Labels, of a node or a pod."""
        return {self.choice("abc"): self.choice("xyz") for _ in range(self.randint(least, most))}

    def values(self):
        """Values of a requirement, with repetitions and in any order."""
        return [self.choice("xyz") for _ in range(self.randint(1, 3))]

    def requirement(self):
        """One on the labels of a node."""
        operator = self.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        expression = {"key": self.choice("abc"), "operator": operator}
        if operator in {"In", "NotIn"}:
            expression["values"] = self.values()
        elif operator in {"Gt", "Lt"}:
            expression["values"] = [str(self.randint(1, 3))]
        return expression

    def field(self):
        """One on the name of a node."""
        operator = self.choice(("In", "NotIn"))
        return {"key": "metadata.name", "operator": operator, "values": [self.choice("xy")]}

    def term(self, least=1):
        """A node selector term."""
        selector = {}
        if expressions := self.several(self.requirement, least=least):
            selector["matchExpressions"] = expressions
        if self.random() < 0.2:
            selector["matchFields"] = self.several(self.field, 1, 2)
        return selector

    def terms(self):
        """Required terms."""
        return {"nodeSelectorTerms": self.several(self.term, 1, 3)}

    def preference(self):
        """A preferred term of node affinity."""
        return {"weight": self.randint(1, 2), "preference": self.term()}

    def selector(self):
        """A label selector, in a term of pod affinity or in a policy."""
        selector = {}
        if self.random() < 0.5:
            selector["matchLabels"] = self.labels(1)
        if self.random() < 0.5:
            selector["matchExpressions"] = self.several(self.selector_requirement, 1, 2)
        return selector

    def selector_requirement(self):
        """One of a label selector."""
        operator = self.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        expression = {"key": self.choice("abc"), "operator": operator}
        return (
            {**expression, "values": self.values()} if operator in {"In", "NotIn"} else expression
        )

    def pod_term(self):
        """A term of pod affinity or anti-affinity."""
        term = {"topologyKey": self.choice("hz")}
        for name, make in (
            ("labelSelector", self.selector),
            ("namespaceSelector", self.selector),
            ("namespaces", lambda: self.several(lambda: self.choice("mn"), 1)),
        ):
            if self.random() < 0.5:
                term[name] = make()
        return term

    def weighted_term(self):
        """A preferred one."""
        return {"weight": self.randint(1, 2), "podAffinityTerm": self.pod_term()}

    def toleration(self):
        """A toleration that the API server accepts."""
        if self.random() < 0.4:
            return self.toleration_of_failed_nodes()
        toleration = {"key": self.choice("abc"), "operator": "Exists"}
        if self.random() < 0.5:
            toleration |= {
                "operator": self.choice(("Equal", "Equal", "")),
                "value": self.choice("xy"),
            }
            toleration = {name: part for name, part in toleration.items() if part}
        if self.random() < 0.6:
            toleration["effect"] = self.choice(("NoExecute", "NoSchedule"))
        if toleration.get("effect") == "NoExecute" and self.random() < 0.5:
            toleration["tolerationSeconds"] = self.randint(-1, 2)
        return toleration

    def toleration_of_failed_nodes(self):
        """One as the API server adds them, or like them."""
        toleration = {
            "key": self.choice((*DEFAULTS, *DEFAULTS, "")),
            "operator": "Exists",
            "effect": self.choice(("NoExecute", "NoExecute", "NoExecute", "NoSchedule", "")),
        }
        if toleration["key"] and self.random() < 0.3:
            toleration["operator"] = self.choice(("Equal", ""))
            toleration["value"] = self.choice(("", "x"))
        if toleration["effect"] == "NoExecute":
            toleration["tolerationSeconds"] = self.choice((300, 300, 30))
        return {name: part for name, part in toleration.items() if part}

    def affinity(self, share):
        """An affinity; each part is there in so many cases."""
        affinity = {}
        for name, required, preferred in (
            ("nodeAffinity", self.terms, self.preference),
            ("podAffinity", lambda: self.several(self.pod_term, 1, 2), self.weighted_term),
            ("podAntiAffinity", lambda: self.several(self.pod_term, 1, 2), self.weighted_term),
        ):
            parts = {
                REQUIRED: self.maybe(required, share),
                PREFERRED: self.maybe(lambda make=preferred: self.several(make, 1, 2), share),
            }
            if parts := {key: part for key, part in parts.items() if part}:
                affinity[name] = parts
        return affinity

    def owned_fields(self, share):
        """Fields of a pod spec that policies own."""
        scheduler = self.maybe(lambda: self.choice(("s1", "s2", "default-scheduler")), share)
        spec = {
            "nodeSelector": self.maybe(lambda: self.labels(1), share),
            "tolerations": self.maybe(lambda: self.several(self.toleration, 1), share),
            "affinity": self.affinity(share),
            "schedulerName": scheduler,
        }
        return {name: part for name, part in spec.items() if part}

    def policy(self, name, number):
        """A cluster policy of the set with that number."""
        pods = self.selector() if self.random() < 0.5 else {}
        pods["matchLabels"] = {**pods.get("matchLabels", {}), SET: str(number)}
        namespaces = self.selector() if self.random() < 0.4 else {}
        return {
            "apiVersion": API,
            "kind": "ClusterPodSchedulingPolicy",
            "metadata": {"name": name, "annotations": ASKS},
            "spec": {
                "podSelector": pods,
                "namespaceSelector": namespaces,
                **self.owned_fields(self.choice((0.2, 0.4, 0.7))),
            },
        }

    def pod(self, number):
        """A pod of that set, with what a template of one has."""
        labels = {SET: str(number), **self.labels()}
        return {
            "metadata": {"labels": labels},
            "spec": self.owned_fields(self.choice((0, 0.3, 0.6))),
        }


class Delegation:
    """Groups of policies on one API server, by name."""

    def __init__(self, session):
        self._session = session
        self._groups = {}

    def compile_group(self, group, documents, registered=REGISTERED, namespaces=()):
        """The objects of a group, with bindings of its own; what is refused is left out."""
        policies = [read_policy(document)[0] for document in documents]
        chosen = select(policies, namespaces=namespaces, waiting_scheduler=WAITING).policies
        self._groups[group] = chosen
        if not chosen:
            return []
        objects = compile_objects(chosen, registered)
        created = [
            policy for policy in objects.policies + objects.probe if "Policy" in policy["kind"]
        ]
        for obj in created:
            # Groups of equal content have equal names.
            obj["metadata"]["name"] += f"-{len(self._groups)}"
            if "policyName" in obj["spec"]:
                obj["spec"]["policyName"] += f"-{len(self._groups)}"
        return created

    def policies(self, group):
        """Those of a group that were compiled."""
        return self._groups[group]

    async def create(self, objects):
        """Create admission policies and bindings. Raises AssertionError with what was wrong."""
        for obj in objects:
            plural = obj["kind"].lower().removesuffix("y") + "ies"
            if obj["kind"].endswith("Binding"):
                plural = obj["kind"].lower() + "s"
            path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
            async with self._session.post(path, json=obj) as answer:
                assert answer.status == 201, await answer.text()

    async def try_object(self, group, part, namespace, pod, name="probe", user=""):
        """An object by dry run; what came back is the reason where it was refused.

        ``user`` is impersonated, with the permissions of the administrator.
        """
        obj = object_of(part, name, namespace, pod)
        path = (
            f"{PATHS[obj['apiVersion']]}/namespaces/{PROBE_NAMESPACE}/{KINDS[part][2]}?dryRun=All"
        )
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
        async with self._session.post(path, json=obj, headers=headers) as answer:
            body = await answer.json()
        theirs = (
            owned_fields_of(body) if answer.status == CREATED else {REFUSED: body.get("message")}
        )
        policies = self._groups[group]
        labels = pod["metadata"]["labels"]
        matching = policy_set(policies).match("", namespace, labels)
        own = required_terms(pod["spec"].get("affinity"))
        factors = [policy.required.terms.terms for policy in matching if policy.required]
        added = [
            sum(max(count_parts(term)[number] for term in terms) for terms in factors)
            for number in (0, 1)
        ]
        is_large = bool(factors) and (
            max(1, len(own)) * prod(map(len, factors)) > MAX_TERMS
            or added[0] > MAX_REQUIREMENTS
            or added[1] > MAX_ADDED_VALUES
        )
        return Tried(obj, fields_by_webhook(obj, policies), theirs, is_large)

    async def bind(self, objects, registered=REGISTERED):
        """Create them, and return when the last ones are in force."""
        label = {SET: "bound"}
        marker = cluster_policy("marker", pods=label, nodeSelector={"bound": "yes"})
        marker["metadata"]["annotations"] = ASKS
        await self.create([*objects, *self.compile_group("bound", [marker], registered)])
        pod = {"metadata": {"labels": label}, "spec": {}}
        async with asyncio.timeout(PATIENCE):
            for part in registered.rules:
                # Nothing tells when an API server has taken up a policy, which it does each second.
                while (await self.try_object("bound", part, {}, pod)).differs:
                    pass

    async def await_refused(self, group, pod):
        """Return when a pod is refused. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                tried = await self.try_object(group, "pods", {}, pod)
                if REFUSED in tried.theirs:
                    return tried

    async def remove(self):
        """Delete all that is compiled, and return when it has no effect."""
        kinds = [f"{prefix}admissionpolic" for prefix in ("mutating", "validating")]
        for kind in (
            *(f"{kind_prefix}ybindings" for kind_prefix in kinds),
            *(f"{kind_prefix}ies" for kind_prefix in kinds),
        ):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
            async with self._session.delete(f"{path}?labelSelector={COMPILED_KEY}") as answer:
                assert answer.status == 200, await answer.text()

    async def all_tried(self, asked):
        """Every (group, part, namespace, pod), several at once; in their order."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(index, question):
            async with gate:
                return await self.try_object(*question, name=f"probe-{index}")

        return await asyncio.gather(*(one(*pair) for pair in enumerate(asked)))


def session_of(plane):
    """A session of requests to the API server of a control plane, by its administrator."""
    connector = aiohttp.TCPConnector(ssl=plane.admin)
    return aiohttp.ClientSession(plane.server, connector=connector)
