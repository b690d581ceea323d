from __future__ import annotations

import stat

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from harbourmaster.playground.pki import CLIENTS, FRONT_PROXY, write_kubeconfig, write_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    write_pki(folder, "10.96.0.1")
    return folder


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def store(pki):
    return Store([load(pki / "ca.crt")])


def test_only_the_owner_reads_any_file(pki):
    assert {stat.S_IMODE(path.stat().st_mode) for path in pki.iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["localhost", "kubernetes.default.svc"])
def test_the_serving_certificate_is_good_for_its_names(pki, name):
    verifier = PolicyBuilder().store(store(pki)).build_server_verifier(x509.DNSName(name))
    assert len(verifier.verify(load(pki / "serving.crt"), [])) == 2


@pytest.mark.parametrize(("client", "subject"), CLIENTS.items())
def test_a_client_certificate_names_its_user_and_group(pki, client, subject):
    name = load(pki / f"{client}.crt").subject
    groups = [
        attribute.value for attribute in name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    user = name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    assert (user, groups) == (subject[0], [] if subject[1] is None else [subject[1]])


def test_every_key_is_of_p256(pki):
    keys = [load_pem_private_key(path.read_bytes(), None) for path in pki.glob("*.key")]
    assert all(isinstance(key.curve, ec.SECP256R1) for key in keys)
    assert len(keys) == len(CLIENTS) + 3


def test_the_authority_keeps_no_key(pki):
    assert not (pki / "ca.key").exists()


def test_the_aggregator_is_known_by_an_authority_that_signs_nothing_else(pki):
    proxy = load(pki / f"{FRONT_PROXY}.crt")
    assert proxy.subject.rfc4514_string() == f"CN={FRONT_PROXY}"
    proxy.verify_directly_issued_by(load(pki / "front-proxy-ca.crt"))
    issuers = {path.stem for path in pki.glob("*.crt") if load(path).issuer == proxy.issuer}
    assert issuers == {"front-proxy-ca", FRONT_PROXY}


def test_a_kubeconfig_needs_no_other_file(pki, tmp_path):
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:1", pki, "admin")
    config = yaml.safe_load(path.read_text())
    assert str(pki) not in path.read_text()
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
