"""Structured logs: JSON lines for machines, coloured lines for a terminal, one event a line.

Whatever is logged may come from an attacker: values are cut, and control characters are escaped,
so that nothing can start a line of its own or talk to the terminal.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TypeAlias, TypeVar

import msgspec
import structlog

from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_T = TypeVar("_T")
LogFormat: TypeAlias = Literal["auto", "json", "console"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

MAX_ITEMS: Final = 64
"""Maximum number of members of a list or mapping."""
_MAX_TRACEBACK_LINES: Final = 100
_CLOSED: Final = "Fatal error on SSL protocol"
"""The report of uvloop about a write to a connection that is closed."""
_PLAIN: Final = (bool, int, float, type(None))
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logging(
    level: LogLevel = "info", log_format: LogFormat = "auto", *, stream: BinaryIO | None = None
) -> BinaryIO | None:
    """Set up all logs of the process, also those of the standard library; stderr by default.

    ``auto`` is ``console`` if the stream is a terminal, else ``json``. Returns the stream if it
    takes JSON lines of level info, for writers without a logger; else None.
    """
    target = sys.stderr.buffer if stream is None else stream
    is_terminal = target.isatty()
    console = log_format == "console" or (log_format == "auto" and is_terminal)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _clean_values,
            *(_console(colors=is_terminal) if console else _json()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        context_class=dict,
        logger_factory=structlog.BytesLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_ToStructlog()]
    root.setLevel(_LEVELS[level])
    # It logs every change before we log the result.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    return None if console or _LEVELS[level] > logging.INFO else target


def get_logger(component: str) -> FilteringBoundLogger:
    """Return a logger whose lines have ``component``. Call it after ``configure_logging``."""
    # Bound at once: the lazy proxy would look up the configuration for every line.
    logger: FilteringBoundLogger = structlog.get_logger().bind(component=component)
    return logger


class _ToStructlog(logging.Handler):
    """Handles the log records of the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        level, error = record.levelno, record.exc_info or None
        try:
            text = record.getMessage()
            is_closed = text.startswith(_CLOSED) or (error and isinstance(error[1], OSError))
            if record.name == "asyncio" and is_closed:
                # A peer closed a connection that no caller waits for any more.
                level = logging.DEBUG
            get_logger(record.name).log(level, text, exc_info=error)
        except Exception:  # noqa: BLE001 - a log line must not break what it reports
            self.handleError(record)


def _clean_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if type(value) is str:
            event[key] = clean(value)
        elif key != "exc_info":
            event[key] = _clean(value)
    error = event.pop("exc_info", None)
    if error:
        event["exception"] = _traceback(error)
    return event


def _clean(value: object) -> object:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {clean(str(key)): _clean(member) for key, member in _first(value.items())}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(member) for member in _first(value)]
    return clean(str(value))


def _first(items: Iterable[_T]) -> list[_T]:
    return [item for _, item in zip(range(MAX_ITEMS), items, strict=False)]


def _traceback(error: object) -> str:
    """Format the traceback of ``exc_info``, each of its lines clean."""
    if isinstance(error, BaseException):
        raised: BaseException | None = error
    elif isinstance(error, tuple):
        raised = error[1]
    else:
        raised = sys.exc_info()[1]
    if raised is None:
        return ""
    lines = "".join(traceback.format_exception(raised)).split("\n")
    return "\n".join(clean(line) for line in lines[-_MAX_TRACEBACK_LINES:] if line)


def _json() -> list[Processor]:
    encode: Callable[[object], bytes] = msgspec.json.Encoder().encode

    def render(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
        return encode(event)

    return [render]


def _console(*, colors: bool) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback
    )

    def render(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
        trace = event.pop("exception", None)
        line = renderer(logger, method, event)
        if trace:
            # Marked lines, so that a message of several lines can't pass for a log line.
            line += "".join(f"\n    | {word}" for word in trace.split("\n"))
        return line.encode("utf-8", "backslashreplace")

    return [render]
