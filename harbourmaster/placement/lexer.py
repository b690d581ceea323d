"""The words and symbols of a constraint (krake-spec 2.4).

Symbols end a word wherever they stand, so blanks around them are free. A tab is a blank; any other
character belongs to a word, whose reader says whether it may. Keywords are known only where an
operator stands, and only as whole words, but they may be written together: ``notin``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeVar

    Operator = TypeVar("Operator")

LONGEST: Final = 4096
"""Maximum characters of a constraint; each costs time."""
LONGEST_NAME: Final = 63
LONGEST_PREFIX: Final = 253
_EMPTY: Final = ('""', "''")
_SHOWN: Final = 40
"""Characters of a token in a message."""
_TOKEN: Final = re.compile(
    r"[ \t]*(?:(?P<symbol>==|!=|>=|=>|<=|=<|[=<>])|(?P<mark>[(),!])|(?P<word>[^ \t(),!=<>]+))"
)
_KEYWORDS: Final = (
    *("is", "not", "in", "exists", "gt", "gte", "lt", "lte"),
    *("greater", "less", "lesser", "than", "or", "equal"),
)
_LONGEST_KEYWORDS: Final = len("greaterthanorequal")
_PART: Final = re.compile(r"[A-Za-z0-9_](?:[-A-Za-z0-9_.]*[A-Za-z0-9_])?")
_PART_RULE: Final = "letters, digits, '_', '-' and '.', with none of the last two at its ends"
_BEFORE: Final = 40
"""Characters shown before the place of an error; after it there are as many."""


class ConstraintError(ValueError):
    """An invalid constraint; ``position`` counts characters from 0, its length is the end.

    Its text is one line; ``with_caret`` has the constraint below it and a caret below the place.
    """

    def __init__(self, message: str, expression: str, position: int) -> None:
        self.message = message
        self.expression = expression
        self.position = position
        super().__init__(f"{message}, at character {position + 1} of '{self._excerpt[0]}'")

    @property
    def with_caret(self) -> str:
        """Three lines: what is wrong, the text, and a caret."""
        shown, place = self._excerpt
        return f"{self.message}\n  {shown}\n  {' ' * place}^"

    @property
    def _excerpt(self) -> tuple[str, int]:
        """The text around the place, one column a character, and the place in it."""
        start = max(self.position - _BEFORE, 0)
        end = self.position + _BEFORE
        cut = self.expression[start:end]
        shown = "".join(character if character.isprintable() else " " for character in cut)
        before = "..." if start else ""
        after = "..." if end < len(self.expression) else ""
        return f"{before}{shown}{after}", len(before) + self.position - start


class TokenKind(Enum):
    """The kind of a token; the values name it in messages."""

    WORD = "a word"
    SYMBOL = "a symbol"
    MARK = "a mark"
    END = "the end"


class Token(Struct, frozen=True, gc=False):
    """A piece of a constraint and where it starts."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The position of the first character after the token."""
        return self.start + len(self.text)

    def __str__(self) -> str:
        if not self.text:
            return "the end"
        shown = "".join(
            character if character.isprintable() else " " for character in self.text[:_SHOWN]
        )
        return f"'{shown}...'" if len(self.text) > _SHOWN else f"'{shown}'"


class ConstraintReader:
    """Reads a constraint token by token. Every method raises ConstraintError."""

    def __init__(self, expression: str) -> None:
        if len(expression) > LONGEST:
            raise ConstraintError(f"more than {LONGEST} characters", expression, LONGEST)
        self.expression = expression
        self._tokens = tuple(_tokens(expression))
        self._next = 0

    @property
    def token(self) -> Token:
        """The one that comes next."""
        return self._tokens[self._next]

    def fault(self, message: str, token: Token | None = None) -> ConstraintError:
        """An error at a token, by default the next one."""
        return ConstraintError(message, self.expression, (token or self.token).start)

    def word(self, what: str) -> Token:
        """The next token, which must be a word."""
        token = self.token
        if token.kind is not TokenKind.WORD:
            raise self.fault(f"expected {what}, found {token}")
        self._next += 1
        return token

    def takes(self, mark: str) -> bool:
        """Whether the next token is this mark; it is read then."""
        is_next = self.token.kind is TokenKind.MARK and self.token.text == mark
        self._next += is_next
        return is_next

    def needs(self, mark: str) -> None:
        """Read this mark."""
        if not self.takes(mark):
            raise self.fault(f"expected '{mark}', found {self.token}")

    def end(self) -> None:
        """Nothing may follow."""
        if self.token.kind is not TokenKind.END:
            text = "expected the end: a constraint has one key, one operator and its values"
            raise self.fault(f"{text}, found {self.token}")

    def key(self, what: str) -> str:
        """The key, a label's or a metric's name (krake-spec 1.1)."""
        token = self.word(what)
        prefix, slash, name = token.text.rpartition("/")
        if slash and not _is_part(prefix, LONGEST_PREFIX):
            text = f"the prefix of {what} has 1 to {LONGEST_PREFIX} characters: {_PART_RULE}"
            raise self.fault(text, token)
        if not _is_part(name, LONGEST_NAME):
            raise self.fault(
                f"{what} has 1 to {LONGEST_NAME} characters: {_PART_RULE}", self._within(token, "/")
            )
        return token.text

    def value(self, what: str) -> str:
        """A label's value (krake-spec 1.1); a pair of quotation marks is the empty value."""
        token = self.word(what)
        if token.text in _EMPTY:
            return ""
        if not _is_part(token.text, LONGEST_NAME):
            text = f"{what} has 1 to {LONGEST_NAME} characters: {_PART_RULE}"
            raise self.fault(text, token)
        return token.text

    def operator(self, operators: Mapping[tuple[str, ...], Operator], known: str) -> Operator:
        """The operator, as a symbol or as keywords, of which the longest row counts.

        A row after which there is nothing is shorter by a word where it can be: ``a is not`` has
        the value ``not``.
        """
        token = self.token
        best: tuple[int, Operator] | None = None
        row: tuple[str, ...] = ()
        for index in range(self._next, len(self._tokens)):
            row += keywords(self._tokens[index])
            if row in operators and (
                best is None or self._tokens[index + 1].kind is not TokenKind.END
            ):
                best = index + 1, operators[row]
            if not any(operator[: len(row)] == row for operator in operators):
                break
        if best is None:
            raise self.fault(f"expected {known}, found {token}{_hint(token, operators)}")
        self._next, operator = best
        return operator

    def _within(self, token: Token, separator: str) -> Token:
        """The last part of a token."""
        offset = token.text.rfind(separator) + 1
        return Token(token.kind, token.text[offset:], token.start + offset)


def keywords(token: Token) -> tuple[str, ...]:
    """The keywords of which a word consists; the word itself where it is none."""
    words = _split(token.text) if token.kind is TokenKind.WORD else None
    return words or (token.text,)


def _split(text: str) -> tuple[str, ...] | None:
    if text in _KEYWORDS:
        return (text,)
    if len(text) > _LONGEST_KEYWORDS:
        return None
    for keyword in _KEYWORDS:
        if text.startswith(keyword) and (rest := _split(text[len(keyword) :])) is not None:
            return (keyword, *rest)
    return None


def _hint(token: Token, operators: Mapping[tuple[str, ...], Operator]) -> str:
    if token.text.lower() != token.text and (token.text.lower(),) in operators:
        return ": operators are lower case"
    return ""


def _is_part(text: str, longest: int) -> bool:
    return len(text) <= longest and _PART.fullmatch(text) is not None


def _tokens(expression: str) -> Iterator[Token]:
    position = 0
    while match := _TOKEN.match(expression, position):
        for kind, group in (
            (TokenKind.SYMBOL, "symbol"),
            (TokenKind.MARK, "mark"),
            (TokenKind.WORD, "word"),
        ):
            if match[group] is not None:
                yield Token(kind, match[group], match.start(group))
        position = match.end()
    # Two, so that there is always one after the next.
    end = Token(TokenKind.END, "", len(expression))
    yield from (end, end)
