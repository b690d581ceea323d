"""``harbourmaster migrate``: what kupid and Keptn leave behind, and the order in which to migrate.

It only reads. Every command that it shows is for the user to run.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate import shadow
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.model import MIGRATED, OVERLAY_LABEL, Command
from harbourmaster.cli.migrate.plan import plan, target
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.cli.terminal import print_out

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.cli.migrate.model import MigrationFinding, MigrationStep, Observed
    from harbourmaster.kube.client import Client

SHOWN: Final = 20
"""Findings of one code that are printed; all of them are in the JSON."""
_BASES: Final = {
    "deploy": "default",
    "deploy-beside-keptn": "beside-keptn",
    "deploy-using-certmanager": "with-certmanager",
}
_COMPONENTS: Final = {"metrics.customMetricsApi": ["../components/no-custom-metrics"]}
"""Settings that a component has, together with what belongs to them."""
_PATH: Final = "/spec/template/spec/containers/0/args/-"


def run(arguments: Arguments) -> int:
    """Report; return 0 if nothing is left to migrate, 1 if something is, 2 without a cluster."""
    work = shadow.run if arguments.shadow else _run
    return run_with_client(arguments, partial(work, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    try:
        observed = await read_observed(live)
    finally:
        await live.close()
    if arguments.output == "yaml":
        print_out(arguments, overlay(observed), ())
        return _complain_unread(observed)
    results, steps = findings(observed), plan(observed)
    chosen = _kubectl_options(arguments)
    lines = [*_finding_lines(results, chosen), *_step_lines(steps, chosen)]
    if observed.unread:
        lines.append("The other steps depend on objects that could not be read.")
    print_out(arguments, report_of(results, steps, observed.unread, chosen), lines)
    return _complain_unread(observed) or (LEFT if results else DONE)


def _complain_unread(observed: Observed) -> int:
    for line in observed.unread:
        complain(f"not read: {line}")
    return LEFT if observed.unread else DONE


def report_of(
    results: tuple[MigrationFinding, ...],
    steps: tuple[MigrationStep, ...],
    unread: tuple[str, ...],
    chosen: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the output of ``--output json``; ``chosen`` are options for each kubectl.

    ``unread`` has a line for each object that could not be read.
    """
    return {
        "findings": [
            {
                **asdict(finding),
                "command": _text(finding.command, chosen) if finding.command else "",
            }
            for finding in results
        ],
        "plan": [
            {**asdict(step), "commands": [_text(command, chosen) for command in step.commands]}
            for step in steps
        ],
        "unread": unread,
    }


def _kubectl_options(arguments: Arguments) -> tuple[str, ...]:
    """Return the options with which kubectl works on the same cluster."""
    given = {"--kubeconfig": arguments.kubeconfig, "--context": arguments.context}
    return tuple(word for flag, value in given.items() if value for word in (flag, value))


def _text(command: Command, chosen: tuple[str, ...]) -> str:
    name, *rest = command.arguments
    if not chosen:
        return command.text
    if name == "make":
        rest = [*rest, f"KUBECTL={shlex.join(('kubectl', *chosen))}"]
    elif name == "kubectl":
        rest = [*chosen, *rest]
    elif name == "harbourmaster":
        rest = [*rest, *chosen]
    return Command((name, *rest), command.output).text


def _finding_lines(results: tuple[MigrationFinding, ...], chosen: tuple[str, ...]) -> list[str]:
    if not results:
        return ["Nothing of kupid or Keptn was found."]
    lines = []
    numbers: Counter[str] = Counter()
    for finding in results:
        numbers[finding.code] += 1
        if numbers[finding.code] > SHOWN:
            continue
        lines.append(f"{finding.severity:8}  {finding.code}: {finding.object}")
        lines.append(f"          {finding.why}")
        if finding.command is not None:
            lines.append(f"          $ {_text(finding.command, chosen)}")
    lines += [
        f"          {number - SHOWN} more of {code}; --output json has them all"
        for code, number in numbers.items()
        if number > SHOWN
    ]
    return lines


def _step_lines(steps: tuple[MigrationStep, ...], chosen: tuple[str, ...]) -> list[str]:
    if not steps:
        return []
    lines = ["", "Steps; run harbourmaster migrate again after each of them:"]
    for number, step in enumerate(steps, 1):
        lines.append(f"{number}. {step.title}: {step.why}")
        lines += [f"     {_text(command, chosen)}" for command in step.commands]
    return lines


def overlay(observed: Observed) -> dict[str, Any]:
    """Return a kustomization for a folder of ``deploy``, with the settings that Keptn had."""
    components, patches = [], []
    for setting in observed.keptn.settings:
        if setting.key in _COMPONENTS:
            components += _COMPONENTS[setting.key]
            continue
        # Those of the webhook are at the top.
        process = CONTROLLER if "." in setting.key else WEBHOOK
        patch = json.dumps([{"op": "add", "path": _PATH, "value": setting.flag}])
        patches.append({"target": {"kind": "Deployment", "name": process}, "patch": patch})
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../{_BASES[target(observed)]}"],
        "components": components,
        "labels": [{"pairs": {OVERLAY_LABEL: MIGRATED}}],
        "patches": patches,
    }
