"""Templates: every value is escaped, and one that is missing is a fault, not an empty place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harbourmaster.dashboard.text import finalize
from harbourmaster.dashboard.times import age, moment, span

if TYPE_CHECKING:
    from datetime import datetime

_DIRECTORY: Final = Path(__file__).parent / "templates"


class Renderer:
    """Makes pages of view models."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_DIRECTORY),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=finalize,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters["age"] = age
        self._environment.filters["clock"] = _clock
        self._environment.filters["span"] = span
        self._environment.filters["thousands"] = lambda number: f"{number:,}"

    def render(self, template: str, now: datetime, **values: Any) -> str:  # noqa: ANN401 - any model
        """A whole page."""
        return self._environment.get_template(template).render(now=now, **values)


def _clock(stamp: str) -> str:
    """A stamp as people read it, in UTC; as it is where it is none."""
    found = moment(stamp)
    return stamp if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"
