"""The parts of the manual that are written by the code that they describe.

A line ``<!-- generated: NAME -->`` of a page becomes what the function of that name returns, in
Markdown. So no page can tell of a flag, a field or a metric that isn't there.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manual.alerts import alert_table
from manual.commands import command_pages
from manual.figures import figures
from manual.kinds import kinds_of
from manual.metric_tables import metric_table
from manual.outside import without_links_out
from manual.pictures import draw_inline
from manual.setting_tables import settings_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sphinx.application import Sphinx

_PLACE: Final = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
WRITERS: Final[dict[str, Callable[[], str]]] = {
    "alerts": alert_table,
    "bench": figures,
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
    """Tell Sphinx when we are to be called."""
    app.connect("env-get-outdated", _outdated)
    app.connect("source-read", _read)
    app.connect("doctree-resolved", draw_inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def written(text: str) -> str:
    """The text of a page with its generated parts."""
    return _PLACE.sub(lambda place: WRITERS[place[1]](), text)


def _outdated(app: Sphinx, *_: object) -> Sequence[str]:
    """Generated pages are older than the code for all that anybody knows."""
    return [
        name
        for name in app.project.docnames
        if _PLACE.search(Path(app.env.doc2path(name)).read_text(encoding="utf-8"))
    ]


def _read(app: Sphinx, name: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    content[0] = without_links_out(written(content[0]), page, Path(app.srcdir))
