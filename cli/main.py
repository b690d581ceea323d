"""The command line: parses arguments, calls one function, turns errors into one line each."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from harbourmaster.api.decoding import describe
from harbourmaster.cli import local, program
from harbourmaster.cli.arguments import (
    add_checked,
    add_command,
    add_flags,
    add_installation,
    add_lines,
    add_manifests,
    add_output,
    add_path,
    add_sources,
)
from harbourmaster.cli.compile import commands as compiling
from harbourmaster.cli.config import commands as config
from harbourmaster.cli.doctor import commands as doctor
from harbourmaster.cli.gate import commands as gate
from harbourmaster.cli.gitops import commands as gitops
from harbourmaster.cli.grant import commands as grant
from harbourmaster.cli.migrate import commands as migrate
from harbourmaster.cli.overview import overview, topic
from harbourmaster.cli.placement import commands as placement
from harbourmaster.cli.preview import commands as preview
from harbourmaster.cli.repair import commands as repair
from harbourmaster.cli.reschedule import commands as reschedule
from harbourmaster.cli.uninstall import commands as uninstall
from harbourmaster.cli.why import commands as why
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.options import settings_from
from harbourmaster.serving.process import Parser, exit_code
from harbourmaster.webhook.canary import our_version
from harbourmaster.webhook.settings import AdmissionSettings, Settings, WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.cli.arguments import Commands

_EXAMPLES: Final = """examples:
  harbourmaster serve --policies deploy/samples
  harbourmaster review --policies deploy/samples tests/fixtures/deployment-create.json
  harbourmaster render --policies deploy/samples -f deploy/samples/workloads/ledger-main.yaml --diff
  harbourmaster replay cases.jsonl
  harbourmaster why pod shop/cart-5d4f8-x7k2p
  harbourmaster doctor
"""
_COMMANDS: Final = (
    local,
    compiling,
    uninstall,
    migrate,
    config,
    doctor,
    gate,
    gitops,
    grant,
    placement,
    repair,
    reschedule,
    preview,
    why,
)


class _PluginParser(Parser):
    """Its examples are commands of kubectl too."""

    def format_help(self) -> str:
        return super().format_help().replace(f"  {program.OWN} ", f"  {program.PLUGIN} ")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 some input was bad, 2 can't be used."""
    return _run(create_parser().parse_args(argv))


def plugin(argv: Sequence[str] | None = None) -> int:
    """The same for ``kubectl harbourmaster``: kubectl runs kubectl-harbourmaster of the path."""
    program.name.set(program.PLUGIN)
    return _run(create_parser().parse_args(argv))


def _run(arguments: argparse.Namespace) -> int:
    def command() -> int:
        if arguments.settings_type is not None:
            arguments.settings = settings_from(
                arguments, arguments.settings_type, describe, arguments.of_file
            )
        # Each command loads only what it needs: the server's libraries take half a second.
        module, _, function = arguments.command.partition(":")
        code: int = getattr(import_module(module), function)(arguments)
        return code

    return exit_code(program.name.get(), command)


def show_help(arguments: argparse.Namespace) -> int:
    """Print what ``--help`` prints."""
    parser = create_parser()
    if text := topic(parser, arguments.words):
        print(text, end="")
    else:
        parser.parse_args([*arguments.words, "--help"])
    return 0


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    kind = _PluginParser if program.name.get() == program.PLUGIN else Parser
    parser: argparse.ArgumentParser = kind(
        prog=program.name.get(),
        description="Decide where Kubernetes pods run, when they may be scheduled, which "
        "cluster runs an\napplication, and which pods make room for critical "
        "add-ons; and explain the decisions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=our_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    text = "serve admission reviews over TLS, with policies from files"
    standalone = "harbourmaster.webhook.standalone:serve"
    serve = add_command(commands, "serve", text, run=standalone, settings=Settings)
    add_sources(serve)
    text = "send the AdmissionReview in FILE to the running server and print the answer"
    add_path(serve, "--try", "FILE", text, dest="example")
    text = "serve admission reviews in a cluster"
    process = "harbourmaster.webhook.process:run"
    add_command(commands, "webhook", text, run=process, settings=WebhookSettings)
    text = "run the controllers in a cluster"
    process = "harbourmaster.controller.process:run"
    controller = add_command(
        commands,
        "controller",
        text,
        run=process,
        description="Run the controllers in a cluster; one replica at a time works.",
        settings=ControllerSettings,
    )
    controller.format_help = partial(overview, controller, ControllerSettings)  # type: ignore[method-assign]

    for each in _COMMANDS:
        each.add_parser(commands)

    text = "answer one AdmissionReview from a file or standard input"
    admission = partial(add_command, settings=AdmissionSettings, of_file=WebhookSettings)
    review = admission(commands, "review", text, run="offline:review")
    add_sources(review)
    add_lines(review)
    text = "print manifests with the changes that policies make"
    render = admission(commands, "render", text, run="render:render")
    add_sources(render)
    add_manifests(render, "--filename", "manifests", "manifests to render", required=True)
    add_flags(render, diff="print only the differences")
    _add_checks(admission, commands)
    text = "answer recorded reviews, one JSON object on each line"
    replay = admission(commands, "replay", text, run="offline:replay")
    add_lines(replay)
    text = "print only cases whose answer differs from the recorded one, and exit with 1 if there"
    add_flags(replay, check=f"{text} are any")
    text = "print the versions of the command, of the installation and of Kubernetes"
    versions = add_command(commands, "version", text, run="version:run")
    add_flags(versions, client="ask no cluster")
    add_installation(versions)
    add_output(versions)
    text = "print the help of a command"
    helping = add_command(commands, "help", text, run="main:show_help")
    helping.add_argument("words", nargs="*", metavar="COMMAND", help="the command [all]")
    text = "print a completion script for a shell, or for kubectl harbourmaster"
    completion = add_command(
        commands,
        "completion",
        text,
        run="completion:completion",
        description="Print a script that completes commands, options and values when you press Tab."
        "\nSave the script for kubectl on PATH as kubectl_complete-harbourmaster.",
    )
    completion.add_argument(
        "shell",
        choices=("bash", "zsh", "fish", "kubectl"),
        help="the shell that loads it; kubectl, to complete kubectl harbourmaster in each shell",
    )
    return parser


def _add_checks(admission: partial[argparse.ArgumentParser], commands: Commands) -> None:
    text = "check manifests for mistakes, without a cluster"
    validate = admission(commands, "validate", text, run="checking:validate")
    validate.add_argument("-k", "--kustomize", metavar="DIR", help="check an overlay, too")
    add_checked(validate)
    text = "compare what admission makes of manifests with what test files expect"
    tests = admission(commands, "test", text, run="checking:test")
    add_flags(tests, update="correct what the files expect")
    add_checked(tests)


if __name__ == "__main__":
    sys.exit(main())
