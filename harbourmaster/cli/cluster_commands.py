"""The arguments of commands that work on a cluster; what they run is imported when it is run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import (
    APPLICATIONS,
    APPS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    KEPTN_CONFIGS,
    PODS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_flags,
    add_installation,
    add_namespace,
    add_output,
    add_path,
    add_several,
    add_subject,
    duration,
    names_of,
    positive,
    reason,
    reference,
    set_command,
)
from harbourmaster.cli.why.commands import KINDS, RESOURCES
from harbourmaster.gates.gate import SCHEDULER_NAME
from harbourmaster.policies.pods import KINDS as POD_KINDS

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from harbourmaster.api.resources import Resource

_CONFIG_EXAMPLES: Final = """examples:
  harbourmaster config adopt
  harbourmaster config adopt shop/keptn-config
"""


def add_config(config: ArgumentParser) -> None:
    """Add the actions of ``config``."""
    config.epilog = _CONFIG_EXAMPLES
    actions = config.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "list KeptnConfigs that have no effect because of their namespace, or let one count"
    adopt = add_command(actions, "adopt", text, run="config_adopt:adopt", examples=_CONFIG_EXAMPLES)
    text = "KeptnConfig that is to configure the whole cluster"
    add_subject(adopt, "config", KEPTN_CONFIGS, nargs="?", help=text)
    add_installation(adopt)


_GATE_EXAMPLES: Final = """examples:
  harbourmaster gate list
  harbourmaster gate list -A --watch
  harbourmaster gate list -n shop -l app=cart -o wide
  harbourmaster gate wait deployment/cart -n shop --timeout 10m
  harbourmaster gate release shop/cart-5d4f8-x7k2p --reason "incident 4711, checks are down"
  harbourmaster gate release deployment/cart -n shop --reason "incident 4711, checks are down"
  harbourmaster gate rerun deployment/cart -n shop --reason "the registry answers again"
  harbourmaster gate rerun application/shop -n team --reason "the registry answers again"
  harbourmaster gate promote deployment/cart -n shop --reason "the errors are of the old pods"
  harbourmaster gate clear-nodes shop/shop-cart-3.1
"""
_RELEASES: Final = "release a pod, or all waiting pods of a workload, whatever the state of their"
_RERUNS: Final = "repeat the failed checks of a pod, of all waiting pods of a workload, or of an"
RELEASED: Final = {
    name: kinds[0] for name, kinds in KINDS.items() if kinds[0] in {*RESOURCES} - {CRON_JOBS}
}
"""Types whose pods can be released, by every name."""
_REPEATED: Final = {
    **RELEASED,
    **dict.fromkeys(names_of(APPLICATIONS, "kapp"), APPLICATIONS),
}
_STAGED: Final = {
    name: kinds[0]
    for name, kinds in KINDS.items()
    if kinds[0] in {PODS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, WORKLOADS}
}
_POD_ACTIONS: Final = {
    "release": (RELEASED, "pod", f"{_RELEASES} checks"),
    "rerun": (_REPEATED, "version", f"{_RERUNS} Application"),
    "promote": (_STAGED, "version", "end the stage of the newest version, whatever failed"),
}
"""Actions on pods: its types, the object that records the reason, and what the action does."""
_AWAITED: Final = {**RELEASED, **dict.fromkeys(names_of(APPS, "app"), APPS)}
_WAIT_DESCRIPTION: Final = """Wait until the newest version of a workload, a pod or a KeptnApp is
released. A line is printed for each change of the reason. Exit codes: 0 released, 1 a check failed,
or the object is missing, was deleted or has no gate, 124 not released in time."""


def add_gate(gate: ArgumentParser) -> None:
    """Add the actions of ``gate``, each with the function that does it."""
    gate.epilog = _GATE_EXAMPLES
    actions = gate.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "list waiting pods with their age and reason"
    show = add_command(actions, "list", text, run="gate_list:show")
    add_installation(show)
    _add_scheduler(show)
    add_namespace(show, all_too=True)
    add_output(show, "text", "wide", "json", "yaml", "name")
    text = "then print each pod that changes, until you press Ctrl-C"
    show.add_argument("-w", "--watch", action="store_true", help=text)
    text = "wait in a pipeline until the newest version of a workload is released"
    wait = add_command(actions, "wait", text, run="gate_wait:wait", description=_WAIT_DESCRIPTION)
    add_installation(wait)
    wait.add_argument(
        "subject",
        type=partial(_gate_subject, _AWAITED),
        metavar="[NAMESPACE/]POD|TYPE/NAME",
        help="a pod, or a workload or app/NAME by TYPE/NAME",
    )
    add_namespace(wait)
    text = "time limit, such as 90s, 10m or 1h [10m]"
    wait.add_argument("--timeout", type=duration, default=600.0, metavar="DURATION", help=text)
    add_flags(wait, allow_ungated="exit with 0 if nothing of Harbourmaster holds its pods")
    add_output(wait, "text", "json")
    for name, (types, place, text) in _POD_ACTIONS.items():
        shown = ", ".join(resource.kind.lower() for resource in dict.fromkeys(types.values()))
        action = add_command(actions, name, text, run=f"gate:{name}")
        add_connection(action)
        if name == "promote":
            add_flags(action, all="release all pods, without the checks of the further stages")
        else:
            _add_scheduler(action)
        action.add_argument(
            "subject",
            type=partial(_gate_subject, types),
            metavar="[NAMESPACE/]POD|TYPE/NAME",
            help=f"a pod, or a workload by TYPE/NAME; TYPE is one of {shown}",
        )
        add_namespace(action)
        more = f"reason; recorded with your name on the {place} and in an event"
        needed = name != "rerun"
        action.add_argument("--reason", type=reason, required=needed, metavar="TEXT", help=more)
    text = "clear the list of nodes on which a workload version failed"
    clear = add_command(actions, "clear-nodes", text, run="gate:clear")
    add_connection(clear)
    add_subject(clear, "version", WORKLOAD_VERSIONS)


def _gate_subject(types: dict[str, Resource], text: str) -> tuple[Resource, tuple[str, str]]:
    """The type, by default a pod, and what ``reference`` gives."""
    kind, slash, _ = text.partition("/")
    resource = types.get(kind.partition(".")[0].lower(), PODS) if slash else PODS
    return resource, reference(text, PODS.kind, types)


def _add_scheduler(parser: ArgumentParser) -> None:
    text = f"scheduler in which pods without a gate wait [{SCHEDULER_NAME}]"
    parser.add_argument("--scheduler", default=SCHEDULER_NAME, metavar="NAME", help=text)


_GITOPS_EXAMPLES: Final = """examples:
  harbourmaster gitops argocd
  harbourmaster gitops argocd --policies deploy/samples --for system
  harbourmaster gitops flux --policies deploy/samples -n shop
"""
_POD_KIND_NAMES: Final = {kind.name for kind in POD_KINDS.values()}
_FORMS: Final = ("application", "system")
_GITOPS_TOOLS: Final = (
    ("argocd", "print ignoreDifferences for Argo CD; --for system adds rules of health", _FORMS),
    ("flux", "print drift rules for Flux", ("kustomization", "helmrelease")),
)


def add_gitops(gitops: ArgumentParser) -> None:
    """Add one action of ``gitops`` for each tool."""
    gitops.epilog = _GITOPS_EXAMPLES
    tools = gitops.add_subparsers(title="tools", required=True, metavar="TOOL")
    for tool, what, forms in _GITOPS_TOOLS:
        action = add_command(tools, tool, what, run="gitops:run")
        text = "policies from files [the policies of the cluster]"
        add_path(action, "--policies", "DIR|FILE", text)
        add_connection(action)
        text = "print only rules for objects of this namespace"
        action.add_argument("-n", "--namespace", metavar="NAME", help=text)
        text, names = "print only rules for this kind; can be repeated", sorted(_POD_KIND_NAMES)
        add_several(action, "--kind", dest="kinds", choices=names, metavar="KIND", help=text)
        add_output(action, "yaml", "json")
        text = f"object that the rules are for [{forms[0]}]"
        action.add_argument("--for", dest="form", choices=forms, default=forms[0], help=text)
        action.set_defaults(tool=tool, installation=False)
        if tool == "argocd":
            text = "also print rules for fields of Harbourmaster's own objects, such as caBundle"
            add_flags(action, installation=text)


_GRANT_EXAMPLES: Final = """examples:
  harbourmaster grant secrets -n shop --name prometheus-login
  harbourmaster grant secrets -n shop --output yaml
  harbourmaster grant secrets -n shop --revoke
"""


def add_grant(grant: ArgumentParser) -> None:
    """Add what ``grant`` can grant."""
    grant.epilog = _GRANT_EXAMPLES
    kinds = grant.add_subparsers(title="permissions", required=True, metavar="PERMISSION")
    text = "let the controller read Secrets of a namespace, each by its name"
    secrets = add_command(kinds, "secrets", text, run="grant_secrets:run", examples=_GRANT_EXAMPLES)
    add_installation(secrets, "--installation")
    text = "namespace whose Secrets the controller can read"
    secrets.add_argument("-n", "--namespace", required=True, metavar="NAME", help=text)
    text = "only this Secret; can be repeated; a further grant replaces the list [all]"
    add_several(secrets, "--name", metavar="SECRET", help=text)
    add_flags(
        secrets,
        revoke="delete the Role and RoleBinding",
        dry_run="send the requests as dry runs, so that nothing is stored",
    )
    text = "text, or yaml, which prints the manifests and asks no cluster [text]"
    secrets.add_argument("-o", "--output", choices=("text", "yaml"), default="text", help=text)


def add_migrate(parser: ArgumentParser) -> None:
    """Add the arguments of ``migrate``, and what converts files."""
    set_command(parser, run="migrate.run:run")
    add_installation(parser, "--namespace")
    add_output(parser, "text", "json", "yaml", more="; yaml is an overlay with Keptn's settings")
    add_flags(parser, shadow="report how kupid and Keptn differ, found by make deploy-shadow")
    systems = parser.add_subparsers(title="conversions of files", metavar="SYSTEM")
    text = "print Krake's objects as placement objects, and differences on standard error"
    krake = add_command(systems, "krake", text, run="placement.krake_import:import_krake")
    krake.add_argument("files", type=Path, nargs="+", metavar="FILE|DIR|-")
    text = "namespace for objects without one [%(default)s]"
    krake.add_argument("-n", "--namespace", default="default", metavar="NAME", help=text)
    text = "convert applications with hooks without them, instead of refusing these applications"
    add_flags(krake, drop_hooks=text)


def add_repair(parser: ArgumentParser) -> None:
    """Add the arguments of ``repair``."""
    set_command(parser, run="repair.run:run")
    add_installation(parser)
    add_namespace(parser, all_too=True)
    add_flags(parser, dry_run="only print what would be repaired")
    text = "maximum number of changed pods and restarted workloads in a minute [300]"
    parser.add_argument("--rate", type=positive, default=300.0, metavar="NUMBER", help=text)
    text = "time limit for each rollout, and for disruption budgets to allow the next [600]"
    parser.add_argument("--timeout", type=positive, default=600.0, metavar="SECONDS", help=text)
    add_output(parser, "text", "json")


def add_uninstall(parser: ArgumentParser) -> None:
    """Add the arguments of ``uninstall``."""
    set_command(parser, run="uninstall.run:run")
    add_installation(parser, "--namespace")
    add_flags(
        parser,
        delete_crds="also delete the CRDs, and with them every policy in the cluster",
        dry_run="only print what would be removed",
        yes="do not ask for confirmation",
    )
    text = "time limit for each deletion [60]"
    parser.add_argument("--timeout", type=positive, default=60.0, metavar="SECONDS", help=text)
    text = "scheduler in which pods without a gate wait; they are deleted, and their owners"
    text += f" recreate them; empty deletes none [{SCHEDULER_NAME}]"
    parser.add_argument("--scheduler", default=SCHEDULER_NAME, metavar="NAME", help=text)
