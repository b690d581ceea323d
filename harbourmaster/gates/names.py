"""Names of Keptn's objects, built from users' values (keptn-spec 2.6, 3.1)."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

NAME_LIMIT: Final = 253
"""Longest object name, in characters."""
NAME_LEAST: Final = 80
"""Characters that every part keeps until all parts are cut."""
JOB_NAME_LIMIT: Final = 63
"""A Job's name becomes a label of its pods."""
_HASH: Final = 8
_DIGITS: Final = 90_000
_LOWEST: Final = 10_000
_UNFIT: Final = re.compile(r"[^a-z0-9.-]|-\.|\.[.-]|^\.|[.-]$")
"""Matches what cannot be in a version within a name, or at its beginning or end."""


def sanitise(text: str) -> str:
    """Lower case, with ``_`` as ``-``: how Keptn makes a name of a label's value."""
    return text.lower().replace("_", "-")


def resource_name(limit: int, least: int, *parts: str) -> str:
    """Join parts with ``-`` so that the name fits: all but the last are cut at their ends.

    What still does not fit, a long last part or a single one, is cut and ends in a hash of the
    whole, so that no name is ever refused for its length.
    """
    while len(parts) * least > limit:
        least //= 2
    kept = list(parts)
    for index in range(len(kept) - 1):
        excess = len("-".join(kept)) - limit
        if excess <= 0:
            break
        kept[index] = kept[index][: max(len(kept[index]) - excess, least)]
    return _fitting(sanitise("-".join(kept)), limit, sanitise("-".join(parts)))


def _fitting(name: str, limit: int, whole: str) -> str:
    if len(name) <= limit:
        return name
    return f"{name[: limit - _HASH - 1].rstrip('-.')}-{_hash(whole)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


@lru_cache(maxsize=4096)
def version_part(version: str) -> str:
    """Return a version as names of objects contain it. Versions are equal if their parts are.

    A version with characters that no name can have, such as ``+``, ends in a hash of the whole.
    """
    text = sanitise(version)
    if not _UNFIT.search(text):
        return text
    words = filter(None, (word.strip("-") for word in re.sub(r"[^a-z0-9.]", "-", text).split(".")))
    return "-".join(filter(None, (".".join(words), _hash(text))))


def workload_name(app: str, workload: str) -> str:
    """The KeptnWorkload of a workload of an app."""
    return resource_name(NAME_LIMIT, NAME_LEAST, app, workload)


def version_name(workload: str, version: str) -> str:
    """The KeptnWorkloadVersion of a KeptnWorkload, by its name, in a version."""
    return resource_name(NAME_LIMIT, NAME_LEAST, workload, version_part(version))


def app_version_name(app: str, version: str, generation: int) -> str:
    """The KeptnAppVersion of a generation of a KeptnApp (keptn-spec 3.1)."""
    return resource_name(
        NAME_LIMIT, NAME_LEAST, app, version_part(version), generation_hash(generation)
    )


@lru_cache(maxsize=4096)
def generation_hash(generation: int) -> str:
    """Eight hexadecimal digits that stand for a generation."""
    return _hash(str(generation))


def digits(seed: str) -> str:
    """Five digits derived from the seed (Keptn uses random ones), so nothing is created twice."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    return str(_LOWEST + number % _DIGITS)
