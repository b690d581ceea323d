"""Errors of certificates; the text of each is one line for the user."""

from __future__ import annotations


class CertificateError(Exception):
    """A certificate, key or directory that can't be used."""


class UnreadableError(CertificateError):
    """A file is missing, or is not PEM of the expected kind."""


class KeyMismatchError(CertificateError):
    """The key is not the certificate's."""


class ChainError(CertificateError):
    """The certificate does not lead to the authority."""


class ValidityError(CertificateError):
    """The certificate has expired, or is not valid yet."""


class MissingNamesError(CertificateError):
    """The certificate is for other names."""
