"""Clients that read ca.crt once get a certificate of another authority late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.model import BundleFiles
from harbourmaster.certs.rotation import handover, mark_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
NAMES = ("hm.svc",)
OLD, NEW = create_authority(NOW), create_authority(NOW)


def bundle(signer, *others, names=NAMES, now=NOW):
    leaf = issue_serving_certificate(now, signer, names, lifetime=WEEK)
    authorities = b"".join(authority.certificate for authority in (signer, *others))
    return parse_bundle(BundleFiles(ca_crt=authorities, tls_crt=leaf.certificate, tls_key=leaf.key))


SERVED = bundle(OLD)


def test_the_old_leaf_is_served_until_it_is_about_to_expire():
    end = handover(SERVED, bundle(NEW, OLD), NOW)
    assert WEEK * 0.85 < end - NOW < WEEK * 0.95
    assert handover(SERVED, bundle(NEW, OLD), end - timedelta(seconds=1)) == end
    assert handover(SERVED, bundle(NEW, OLD), end) is None


def bare(bundle):
    """Return the bundle without ca.crt."""
    files = msgspec.structs.replace(bundle.files, ca_crt=None)
    return parse_bundle(files)


@pytest.mark.parametrize(
    ("served", "offered"),
    [
        pytest.param(SERVED, bundle(OLD), id="of the same authority"),
        pytest.param(bundle(OLD, NEW), bundle(OLD), id="of the same, and another one has gone"),
        pytest.param(SERVED, bundle(NEW), id="who starts now would not trust the old one"),
        pytest.param(SERVED, bundle(NEW, OLD, names=(*NAMES, "b.svc")), id="one more name"),
        pytest.param(bare(SERVED), bundle(NEW, OLD), id="nothing is known of the old one"),
        pytest.param(SERVED, bare(bundle(NEW)), id="nothing is known of the new one"),
    ],
)
def test_else_the_new_one_is_served_at_once(served, offered):
    assert handover(served, offered, NOW) is None


def test_fewer_names_do_not_hurry_the_handover():
    assert handover(bundle(OLD, names=(*NAMES, "b.svc")), bundle(NEW, OLD), NOW) is not None


def test_the_mark_is_the_authority_s_whatever_stands_beside_it():
    marks = {
        mark_of(document) for document in (SERVED, bundle(OLD, NEW), bundle(OLD, now=NOW + WEEK))
    }
    assert len(marks) == 1
    assert mark_of(bundle(NEW, OLD)) not in marks
    assert mark_of(bare(SERVED)) == ""


def test_the_mark_is_the_signer_s_also_where_it_stands_last():
    files = SERVED.files
    after = msgspec.structs.replace(files, ca_crt=NEW.certificate + OLD.certificate)
    assert mark_of(parse_bundle(after)) == mark_of(SERVED)
