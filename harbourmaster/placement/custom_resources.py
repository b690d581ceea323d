"""Custom resource constraints: the name of a CRD, ``<plural>.<group>`` (krake-spec 2.3)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.names import dns_subdomain
from harbourmaster.placement.errors import ConstraintError
from harbourmaster.placement.lexer import ConstraintReader

if TYPE_CHECKING:
    from collections.abc import Container

_WHAT: Final = "the name of a custom resource definition"
_RULE: Final = "is <plural>.<group>, such as shirts.example.com: a-z, 0-9, '-' and '.'"


class CustomResourceConstraint(Struct, frozen=True, gc=False):
    """One constraint."""

    name: str

    @property
    def canonical(self) -> str:
        """The only spelling there is."""
        return self.name

    def holds(self, known: Container[str]) -> bool:
        """Whether the resource is among those that are known."""
        return self.name in known

    def mismatch(self, known: Container[str]) -> str:
        """Why it doesn't hold; empty where it does."""
        if self.holds(known):
            return ""
        return f"custom resource constraint '{self.name}': the cluster does not have this resource"


@lru_cache(maxsize=4096)
def parse_custom_resource(expression: str) -> CustomResourceConstraint:
    """Read a constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    token = reader.word(_WHAT)
    reader.end()
    plural, dot, group = token.text.partition(".")
    if not dot:
        raise ConstraintError(f"{_WHAT} {_RULE}", expression, token.end)
    if not plural or not group or dns_subdomain(token.text):
        raise reader.fault(f"{_WHAT} {_RULE}", token)
    return CustomResourceConstraint(token.text)
