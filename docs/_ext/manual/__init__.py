"""Generates the parts of the manual that describe flags, fields and metrics.

A line ``<!-- generated: NAME -->`` of a page is replaced by what the function of that name returns,
in Markdown. So no page can describe a flag, a field or a metric that does not exist.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manual.commands import command_pages
from manual.families import metric_table
from manual.kinds import kinds_of
from manual.pages import draw_inline, without_links_out
from manual.tables import alert_table, bench_tables, settings_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sphinx.application import Sphinx

_PLACE: Final = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
WRITERS: Final[dict[str, Callable[[], str]]] = {
    "alerts": alert_table,
    "bench": bench_tables,
    "commands": command_pages,
    "metrics": metric_table,
    **{f"settings-{name}": partial(settings_table, name) for name in ("serve", "webhook")},
    "settings-controller": partial(settings_table, "controller"),
    "settings-offline": partial(settings_table, "offline"),
    "kinds-policies": partial(kinds_of, "kupid.gardener.cloud"),
    "kinds-lifecycle": partial(kinds_of, "lifecycle.keptn.sh", "options.keptn.sh"),
    "kinds-metrics": partial(kinds_of, "metrics.keptn.sh"),
    "kinds-placement": partial(kinds_of, "placement.harbourmaster.dev"),
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the events of Sphinx."""
    app.connect("env-get-outdated", _list_generated)
    app.connect("source-read", _read)
    app.connect("doctree-resolved", draw_inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill_in(text: str) -> str:
    """Return the text of a page with its generated parts."""
    return _PLACE.sub(lambda place: WRITERS[place[1]](), text)


def _list_generated(app: Sphinx, *_: object) -> Sequence[str]:
    """Return the pages with generated parts, which are always read again."""
    return [
        name
        for name in app.project.docnames
        if _PLACE.search(Path(app.env.doc2path(name)).read_text(encoding="utf-8"))
    ]


def _read(app: Sphinx, name: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    content[0] = without_links_out(fill_in(content[0]), page, Path(app.srcdir))
