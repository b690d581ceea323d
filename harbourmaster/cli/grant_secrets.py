"""``harbourmaster grant secrets``: a Role and a RoleBinding that let the controller read Secrets.

The API server lets users grant only permissions that they have: get on the same Secrets.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.names import dns_label, dns_subdomain
from harbourmaster.api.patches import ApplyPatch
from harbourmaster.cli.installed import CONTROLLER, ROLE_BINDINGS, ROLES, is_ours_by_name
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client, say
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import raise_unusable
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

NAME: Final = "harbourmaster-secrets"
_LABELS: Final = {
    "app.kubernetes.io/component": "controller",
    "app.kubernetes.io/name": "harbourmaster",
}


def manifests(
    namespace: str, installation: str, secrets: list[str]
) -> list[tuple[Resource, dict[str, Any]]]:
    """The Role and its RoleBinding; without names of ``secrets`` it is for all of the namespace."""
    metadata = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    rule: dict[str, Any] = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    if secrets:
        rule["resourceNames"] = sorted(set(secrets))
    account = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": installation}
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": NAME}
    bodies: dict[Resource, dict[str, Any]] = {
        ROLES: {"rules": [rule]},
        ROLE_BINDINGS: {"roleRef": role, "subjects": [account]},
    }
    return [
        (resource, {**resource.type_fields, "metadata": metadata, **body})
        for resource, body in bodies.items()
    ]


def run(arguments: Arguments) -> int:
    """Grant or revoke; 0 done, 1 the API server refused, 2 no cluster or names that are none."""
    names = [("namespace", arguments.namespace, dns_label)]
    names += [("namespace of the installation", arguments.installed_in, dns_label)]
    names += [("Secret name", name, dns_subdomain) for name in arguments.name]
    for what, name, check in names:
        if faults := check(name):
            raise StartError(f'invalid {what} "{name}": {"; ".join(faults)}')
    if arguments.output == "yaml":
        made = manifests(arguments.namespace, arguments.installed_in, arguments.name)
        sys.stdout.write("---\n".join(dump(body) for _, body in made))
        return DONE
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    namespace, done = arguments.namespace, " (dry run)" if arguments.dry_run else ""
    made = manifests(namespace, arguments.installed_in, arguments.name)
    # The binding goes first, and comes last: it never refers to a role that is not there.
    for resource, body in reversed(made) if arguments.revoke else made:
        what = f"{resource.kind} {namespace}/{NAME}"
        try:
            if arguments.revoke:
                said = await _delete(client, resource, namespace, is_dry=arguments.dry_run)
            else:
                said = await _apply(client, resource, body, is_dry=arguments.dry_run)
        except ForbiddenError as error:
            complain(
                f"{what}: missing permission: {error.message}: ask a user that can read "
                "its Secrets and write Roles and RoleBindings, as admin of the namespace can"
            )
            return LEFT
        except ApiError as error:
            raise_unusable(error)
            complain(f"{what}: {error}")
            return LEFT
        say(f"{what}: {said}{done}")
    which = ", ".join(sorted(set(arguments.name))) or "all Secrets"
    account = f"ServiceAccount {arguments.installed_in}/{CONTROLLER}"
    if not arguments.revoke:
        say(f"{account} can read in namespace {namespace}: {which}{done}")
    return DONE


async def _apply(client: Client, resource: Resource, body: dict[str, Any], *, is_dry: bool) -> str:
    patch = ApplyPatch(body, field_manager="harbourmaster-cli", force=True)
    try:
        await client.patch(resource, NAME, patch, body["metadata"]["namespace"], dry_run=is_dry)
    except NotFoundError:
        if is_dry and resource == ROLE_BINDINGS:
            return "not tried, because its Role does not exist yet"
        raise
    return "applied"


async def _delete(client: Client, resource: Resource, namespace: str, *, is_dry: bool) -> str:
    try:
        metadata = metadata_in(await client.get(resource, NAME, namespace))
    except NotFoundError:
        return "not found"
    if not is_ours_by_name(metadata):
        return "left: it lacks the label app.kubernetes.io/name=harbourmaster"
    if not is_dry:
        await client.delete(resource, NAME, namespace, uid=metadata.uid, missing_ok=True)
    return "deleted"
