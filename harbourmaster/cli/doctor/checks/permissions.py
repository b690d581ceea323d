"""Whether our processes have their permissions, as the API server itself answers that."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from harbourmaster.api.resources import (
    ACCESS_REVIEWS,
    ADMISSION_GROUP,
    KUPID_GROUP,
    SELF_ACCESS_REVIEWS,
)
from harbourmaster.cli.batches import shorten
from harbourmaster.cli.diagnosis import fault, note, unknown
from harbourmaster.cli.installed import CONTROLLER, DEFAULT_NAMESPACE, WEBHOOK
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.reader import run_together
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.serving.documents import Document, parse_documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.controller.settings import ControllerSettings

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
"""The manifests beside the packages: all in a checkout, in a wheel those that give permissions."""
_WIDTH: Final = 16
"""Questions that are asked at one time."""
_SHOWN: Final = 4
_ACCOUNTS: Final = frozenset((CONTROLLER, WEBHOOK))


class Permission(Struct, frozen=True, order=True):
    """One thing that an account of ours must be able to do; empty fields are for any or none."""

    account: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """The verb and the resource: ``list pods``."""
        what = "/".join(filter(None, (self.resource, self.subresource)))
        of_group = f"{what}.{self.group}" if self.group else what
        return f"{self.verb} {of_group}{f' {self.name}' if self.name else ''}"


OWN: Final = (
    Permission("", "get", ADMISSION_GROUP, "mutatingwebhookconfigurations"),
    Permission("", "get", ADMISSION_GROUP, "validatingwebhookconfigurations"),
    Permission("", "list", ADMISSION_GROUP, "mutatingwebhookconfigurations"),
    Permission("", "get", "apiextensions.k8s.io", "customresourcedefinitions"),
    Permission("", "list", "", "namespaces"),
    Permission("", "get", "apps", "deployments", namespace=DEFAULT_NAMESPACE),
    Permission("", "get", "coordination.k8s.io", "leases", namespace=DEFAULT_NAMESPACE),
    Permission("", "get", "", "secrets", namespace=DEFAULT_NAMESPACE),
    Permission("", "create", "authorization.k8s.io", "subjectaccessreviews"),
    Permission("", "list", KUPID_GROUP, "clusterpodschedulingpolicies"),
)
"""The permissions with which a caller can read all of an installation in the default namespace."""


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Permissions that our accounts lack, and those that the caller lacks to read all of it."""
    lacking = await missing_own_permissions(live)
    if lacking:
        text = f"missing permission to {shorten(lacking, _SHOWN)}: some of this could not be read"
        name = (await live.caller()).name or "you"
        yield note(name, text, "ask for these permissions")
    wanted = sorted(required_permissions(await live.known_settings(), live.namespace))
    if not wanted:
        text = f"no manifests in {DEPLOY} to compare our accounts' permissions with"
        yield unknown("ServiceAccounts", text, "install the command again")
        return
    width = asyncio.Semaphore(_WIDTH)

    async def ask(permission: Permission) -> bool:
        async with width:
            return await may(live, permission)

    # One first: without permission to ask, one refusal is enough.
    try:
        first = await ask(wanted[0])
    except ForbiddenError:
        text = "missing permission to review others' permissions: our accounts were not checked"
        yield unknown("ServiceAccounts", text, "ask for create on subjectaccessreviews")
        return
    answers = [first, *await run_together(*map(ask, wanted[1:]))]
    refused = [
        permission for permission, allowed in zip(wanted, answers, strict=True) if not allowed
    ]
    for account in sorted({permission.account for permission in refused}):
        lacks = [str(permission) for permission in refused if permission.account == account]
        remedy = "apply the roles and bindings again: docs/howto/installing.md, or your overlay"
        subject = f"ServiceAccount {account}"
        yield fault(subject, f"lacks permission to {shorten(lacks, _SHOWN)}", remedy)


async def missing_own_permissions(live: Installation) -> list[str]:
    """Return those of OWN that the caller lacks, as "verb resource"."""

    async def ask() -> list[str]:
        try:
            answers = await run_together(*(may(live, permission) for permission in OWN))
        except ForbiddenError:
            # Not even everybody may ask about themselves; then the checks will say.
            return []
        return [
            f"{permission.verb} {permission.resource}"
            for permission, allowed in zip(OWN, answers, strict=True)
            if not allowed
        ]

    return await live.once("own", ask)


async def may(live: Installation, permission: Permission) -> bool:
    """Whether an account of ours, or the caller where none is named, has a permission."""
    attributes = asdict(permission) | {"namespace": _place(permission.namespace, live.namespace)}
    account = attributes.pop("account")
    spec: dict[str, Any] = {
        "resourceAttributes": {key: value for key, value in attributes.items() if value}
    }
    if account:
        spec["user"] = f"system:serviceaccount:{live.namespace}:{account}"
        spec["groups"] = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{live.namespace}",
            "system:authenticated",
        ]
    review = ACCESS_REVIEWS if account else SELF_ACCESS_REVIEWS
    body = {**review.type_fields, "spec": spec}
    allowed: bool = decode_anything(await live.client.create(review, body))["status"]["allowed"]
    return allowed


def _place(namespace: str, ours: str) -> str:
    """The namespace that a manifest means."""
    return ours if namespace == DEFAULT_NAMESPACE else namespace


def required_permissions(settings: ControllerSettings, namespace: str) -> set[Permission]:
    """Return the permissions that manifests grant and these settings need, and those for waits."""
    files = sorted(DEPLOY.glob("rbac/*.yaml"))
    if REGISTRATION in settings.running:
        files += sorted(DEPLOY.glob("rbac/registration/*.yaml"))
    files += [
        DEPLOY / f"components/{part}/rights.yaml"
        for part in ("rescheduling", "placement", "dashboard")
        if getattr(settings, part).enabled
    ]
    objects = [obj for file in files for obj in _objects(file)]
    kinds = settings.lifecycle.kinds_to_wait_for.values() if objects else ()
    wanted = product(kinds, ("list", "watch"))
    permissions = {Permission(CONTROLLER, verb, kind.group, kind.plural) for kind, verb in wanted}
    roles = {
        (role["kind"], role["metadata"]["name"]): role
        for role in objects
        if role["kind"] in {"Role", "ClusterRole"}
    }
    for binding in objects:
        if not binding["kind"].endswith("Binding"):
            continue
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        where = _place(binding["metadata"].get("namespace", ""), namespace)
        for subject in binding.get("subjects") or ():
            if role is not None and subject["name"] in _ACCOUNTS:
                permissions.update(_permissions_of(role, subject["name"], where))
    return permissions


@cache
def _objects(file: Path) -> tuple[dict[str, Any], ...]:
    if not file.is_file():
        return ()
    return tuple(
        document.value
        for document in parse_documents(file.read_bytes(), file.name)
        if isinstance(document, Document) and document.value.get("kind") != "Kustomization"
    )


def _permissions_of(role: dict[str, Any], account: str, namespace: str) -> Iterator[Permission]:
    for rule in role.get("rules") or ():
        names = rule.get("resourceNames") or [""]
        for group, resource, verb, name in product(
            rule["apiGroups"], rule["resources"], rule["verbs"], names
        ):
            plural, _, part = resource.partition("/")
            yield Permission(account, verb, group, plural, part, name, namespace)
