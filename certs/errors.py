"""What can be wrong with certificates; the text of each error is one line for the user."""

from __future__ import annotations


class CertificateError(Exception):
    """A certificate, key or directory that can't be used."""


class UnreadableError(CertificateError):
    """Missing, or no PEM of the expected kind."""


class KeyMismatchError(CertificateError):
    """The key is not the certificate's."""


class ChainError(CertificateError):
    """The certificate does not lead to the authority."""


class ValidityError(CertificateError):
    """Expired, or not valid yet."""


class MissingNamesError(CertificateError):
    """The certificate is for other names."""
