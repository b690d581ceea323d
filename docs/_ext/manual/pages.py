"""Changes pages: SVG pictures are drawn inline, and links out of the manual become paths.

Inline pictures follow the colours of the page, light or dark. Elsewhere, as on a host of the
repository, they have a style of their own.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docutils import nodes  # type: ignore[import-untyped]

if TYPE_CHECKING:
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
