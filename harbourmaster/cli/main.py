"""The command line: parses arguments, calls one function, turns errors into one line each."""

from __future__ import annotations

import argparse
import sys
from functools import cache, partial
from itertools import islice
from pkgutil import resolve_name
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.decoding import describe
from harbourmaster.cli import program
from harbourmaster.cli.arguments import (
    add_flags,
    add_installation,
    add_output,
    add_shared,
    set_command,
)
from harbourmaster.serving.options import settings_from
from harbourmaster.serving.process import Parser, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS: Final = {
    "server": "serve admission reviews, or run the controllers",
    "server files": "serve admission reviews over TLS, with policies from files",
    "server webhook": "serve admission reviews in a cluster",
    "server controller": "run the controllers in a cluster",
    "local": "run Harbourmaster on this machine, on a real control plane with simulated or "
    "real nodes",
    "compile": "print the admission policies by which the API server enforces policies",
    "uninstall": "remove Harbourmaster from a cluster, even if it does not work any more",
    "migrate": "find objects of kupid and Keptn in a cluster, and print how to migrate; or "
    "convert Krake's",
    "config": "decide which KeptnConfig counts",
    "doctor": "check the installation and print what to do about problems",
    "gate": "list pods that wait for checks or objects, release one, or repeat its checks",
    "gitops": "print rules that make a GitOps tool ignore what policies set, and rules of health",
    "grant": "give the controller a permission in one namespace, or revoke it",
    "placement": "parse constraints, select clusters offline, print and confirm objects",
    "repair": "find pods that lack what policies set, and repair them",
    "reschedule": "show how room would be made for a critical add-on; changes nothing",
    "preview": "show what policies would change in a cluster; changes nothing",
    "why": "explain which policies set a pod's fields, what it waits for, and where it runs",
    "render": "print manifests with the changes that policies make",
    "check": "check manifests and test files, without a cluster",
    "check manifests": "check manifests for mistakes",
    "check tests": "compare what admission makes of manifests with what test files expect",
    "replay": "answer an AdmissionReview, or recorded reviews, one JSON object on each line",
    "version": "print the versions of the command, of the installation and of Kubernetes",
    "help": "print the help of a command",
    "completion": "print a completion script for a shell, or for kubectl harbourmaster",
}
"""Help texts by command; a function ``add_GROUP_NAME`` adds the arguments of GROUP NAME."""
_MODULES: Final = {
    "server controller": "overview",
    "local": "local",
    **dict.fromkeys(("server files", "server webhook", "compile", "preview"), "admission"),
    **dict.fromkeys(("check manifests", "check tests", "render", "replay"), "admission"),
    **dict.fromkeys(
        ("config", "gate", "gitops", "grant", "migrate", "repair", "uninstall"), "cluster_commands"
    ),
    **dict.fromkeys(("version", "help", "completion"), "main"),
}
"""Modules of functions that are not in ``NAME.commands``; a call imports that of its command."""
_REPLACED: Final = {
    "serve": "server files",
    "webhook": "server webhook",
    "controller": "server controller",
    "validate": "check manifests",
    "test": "check tests",
    "review": "replay",
    "import krake": "migrate krake",
    "placement why": "why application",
}
"""Commands of version 0.2 and what they are now. The old names work, but no help has them."""
_FIRST: Final = """\
harbourmaster why pod NAME          explain what a pod waits for, and where it runs
harbourmaster gate list -A          list the pods that wait for checks or objects, and why
harbourmaster doctor                check the installation, and say what to do about problems
harbourmaster check manifests DIR   find mistakes in manifests, before you commit them
eval "$(harbourmaster local up)"    start Kubernetes and Harbourmaster here, to try it"""
"""Commands that a terminal shows if none is given."""


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
    given = sys.argv[1:] if argv is None else argv
    if not given and sys.stdout.isatty():
        text = f"{_FIRST}\nharbourmaster --help                list all commands"
        print(text.replace(program.OWN, name))
        return 0
    words, old = current_words(given)
    return exit_code(name, partial(_run, parser_of(name).parse_args(words), old))


def plugin(argv: Sequence[str] | None = None) -> int:
    """Run one command as ``kubectl harbourmaster``: kubectl finds kubectl-harbourmaster on PATH."""
    program.name.set(program.PLUGIN)
    return main(argv)


def current_words(words: Sequence[str]) -> tuple[list[str], str]:
    """Move flags behind the command, and replace its old name; returns the old name, or ""."""
    command, flags, rest = _split(words)
    old = next((old for old in _REPLACED if [*command, ""][: len(old.split())] == old.split()), "")
    if old:
        command[: len(old.split())] = _REPLACED[old].split()
    group = group_of(parser_of(program.OWN))
    for word in command:
        group = group_of(group.choices[word]) if group and word in group.choices else group
    # A group without its action takes no flag: it says which actions there are.
    return [*command, *([] if group and group.required else flags), *rest], old


def _split(words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the words of the command and their flags, up to a flag that has to stand behind it."""
    known = parser_of(program.OWN)._option_string_actions  # noqa: SLF001 - it has no other name
    command: list[str] = []
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        flag = name if name.startswith("--") else name[:2]
        if flag in known and flag not in {"-h", "--help", "--version"}:
            has_value = known[flag].nargs == 0 or equals or flag != name
            flags += [word, *islice(rest, 0 if has_value else 1)]
        elif flag.startswith("-"):
            return command, flags, [word, *rest]
        else:
            command.append(word)
    return command, flags, []


def group_of(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[_Parser] | None:
    """Return the action whose choices are the actions of a command; None without any."""
    actions = parser._actions  # noqa: SLF001 - argparse offers no other way
    return next((it for it in actions if isinstance(it, argparse._SubParsersAction)), None)  # noqa: SLF001


def _run(arguments: argparse.Namespace, old: str) -> int:
    if (kind := arguments.settings_type) is not None:
        arguments.settings = settings_from(arguments, kind, describe, arguments.of_file)
    if old:
        _warn_of(old, getattr(arguments, "settings", None))
    # Each command loads only what it needs: the server's libraries take half a second.
    code: int = resolve_name(arguments.command)(arguments)
    return code


def _warn_of(old: str, settings: object) -> None:
    """Say what replaces an old name: in the log if the command is a process that has one."""
    log = getattr(settings, "log", None)
    if log is None:
        print(f"{program.name.get()}: {old} is deprecated: use {_REPLACED[old]}", file=sys.stderr)
        return
    from harbourmaster.telemetry.logging import configure_logging, get_logger  # noqa: PLC0415

    configure_logging(log.level, log.format)
    get_logger("command").warning("command deprecated", command=old, use=_REPLACED[old])


def create_parser(name: str = program.OWN) -> argparse.ArgumentParser:
    """Return a parser of all commands, each of which is built when it is looked up."""
    parser = _Parser(
        prog=name,
        description="Decide where Kubernetes pods run, when they may be scheduled, which "
        "cluster runs an\napplication, and which pods make room for critical "
        "add-ons; and explain the decisions.",
        epilog=f"to start with:\n{indent(_FIRST, '  ')}",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action=_Version)
    add_shared(parser)
    _add_commands("", "command", parser)
    return parser


@cache
def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser for all calls by a name; callers must not change it."""
    return create_parser(name)


def _add_commands(group: str, what: str, parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title=f"{what}s", required=True, metavar=what.upper())
    for command, text in _COMMANDS.items():
        below, _, name = command.rpartition(" ")
        if below == group:
            commands.add_parser(name, help=text, fill=partial(_add_arguments, command))


def _add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    if any(name.startswith(f"{command} ") for name in _COMMANDS):
        _add_commands(command, "action", parser)
        return
    module = _MODULES.get(command, f"{command}.commands")
    resolve_name(f"harbourmaster.cli.{module}:add_{command.replace(' ', '_')}")(parser)


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
