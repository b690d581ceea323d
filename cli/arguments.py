"""Arguments that commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.serving.options import add_settings
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from msgspec import Struct

    Commands = argparse._SubParsersAction[ArgumentParser]  # noqa: SLF001 - it has no other name

DEFAULT_NAMESPACE: Final = "harbourmaster-system"
LONGEST_REASON: Final = 512
"""Characters of a reason, which is stored in an annotation and in an event."""


def add_command(  # noqa: PLR0913 - what a command has
    commands: Commands,
    name: str,
    text: str,
    *,
    run: str = "",
    examples: str = "",
    description: str | None = None,
    settings: type[Struct] | None = None,
    of_file: type[Struct] | None = None,
) -> ArgumentParser:
    """Add a command; ``run`` is the function that does it, as ``module:function``.

    The module is one of ``cli``, unless it is given with all its packages. A file of settings may
    have all of ``of_file``, which has those of the command.
    """
    parser = commands.add_parser(
        name,
        help=text,
        description=description,
        epilog=examples or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if run:
        package = "" if run.startswith("harbourmaster.") else "harbourmaster.cli."
        parser.set_defaults(command=f"{package}{run}", settings_type=settings, of_file=of_file)
    if settings is not None:
        add_settings(parser, settings)
    return parser


def add_connection(parser: ArgumentParser) -> None:
    """Which cluster is read."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file [$KUBECONFIG, then ~/.kube/config]"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig [its current context]"
    )


def add_installation(parser: ArgumentParser) -> None:
    """Which cluster is read, and where in it we are installed."""
    add_connection(parser)
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the installation [{DEFAULT_NAMESPACE}]",
    )


def add_output(parser: ArgumentParser, *forms: str, more: str = "") -> None:
    """How to print it; the first form is the default one."""
    forms = forms or ("text", "json")
    text = f"output format{more} [{forms[0]}]"
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=text)


def add_lines(parser: ArgumentParser) -> None:
    """A file of one JSON object a line, by default standard input."""
    parser.add_argument("file", type=Path, nargs="?", default=Path("-"), metavar="FILE|-")


def add_sources(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Files that say what admission knows."""
    parser.add_argument(
        "--policies",
        type=Path,
        required=required,
        metavar="DIR|FILE",
        help="scheduling policies, YAML or JSON",
    )
    parser.add_argument(
        "--namespaces",
        type=Path,
        metavar="FILE|DIR",
        help="existing Namespaces; without it, every namespace exists and has only the "
        "label with its name",
    )
    parser.add_argument(
        "--parents",
        type=Path,
        metavar="FILE|DIR",
        help="owners of pods: ReplicaSets, Deployments, StatefulSets, DaemonSets, Rollouts; "
        "in a namespace with gates, a pod whose owner is not in FILE gets a provisional gate",
    )


def reference(text: str, what: str = "pod", default: str = "") -> tuple[str, str]:
    """Namespace and name; without a ``default`` for the namespace both must be given."""
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (not namespace and (slash or not default)):
        expected = "[NAMESPACE/]NAME" if default else "NAMESPACE/NAME"
        raise argparse.ArgumentTypeError(f'invalid {what} "{text}": expected {expected}')
    return namespace or default, name


def reason(text: str) -> str:
    """One line that says why. Raises ArgumentTypeError for one that is empty or too long."""
    line = clean(" ".join(text.split()))
    if not line:
        raise argparse.ArgumentTypeError("the reason is empty")
    if len(line) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"longer than {LONGEST_REASON} characters")
    return line
