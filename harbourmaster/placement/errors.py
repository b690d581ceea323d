"""What is wrong with a constraint, and where in its text."""

from __future__ import annotations

from typing import Final

_BEFORE: Final = 40
"""Characters shown before the place; after it there are as many."""


class ConstraintError(ValueError):
    """An invalid constraint; ``position`` counts characters from 0, its length is the end.

    Its text is one line; ``pointed`` has the constraint below it and a caret below the place.
    """

    def __init__(self, message: str, expression: str, position: int) -> None:
        self.message = message
        self.expression = expression
        self.position = position
        super().__init__(f"{message}, at character {position + 1} of '{self._excerpt[0]}'")

    @property
    def pointed(self) -> str:
        """Three lines: what is wrong, the text, and a caret."""
        shown, place = self._excerpt
        return f"{self.message}\n  {shown}\n  {' ' * place}^"

    @property
    def _excerpt(self) -> tuple[str, int]:
        """The text around the place, one column a character, and the place in it."""
        start = max(self.position - _BEFORE, 0)
        end = self.position + _BEFORE
        cut = self.expression[start:end]
        shown = "".join(each if each.isprintable() else " " for each in cut)
        before = "..." if start else ""
        after = "..." if end < len(self.expression) else ""
        return f"{before}{shown}{after}", len(before) + self.position - start
