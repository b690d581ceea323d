"""Whether certificates are valid and trusted, and our kinds are served and converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import BundleFiles, verify_bundle
from harbourmaster.certs.secret import encode, read_authorities
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.diagnosis import fault, note, ok, unknown, warning
from harbourmaster.cli.doctor.checks.registration import short_kind
from harbourmaster.cli.installed import (
    CERTIFICATE,
    KEPTN_RESOURCES,
    PLACEMENT_RESOURCES,
    POLICY_RESOURCES,
)
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.cli.live.reader import run_together
from harbourmaster.cli.live.webhooks import decode_api_service, decode_definition
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.controller.registration.ca_injector import CONVERTED, SERVED
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.registration.trust import bundle_of
from harbourmaster.serving.definitions import schemas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.certs.model import Bundle
    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Definition
    from harbourmaster.serving.definitions import Schema

APPLY: Final = "kubectl apply --server-side -k deploy/crds"
_LATE: Final = 0.25
"""Share of its life that a certificate has left at the least; it is renewed at a third."""
_CREATED: Final = "the controller writes it within seconds: see its Lease and log"
_REPAIRED: Final = "a running controller repairs it within seconds: see its Lease and log"
_NO_AUTHORITY: Final = "its caBundle holds no valid authority"


async def check_certificates(live: Installation) -> AsyncIterator[Finding]:
    """Faults of the Secret, and of each caBundle against it."""
    settings, now = await live.known_settings(), (await live.caller()).now
    name = settings.certificates.secret_name
    subject = f"Secret {live.namespace}/{name}"
    carriers = [carrier async for carrier in _carriers(live)]
    try:
        data = await live.secret()
    except ForbiddenError:
        text = "missing permission to read it, so caBundles were not compared with it"
        remedy = f"ask for get on this Secret (by default {CERTIFICATE}), or for its tls.crt"
        yield unknown(subject, text, remedy)
        for title, pem in carriers:
            if not read_authorities(pem, now, limit=None):
                yield fault(title, _NO_AUTHORITY, "see the controller's log: why not renewed")
        return
    ours = REGISTRATION in settings.running
    if data is None:
        remedy = _CREATED if ours else "have cert-manager write it: deploy/with-certmanager"
        yield fault(subject, "not found: no webhook can start", remedy)
        return
    renew = (
        f"kubectl -n {live.namespace} delete secret {name}: the controller writes a new one"
        if ours
        else "have cert-manager issue it again"
    )
    files = BundleFiles(
        ca_crt=data.get("ca.crt"), tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")
    )
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now)
    except CertificateError as error:
        yield fault(subject, str(error), renew)
        return
    findings = list(_late_renewals(subject, bundle, now))
    missing = sorted(set(names_of(settings, live.namespace)) - bundle.names)
    if missing:
        text = f"tls.crt is not valid for {missing[0]}, by which the API server calls"
        findings.append(fault(subject, text, renew))
    remedy = _REPAIRED if ours else "have cert-manager inject the caBundle: see its cainjector"
    for title, pem in carriers:
        if text := _why_untrusted(files, pem, now):
            findings.append(fault(title, text, remedy))
    for finding in findings or [ok(_describe_validity(bundle, len(carriers)))]:
        yield finding


def _describe_validity(bundle: Bundle, carriers: int) -> str:
    ends = f"valid until {bundle.not_after:%Y-%m-%d}"
    if bundle.authority_not_after is not None:
        ends += f", the authority until {bundle.authority_not_after:%Y-%m-%d}"
    return f"{ends}; trusted by {plural(carriers, 'caBundle')}"


def _why_untrusted(files: BundleFiles, pem: bytes, now: datetime) -> str:
    if not pem:
        return "has no caBundle, so the API server refuses our certificate"
    authorities = read_authorities(pem, now, limit=None)
    if not authorities:
        return _NO_AUTHORITY
    try:
        parse_bundle(msgspec.structs.replace(files, ca_crt=encode(authorities)))
    except CertificateError:
        return "its caBundle does not trust the certificate of the Secret"
    return ""


def _late_renewals(subject: str, bundle: Bundle, now: datetime) -> Iterator[Finding]:
    spans = [("tls.crt", bundle.not_before, bundle.not_after)]
    if bundle.authority_not_before is not None and bundle.authority_not_after is not None:
        spans.append(("ca.crt", bundle.authority_not_before, bundle.authority_not_after))
    for file, begin, end in spans:
        if end - now < _LATE * (end - begin):
            hours = int((end - now).total_seconds() // 3600)
            left = f"{hours // 24} days" if hours >= 48 else f"{hours} h"  # noqa: PLR2004 - two days
            text = f"{file} expires in {left} and should have been renewed"
            yield warning(subject, text, "see the controller's log: why not renewed")


async def _carriers(live: Installation) -> AsyncIterator[tuple[str, bytes]]:
    """Yield a title and the PEM of each caBundle that is ours."""
    for resource in CONFIGURATIONS:
        configuration = await live.configuration(resource)
        for entry in configuration.entries if configuration else ():
            yield f"{entry.name} ({short_kind(resource)})", _pem(entry.client_config.ca_bundle)
    settings = await live.known_settings()
    home = settings.webhook.service_namespace or live.namespace
    for name in CONVERTED:
        definition = await live.read(DEFINITIONS, name, decode_definition)
        if definition and definition.converter == (home, settings.webhook.service_name):
            yield f"conversion of {name}", _pem(definition.conversion.ca_bundle)
    for name in SERVED if settings.metrics.custom_metrics_api else ():
        api_service = await live.read(API_SERVICES, name, decode_api_service)
        if api_service and api_service.client.service_key == (home, settings.metrics.service_name):
            yield f"APIService {name}", _pem(api_service.client.ca_bundle)


def _pem(bundle: str | None) -> bytes:
    return bundle_of({"clientConfig": {"caBundle": bundle}})


async def check_definitions(live: Installation) -> AsyncIterator[Finding]:
    """Definitions that are absent, not served, of other versions, or that don't convert."""
    settings = await live.known_settings()
    resources = (*POLICY_RESOURCES, *KEPTN_RESOURCES, *PLACEMENT_RESOURCES)
    optional = () if settings.placement.enabled else PLACEMENT_RESOURCES
    definitions = await run_together(
        *(live.read(DEFINITIONS, resource.name, decode_definition) for resource in resources)
    )
    pairs = list(zip(resources, definitions, strict=True))
    absent = [resource for resource, definition in pairs if definition is None]
    if missing := [resource.name for resource in absent if resource not in optional]:
        text = "not found, so such objects can't be written and have no effect"
        yield fault(f"definition {shorten(missing, 3)}", text, APPLY)
    converter = (
        settings.webhook.service_namespace or live.namespace,
        settings.webhook.service_name,
    )
    for resource, definition in pairs:
        if definition is not None:
            for finding in _definition_findings(resource, definition, converter):
                yield finding
    if lacking := [field for pair in pairs if (field := _lacking_field(*pair))]:
        text = f"lacks fields of this version, which are lost when they are written: {lacking[0]}"
        yield warning(plural(len(lacking), "definition"), text, APPLY)
    for name in SERVED if settings.metrics.custom_metrics_api else ():
        service = await live.read(API_SERVICES, name, decode_api_service)
        if service is not None and service.why_unavailable:
            text = f"the API server can't reach it: {service.why_unavailable}"
            remedy = "it retries twice a minute; if this persists, see whether the controller runs"
            yield warning(f"APIService {name}", text, remedy)


def _lacking_field(resource: Resource, definition: Definition | None) -> str:
    """Return the first field that a definition of an older version lacks, or ""."""
    there = set(_fields(definition.schemas.get(resource.version, {}))) if definition else set()
    ours = schemas(resource.group, resource.kind).get(resource.version, {}) if there else {}
    return min((f"{resource.name} {field}" for field in {*_fields(ours)} - there), default="")


def _fields(schema: Schema, at: str = "") -> Iterator[str]:
    """Yield the paths of all fields below spec and status."""
    for name, below in schema.get("properties", {}).items():
        if path := f"{at}.{name}" if at else name if name in {"spec", "status"} else "":
            yield path
            yield from _fields(below.get("items", below), path)


def _definition_findings(
    resource: Resource, definition: Definition, converter: tuple[str, str]
) -> Iterator[Finding]:
    subject = f"definition {resource.name}"
    established = definition.condition("Established")
    names = definition.condition("NamesAccepted")
    if names is not None and names.status == "False":
        text = f"is not served: {names.message}"
        yield fault(subject, text, "delete the definition that has its name")
    elif established is None or established.status != "True":
        yield fault(subject, "is not served yet", f"wait, or {APPLY}")
    if resource.version not in definition.served:
        served = ", ".join(sorted(definition.served)) or "none"
        text = f"does not serve {resource.version}, which we ask for, but {served}"
        yield fault(subject, text, APPLY)
    old = [version for version in definition.stored if version != definition.storage]
    if old:
        text = f"some objects may still be stored as {', '.join(old)}"
        write = f"kubectl get {resource.name} -A -o json | kubectl replace -f -"
        remedy = f"nothing yet; before that version is removed, write each object once: {write}"
        yield note(subject, text, remedy)
    if definition.metadata.name not in CONVERTED:
        return
    if not definition.is_converted:
        text = "does not convert its versions: fields of older ones are lost without a warning"
        yield fault(subject, text, APPLY)
    elif definition.converter != converter:
        called = definition.converter
        where = f"Service {'/'.join(called)}" if called else definition.conversion.url or "nothing"
        text = f"is converted by {where} and not by us"
        yield warning(subject, text, f"{APPLY}, unless that is intended")
