"""Versions and ciphers of TLS, and the clients that are accepted."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import ensure
from helpers.certificates import strict_client, with_certificate
from helpers.raw_http import Echo, post

CALLER = "kube-apiserver"
REPORT = Path(__file__).parents[3] / "build" / "reports" / "tls-scan.txt"
VERSIONS = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}


@pytest.fixture(scope="session")
def callers():
    """The authority that signs clients."""
    return trustme.CA()


@pytest.fixture
def echo():
    return Echo(client=CALLER)


@pytest.fixture
async def guarded_site(serve, echo, bundle, callers):
    """A site that wants a certificate of ``callers`` with the name CALLER."""
    options = TlsOptions(client_ca=callers.cert_pem.bytes())
    return await serve(echo, tls=CertificateHolder(bundle, options).context, linger=0.05)


@pytest.fixture
def caller(trusting, tmp_path):
    """Make a client: ``caller(authority, name)``."""

    def make(authority, name=CALLER, *, context=trusting, **options):
        issued = authority.issue_cert("client.example", common_name=name, **options)
        return with_certificate(context, issued.private_key_and_cert_chain_pem.bytes(), tmp_path)

    return make


async def handshake_fails(connect, site, context, echo):
    """Whether the server turns the client away before it hears a request."""
    try:
        wire = await connect(site, context)
        wire.send(post())
        answer = await wire.rest()
    except (ssl.SSLError, ConnectionError):
        answer = b""
    return answer == b"" and not echo.begun.is_set()


@pytest.mark.claim("W1")
async def test_s1_a_client_without_a_certificate_is_turned_away(
    connect, guarded_site, trusting, echo
):
    assert await handshake_fails(connect, guarded_site, trusting, echo)


async def test_s1_a_client_of_another_authority_is_turned_away(connect, guarded_site, caller, echo):
    stranger = caller(trustme.CA())
    assert await handshake_fails(connect, guarded_site, stranger, echo)


async def test_s1_a_client_with_an_expired_certificate_is_turned_away(
    connect, guarded_site, caller, echo, callers
):
    past = datetime.now(UTC) - timedelta(days=1)
    expired = caller(callers, not_after=past)
    assert await handshake_fails(connect, guarded_site, expired, echo)


@pytest.mark.parametrize("maximum", ["1.2", "1.3"])
async def test_s1_the_right_client_is_served(
    connect, guarded_site, trusting, caller, callers, maximum
):
    trusting.maximum_version = VERSIONS[maximum]
    wire = await connect(guarded_site, caller(callers))
    assert [(await wire.ask(post())).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("name", ["system:anonymous", CALLER + "2", CALLER.upper()])
@pytest.mark.claim("W1")
async def test_s1_a_client_with_another_name_is_refused_with_its_body_unread(
    connect, guarded_site, caller, callers, echo, name
):
    wire = await connect(guarded_site, caller(callers, name))
    answer = await wire.ask(post(b"", length=100))
    assert answer.status == 403
    assert answer.headers["connection"] == "close"
    assert not echo.bodies


async def test_s1_a_client_without_a_name_is_refused(connect, guarded_site, caller, callers):
    wire = await connect(guarded_site, caller(callers, None))
    assert (await wire.ask(post())).status == 403


async def test_s1_a_plain_connection_has_no_name(serve, connect, echo):
    wire = await connect(await serve(echo))
    assert (await wire.ask(post())).status == 403


async def test_s1_a_reload_still_asks_for_the_client_s_certificate(
    serve, connect, bundle, callers, caller, tmp_path
):
    echo = Echo(client=CALLER)
    holder = CertificateHolder(bundle, TlsOptions(client_ca=callers.cert_pem.bytes()))
    site = await serve(echo, tls=holder.context)
    renewed = ensure(tmp_path / "new", ("localhost",), datetime.now(UTC))
    assert holder.offer(renewed)
    client = strict_client(renewed.files.ca_crt)
    assert await handshake_fails(connect, site, client, echo)
    wire = await connect(site, caller(callers, context=client))
    assert (await wire.ask(post())).status == 200


def offering(bundle, version, cipher="ALL:@SECLEVEL=0"):
    """A client that speaks one version, with old algorithms too."""
    context = strict_client(bundle.files.ca_crt)
    context.set_ciphers(cipher)
    with warnings.catch_warnings():
        # The scan is about obsolete versions.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


async def agree_on_cipher(connect, site, context):
    """The cipher that both sides agree on, or None."""
    try:
        wire = await connect(site, context)
    except (ssl.SSLError, ConnectionError):
        return None
    return wire.writer.get_extra_info("cipher")[0]


@pytest.mark.parametrize(
    ("minimum", "spoken"), [("1.2", ["1.2", "1.3"]), ("1.3", ["1.3"])], ids=["1.2", "1.3"]
)
@pytest.mark.claim("W2")
async def test_s2_versions_under_the_minimum_are_refused(serve, connect, bundle, minimum, spoken):
    holder = CertificateHolder(bundle, TlsOptions(minimum_version=minimum))
    site = await serve(tls=holder.context)
    clients = {version: offering(bundle, version) for version in VERSIONS}
    answered = [v for v, client in clients.items() if await agree_on_cipher(connect, site, client)]
    assert answered == spoken


@pytest.mark.claim("W2")
async def test_s2_the_scan_finds_only_ephemeral_keys_and_authenticated_ciphers(
    serve, connect, bundle, holder
):
    site = await serve(tls=holder.context)
    table = [
        ("1.3", cipher)
        for cipher in [await agree_on_cipher(connect, site, offering(bundle, "1.3"))]
    ]
    for cipher in offering(bundle, "1.2").get_ciphers():
        if cipher["protocol"] != "TLSv1.3":
            client = offering(bundle, "1.2", f"{cipher['name']}:@SECLEVEL=0")
            table.append(
                ("1.2", await agree_on_cipher(connect, site, client) or f"no {cipher['name']}")
            )
    refused = [
        (version, "refused")
        for version in ("1.0", "1.1")
        if await agree_on_cipher(connect, site, offering(bundle, version)) is None
    ]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"TLS {version}  {result}\n" for version, result in sorted(refused + table)]
    REPORT.write_text("".join(lines))
    accepted = {name for version, name in table if version == "1.2" and not name.startswith("no ")}
    assert accepted == {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    }
    assert len(refused) == 2


@pytest.mark.claim("W2")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_s2_a_session_that_is_offered_again_is_not_resumed(serve, bundle, holder, version):
    site = await serve(tls=holder.context)
    context = strict_client(bundle.files.ca_crt)
    context.minimum_version = context.maximum_version = version

    def handshake(session):
        raw = socket.create_connection((site.host, site.port))
        options = {"server_hostname": "localhost", "session": session}
        with context.wrap_socket(raw, **options) as connection:
            connection.sendall(post())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            # OpenSSL forgets a session that does not end in order.
            session, is_resumed = connection.session, connection.session_reused
            with suppress(OSError):
                connection.unwrap()
            return session, is_resumed

    session, _ = await asyncio.to_thread(handshake, None)
    _, is_resumed = await asyncio.to_thread(handshake, session)
    assert not is_resumed


async def test_s2_nothing_is_compressed_and_no_session_is_resumed(serve, connect, bundle, holder):
    site = await serve(tls=holder.context)
    wire = await connect(site, strict_client(bundle.files.ca_crt))
    await wire.ask(post())
    connection = wire.writer.get_extra_info("ssl_object")
    assert connection.compression() is None
    assert not connection.session_reused
    assert not connection.session.has_ticket


async def test_s3_a_swap_under_load_fails_no_handshake(serve, connect, bundle, tmp_path):
    renewed = ensure(tmp_path, ("localhost",), datetime.now(UTC))
    holder = CertificateHolder(bundle)
    site = await serve(tls=holder.context)
    client = strict_client(bundle.files.ca_crt)
    client.load_verify_locations(cadata=renewed.files.ca_crt.decode())

    async def assert_answered():
        for _ in range(15):
            wire = await connect(site, client)
            assert (await wire.ask(post())).status == 200
            wire.abort()

    async def swap():
        for served in (renewed, bundle) * 10:
            holder.offer(served)
            await asyncio.sleep(0)

    await asyncio.gather(swap(), *(assert_answered() for _ in range(4)))
