"""Consent to references across namespaces (decision D17)."""

from __future__ import annotations

import pytest

from harbourmaster.api.references import ALLOW_FROM, Reference, consent, consenting
from harbourmaster.api.resources import (
    ANALYSIS_VALUE_TEMPLATES,
    KEPTN_METRICS,
    MAGNUM_CLUSTERS,
    METRICS_PROVIDERS,
    PROJECTS,
)

GUARDED = (METRICS_PROVIDERS, PROJECTS, MAGNUM_CLUSTERS)
VALUES = (KEPTN_METRICS, ANALYSIS_VALUE_TEMPLATES)
PROM = Reference(METRICS_PROVIDERS, "platform", "prom", "tenant")


def allows(text):
    return {ALLOW_FROM: text}


@pytest.mark.parametrize("resource", [*GUARDED, *VALUES])
@pytest.mark.parametrize("mode", ["Open", "ProvidersNeedConsent", "AllNeedConsent"])
def test_a_reference_within_a_namespace_needs_no_consent(resource, mode):
    assert Reference(resource, "tenant", "x", "tenant").is_allowed(mode, None)


@pytest.mark.parametrize("resource", GUARDED)
def test_what_exposes_credentials_or_a_cloud_needs_consent_by_default(resource):
    reference = Reference(resource, "platform", "x", "tenant")
    assert not reference.is_allowed("ProvidersNeedConsent", {})
    assert not reference.is_allowed("AllNeedConsent", {})
    assert reference.is_allowed("Open", {})


@pytest.mark.parametrize("resource", VALUES)
def test_what_exposes_values_needs_consent_only_if_all_do(resource):
    reference = Reference(resource, "platform", "x", "tenant")
    assert reference.is_allowed("ProvidersNeedConsent", {})
    assert not reference.is_allowed("AllNeedConsent", {})


@pytest.mark.parametrize("text", ["tenant", "*", "other,tenant", " other , tenant ", "tenant,*"])
def test_the_object_allows_namespaces_by_name_or_all(text):
    assert PROM.is_allowed("ProvidersNeedConsent", allows(text))
    assert PROM.is_allowed("AllNeedConsent", allows(text))


@pytest.mark.parametrize(
    "text", ["", ",", "ten", "tenant2", "ten*", "other tenant", "Tenant", "**"]
)
def test_nothing_else_is_consent(text):
    assert not PROM.is_allowed("ProvidersNeedConsent", allows(text))


def test_an_object_that_does_not_exist_does_not_consent():
    assert not PROM.is_allowed("ProvidersNeedConsent", None)


def test_the_refusal_names_the_command_that_consents():
    command = (
        "kubectl annotate keptnmetricsprovider -n platform prom harbourmaster.dev/allow-from=tenant"
    )
    assert PROM.command == command
    assert PROM.refusal == (
        'no consent to references from namespace "tenant": '
        f"keptnmetricsprovider platform/prom: {command}"
    )


def test_the_command_for_several_namespaces_names_each_once():
    assert consent(PROM, ["a", "b", "a"])[-1] == "harbourmaster.dev/allow-from=a,b"


def test_an_annotation_that_is_not_there_allows_no_namespace():
    assert consenting(None) == consenting({}) == frozenset()
