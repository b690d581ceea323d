"""The version of a workload without one: tag and digest of an image, or a hash (keptn-spec 2.5)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF
_LATEST: Final = "latest"
_DIGEST_DIGITS: Final = 12
_REMEMBERED: Final = 16 * 1024
"""Characters of a text whose hash is worth remembering; 256 such texts are kept."""


class EnvVar(Struct, frozen=True, gc=False):
    """A variable of a container; one that takes its value from elsewhere has none here."""

    name: str = ""
    value: str | None = None


class Container(Struct, frozen=True, gc=False):
    """A container as far as its pod's version depends on it."""

    name: str = ""
    image: str | None = None
    env: tuple[EnvVar, ...] | None = None


class Version(Struct, frozen=True, gc=False):
    """A version, and whether the container that should define it is missing."""

    text: str
    misses_container: bool = False


def version_of(
    containers: Sequence[Container],
    container: str = "",
    *,
    from_tag: bool = False,
    hashed: str = "",
) -> Version:
    """The version of a pod with these containers, init containers left out.

    The image of the container of that name gives it by its tag and digest; so does, with
    ``from_tag``, the only container of a pod that names none. Otherwise it is a hash; ``hashed``
    is that, where the containers are not all there any more.
    """
    named = [choice for choice in containers if container and choice.name == container]
    if from_tag and not container and len(containers) == 1:
        named = list(containers)
    for choice in named:
        if text := image_version(choice.image or ""):
            return Version(text)
    return Version(hashed or hash_of(containers), bool(container) and not named)


def hash_of(containers: Sequence[Container]) -> str:
    """The version of a pod that has no other."""
    return str(fnv1a(_running_text(containers)))


def image_version(image: str) -> str:
    """Return the tag of an image and 12 digits of its digest, joined by a dash.

    Either stands alone if the image has only one; the tag ``latest`` counts as none. The text is
    empty without both. A colon before a slash belongs to a port.
    """
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition(":")
    if not colon or "/" in tag or tag == _LATEST:
        tag = ""
    return "-".join(filter(None, (tag, digest.rpartition(":")[2][:_DIGEST_DIGITS])))


def is_tag_of(tag: str, version: str) -> bool:
    """Whether a version has this tag and a digest."""
    digest = version.removeprefix(f"{tag}-")
    is_hexadecimal = not digest.strip("0123456789abcdef")
    return digest != version and len(digest) == _DIGEST_DIGITS and is_hexadecimal


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash of the text as UTF-8."""
    return _remembered(text) if len(text) <= _REMEMBERED else _compute_hash(text)


def _compute_hash(text: str) -> int:
    value = _OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


# The pods of one workload all have the same text, and a hash costs some 50 ns a byte.
_remembered: Final = lru_cache(maxsize=256)(_compute_hash)


def _running_text(containers: Sequence[Container]) -> str:
    parts: list[str] = []
    for container in containers:
        parts += (container.name, container.image or "")
        for variable in container.env or ():
            parts += (variable.name, variable.value or "")
    return "".join(parts)
