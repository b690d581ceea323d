"""The start and the end of a process: its arguments, its tracer, its exit code and its error."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from harbourmaster.api.names import did_you_mean
from harbourmaster.serving.options import SettingsError, add_settings, settings_from
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec
    from prometheus_client import Counter

    from harbourmaster.serving.settings import TracingSettings
    from harbourmaster.telemetry.spans import Tracer

EXIT_USAGE: Final = 2
_CLOSE: Final = 0.85
"""Similarity of a flag that is probably meant: --config is not --kubeconfig."""
MOST_CHOICES: Final = 5
"""Maximum number of choices that an error lists."""
_INTERRUPTED: Final = 130
_ADVICE: Final = (
    "check that the API server answers and that this machine is not overloaded, and try again"
)


class Parser(argparse.ArgumentParser):
    """Parses flags by their whole names: a new flag must not change the meaning of an old one."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the base class has them all
        super().__init__(allow_abbrev=False, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Name the choice that is meant, or some of them."""
        given = value
        value = getattr(action, "choice_in", str)(value)
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        more = ", ..." if len(choices) > MOST_CHOICES else ""
        meant = (
            did_you_mean(value, choices)
            or (action.example_of(given) if hasattr(action, "example_of") else "")
            or f"choose from {', '.join(choices[:MOST_CHOICES])}{more}"
        )
        raise argparse.ArgumentError(action, f'invalid choice "{value}": {meant}')

    def parse_known_args(self, *given: Any) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]  # noqa: ANN401
        """Parse all arguments: the command that does not know one of them says so."""
        arguments, unknown = super().parse_known_args(*given)
        if unknown:
            meant = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions, _CLOSE)
            self.error(": ".join(filter(None, (f"unknown argument {unknown[0]}", meant))))
        return arguments, unknown

    def error(self, message: str) -> NoReturn:
        """Print the error in one line: the usage of some commands fills a screen."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def exit_code(name: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit code: 0 done, 1 bad input, 2 unusable arguments."""
    try:
        return command()
    except BrokenPipeError:
        # The reader is gone, and Python would report this again when it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (SettingsError, StartError) as error:
        text = str(error)
    except OSError as error:
        text = failure(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    print(f"{name}: {clean(text)}", file=sys.stderr)  # noqa: T201 - a command prints
    return EXIT_USAGE


def failure(error: Exception) -> str:
    """Return the line for an unexpected error: its file, what is wrong, what to do."""
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    advice = "" if where or str(error) else f": {_ADVICE}"
    return f"{where}{reason(error)}{advice}"


def run_process(
    name: str,
    run: Callable[[argparse.Namespace], int],
    settings: type[msgspec.Struct],
    describe: Callable[[msgspec.ValidationError], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run one process by its settings alone and return its exit code."""
    parser = Parser(prog=name, description=run.__doc__)
    add_settings(parser, settings)
    parsed = parser.parse_args(arguments)

    def command() -> int:
        parsed.settings = settings_from(parsed, settings, describe)
        return run(parsed)

    return exit_code(name, command)


def start_tracing(
    settings: TracingSettings, service: str, release: str, spans: Counter
) -> Tracer | None:
    """Create a tracer if the settings have an endpoint; ``spans`` has the label ``outcome``.

    Raises StartError.
    """
    if settings.endpoint is None:
        return None
    resource = {
        "service.name": service,
        "service.version": release,
        "service.instance.id": os.environ.get("POD_NAME") or socket.gethostname(),
    }

    def note(outcome: str, count: int) -> None:
        spans.labels(outcome).inc(count)

    # Most commands have no tracer, and its module takes long to import.
    from harbourmaster.telemetry.tracing import TracingError, create_tracer  # noqa: PLC0415

    try:
        return create_tracer(settings.endpoint, settings.sample_ratio, resource, note)
    except TracingError as error:
        raise StartError(str(error)) from None
