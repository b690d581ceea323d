"""What can't be read, in one line that says what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.why.model import is_kind_missing
from harbourmaster.kube.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from harbourmaster.kube.errors import ApiError

_FORBIDDEN: Final = re.compile(
    r"""cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"""
    r"""(?:.*in the namespace "(?P<namespace>[^"]+)")?"""
)
_NOT_INSTALLED: Final = (
    "the cluster does not know the kind: install its definition (kubectl apply --server-side -k "
    "deploy/crds), unless that part is not wanted"
)


def unreadable(error: ApiError, what: str) -> str:
    """Why ``what`` can't be told, and who can change that."""
    if isinstance(error, ForbiddenError):
        return f"{what}: can't be read, for you may not {_right(error)}: ask for that right"
    if isinstance(error, NotFoundError) and is_kind_missing(error):
        return f"{what}: {_NOT_INSTALLED}"
    return f"{what}: can't be read: {error}"


def _right(error: ForbiddenError) -> str:
    """The missing right; as the API server says it where it does not say it as usual."""
    found = _FORBIDDEN.search(error.message)
    if found is None:
        return f"({error.message})"
    group = f".{found['group']}" if found["group"] else ""
    where = f" in the namespace {found['namespace']}" if found["namespace"] else ""
    return f"{found['verb']} {found['resource']}{group}{where}"
