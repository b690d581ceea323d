"""Reads the query string, and cuts a list to the page that it selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")
U = TypeVar("U")

ROWS: Final = 100
"""Rows on a page."""
_LONGEST: Final = 253
_MOST_PAGES: Final = 100_000
_MOST_NAMESPACES: Final = 1000


def object_path(base: str, namespace: str, name: str) -> str:
    """Return the path of the page of an object below ``base``."""
    return f"{base}/{quote(namespace, safe='')}/{quote(name, safe='')}"


class PageQuery(Struct, frozen=True):
    """The parameters of a page: ``q`` and ``state`` filter, ``view`` selects a list."""

    namespace: str = ""
    q: str = ""
    state: str = ""
    view: str = ""
    version: str = ""
    page: int = 1
    name: str = ""
    """The name of the page's object, from the path; it is not in the query string."""

    def link(self, **changes: str | int) -> str:
        """Return the query string with changes; ``page`` is 1 unless it is given."""
        fields = {"page": 1} | changes
        parameters = {
            field: fields.get(field, getattr(self, field)) for field in self.__struct_fields__
        }
        del parameters["name"]
        given = {key: value for key, value in parameters.items() if value not in {"", 1}}
        return f"?{urlencode(given)}" if given else "?"


def read_query(parameters: Mapping[str, str]) -> PageQuery:
    """Read the parameters of a request; invalid ones are ignored."""
    texts = {
        name: parameters.get(name, "").strip()[:_LONGEST]
        for name in ("namespace", "q", "state", "view", "version")
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
    """The namespaces with objects that the user may see."""

    @property
    def first(self) -> int:
        """The number of the first row, from 1 on; 0 for an empty list."""
        return (self.page - 1) * ROWS + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of the last row; 0 for an empty list."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def select_page(  # noqa: PLR0913 - what to filter, sort and show, and by what
    items: Sequence[T],
    query: PageQuery,
    *,
    namespace: Callable[[T], str],
    texts: Callable[[T], Iterable[str]],
    key: Callable[[T], object],
    row: Callable[[T], U],
    holds: Callable[[T], bool],
) -> Listing[U]:
    """Filter and sort ``items``, and convert those of one page by ``row``."""
    needle = query.q.casefold()
    matching = [
        item
        for item in items
        if (not query.namespace or namespace(item) == query.namespace)
        and (not needle or any(needle in text.casefold() for text in texts(item)))
        and holds(item)
    ]
    matching.sort(key=key)  # type: ignore[arg-type] # keys of one list are of one kind
    pages = max(-(-len(matching) // ROWS), 1)
    page = min(query.page, pages)
    start = (page - 1) * ROWS
    return Listing(
        rows=tuple(row(item) for item in matching[start : start + ROWS]),
        total=len(items),
        matching=len(matching),
        page=page,
        pages=pages,
        namespaces=tuple(sorted({namespace(item) for item in items} - {""})[:_MOST_NAMESPACES]),
    )
