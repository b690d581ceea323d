"""The command line: parses arguments, calls one function, turns errors into one line each."""

from __future__ import annotations

import argparse
import sys
from functools import cache, partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.decoding import describe
from harbourmaster.cli import program
from harbourmaster.cli.arguments import add_flags, add_installation, add_output, set_command
from harbourmaster.serving.options import settings_from
from harbourmaster.serving.process import Parser, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES: Final = """examples:
  harbourmaster serve --policies deploy/samples
  harbourmaster review --policies deploy/samples tests/fixtures/deployment-create.json
  harbourmaster render --policies deploy/samples -f deploy/samples/workloads/ledger-main.yaml --diff
  harbourmaster replay cases.jsonl
  harbourmaster why pod shop/cart-5d4f8-x7k2p
  harbourmaster doctor
"""
_COMMANDS: Final = {
    "serve": "serve admission reviews over TLS, with policies from files",
    "webhook": "serve admission reviews in a cluster",
    "controller": "run the controllers in a cluster",
    "local": "run Harbourmaster on this machine, on a real control plane with simulated or "
    "real nodes",
    "compile": "print the admission policies by which the API server enforces policies",
    "uninstall": "remove Harbourmaster from a cluster, even if it does not work any more",
    "migrate": "find objects of kupid and Keptn in a cluster, and print how to migrate",
    "config": "decide which KeptnConfig counts",
    "doctor": "check the installation and print what to do about problems",
    "gate": "list pods that wait for checks or objects, release one, or repeat its checks",
    "gitops": "print rules that make a GitOps tool ignore what policies set, and rules of health",
    "grant": "give the controller a permission in one namespace, or revoke it",
    "placement": "parse constraints, select clusters offline, explain decisions",
    "import": "convert objects of another system",
    "repair": "find pods that lack what policies set, and repair them",
    "reschedule": "show how room would be made for a critical add-on; changes nothing",
    "preview": "show what policies would change in a cluster; changes nothing",
    "why": "explain which policies set a pod's fields, what it waits for, and where it runs",
    "review": "answer one AdmissionReview from a file or standard input",
    "render": "print manifests with the changes that policies make",
    "validate": "check manifests for mistakes, without a cluster",
    "test": "compare what admission makes of manifests with what test files expect",
    "replay": "answer recorded reviews, one JSON object on each line",
    "version": "print the versions of the command, of the installation and of Kubernetes",
    "help": "print the help of a command",
    "completion": "print a completion script for a shell, or for kubectl harbourmaster",
}
"""Help texts by command; a function ``add_NAME`` adds the arguments of NAME to its parser."""
_MODULES: Final = {
    **dict.fromkeys(("serve", "webhook"), "admission"),
    "controller": "overview",
    "local": "local",
    "import": "placement.commands",
    **dict.fromkeys(("review", "render", "validate", "test", "replay"), "admission"),
    **dict.fromkeys(("compile", "preview"), "admission"),
    **dict.fromkeys(
        ("config", "gate", "gitops", "grant", "migrate", "repair", "uninstall"), "cluster_commands"
    ),
    **dict.fromkeys(("version", "help", "completion"), "main"),
}
"""Modules of functions that are not in ``NAME.commands``; a call imports that of its command."""


class _Version(argparse._VersionAction):  # noqa: SLF001 - it has no other name
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:  # noqa: ANN401
        print(resolve_name("harbourmaster.webhook.probe_pod:our_version")())
        parser.exit()


class _Parser(Parser):
    """A parser that is built when it is first used, if ``fill`` is to add its arguments."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        if "fill" in options:
            self._later = options
        else:
            super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Build the parser, which has no attributes until then."""
        if "_later" not in vars(self):
            raise AttributeError(name)
        options = vars(self).pop("_later")
        fill = options.pop("fill")
        _Parser.__init__(self, **options)
        fill(self)
        return getattr(self, name)

    def format_help(self) -> str:
        """Return the help, whose examples are commands of kubectl too."""
        return super().format_help().replace(f"  {program.OWN} ", f"  {program.name.get()} ")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 some input was bad, 2 can't be used."""
    name = program.name.get()
    return exit_code(name, partial(_run, parser_of(name).parse_args(argv)))


def plugin(argv: Sequence[str] | None = None) -> int:
    """Run one command as ``kubectl harbourmaster``: kubectl finds kubectl-harbourmaster on PATH."""
    program.name.set(program.PLUGIN)
    return main(argv)


def _run(arguments: argparse.Namespace) -> int:
    if (kind := arguments.settings_type) is not None:
        arguments.settings = settings_from(arguments, kind, describe, arguments.of_file)
    # Each command loads only what it needs: the server's libraries take half a second.
    code: int = resolve_name(arguments.command)(arguments)
    return code


def create_parser(name: str = program.OWN) -> argparse.ArgumentParser:
    """Return a parser of all commands, each of which is built when it is looked up."""
    parser = _Parser(
        prog=name,
        description="Decide where Kubernetes pods run, when they may be scheduled, which "
        "cluster runs an\napplication, and which pods make room for critical "
        "add-ons; and explain the decisions.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command, text in _COMMANDS.items():
        commands.add_parser(command, help=text, fill=partial(_add_arguments, command))
    return parser


@cache
def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser for all calls by a name; callers must not change it."""
    return create_parser(name)


def _add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    module = _MODULES.get(command, f"{command}.commands")
    resolve_name(f"harbourmaster.cli.{module}:add_{command}")(parser)


def add_version(versions: argparse.ArgumentParser) -> None:
    """Add the arguments of ``version``."""
    set_command(versions, run="version:run")
    add_flags(versions, client="ask no cluster")
    add_installation(versions)
    add_output(versions)


def add_help(helping: argparse.ArgumentParser) -> None:
    """Add the arguments of ``help``."""
    set_command(helping, run="overview:show_help")
    helping.add_argument("words", nargs="*", metavar="COMMAND", help="the command [all]")


def add_completion(completion: argparse.ArgumentParser) -> None:
    """Add the arguments of ``completion``."""
    text = "Print a script that completes commands, options and values when you press Tab.\n"
    text += "Save the script for kubectl on PATH as kubectl_complete-harbourmaster."
    set_command(completion, run="completion:completion", description=text)
    text = "the shell that loads it; kubectl, to complete kubectl harbourmaster in each shell"
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "kubectl"), help=text)


if __name__ == "__main__":
    sys.exit(main())
