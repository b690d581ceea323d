"""Queries with placeholders: of Go's templates only ``{{.name}}`` (keptn-spec 4.5).

An unknown argument is a fault, where Go writes ``<no value>`` into the query; so is any other
action of Go's. Which values are allowed where: see ``harbourmaster.evaluation.places``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.evaluation.places import Scanner, syntax_of
from harbourmaster.evaluation.targets import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 65_536
"""Characters of a query."""
_BLANKS: Final = " \t\r\n"
_MARKED: Final = tuple(_BLANKS)
_ARGUMENT: Final = re.compile(r"\.([^\W\d]\w*)")


class Placeholder(Struct, frozen=True, gc=False):
    """The position of an argument's value."""

    argument: str


class Template(Struct, frozen=True, gc=False):
    """Texts and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]


def parse_template(text: str) -> Template:
    """The parts of a query. Raises ValueError with one line that names what is wrong."""
    parts: list[str | Placeholder] = []
    at, is_trimmed = 0, False
    while (start := text.find("{{", at)) >= 0:
        end = text.find("}}", start)
        if end < 0:
            raise ValueError("the query has a '{{' without '}}'")
        before = text[at:start].lstrip(_BLANKS) if is_trimmed else text[at:start]
        body = text[start + 2 : end]
        # A trim marker is separated by a blank; otherwise "-" is a sign.
        if body[:1] == "-" and body[1:2] in _MARKED:
            before, body = before.rstrip(_BLANKS), body[1:]
        is_trimmed = body[-1:] == "-" and body[-2:-1] in _MARKED
        argument = _ARGUMENT.fullmatch(body.removesuffix("-" * is_trimmed).strip(_BLANKS))
        if argument is None:
            action = shortened(text[start : end + 2])
            raise ValueError(
                f"the query has the action '{action}': only arguments, "
                "as in {{.name}}, are supported"
            )
        parts += [before, Placeholder(argument[1])]
        at = end + 2
    parts.append(text[at:].lstrip(_BLANKS) if is_trimmed else text[at:])
    return Template(tuple(part for part in parts if part != ""))


def render(template: Template, arguments: Mapping[str, str], provider: str) -> str:
    """The query with its arguments, for a provider of that type.

    Raises ValueError with one line: an argument is missing, or not allowed at its position.
    """
    scanner = Scanner(syntax_of(provider))
    length = 0
    for part in template.parts:
        if isinstance(part, str):
            scanner.text(part)
        else:
            value = arguments.get(part.argument)
            if value is None:
                raise ValueError(
                    f"the query needs the argument '{shortened(part.argument)}', "
                    "which is not among the args of the analysis"
                )
            scanner.value(part.argument, value)
        length += len(scanner.written[-1])
        if length > LONGEST:
            raise ValueError(f"the query has more than {LONGEST} characters")
    return "".join(scanner.written)
