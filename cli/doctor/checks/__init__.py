"""The checks of ``harbourmaster doctor``, each a coroutine that says what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.cli.doctor.checks import (
    canary,
    certificates,
    configurations,
    definitions,
    installation,
    namespaces,
    policies,
    rescheduling,
    rights,
    selectors,
    surroundings,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding


class Check(NamedTuple):
    """One check, and what is said where it finds nothing."""

    name: str
    run: Callable[[Context], Awaitable[list[Finding]]]
    fine: str


CHECKS: Final = (
    Check(installation.CHECK, installation.check, "all parts are there and ready, and one leads"),
    Check(certificates.CHECK, certificates.check, "sound, and trusted by every caBundle of ours"),
    Check(configurations.CHECK, configurations.check, "both are as the settings say"),
    Check(selectors.CHECK, selectors.check, "our namespace and kube-system are left out"),
    Check(namespaces.CHECK, namespaces.check, "every namespace that asks for gates has them"),
    Check(definitions.CHECK, definitions.check, "all kinds are served, and converted by us"),
    Check(rights.CHECK, rights.check, "our ServiceAccounts may do what they must"),
    Check(canary.CHECK, canary.check, "no webhook of ours is to answer about pods"),
    Check(canary.FOREIGN, canary.check_others, "not tried, for the canary was not answered"),
    Check(policies.CHECK, policies.check, "all are in force, and each selects some namespace"),
    Check(
        rescheduling.CHECK,
        rescheduling.check,
        "no add-on lacks what it needs, or rescheduling is off",
    ),
    Check(surroundings.TRANSPORT, surroundings.check_transport, "callers must have a certificate"),
    Check(surroundings.VERSIONS, surroundings.check_versions, "the API server is one we know"),
    Check(surroundings.LEFTOVERS, surroundings.check_leftovers, "nothing of kupid or Keptn"),
)
