"""Queries with placeholders: the simple actions of Go's templates (keptn-spec 4.5).

These are ``{{.name}}``, ``{{index . "name"}}``, both also printed, texts in quotes and comments.
All other actions are errors, and so is an unknown argument, for which Go writes ``<no value>``.

Within quotes, a value is escaped for the provider's language, so that it never alters the query's
structure. Outside of quotes, it must be a word or a number. Control characters and line ends are
rejected (S27).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from harbourmaster.evaluation.targets import shorten

LONGEST: Final = 65_536
"""The limit of characters in a query."""
_BLANKS: Final = " \t\r\n"
_MARKED: Final = tuple(_BLANKS)
_COMMENT: Final = re.compile(r"(?:-[ \t\r\n]+)?/\*")
_PRINT: Final = r'print(?:f\s+"%[sv]")?'
_ACTION: Final = re.compile(
    rf'(?:{_PRINT}\s+)?(?:\$?\.(?P<field>[^\W\d]\w*)|index\s+[.$]\s+"(?P<key>[^"\\]+)")'
    rf'(?:\s*\|\s*{_PRINT})*|"(?P<text>[^"\\]*)"|`(?P<raw>[^`]*)`|/\*.*\*/',
    re.DOTALL,
)
_CONTROL: Final = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode categories of line ends, control characters and surrogates."""
_WORD: Final = re.compile(r"[a-z_][\w:.]*|[\d.][\w.]*", re.ASCII | re.IGNORECASE)
_SIGNED: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\w*", re.ASCII | re.IGNORECASE)
_TAG: Final = re.compile(r"\w[\w:./-]*", re.ASCII)
_BEFORE_SIGN: Final = re.compile(r"[\s(\[{,=<>!+*/%^:]")


class Syntax(Struct, frozen=True, gc=False):
    """The quotes and comments of a query language."""

    quotes: Mapping[str, str] = {}
    """The escape character of each quote; empty if the quote cannot be escaped."""
    comments: tuple[tuple[str, str], ...] = ()
    """The beginnings and ends of comments."""
    has_tags: bool = False
    """Whether braces contain tags, which may have dashes and slashes."""


_PROMQL: Final = Syntax({'"': "\\", "'": "\\", "`": ""}, (("#", "\n"),))
_SYNTAXES: Final[Mapping[str, Syntax | None]] = {
    "prometheus": _PROMQL,
    "thanos": _PROMQL,
    "cortex": _PROMQL,
    "datadog": Syntax({'"': "", "'": ""}, has_tags=True),
    "dynatrace": Syntax({'"': "~"}),
    "dql": Syntax({'"': "\\", "`": ""}, (("//", "\n"), ("/*", "*/"))),
    "elastic": Syntax({'"': "\\"}),
    # The whole query is one key.
    "kafka": None,
    "static": None,
}


class QueryWriter:
    """Writes texts of a template and values of arguments in turn; ``written`` has the result."""

    def __init__(self, syntax: Syntax | None) -> None:
        self.written: list[str] = []
        self._syntax = syntax
        self._quote = ""
        self._is_escaped = False
        self._comment_end = ""
        self._depth = 0

    def write_text(self, text: str) -> None:
        """Write a part of the template, which is trusted."""
        self.written.append(text)
        if self._syntax is None:
            return
        at = 0
        while at < len(text):
            at += self._step(self._syntax, text, at)

    def write_value(self, name: str, value: str) -> None:
        """Write the value of the argument ``name``. Raises ValueError if it is not allowed here."""
        if any(unicodedata.category(character) in _CONTROL for character in value):
            raise ValueError(
                f"the argument '{name}' has control characters or line ends: '{shorten(value)}'"
            )
        if self._syntax is None:
            self.written.append(value)
        elif self._quote:
            self.written.append(self._escape(self._syntax, name, value))
        elif self._is_plain(self._syntax, value):
            self.written.append(value)
        else:
            raise ValueError(
                f"the argument '{name}' is outside of quotes, so it must be a word or "
                f"a number: '{shorten(value)}'"
            )

    def _step(self, syntax: Syntax, text: str, at: int) -> int:
        """Advance the state by the token at ``at``, and return its length."""
        if self._comment_end:
            if text.startswith(self._comment_end, at):
                length = len(self._comment_end)
                self._comment_end = ""
                return length
        elif self._quote:
            self._step_in_quotes(syntax, text[at])
        elif text[at] in syntax.quotes:
            self._quote = text[at]
        else:
            for start, end in syntax.comments:
                if text.startswith(start, at):
                    self._comment_end = end
                    return len(start)
            self._depth += {"{": 1, "}": -1}.get(text[at], 0)
        return 1

    def _step_in_quotes(self, syntax: Syntax, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == syntax.quotes[self._quote]:
            self._is_escaped = True
        elif character == self._quote:
            self._quote = ""

    def _escape(self, syntax: Syntax, name: str, value: str) -> str:
        escape = syntax.quotes[self._quote]
        if self._is_escaped:
            # The escape character of the template would escape ours.
            raise ValueError(f"the argument '{name}' follows a '{escape}' of the query")
        if escape:
            doubled = value.replace(escape, escape * 2)
            return doubled.replace(self._quote, escape + self._quote)
        if self._quote in value or "\\" in value:
            raise ValueError(
                f"the argument '{name}' is inside {self._quote}, so it must contain neither "
                f"that nor a backslash: '{shorten(value)}'"
            )
        return value

    def _is_plain(self, syntax: Syntax, value: str) -> bool:
        if _WORD.fullmatch(value):
            return True
        if syntax.has_tags and self._depth > 0:
            return _TAG.fullmatch(value) is not None
        before = next((text[-1] for text in reversed(self.written) if text), "")
        return _SIGNED.fullmatch(value) is not None and (
            not before or _BEFORE_SIGN.match(before) is not None
        )


class Placeholder(Struct, frozen=True, gc=False):
    """The place of an argument's value."""

    argument: str


class Template(Struct, frozen=True, gc=False):
    """The texts and placeholders of a query, in order."""

    parts: tuple[str | Placeholder, ...]


def parse_template(text: str) -> Template:
    """Return the parts of a query. Raises ValueError with one line."""
    parts: list[str | Placeholder] = []
    at, is_trimmed = 0, False
    while (start := text.find("{{", at)) >= 0:
        comment = _COMMENT.match(text, start + 2)
        end = text.find("}}", text.find("*/", comment.end()) if comment else start)
        if end < 0:
            raise ValueError("the query has a '{{' without '}}'")
        before = text[at:start].lstrip(_BLANKS) if is_trimmed else text[at:start]
        body = text[start + 2 : end]
        # A trim marker is separated by a blank; otherwise "-" is a sign.
        if body[:1] == "-" and body[1:2] in _MARKED:
            before, body = before.rstrip(_BLANKS), body[1:]
        is_trimmed = body[-1:] == "-" and body[-2:-1] in _MARKED
        action = _ACTION.fullmatch(body.removesuffix("-" * is_trimmed).strip(_BLANKS))
        if action is None:
            raise ValueError(
                f"the query has the action '{shorten(text[start : end + 2])}': only arguments, "
                'as in {{.name}} or {{index . "name"}}, texts and comments are supported'
            )
        argument = action["field"] or action["key"]
        text_part = action["text"] or action["raw"] or ""
        parts += [before, Placeholder(argument) if argument else text_part]
        at = end + 2
    parts.append(text[at:].lstrip(_BLANKS) if is_trimmed else text[at:])
    return Template(tuple(part for part in parts if part != ""))


def render(template: Template, arguments: Mapping[str, str], provider: str) -> str:
    """Return the query with its arguments, for a provider of that type.

    Raises ValueError with one line if an argument is missing, or not allowed at its place.
    """
    writer = QueryWriter(_SYNTAXES.get(provider, _PROMQL))
    length = 0
    for part in template.parts:
        if isinstance(part, str):
            writer.write_text(part)
        else:
            value = arguments.get(part.argument)
            if value is None:
                raise ValueError(
                    f"the query needs the argument '{shorten(part.argument)}', "
                    "which is not among the args of the analysis"
                )
            writer.write_value(part.argument, value)
        length += len(writer.written[-1])
        if length > LONGEST:
            raise ValueError(f"the query has more than {LONGEST} characters")
    return "".join(writer.written)
