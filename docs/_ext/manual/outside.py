"""Links that lead out of the manual into the repository: in the built pages they are paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LINK: Final = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s]+)\)")
_BLOCK: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def without_links_out(text: str, page: Path, manual: Path) -> str:
    """The page with such links as text and path; what stands in code blocks stays."""

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
