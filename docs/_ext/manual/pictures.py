"""Pictures in SVG become part of the page, so that they follow its colours, light or dark.

Seen alone, as a host of the repository shows them, they have a style of their own.
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
    """Replace each image of ours by its drawing, with the text for who does not see it."""
    for image in list(doctree.findall(nodes.image)):
        if not image["uri"].endswith(".svg") or app.builder.format != "html":
            continue
        drawing = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
        told = escape(image["alt"], quote=True)
        drawing = _STYLE.sub("", drawing[drawing.index("<svg") :])
        drawing = drawing.replace("<svg", f'<svg class="picture" role="img" aria-label="{told}"', 1)
        # On a phone it scrolls, by keyboard too, for its letters would be too small.
        frame = f'<div class="picture-frame" tabindex="0">{drawing}</div>'
        image.replace_self(nodes.raw("", frame, format="html"))
