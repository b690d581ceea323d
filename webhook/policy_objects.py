"""Policies as a cluster stores them: decoded, and of a size that cannot hold up admission.

Every replica keeps all policies compiled, which takes up to a hundred times the bytes of the JSON,
and answers nobody while it compiles one; whoever may write in one namespace may write them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from policies.decoding import MalformedError, decode, describe
from policies.model import Policy

MAX_SPEC_BYTES: Final = 128 * 1024
"""Of the JSON of ``spec``; managed fields and annotations are no matter."""


class OversizedError(MalformedError):
    """A policy that is too large; the text is one line."""


class _Spec(Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


_spec_decoder: Final = msgspec.json.Decoder(_Spec)
_policy_decoder: Final = msgspec.json.Decoder(Policy)


def decode_policy(raw: bytes | msgspec.Raw) -> Policy:
    """The policy in ``raw``. Raises MalformedError, and OversizedError for one that is too large.

    Its text is ``field.path: what is wrong``.
    """
    _check_size(memoryview(decode(_spec_decoder, raw, "").spec).nbytes)
    return decode(_policy_decoder, raw, "")


def convert_policy(value: dict[str, Any]) -> Policy:
    """The policy in an object of a file; raises as ``decode_policy``."""
    try:
        policy = msgspec.convert(value, Policy)
    except msgspec.ValidationError as error:
        raise MalformedError(describe(error)) from None
    _check_size(len(msgspec.json.encode(value.get("spec"))))
    return policy


def _check_size(size: int) -> None:
    if size > MAX_SPEC_BYTES:
        raise OversizedError(f"spec: {size} bytes, more than {MAX_SPEC_BYTES}")
