"""Encrypts bearer tokens in session cookies, so that every replica can read them.

Nothing is stored on the server. Only processes with the key of our certificate can decrypt them.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

if TYPE_CHECKING:
    from collections.abc import Callable

LIFETIME: Final = 8 * 3600
"""Seconds after which users must log in again, even if their token is still valid."""
LONGEST_TOKEN: Final = 2800
"""Maximum bytes of a token: encrypted, it must fit into the 4096 bytes of a cookie."""
_PURPOSE: Final = b"harbourmaster dashboard session v1"
_NONCE: Final = 12
_TIME: Final = struct.Struct(">Q")


class Sealer:
    """Encrypts and decrypts tokens; ``now`` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._secrets: list[bytes] = []
        self._keys: list[AESGCM] = []
        self.renew(os.urandom(32))

    def renew(self, secret: bytes) -> None:
        """Encrypt with another secret from now on; the last one still decrypts."""
        if secret in self._secrets:
            return
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret)
        self._secrets = [secret, *self._secrets[:1]]
        self._keys = [AESGCM(derived), *self._keys[:1]]

    def seal(self, token: str) -> str:
        """Return the value of the cookie for a token."""
        nonce = os.urandom(_NONCE)
        text = _TIME.pack(int(self._now()) + LIFETIME) + token.encode()
        sealed = self._keys[0].encrypt(nonce, text, _PURPOSE)
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def open(self, cookie: str) -> str | None:
        """Return the token, or None if the cookie is not ours or expired."""
        if not cookie.isascii():
            return None
        try:
            decoded = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        except (binascii.Error, ValueError):
            return None
        nonce, sealed = decoded[:_NONCE], decoded[_NONCE:]
        for key in self._keys:
            try:
                text = key.decrypt(nonce, sealed, _PURPOSE)
            except (InvalidTag, ValueError):
                continue
            (end,) = _TIME.unpack_from(text)
            return text[_TIME.size :].decode() if self._now() < end else None
        return None
