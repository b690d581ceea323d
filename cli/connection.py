"""Arguments of every command that asks a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from argparse import ArgumentParser

    Commands = argparse._SubParsersAction[ArgumentParser]  # noqa: SLF001 - it has no other name

DEFAULT_NAMESPACE: Final = "harbourmaster-system"


def add_connection(parser: ArgumentParser) -> None:
    """Which cluster is asked."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="by default $KUBECONFIG, then ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")


def add_installation(parser: ArgumentParser) -> None:
    """Which cluster is asked, and where in it we are installed."""
    add_connection(parser)
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"where Harbourmaster is installed [{DEFAULT_NAMESPACE}]",
    )
