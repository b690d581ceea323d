"""Kubeconfigs of strangers: used as they are, or refused in one line (S37)."""

from __future__ import annotations

import base64
import copy
import json
import ssl
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
import trustme
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.kube.client import Client
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.kube.untrusted_kubeconfig import MAX_BYTES, access_from
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi
from helpers.properties import cases

SOURCE = "Secret team/one, key kubeconfig"
HIDDEN = "hidden-c2VjcmV0"
K3S = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJlRENDQVIyZ0F3SUJBZ0lCQURBS0JnZ3Foa2pPUFFRREFq"
    "QWpNU0V3SHdZRFZRUUREQmhyTTNNdGMyVnkKZG1WeUxXTmhRREUzTURZNE16VXhNVGN3SGhjTk1qUXdNakF5TURB"
    "MU1UVTNXaGNOTXpRd01UTXdNREExTVRVMwpXakFqTVNFd0h3WURWUVFEREJock0zTXRjMlZ5ZG1WeUxXTmhRREUz"
    "TURZNE16VXhNVGN3V1RBVEJnY3Foa2pPClBRSUJCZ2dxaGtqT1BRTUJCd05DQUFSTHJGS0NDVmhUek9mTGxuNTJ3"
    "OXNzTVhHMUZvOXlCM0ZnRDNMZEpSeTIKaUhsRHhVY0NtNU9Md1lWZVY4Z1orbkZ3emhhNC9yOVNHQUNQWkVjY2JS"
    "N3BvMEl3UURBT0JnTlZIUThCQWY4RQpCQU1DQXFRd0R3WURWUjBUQVFIL0JBVXdBd0VCL3pBZEJnTlZIUTRFRmdR"
    "VVNnc0IzSnFaREFtMGh2K3h6cEJDCmJxcVhXMFl3Q2dZSUtvWkl6ajBFQXdJRFNRQXdSZ0loQU9PVUFOeDFqQ3hk"
    "b203dmhqbG5saWQxRTYyQmdMN2kKbUY2dXA1SDZKZVVoQWlFQW5namdPRGx4MVEzYXBSZkVxbTlpeDNWakVkUEZR"
    "UXpJbTB5TkdtREYxa1k9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
)
"""The authority of a K3s cluster as K3s itself writes it into kubeconfigs."""
K3S_PIN = "sha256:ed9a28a20e91b6ae30b82379f4b8fe2f5dc4ea76b4d0373331f87f8b5a152c63"
"""The digest that openssl computes for it, as in kubeadm's documentation."""
HERE = "config-that-must-not-be-read"


# Each line is twice as much as the one before.
BOMB = "\n".join(
    ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))]
).encode()


def data(pem):
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="module")
def person(authority):
    ends = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    issued = authority.issue_cert("person@example.com", not_after=ends)
    return {
        "client-certificate-data": data(issued.cert_chain_pems[0].bytes()),
        "client-key-data": data(issued.private_key_pem.bytes()),
    }


def config(server="https://127.0.0.1:6443", user=None, **cluster):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user or {"token": HIDDEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "c",
    }


def read(content):
    return access_from(yaml.safe_dump(content).encode(), SOURCE)


def refusal(content):
    text = content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
    with pytest.raises(ConnectionSettingsError) as error:
        access_from(text, SOURCE)
    line = str(error.value)
    assert line.startswith(SOURCE)
    assert "\n" not in line
    assert HIDDEN not in line
    return line.removeprefix(f"{SOURCE}: ")


async def test_token_certificate_and_authority_are_used(authority, person):
    context = server_tls(authority)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with FakeApi(tls=context) as api:
        trust = {"certificate-authority-data": data(authority.cert_pem.bytes())}
        access = read(config(api.url, {"token": "mine", **person}, **trust))
        async with Client(access.connection) as client:
            await client.request("GET", "/version")
        assert api.requests[0].headers["Authorization"] == "Bearer mine"
    assert access.namespace == ""
    left = access.expires - datetime.now(UTC)
    assert timedelta(hours=23) < left < timedelta(hours=25)


def pin(authority):
    """The digest of the authority's public key, as kubeadm computes it."""
    key = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return f"sha256:{sha256(key.public_bytes(serialization.Encoding.DER, spki)).hexdigest()}"


def bundled(*pems):
    return config(**{"certificate-authority-data": data(b"".join(pems))})


def trusted_by(access):
    return len(access.connection.ssl.get_ca_certs())


def test_authorities_are_told_by_their_keys_and_only_trusted_where_asked(authority):
    second = trustme.CA()
    pems = [issuer.cert_pem.bytes() for issuer in (authority, second)]
    content = bundled(b"# a comment\n", *pems, pems[0], b"rest")
    access = read(content)
    assert access.authorities == tuple(sorted((pin(authority), pin(second))))
    assert trusted_by(access) == 2
    text = yaml.safe_dump(content).encode()
    assert trusted_by(access_from(text, SOURCE, (pin(second), "sha256:gone"))) == 1
    assert trusted_by(access_from(text, SOURCE, ("sha256:gone",))) == 2
    assert read(config()).authorities == ("system",)


def test_a_bundle_that_only_openssl_reads_counts_as_a_whole(authority):
    """So that an authority that one of two readers skips is never trusted unnoticed."""
    key = ec.generate_private_key(ec.SECP256R1())
    broken = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"broken")
    pem = authority.cert_pem.bytes() + self_signed(key, 1, broken)
    access = read(bundled(pem))
    assert access.authorities == (f"sha256:{sha256(pem).hexdigest()}",)


def test_an_authority_that_was_renewed_with_its_key_is_the_same():
    key = ec.generate_private_key(ec.SECP256R1())
    first, second = (read(bundled(self_signed(key, days))).authorities for days in (1, 2))
    assert first == second


def test_the_authority_of_k3s_is_read_without_a_warning():
    """The serial number is 0, which RFC 5280 forbids."""
    access = read(config(**{"certificate-authority-data": K3S}))
    assert access.authorities == (K3S_PIN,)


def self_signed(key, days, *extensions):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(days)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=days))
    for extension in (x509.BasicConstraints(True, None), *extensions):
        builder = builder.add_extension(extension, False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("https://A.example.com:443/", "https://a.example.com"),
        ("https://a.example.com/k8s/clusters/c-1/", "https://a.example.com/k8s/clusters/c-1"),
        ("https://a.example.com/x/../y", "https://a.example.com/y"),
    ],
)
def test_a_server_is_one_however_it_is_written(written, same):
    assert read(config(written)).connection.server == same


def test_the_namespace_of_the_context():
    content = config()
    content["contexts"][0]["context"]["namespace"] = "team"
    del content["current-context"]
    access = read(content)
    assert access.namespace == "team"
    assert access.connection.user == "me"
    assert access.expires is None


def test_a_token_says_when_it_ends():
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_800_000_000}).encode()).decode()
    access = read(config(user={"token": f"a.{claims.rstrip('=')}.c"}))
    assert access.expires == datetime.fromtimestamp(1_800_000_000, UTC)


def with_user(**user):
    return config(user={"token": HIDDEN, **user})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (with_user(exec={"command": "touch"}), "exec of its user plugins are not run"),
        (with_user(**{"auth-provider": {"name": "oidc"}}), "auth-provider of its user is refused"),
        (with_user(tokenFile=HERE), "tokenFile of its user names a file: give a token"),
        (with_user(**{"client-certificate": HERE}), "client-certificate of its user names a file"),
        (with_user(**{"client-key": HERE}), "client-key of its user names a file"),
        (with_user(username="a"), "username of its user and password are refused"),
        (with_user(password=HIDDEN), "password of its user and username are refused"),
        (with_user(**{"as": "admin"}), "as of its user is refused"),
        (with_user(**{"as-groups": ["system:masters"]}), "as-groups of its user is refused"),
        (
            config(**{"certificate-authority": HERE}),
            "certificate-authority of its cluster names a file",
        ),
        (
            config(**{"insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify of its cluster is refused",
        ),
        (config(**{"proxy-url": "http://x"}), "proxy-url of its cluster is refused"),
        (config("http://127.0.0.1:8080"), 'server "http://127.0.0.1:8080" is not like https://'),
        (config("https://me:you@x"), "is not like https://host:port"),
        (config("https://x/?a=b"), "is not like https://host:port"),
        (config(""), 'server "" is not like'),
        (config("https://[x"), "is not like https://host:port"),
        (
            config(**{"certificate-authority-data": "?"}),
            "certificate-authority-data is not valid base64",
        ),
        (config(**{"certificate-authority-data": "eA=="}), "has no certificates in PEM form"),
        (config(**{"certificate-authority-data": 7}), "certificate-authority-data is not text"),
        (config(user={"client-key-data": "eA=="}), "neither a token nor client-certificate-data"),
        (config(user={"client-certificate-data": "eA=="}), "do not match or are not PEM"),
        (config(user={"token": "a b"}), "token is not a token: it has spaces"),
    ],
)
@pytest.mark.claim("P5")
def test_what_reaches_beyond_its_text_is_refused(content, text):
    assert text in refusal(content).replace(f"{SOURCE}: ", "")


@pytest.mark.parametrize("kind", ["contexts", "clusters", "users"])
def test_there_is_exactly_one_of_each(kind):
    content = config()
    content[kind] = [*content[kind], copy.deepcopy(content[kind][0])]
    assert refusal(content) == f"has 2 {kind}, and must have exactly one"
    content[kind] = []
    assert refusal(content) == f"has 0 {kind}, and must have exactly one"
    content[kind] = "x"
    assert refusal(content) == f"has 0 {kind}, and must have exactly one"
    for strange in (1, {}, {"name": "x"}, {"name": 1, kind[:-1]: {}}, {"name": "x", kind[:-1]: 1}):
        content[kind] = [strange]
        assert "is invalid: expected" in refusal(content)


@pytest.mark.parametrize("field", ["cluster", "user"])
def test_the_context_names_what_is_there(field):
    content = config()
    content["contexts"][0]["context"][field] = "other"
    assert refusal(content) == f'its context names the {field} "other", which does not exist'


def test_the_current_context_is_the_one():
    text = 'its current-context is "x", which does not exist'
    assert refusal({**config(), "current-context": "x"}) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is empty"),
        (b"[]", "is empty"),
        (b"- a", "is invalid"),
        (b"hidden-c2VjcmV0", "is invalid"),
        (b"a: [hidden-c2VjcmV0", "is not valid YAML in line 1"),
        (b"\xff\xfe\x00", "is not valid YAML"),
        (b"a: !!python/object/apply:os.system [hidden-c2VjcmV0]", "is not valid YAML in line 1"),
        (BOMB, "has YAML aliases, which are not supported"),
        (b"[" * 5000, "is not valid YAML"),
        (b"a: !!bool x", "is not valid YAML"),
        (b"a: !!int ''", "is not valid YAML"),
        (b"a: " + b"1:" * 9000 + b"1.0", "is not valid YAML"),
        (b"#" * (MAX_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_no_kubeconfig(text, reason):
    if text == b"[]":
        reason = "is invalid"
    assert refusal(text).startswith(reason)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "user", "cluster", "server", "token"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=cases(300))
@given(st.sampled_from(["clusters", "users", "contexts", "current-context"]), values)
def test_whatever_stands_there_is_read_or_refused_in_a_line(field, value):
    line = SOURCE
    try:
        read({**config(), field: value})
    except ConnectionSettingsError as error:
        line = str(error)
    assert line.startswith(SOURCE)
    assert "\n" not in line
