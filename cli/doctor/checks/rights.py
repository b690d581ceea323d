"""Whether our processes have their permissions, as the API server itself answers that."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import ACCESS_REVIEWS, SELF_ACCESS_REVIEWS
from harbourmaster.cli.diagnosis import fault, note, unseen
from harbourmaster.cli.installed import CONTROLLER, DEFAULT_NAMESPACE, WEBHOOK
from harbourmaster.cli.live.reader import together
from harbourmaster.controller.registry import REGISTRATION
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.serving.documents import Document, parse_documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.controller.settings import ControllerSettings

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
"""The manifests beside the packages: all of them in a checkout, those with rights in a wheel."""
_WIDTH: Final = 16
"""Questions that are asked at one time."""
_SHOWN: Final = 4
_ACCOUNTS: Final = frozenset((CONTROLLER, WEBHOOK))


class Right(Struct, frozen=True, order=True):
    """One thing that one of our accounts must be able to do; empty for any or none."""

    account: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """As people say it: ``list pods``."""
        what = "/".join(filter(None, (self.resource, self.subresource)))
        of_group = f"{what}.{self.group}" if self.group else what
        return f"{self.verb} {of_group}{f' {self.name}' if self.name else ''}"


class _Status(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Review).decode

OWN: Final = (
    ("get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", False),
    ("get", "admissionregistration.k8s.io", "validatingwebhookconfigurations", False),
    ("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", False),
    ("get", "apiextensions.k8s.io", "customresourcedefinitions", False),
    ("list", "", "namespaces", False),
    ("get", "apps", "deployments", True),
    ("get", "coordination.k8s.io", "leases", True),
    ("get", "", "secrets", True),
    ("create", "authorization.k8s.io", "subjectaccessreviews", False),
    ("list", "kupid.gardener.cloud", "clusterpodschedulingpolicies", False),
)
"""What the caller needs to read everything; whether it is in our namespace."""


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Permissions that our accounts lack, and those that the caller lacks to read all of it."""
    lacking = await own_lacks(live)
    if lacking:
        text = f"missing permission to {_listed(lacking)}: some of this could not be read"
        name = (await live.caller()).name or "you"
        yield note(name, text, "ask for these permissions")
    wanted = sorted(required(await live.known_settings(), live.namespace))
    if not wanted:
        text = f"no manifests in {DEPLOY} to compare our accounts' permissions with"
        yield unseen("ServiceAccounts", text, "install the command again")
        return
    width = asyncio.Semaphore(_WIDTH)

    async def ask(right: Right) -> bool:
        async with width:
            return await _may(live, right)

    # One first: where nobody may ask, one refusal is enough.
    try:
        first = await ask(wanted[0])
    except ForbiddenError:
        text = "missing permission to review others' permissions: our accounts were not checked"
        yield unseen("ServiceAccounts", text, "ask for create on subjectaccessreviews")
        return
    answers = [first, *await together(*map(ask, wanted[1:]))]
    refused = [right for right, allowed in zip(wanted, answers, strict=True) if not allowed]
    for account in sorted({right.account for right in refused}):
        lacks = [str(right) for right in refused if right.account == account]
        remedy = "apply the roles and bindings again: make deploy IMG=..., or your overlay"
        subject = f"ServiceAccount {account}"
        yield fault(subject, f"lacks permission to {_listed(lacks)}", remedy)


async def own_lacks(live: Installation) -> list[str]:
    """Which of OWN the caller lacks."""

    async def may(verb: str, group: str, resource: str, *, is_home: bool) -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource}
        if is_home:
            attributes["namespace"] = live.namespace
        body = {
            "apiVersion": SELF_ACCESS_REVIEWS.api_version,
            "kind": SELF_ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        return _decode(await live.client.create(SELF_ACCESS_REVIEWS, body)).status.allowed

    async def ask() -> list[str]:
        try:
            answers = await together(
                *(may(verb, group, plural, is_home=home) for verb, group, plural, home in OWN)
            )
        except ForbiddenError:
            # Not even everybody may ask about themselves; then the checks will say.
            return []
        return [
            f"{verb} {plural}"
            for (verb, _, plural, _), allowed in zip(OWN, answers, strict=True)
            if not allowed
        ]

    return await live.once("own", ask)


async def _may(live: Installation, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "user": f"system:serviceaccount:{live.namespace}:{right.account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{live.namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
    return _decode(await live.client.create(ACCESS_REVIEWS, body)).status.allowed


def _listed(lacks: list[str]) -> str:
    more = len(lacks) - _SHOWN
    return ", ".join(lacks[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def required(settings: ControllerSettings, namespace: str) -> set[Right]:
    """What the manifests grant, as far as these settings need it."""
    files = sorted(DEPLOY.glob("rbac/*.yaml"))
    if REGISTRATION in settings.running:
        files += sorted(DEPLOY.glob("rbac/registration/*.yaml"))
    if settings.rescheduling.enabled:
        files.append(DEPLOY / "components/rescheduling/rights.yaml")
    if settings.placement.enabled:
        files.append(DEPLOY / "components/placement/rights.yaml")
    if settings.dashboard.enabled:
        files.append(DEPLOY / "components/dashboard/rights.yaml")
    objects = [each for file in files for each in _objects(file)]
    roles = {
        (each["kind"], each["metadata"]["name"]): each
        for each in objects
        if each["kind"] in {"Role", "ClusterRole"}
    }
    found: set[Right] = set()
    for binding in objects:
        if not binding["kind"].endswith("Binding"):
            continue
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        where = binding["metadata"].get("namespace", "")
        where = namespace if where == DEFAULT_NAMESPACE else where
        for subject in binding.get("subjects") or ():
            if role is not None and subject["name"] in _ACCOUNTS:
                found.update(_rights(role, subject["name"], where))
    return found


@cache
def _objects(file: Path) -> tuple[dict[str, Any], ...]:
    if not file.is_file():
        return ()
    return tuple(
        document.value
        for document in parse_documents(file.read_bytes(), file.name)
        if isinstance(document, Document) and document.value.get("kind") != "Kustomization"
    )


def _rights(role: dict[str, Any], account: str, namespace: str) -> Iterator[Right]:
    for rule in role.get("rules") or ():
        names = rule.get("resourceNames") or [""]
        for group, resource, verb, name in product(
            rule["apiGroups"], rule["resources"], rule["verbs"], names
        ):
            plural, _, part = resource.partition("/")
            yield Right(account, verb, group, plural, part, name, namespace)
