"""What the query string asks for, and the part of a list that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")
U = TypeVar("U")

ROWS: Final = 100
"""On a page."""
_LONGEST: Final = 253
_MOST_PAGES: Final = 100_000
_MOST_NAMESPACES: Final = 1000


class PageQuery(Struct, frozen=True):
    """``q`` filters by text, ``state`` by what a row is about, ``view`` chooses a list."""

    namespace: str = ""
    q: str = ""
    state: str = ""
    view: str = ""
    version: str = ""
    page: int = 1
    name: str = ""
    """Of the object that a page is about, from its path; not in the query string."""

    def link(self, **changes: str | int) -> str:
        """The query string of this one with changes; ``page`` goes back to 1 unless it is given."""
        fields = {"page": 1} | changes
        found = {field: fields.get(field, getattr(self, field)) for field in self.__struct_fields__}
        del found["name"]
        kept = {key: value for key, value in found.items() if value not in {"", 1}}
        return f"?{urlencode(kept)}" if kept else "?"


def read_query(parameters: Mapping[str, str]) -> PageQuery:
    """What a request asks for; what can't be understood is ignored."""
    texts = {
        each: parameters.get(each, "").strip()[:_LONGEST]
        for each in ("namespace", "q", "state", "view", "version")
    }
    page = parameters.get("page", "")
    number = int(page) if page.isascii() and page.isdecimal() and len(page) < _LONGEST else 1
    return PageQuery(**texts, page=min(max(number, 1), _MOST_PAGES))


class Listing(Struct, Generic[T], frozen=True):
    """One page of a list; ``total`` counts what the user is allowed to see."""

    rows: tuple[T, ...]
    total: int
    matching: int
    page: int
    pages: int
    namespaces: tuple[str, ...] = ()
    """Those that have anything to see."""

    @property
    def first(self) -> int:
        """The number of its first row, from 1 on; 0 for an empty list."""
        return (self.page - 1) * ROWS + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of its last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def listed(  # noqa: PLR0913 - what to filter, sort and show, and by what
    items: Sequence[T],
    query: PageQuery,
    *,
    namespace: Callable[[T], str],
    texts: Callable[[T], Iterable[str]],
    key: Callable[[T], object],
    row: Callable[[T], U],
    holds: Callable[[T], bool],
) -> Listing[U]:
    """Filter, sort and cut what may be seen; ``row`` makes what a page shows of one."""
    needle = query.q.casefold()
    matching = [
        each
        for each in items
        if (not query.namespace or namespace(each) == query.namespace)
        and (not needle or any(needle in text.casefold() for text in texts(each)))
        and holds(each)
    ]
    matching.sort(key=key)  # type: ignore[arg-type] # keys of one list are of one kind
    pages = max(-(-len(matching) // ROWS), 1)
    page = min(query.page, pages)
    start = (page - 1) * ROWS
    return Listing(
        rows=tuple(row(each) for each in matching[start : start + ROWS]),
        total=len(items),
        matching=len(matching),
        page=page,
        pages=pages,
        namespaces=tuple(sorted({namespace(item) for item in items} - {""})[:_MOST_NAMESPACES]),
    )
