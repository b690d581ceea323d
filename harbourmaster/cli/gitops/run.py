"""``harbourmaster gitops argocd|flux``: rules from the policies of a cluster, or of files.

It only reads, with the caller's permissions, and works if nothing of Harbourmaster runs there.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import yaml

from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_WEBHOOKS, POLICIES
from harbourmaster.cli.batches import plural
from harbourmaster.cli.gitops.rules import (
    HANDLED,
    argocd_application,
    argocd_config_map,
    flux_rules,
    kinds_of,
    scopes_of,
)
from harbourmaster.cli.installed import NAME
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.live.webhooks import decode_configuration
from harbourmaster.cli.preview.inputs import of_files
from harbourmaster.cli.terminal import json_text
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook.sources import read_policy

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import Kind


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


class _Dumper(yaml.CSafeDumper):
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
