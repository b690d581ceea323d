"""Certificates change between handshakes, and never break one (platform-spec 5.3)."""

from __future__ import annotations

import gc
import ssl
import weakref
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.certs.errors import UnreadableError
from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import ensure
from helpers.certificates import shake_hands, strict_client

NOW = datetime.now(UTC)


@pytest.fixture
def first(tmp_path):
    return ensure(tmp_path, ("localhost",), NOW)


@pytest.fixture
def second(tmp_path, first):
    return ensure(tmp_path, ("localhost", "new.svc"), NOW)


def presented_certificate(holder, name="localhost"):
    client = strict_client(holder.bundle.files.ca_crt)
    client.check_hostname = name is not None
    return shake_hands(holder.context, client, name).getpeercert(binary_form=True)


@pytest.mark.parametrize("name", ["localhost", None])
def test_the_current_leaf_is_presented_with_and_without_a_server_name(first, name):
    assert presented_certificate(CertificateHolder(first), name) == first.serving_der


def test_an_offered_pair_is_presented_from_the_next_handshake_on(first, second):
    holder = CertificateHolder(first)
    context = holder.context
    assert holder.offer(second)
    assert presented_certificate(holder) == second.serving_der
    assert holder.context is context


def test_the_same_pair_is_not_loaded_again(first):
    holder = CertificateHolder(first)
    current = holder._current
    assert not holder.offer(first)
    assert holder._current is current


def test_s3_a_pair_that_openssl_refuses_leaves_the_present_one(first, second):
    holder = CertificateHolder(first)
    files = msgspec.structs.replace(second.files, tls_key=first.files.tls_key)
    with pytest.raises(UnreadableError, match="OpenSSL rejects"):
        holder.offer(msgspec.structs.replace(second, files=files))
    assert presented_certificate(holder) == first.serving_der


def test_an_open_connection_survives_the_swap(first, second):
    holder = CertificateHolder(first)
    client = shake_hands(holder.context, strict_client(first.files.ca_crt), "localhost")
    holder.offer(second)
    assert client.write(b"still here") == 10


def test_contexts_of_before_are_freed(first, second):
    holder = CertificateHolder(first)
    replaced = []
    for bundle in (second, first):
        replaced.append(weakref.ref(holder._current))
        holder.offer(bundle)
        presented_certificate(holder)
    gc.collect()
    assert [reference() for reference in replaced] == [None, None]


def test_a_client_authority_without_a_certificate_is_an_error(first):
    with pytest.raises(UnreadableError, match="client authority"):
        CertificateHolder(first, TlsOptions(client_ca=b"no certificate"))


def test_s2_there_is_no_compression_no_renegotiation_and_no_ticket(first):
    holder = CertificateHolder(first)
    wanted = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    for context in (holder._create_base(), holder._current):
        assert context.options & wanted == wanted
        assert context.num_tickets == 0


def test_only_http_1_is_agreed_on(first):
    holder = CertificateHolder(first)
    client = strict_client(first.files.ca_crt)
    client.set_alpn_protocols(["h2", "http/1.1"])
    done = shake_hands(holder.context, client, "localhost")
    assert done.selected_alpn_protocol() == "http/1.1"
