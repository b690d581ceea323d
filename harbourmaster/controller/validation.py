"""Checks of settings beyond their types: pure, every error at the path of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.decoding import describe
from harbourmaster.api.field_errors import forbidden, invalid, required, unsupported
from harbourmaster.api.names import dns_label, dns_subdomain, qualified_name
from harbourmaster.api.selectors import LabelSelector
from harbourmaster.controller.names import CONTROLLERS, LIFECYCLE, REGISTRATION
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.validation import label_selector
from harbourmaster.registration.desired import HELD_NAME, NOT_HELD
from harbourmaster.registration.settings import KINDS, MORE_KINDS, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.controller.settings import ControllerSettings, LeaderElectionSettings
    from harbourmaster.registration.settings import CertificateSettings, RegistrationSettings

_SELECTOR_FIELDS: Final = ("matchLabels", "matchExpressions")
_TRIES: Final = 2
"""Minimum attempts to renew a Lease before its deadline."""
_PART_LEFT: Final = 3
"""A renewal starts when a third of a life is left."""


def validate(settings: ControllerSettings) -> list[FieldError]:
    """Return all errors of the settings, in the order of the keys."""
    return [
        *_among("controllers", settings.controllers, CONTROLLERS),
        *_webhook(settings.webhook),
        *_certificates(settings.certificates),
        *_names(
            "lifecycle.definitionNamespaces", settings.lifecycle.definition_namespaces, dns_label
        ),
        *_name("metrics.serviceName", settings.metrics.service_name, dns_label),
        *_scheduler(settings),
        *_rescheduling(settings.rescheduling),
        *_dashboard(settings),
        *_election(settings.leader_election),
        *_optional("cluster.namespace", settings.cluster.namespace, dns_label),
    ]


def _webhook(webhook: RegistrationSettings) -> Iterator[FieldError]:
    yield from _name("webhook.serviceName", webhook.service_name, dns_label)
    yield from _optional("webhook.serviceNamespace", webhook.service_namespace, dns_label)
    yield from _among("webhook.kinds", webhook.kinds, (*KINDS, *MORE_KINDS))
    yield from _among("webhook.templateOperations", webhook.template_operations, OPERATIONS)
    yield from _names("webhook.excludedNamespaces", webhook.excluded_namespaces, dns_label)
    yield from _selector("webhook.namespaceSelector", webhook.namespace_selector)
    yield from _selector("webhook.objectSelector", webhook.object_selector)
    for name, expression in webhook.match_conditions.items():
        path = f"webhook.matchConditions[{name}]"
        yield from _name(path, name, qualified_name)
        if name in {HELD_NAME, NOT_HELD}:
            yield forbidden(path, "a condition of ours has this name")
        if not expression.strip():
            yield required(path, "an expression in CEL")
    for name in webhook.annotations:
        path = f"webhook.annotations[{name}]"
        yield from _name(path, name, qualified_name)
        if name.startswith("harbourmaster.dev/"):
            yield forbidden(path, "annotations of this prefix are ours")


def _scheduler(settings: ControllerSettings) -> Iterator[FieldError]:
    scheduler = settings.scheduler
    yield from _name("scheduler.schedulerName", scheduler.scheduler_name, dns_subdomain)
    if scheduler.scheduler_name == DEFAULT_SCHEDULER:
        yield invalid(
            "scheduler.schedulerName", DEFAULT_SCHEDULER, "pods without checks use this scheduler"
        )
    yield from _name("scheduler.serviceName", scheduler.service_name, dns_label)
    if not scheduler.enabled or LIFECYCLE not in settings.running:
        return
    if REGISTRATION not in settings.running and settings.metrics.custom_metrics_cert_dir is None:
        yield required(
            "metrics.customMetricsCertDir",
            "the extender needs a certificate, and with registerWebhooks false only this "
            "directory can contain it",
        )


def _rescheduling(rescheduling: ReschedulingSettings) -> Iterator[FieldError]:
    at = "rescheduling"
    yield from _name(f"{at}.killSwitch", rescheduling.kill_switch, dns_subdomain)
    yield from _name(f"{at}.taintKey", rescheduling.taint_key, qualified_name)
    if not rescheduling.system_namespaces:
        yield required(f"{at}.systemNamespaces", "no pod outside them is critical")
    yield from _names(f"{at}.systemNamespaces", rescheduling.system_namespaces, dns_label)
    yield from _names(f"{at}.criticalClasses", rescheduling.critical_classes, dns_subdomain)
    yield from _names(f"{at}.protectedNamespaces", rescheduling.protected_namespaces, dns_label)
    yield from _selector(f"{at}.criticalSelector", rescheduling.critical_selector)


def _dashboard(settings: ControllerSettings) -> Iterator[FieldError]:
    dashboard = settings.dashboard
    yield from _name("dashboard.serviceName", dashboard.service_name, dns_label)
    has_leaf = REGISTRATION in settings.running or settings.metrics.custom_metrics_cert_dir
    if dashboard.enabled and not dashboard.is_local and not has_leaf:
        yield required(
            "metrics.customMetricsCertDir",
            "the dashboard needs a certificate on this address, and with registerWebhooks false "
            "only this directory can contain it",
        )


def _certificates(certificates: CertificateSettings) -> Iterator[FieldError]:
    at = "certificates"
    yield from _name(f"{at}.secretName", certificates.secret_name, dns_subdomain)
    life = certificates.ca_lifetime_seconds
    if certificates.leaf_lifetime_seconds > life:
        yield invalid(
            f"{at}.leafLifetimeSeconds",
            certificates.leaf_lifetime_seconds,
            f"longer than the life of its authority, {life} s",
        )
    if certificates.publish_seconds * _PART_LEFT >= life:
        yield invalid(
            f"{at}.publishSeconds",
            certificates.publish_seconds,
            f"must be less than a third of the authority's life, {life} s",
        )
    yield from _optional(f"{at}.adoptSecret", certificates.adopt_secret, dns_subdomain)
    if certificates.adopt_secret == certificates.secret_name:
        yield invalid(
            f"{at}.adoptSecret", certificates.adopt_secret, "must not be certificates.secretName"
        )


def _election(election: LeaderElectionSettings) -> Iterator[FieldError]:
    at = "leaderElection"
    yield from _name(f"{at}.leaseName", election.lease_name, dns_subdomain)
    if election.renew_deadline_seconds >= election.lease_duration_seconds:
        yield invalid(
            f"{at}.renewDeadlineSeconds",
            election.renew_deadline_seconds,
            "must be less than leaseDurationSeconds, or two controllers work at the same time",
        )
    if _TRIES * election.retry_period_seconds > election.renew_deadline_seconds:
        yield invalid(
            f"{at}.retryPeriodSeconds",
            election.retry_period_seconds,
            "must be at most half of renewDeadlineSeconds, so that one attempt may fail",
        )


def _among(path: str, names: Sequence[str], known: Collection[str]) -> Iterator[FieldError]:
    if not names:
        yield required(path, f"at least one of {', '.join(known)}")
    for index, name in enumerate(names):
        if name not in known:
            yield unsupported(f"{path}[{index}]", name, known)


def _name(path: str, name: str, check: Callable[[str], list[str]]) -> Iterator[FieldError]:
    for fault in check(name):
        yield invalid(path, name, fault)


def _names(
    path: str, names: Sequence[str], check: Callable[[str], list[str]]
) -> Iterator[FieldError]:
    for index, name in enumerate(names):
        yield from _name(f"{path}[{index}]", name, check)


def _optional(
    path: str, name: str | None, check: Callable[[str], list[str]]
) -> Iterator[FieldError]:
    if name is not None:
        yield from _name(path, name, check)


def _selector(path: str, selector: dict[str, Any] | None) -> Iterator[FieldError]:
    if selector is None:
        return
    for name in selector:
        if name not in _SELECTOR_FIELDS:
            # The API server would drop the field, and the selector would match too much.
            yield forbidden(
                f"{path}.{name}", f"a label selector has only {' and '.join(_SELECTOR_FIELDS)}"
            )
    try:
        typed = msgspec.convert(selector, LabelSelector)
    except msgspec.ValidationError as error:
        field, _, text = describe(error).partition(": ")
        yield invalid(f"{path}.{field}", "", text)
        return
    yield from label_selector(typed, path)
