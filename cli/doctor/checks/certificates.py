"""Whether the certificates are sound, live on, and are those that every caBundle trusts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS
from harbourmaster.certs.bundle import BundleFiles, parse_bundle, verify_bundle
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.secret import encode, read_authorities
from harbourmaster.cli.batches import many
from harbourmaster.cli.doctor.model import fault, ok, unread, warning
from harbourmaster.cli.installed import CERTIFICATE
from harbourmaster.controller.registration.api_services import SERVED
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.registration.conversions import CONVERTED
from harbourmaster.controller.registry import REGISTRATION
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.registration.trust import bundle_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import datetime, timedelta

    from harbourmaster.certs.bundle import Bundle
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding

CHECK: Final = "certificates"
_LATE: Final = 0.25
"""Share of its life that a certificate has left at the least; it is renewed at a third."""
_MADE: Final = "the controller writes it within seconds: see its Lease and log"
_MENDED: Final = "the controller mends it within seconds where it runs: see its Lease and log"


async def check(context: Context) -> list[Finding]:
    """Faults of the Secret, and of each caBundle against it."""
    settings, now = await context.known_settings(), (await context.myself()).now
    name = settings.certificates.secret_name
    subject = f"Secret {context.namespace}/{name}"
    carriers = [each async for each in _carriers(context)]
    try:
        data = await context.secret()
    except ForbiddenError:
        text = "you may not read it, so what caBundles trust was not compared with it"
        remedy = f"ask for get on this Secret (by default {CERTIFICATE}), or for its tls.crt"
        return [unread(CHECK, subject, text, remedy), *_expired(carriers, now)]
    ours = REGISTRATION in settings.running
    if data is None:
        remedy = _MADE if ours else "have cert-manager write it: deploy/with-certmanager"
        return [fault(CHECK, subject, "is not there: no webhook can start", remedy)]
    mend = (
        f"kubectl -n {context.namespace} delete secret {name}: the controller writes a new one"
        if ours
        else "have cert-manager issue it anew"
    )
    files = BundleFiles(
        ca_crt=data.get("ca.crt"), tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")
    )
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now)
    except CertificateError as error:
        return [fault(CHECK, subject, str(error), mend)]
    findings = []
    missing = sorted(set(names_of(settings, context.namespace)) - bundle.names)
    if missing:
        text = f"tls.crt is not for {missing[0]}, by which the API server calls"
        findings.append(fault(CHECK, subject, text, mend))
    findings += _late(subject, bundle, now)
    remedy = _MENDED if ours else "have cert-manager inject the caBundle: see its cainjector"
    for title, pem in carriers:
        text = _why_untrusted(files, pem, now)
        if text:
            findings.append(fault(CHECK, title, text, remedy))
    return findings or [ok(CHECK, _fine(bundle, len(carriers)))]


def _fine(bundle: Bundle, carriers: int) -> str:
    ends = f"good until {bundle.not_after:%Y-%m-%d}"
    if bundle.authority_not_after is not None:
        ends += f", the authority until {bundle.authority_not_after:%Y-%m-%d}"
    return f"{ends}; trusted by {many(carriers, 'caBundle')}"


def _why_untrusted(files: BundleFiles, pem: bytes, now: datetime) -> str:
    if not pem:
        return "has no caBundle, so the API server refuses our certificate"
    authorities = read_authorities(pem, now, limit=None)
    if not authorities:
        return "its caBundle holds no authority that is in force"
    try:
        parse_bundle(msgspec.structs.replace(files, ca_crt=encode(authorities)))
    except CertificateError:
        return "its caBundle does not trust the certificate of the Secret"
    return ""


def _expired(carriers: list[tuple[str, bytes]], now: datetime) -> Iterator[Finding]:
    for title, pem in carriers:
        if not read_authorities(pem, now, limit=None):
            text = "its caBundle holds no authority that is in force"
            yield fault(CHECK, title, text, "see why the controller does not renew it: its log")


def _late(subject: str, bundle: Bundle, now: datetime) -> Iterator[Finding]:
    spans = [("tls.crt", bundle.not_before, bundle.not_after)]
    if bundle.authority_not_before is not None and bundle.authority_not_after is not None:
        spans.append(("ca.crt", bundle.authority_not_before, bundle.authority_not_after))
    for file, begin, end in spans:
        if end - now < _LATE * (end - begin):
            text = f"{file} ends in {_shown(end - now)} and should have been renewed"
            yield warning(CHECK, subject, text, "see why the controller does not: its log")


def _shown(span: timedelta) -> str:
    hours = int(span.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} h"  # noqa: PLR2004 - two days


async def _carriers(context: Context) -> AsyncIterator[tuple[str, bytes]]:
    """What holds a caBundle for us: a title, and its PEM."""
    for resource, one in (await context.configurations()).items():
        for entry in (one or {}).get("webhooks") or ():
            short = "mutating" if resource.kind.startswith("Mutating") else "validating"
            yield f"{entry.get('name')} ({short})", bundle_of(entry)
    settings = await context.known_settings()
    home = settings.webhook.service_namespace or context.namespace
    for name in CONVERTED:
        body = await context.get(DEFINITIONS, name)
        spec = msgspec.json.decode(body)["spec"] if body else {}
        found = (spec.get("conversion") or {}).get("webhook") or {}
        if _leads_to(found.get("clientConfig") or {}, home, settings.webhook.service_name):
            yield f"conversion of {name}", bundle_of(found)
    if not settings.metrics.custom_metrics_api:
        return
    for name in SERVED:
        body = await context.get(API_SERVICES, name)
        spec = msgspec.json.decode(body)["spec"] if body else {}
        if _leads_to(spec, home, settings.metrics.service_name):
            yield f"APIService {name}", bundle_of({"clientConfig": spec})


def _leads_to(client: dict[str, Any], namespace: str, name: str) -> bool:
    service = client.get("service") or {}
    return (service.get("namespace"), service.get("name")) == (namespace, name)
