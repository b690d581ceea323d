"""Arguments that commands share."""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.durations import parse_duration
from harbourmaster.serving.options import add_settings
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Collection

    from msgspec import Struct

    from harbourmaster.api.resources import Resource

    Commands = argparse._SubParsersAction[ArgumentParser]  # noqa: SLF001 - it has no other name

DEFAULT_NAMESPACE: Final = "harbourmaster-system"
LONGEST_REASON: Final = 512
"""Characters of a reason, which is stored in an annotation and in an event."""


def add_command(
    commands: Commands,
    name: str,
    text: str,
    **more: Any,  # noqa: ANN401
) -> ArgumentParser:
    """Add a command to a group; ``more`` is what ``set_command`` takes."""
    parser = commands.add_parser(name, help=text)
    set_command(parser, **more)
    return parser


def set_command(
    parser: ArgumentParser,
    *,
    run: str = "",
    examples: str = "",
    description: str | None = None,
    settings: type[Struct] | None = None,
    of_file: type[Struct] | None = None,
) -> None:
    """Say what a command does; ``run`` is its function, as ``module:function``.

    The module is one of ``cli``, unless it is given with all its packages. A file of settings may
    have all of ``of_file``, which has those of the command.
    """
    parser.description, parser.epilog = description, examples or None
    if run:
        package = "" if run.startswith("harbourmaster.") else "harbourmaster.cli."
        parser.set_defaults(command=f"{package}{run}", settings_type=settings, of_file=of_file)
    if settings is not None:
        add_settings(parser, settings)


def add_shared(parser: ArgumentParser) -> None:
    """Add flags of many commands, which may stand before the command."""
    group = parser.add_argument_group("flags of many commands, also after the command")
    add_installation(group)
    add_namespace(group, all_too=True)
    group.add_argument("-o", "--output", metavar="FORMAT", help="output format")


def add_connection(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that choose a cluster."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file [$KUBECONFIG, then ~/.kube/config]"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig [its current context]"
    )


class Subjects(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 - no other name
    """The types of objects, of which one may stand as TYPE/NAME, and with its API group."""

    @staticmethod
    def choice_in(value: str) -> str:
        """The type alone."""
        return value.partition("/")[0].partition(".")[0].lower()

    @staticmethod
    def example_of(value: str) -> str:
        """Return the hint for a name without a type."""
        return f"expected TYPE NAME, such as pod {value} or deployment {value}"

    def __call__(self, *call: Any, **_: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Take TYPE/NAME as TYPE NAME; the group of TYPE is kept for itself."""
        parser, namespace, (given, *others), *option = call
        kind, slash, name = given.partition("/")
        namespace.group = kind.partition(".")[2].lower()
        words = [self.choice_in(given), *([name] if slash else ()), *others]
        super().__call__(parser, namespace, words, *option)


class _Deprecated(argparse.Action):
    """A flag of an older release, which ``const`` replaces."""

    def __call__(self, *call: Any, **_: Any) -> None:  # noqa: ANN401 - as the base class has it
        parser, namespace, value, option = call
        print(f"{parser.prog}: {option} is deprecated: use {self.const}", file=sys.stderr)
        setattr(namespace, self.dest, value)


def add_installation(parser: argparse._ActionsContainer, *deprecated: str) -> None:
    """Add the arguments for the cluster and our namespace in it, which ``deprecated`` flags set."""
    add_connection(parser)
    flag = "--installed-in"
    parser.add_argument(
        flag,
        default=parser.argument_default or DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the installation [{DEFAULT_NAMESPACE}]",
    )
    if deprecated:
        parser.add_argument(
            *deprecated,
            action=_Deprecated,
            dest="installed_in",
            default=argparse.SUPPRESS,
            const=flag,
            help=argparse.SUPPRESS,
        )


def add_namespace(parser: argparse._ActionsContainer, *, all_too: bool = False) -> None:
    """Add the namespace of an object: None is that of the connection, "" stands for all."""
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace [that of the kubeconfig's context, or default]",
    )
    if all_too:
        parser.add_argument(
            "-A",
            "--all-namespaces",
            dest="namespace",
            action="store_const",
            const="",
            help="list objects of all namespaces",
        )
        parser.add_argument(
            "-l",
            "--selector",
            metavar="SELECTOR",
            help="list only objects with these labels, as in kubectl",
        )


def positive(text: str) -> float:
    """A number above zero."""
    number = float(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f'invalid value "{text}": expected a number above 0')
    return number


def duration(text: str) -> float:
    """Return the seconds of a duration above zero; a number alone is seconds, as for kubectl."""
    try:
        seconds = parse_duration(f"{text}s" if text.isdecimal() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return positive(str(seconds))


def add_subject(parser: ArgumentParser, name: str, resource: Resource, **more: Any) -> None:  # noqa: ANN401
    """The name of one object of a kind; ``subject_of`` gives its namespace, too."""
    parser.add_argument(
        name,
        type=partial(reference, what=resource.kind, types=names_of(resource)),
        metavar=f"[NAMESPACE/]{resource.kind.upper()}",
        **more,
    )
    add_namespace(parser)


def subject_of(
    arguments: argparse.Namespace, given: tuple[str, str], default: str
) -> tuple[str, str]:
    """Namespace, by default that one, and name of what ``reference`` gave.

    Raises StartError where two namespaces are given.
    """
    namespace, name = given
    if namespace and arguments.namespace not in {None, namespace}:
        text = f"{namespace}/{name} is not in the namespace {arguments.namespace}"
        raise StartError(f"{text}: leave out one of them")
    return namespace or arguments.namespace or default, name


def names_of(resource: Resource, *short: str) -> list[str]:
    """Every name that people have for it, in small letters: its kind, its plural, short ones."""
    return list(filter(None, (resource.kind.lower(), resource.plural, *short)))


def add_output(parser: ArgumentParser, *forms: str, more: str = "") -> None:
    """Add the output format; the first of ``forms`` is the default."""
    forms = forms or ("text", "json", "yaml")
    text = f"output format{more} [{forms[0]}]"
    parser.add_argument(
        "-o", "--output", choices=forms, default=parser.argument_default or forms[0], help=text
    )


def add_path(
    parser: argparse._ActionsContainer,
    flag: str,
    form: str,
    text: str,
    **more: Any,  # noqa: ANN401
) -> None:
    """A file or a folder, as ``form`` says."""
    parser.add_argument(flag, type=Path, metavar=form, help=text, **more)


def add_flags(parser: argparse._ActionsContainer, **texts: str) -> None:
    """Flags without a value, each with its help text."""
    for name, text in texts.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)


def add_several(parser: argparse._ActionsContainer, *flags: str, **options: Any) -> None:  # noqa: ANN401
    """An option that can be repeated."""
    parser.add_argument(*flags, action="append", default=[], **options)


def add_manifests(parser: ArgumentParser, flag: str, dest: str, what: str, **more: Any) -> None:  # noqa: ANN401
    """Files of objects."""
    form, text = "FILE|DIR|-", f"{what}; can be repeated"
    add_several(parser, "-f", flag, dest=dest, type=Path, metavar=form, help=text, **more)


def add_lines(parser: ArgumentParser) -> None:
    """A file of one JSON object a line, by default standard input."""
    parser.add_argument("file", type=Path, nargs="?", default=Path("-"), metavar="FILE|-")


def add_checked(parser: ArgumentParser) -> None:
    """Files that are checked, and how the results are printed."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE|DIR|GLOB|-")
    text = "read the folders in folders, too"
    parser.add_argument("-R", "--recursive", action="store_true", help=text)
    text = "exit with 1 if there is a warning, too"
    parser.add_argument("--fail-on", choices=("warning",), help=text)
    add_path(parser, "--junit", "FILE", "write JUnit XML to FILE")
    add_output(parser)


def add_sources(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Files that say what admission knows."""
    text = "scheduling policies, YAML or JSON"
    add_path(parser, "--policies", "DIR|FILE", text, required=required)
    text = "existing Namespaces; without it, every namespace exists and has only the label with its"
    add_path(parser, "--namespaces", "FILE|DIR", f"{text} name")
    text = "owners of pods: ReplicaSets, Deployments, StatefulSets, DaemonSets, Rollouts; in a "
    text += "namespace with gates, a pod whose owner is not in FILE gets a provisional gate"
    add_path(parser, "--parents", "FILE|DIR", text)


def reference(text: str, what: str, types: Collection[str] = ()) -> tuple[str, str]:
    """Namespace, empty for the default one, and name; a type of ``types`` may stand before it."""
    namespace, slash, name = text.rpartition("/")
    if namespace.partition(".")[0].lower() in types:
        namespace = slash = ""
    if not name or "/" in namespace or (slash and not namespace):
        raise argparse.ArgumentTypeError(f'invalid {what} "{text}": expected [NAMESPACE/]NAME')
    return namespace, name


def reason(text: str) -> str:
    """One line that says why. Raises ArgumentTypeError for one that is empty or too long."""
    line = clean(" ".join(text.split()))
    if not line:
        raise argparse.ArgumentTypeError("the reason is empty")
    if len(line) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"longer than {LONGEST_REASON} characters")
    return line
