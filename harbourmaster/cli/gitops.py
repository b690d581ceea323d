"""``harbourmaster gitops argocd|flux``: rules to ignore what policies set, and rules of health.

It only reads, with the caller's permissions, and works if nothing of Harbourmaster runs there.

The rules of Argo CD are jq expressions whose values are deleted on both sides of a comparison. They
are narrow: what Git sets itself at the same path is still compared. Where lists and maps are left
empty, Argo CD removes them. The rules of Flux are JSON pointers, which can name a field or a key,
but no item of a list; what Git sets itself there is not corrected any more.
"""

from __future__ import annotations

import pathlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.patches import escape
from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_WEBHOOKS, POLICIES
from harbourmaster.cli.batches import plural
from harbourmaster.cli.installed import NAME
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.live.webhooks import decode_configuration
from harbourmaster.cli.preview.inputs import of_files
from harbourmaster.cli.terminal import json_text
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.policies.owned_fields import InjectableFields, injectable_fields
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.targets import TEMPLATES
from harbourmaster.serving.kubectl_yaml import Dumper
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook.sources import read_policy

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from harbourmaster.kube.client import Client
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.owned_fields import Path
    from harbourmaster.policies.pods import Kind

HANDLED: Final[tuple[Kind, ...]] = tuple(
    {(kind.group, kind.name): kind for kind in reversed(KINDS.values())}.values()
)[::-1]
"""Every kind once, regardless of its versions."""


class Scope(Struct, frozen=True):
    """The fields that policies set in the objects of one namespace, or of all."""

    namespace: str | None
    """None for every namespace."""
    injected: InjectableFields


def scopes_of(
    policies: Iterable[CompiledPolicy], namespace: str | None = None, *, apart: bool = True
) -> list[Scope]:
    """Return what cluster policies set, and what the policies of each namespace set besides.

    With a namespace, only the policies of that one count. If nothing is set, there is no scope. For
    tools that cannot tell namespaces ``apart``, there is one scope for all.
    """
    groups: dict[str | None, list[CompiledPolicy]] = {}
    for policy in policies:
        is_applied = not policy.excluded_kinds.issuperset(TEMPLATES)
        if is_applied and (namespace is None or policy.namespace in {None, namespace}):
            groups.setdefault(policy.namespace if apart else None, []).append(policy)
    # Cluster policies come first.
    scopes = [
        Scope(name, injectable_fields(groups[name]))
        for name in sorted(groups, key=lambda name: name or "")
    ]
    return [scope for scope in scopes if scope.injected.paths]


def kinds_of(resources: Collection[tuple[str, str]]) -> tuple[Kind, ...]:
    """Return the kinds among API resources, given by group and plural."""
    return tuple(kind for kind in HANDLED if (kind.group, plural_of(kind)) in resources)


def plural_of(kind: Kind) -> str:
    """Return the name of a handled kind in URLs: all have a regular plural."""
    return f"{kind.name.lower()}s"


_CA_BUNDLE: Final = ".webhooks[]?.clientConfig.caBundle"
INSTALLATION: Final = {
    resources.MUTATING_WEBHOOKS: _CA_BUNDLE,
    resources.VALIDATING_WEBHOOKS: _CA_BUNDLE,
    resources.DEFINITIONS: ".spec.conversion.webhook.clientConfig.caBundle",
    resources.API_SERVICES: ".spec.caBundle",
}
"""Fields that are written into objects of the installation itself, as an expression by kind."""


_HEALTH: Final = pathlib.Path(__file__).with_name("argocd_health.lua")
_WITH_HEALTH: Final = (
    *(resources.APP_VERSIONS, resources.WORKLOAD_VERSIONS, resources.TASKS, resources.EVALUATIONS),
    *(resources.ANALYSES, resources.KEPTN_METRICS, resources.APPLICATIONS, resources.CLUSTERS),
)
"""Kinds whose status says how they are."""


def _ignore_rules(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Yield group, kind, namespace (None for all) and expressions of each rule."""
    for scope in scopes:
        for kind in kinds:
            paths = list(jq_expressions(kind.pointer, scope.injected))
            yield kind.group, kind.name, scope.namespace, paths
    for resource, path in INSTALLATION.items() if installation else ():
        yield resource.group, resource.kind, None, [path]


def argocd_application(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """Return the rules as a part of the ``spec`` of an Application."""
    return {
        "ignoreDifferences": [
            {
                "group": group,
                "kind": kind,
                **({"namespace": namespace} if namespace is not None else {}),
                "jqPathExpressions": paths,
            }
            for group, kind, namespace, paths in _ignore_rules(
                scopes, kinds, installation=installation
            )
        ]
    }


def argocd_config_map(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """Return a ConfigMap with the rules for all Applications, and those of health."""
    labels = {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"}
    health, key = _HEALTH.read_text(), "resource.customizations.health"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": "argocd", "labels": labels},
        "data": {
            f"resource.customizations.ignoreDifferences.{f'{group}_{kind}'.lstrip('_')}": "".join(
                # JSON is YAML, however long its line.
                ["jqPathExpressions:\n", *(f"- {_json(path)}\n" for path in paths)]
            )
            for group, kind, _, paths in _ignore_rules(scopes, kinds, installation=installation)
        }
        | {f"{key}.{resource.group}_{resource.kind}": health for resource in _WITH_HEALTH},
    }


def jq_expressions(pointer: str, values: InjectableFields) -> Iterator[str]:
    """Yield an expression for each value that is set in the pod spec at ``pointer``."""
    root = pointer.replace("/", ".")
    for path in values.fields:
        yield _at(root, path)
    for path, item in values.items:
        yield f"{_at(root, path)}[]? | select(. == {_json(item)})"
    for path, key, value in values.entries:
        member = f".[{_json(key)}]"
        yield f"{_at(root, path)} | select({member}? == {_json(value)}) | {member}"
    for path, value in values.scalars:
        yield f"{_at(root, path)} | select(. == {_json(value)})"


def _at(root: str, path: Path) -> str:
    return ".".join((root, *path))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def flux_rules(scopes: Sequence[Scope], kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return a rule for each kind in each scope."""
    return [
        {
            "paths": json_pointers(kind.pointer, scope.injected),
            "target": {
                **({"group": kind.group} if kind.group else {}),
                "kind": kind.name,
                **({"namespace": scope.namespace} if scope.namespace is not None else {}),
            },
        }
        for scope in scopes
        for kind in kinds
    ]


def json_pointers(pointer: str, values: InjectableFields) -> list[str]:
    """Return the pointers to everything that is set in the pod spec at ``pointer``."""
    return ["/".join((pointer, *map(escape, path))) for path in values.paths]


def run(arguments: Arguments) -> int:
    """Print the rules; return 1 if a policy is invalid or unreadable, 2 without a cluster."""
    if arguments.policies is None:
        return run_with_client(arguments, partial(_live, arguments))
    problems: list[str] = []
    policies = list(of_files([arguments.policies], problems).values())
    for problem in problems:
        complain(problem)
    _print(arguments, policies, _select(arguments, HANDLED))
    return LEFT if problems else DONE


async def _live(arguments: Arguments, client: Client) -> int:
    reader = ClusterReader(client)
    try:
        objects = [
            *await reader.list_all(CLUSTER_POLICIES, decode_anything),
            *await reader.list_all(POLICIES, decode_anything, arguments.namespace),
        ]
    except NotFoundError:
        complain(
            "the cluster has no scheduling policies: install Harbourmaster, or give --policies"
        )
        return LEFT
    except ApiError as error:
        lacks = f"missing permission to read all policies: {error.message}"
        complain(f"no rules: {lacks if isinstance(error, ForbiddenError) else error}")
        return LEFT
    policies = [read_policy(obj)[0] for obj in objects]
    _print(arguments, policies, _select(arguments, await _kinds(reader)))
    broken = [policy for policy in policies if policy.fault is not None]
    for policy in broken:
        complain(f"{policy.reference} sets nothing, it is invalid: {policy.fault}")
    return LEFT if broken else DONE


async def _kinds(reader: ClusterReader) -> tuple[Kind, ...]:
    """Return the kinds that the API server sends to the webhook; all kinds if that is unknown."""
    try:
        configuration = decode_configuration(await reader.get(MUTATING_WEBHOOKS, NAME))
    except (ApiError, msgspec.MsgspecError) as error:
        complain(f"rules for every kind, because the registered kinds could not be read: {error}")
        return HANDLED
    return kinds_of(
        {
            (group, resource)
            for entry in configuration.entries
            for rule in entry.rules or ()
            for group in rule.api_groups or ()
            for resource in rule.resources or ()
        }
    )


def _select(arguments: Arguments, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    return tuple(kind for kind in kinds if not arguments.kinds or kind.name in arguments.kinds)


def _print(arguments: Arguments, policies: list[CompiledPolicy], kinds: tuple[Kind, ...]) -> None:
    scopes = scopes_of(policies, arguments.namespace, apart=arguments.form != "system")
    if arguments.tool == "argocd":
        make = argocd_config_map if arguments.form == "system" else argocd_application
        rules = make(scopes, kinds, installation=arguments.installation)
    else:
        rules = {"ignore": flux_rules(scopes, kinds)}
        rules = {"driftDetection": rules} if arguments.form == "helmrelease" else rules
    if arguments.output == "json":
        sys.stdout.buffer.write(json_text(rules))
        return
    for line in _comments(scopes, kinds, policies):
        print(f"# {clean(line)}")
    yaml.dump(
        rules,
        sys.stdout,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=sys.maxsize >> 33,
    )


class _Dumper(Dumper):
    """Dumps texts of several lines unchanged, and each expression on a line that grep finds."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _comments(scopes: object, kinds: tuple[Kind, ...], policies: list[CompiledPolicy]) -> list[str]:
    """Return the comments above the rules."""
    count = plural(len(policies), "policy", "policies")
    if not scopes:
        return [f"nothing has to be ignored: {count}, and none sets anything"]
    if [kind.name for kind in kinds] == ["Pod"]:
        return ["for pods that are in Git; other pods never differ from Git"]
    return [f"what {count} may set; print it again when policies change"]
