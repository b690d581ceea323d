"""Generates the parts of the manual that describe flags, fields and metrics, and changes its pages.

A line ``<!-- generated: NAME ARGUMENT... -->`` of a page is replaced by what the function of that
name returns, in Markdown. So no page can describe a flag, a field or a metric that does not exist.

SVG pictures are drawn inline, where they follow the colours of the page, light or dark. Elsewhere,
as on a host of the repository, they have their own style. Links out of the manual become paths.
"""

from __future__ import annotations

import re
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes  # type: ignore[import-untyped]

from harbourmaster.webhook.settings import AdmissionSettings
from manual.commands import command_sections
from manual.families import metric_table
from manual.kinds import kind_sections
from manual.tables import alert_table, settings_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sphinx.application import Sphinx

_STYLE: Final = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


def draw_inline(app: Sphinx, doctree: nodes.document, _name: str) -> None:
    """Replace each SVG image by its drawing, with its alternative text."""
    for image in list(doctree.findall(nodes.image)):
        if not image["uri"].endswith(".svg") or app.builder.format != "html":
            continue
        drawing = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
        text = escape(image["alt"], quote=True)
        drawing = _STYLE.sub("", drawing[drawing.index("<svg") :])
        drawing = drawing.replace("<svg", f'<svg class="picture" role="img" aria-label="{text}"', 1)
        # On a phone it scrolls, also by keyboard, because its letters would be too small.
        frame = f'<div class="picture-frame" tabindex="0">{drawing}</div>'
        image.replace_self(nodes.raw("", frame, format="html"))


_LINK: Final = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s]+)\)")
_BLOCK: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def without_links_out(text: str, page: Path, manual: Path) -> str:
    """Return the page with links out of the manual as text and path, except in code blocks."""

    def path_of(link: re.Match[str]) -> str:
        label, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        file = (page.parent / target.partition("#")[0]).resolve()
        if file.is_relative_to(manual):
            return link[0]
        path = file.relative_to(manual.parent)
        return f"`{path}`" if label.strip("`") == str(path) else f"{label} (`{path}`)"

    parts = _BLOCK.split(text)
    return "".join(part if odd % 2 else _LINK.sub(path_of, part) for odd, part in enumerate(parts))


_PLACE: Final = re.compile(r"^<!-- generated: ([a-z-]+)((?: \w+)*) -->$", re.MULTILINE)
WRITERS: Final[dict[str, Callable[..., str]]] = {
    "alerts": alert_table,
    "commands": command_sections,
    "metrics": metric_table,
    "settings-offline": partial(settings_table, AdmissionSettings),
    "kinds": kind_sections,
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the events of Sphinx."""
    app.connect("env-get-outdated", _list_generated)
    app.connect("source-read", _read)
    app.connect("doctree-resolved", draw_inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill_in(text: str) -> str:
    """Return the text of a page with its generated parts."""
    return _PLACE.sub(lambda place: WRITERS[place[1]](*place[2].split()), text)


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
