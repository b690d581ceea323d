"""What a refusal of the API server means for who wanted to create something."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from harbourmaster.kube.errors import ForbiddenError, InvalidError, ServerError

if TYPE_CHECKING:
    from harbourmaster.kube.errors import ApiError

_LASTING: Final = (ForbiddenError, InvalidError, ServerError)
_ENDING: Final = "because it is being terminated"
"""So the API server says it of a namespace; there is no code for it."""


def is_end_of_namespace(error: ApiError) -> bool:
    """Whether the namespace is being deleted: all that is in it goes, and nobody need know."""
    return isinstance(error, ForbiddenError) and _ENDING in error.message


def is_lasting(error: ApiError) -> bool:
    """Whether it is more than a moment's trouble, so that people should know."""
    return isinstance(error, _LASTING) or error.status == HTTPStatus.BAD_REQUEST


def is_final(error: ApiError) -> bool:
    """Whether no later attempt can do better: the object itself is wrong.

    Admission may refuse with the same code, and may change its mind.
    """
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    is_wrong = isinstance(error, InvalidError) or error.status == HTTPStatus.BAD_REQUEST
    return is_wrong and "denied" not in error.message
