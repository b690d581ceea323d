"""The arguments of commands that admit pods, in a server and without one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import (
    add_checked,
    add_flags,
    add_lines,
    add_manifests,
    add_path,
    add_sources,
    set_command,
)
from harbourmaster.webhook.settings import AdmissionSettings, Settings, WebhookSettings

if TYPE_CHECKING:
    from argparse import ArgumentParser

set_admission: Final = partial(set_command, settings=AdmissionSettings, of_file=WebhookSettings)
"""Sets a command that admits as the webhook does."""


def add_serve(serve: ArgumentParser) -> None:
    """Add the arguments of ``serve``."""
    set_command(serve, run="harbourmaster.webhook.standalone:serve", settings=Settings)
    add_sources(serve)
    text = "send the AdmissionReview in FILE to the running server and print the answer"
    add_path(serve, "--try", "FILE", text, dest="example")


def add_webhook(webhook: ArgumentParser) -> None:
    """Add the arguments of ``webhook``."""
    set_command(webhook, run="harbourmaster.webhook.process:run", settings=WebhookSettings)


def add_review(review: ArgumentParser) -> None:
    """Add the arguments of ``review``."""
    set_admission(review, run="offline:review")
    add_sources(review)
    add_lines(review)


def add_render(render: ArgumentParser) -> None:
    """Add the arguments of ``render``."""
    set_admission(render, run="render:render")
    add_sources(render)
    add_manifests(render, "--filename", "manifests", "manifests to render", required=True)
    add_flags(render, diff="print only the differences")


def add_validate(validate: ArgumentParser) -> None:
    """Add the arguments of ``validate``."""
    set_admission(validate, run="checking:validate")
    validate.add_argument("-k", "--kustomize", metavar="DIR", help="check an overlay, too")
    add_checked(validate)


def add_test(tests: ArgumentParser) -> None:
    """Add the arguments of ``test``."""
    set_admission(tests, run="checking:test")
    add_flags(tests, update="correct what the files expect")
    add_checked(tests)


def add_replay(replay: ArgumentParser) -> None:
    """Add the arguments of ``replay``."""
    set_admission(replay, run="offline:replay")
    add_lines(replay)
    text = "print only cases whose answer differs from the recorded one, and exit with 1 if there"
    add_flags(replay, check=f"{text} are any")
