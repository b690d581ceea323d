"""A certificate directory between runs."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from harbourmaster.certs.bundle import parse_certificates, permitted_names
from harbourmaster.certs.directory import is_foreign, read_files, write_files
from harbourmaster.certs.errors import (
    KeyMismatchError,
    MissingNamesError,
    UnreadableError,
    ValidityError,
)
from harbourmaster.certs.store import ensure, load
from helpers.certificates import accepts, foreign_authority, pem, rsa_key

NOW = datetime.now(UTC)
NAMES = ("localhost", "127.0.0.1")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def put_foreign(directory, name="hm.svc", authority=None, **options):
    issued = (authority or trustme.CA()).issue_cert(name, **options)
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(b"".join(b.bytes() for b in issued.cert_chain_pems))
    (directory / "tls.key").write_bytes(issued.private_key_pem.bytes())


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_an_absent_directory_is_made_with_all_four_files(tmp_path):
    bundle = ensure(tmp_path / "a" / "b", NAMES, NOW)
    assert sorted(contents(tmp_path / "a" / "b")) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert bundle.names == set(NAMES)


def test_s3_keys_and_directory_are_for_our_eyes_only(tmp_path):
    ensure(tmp_path / "certs", NAMES, NOW)
    assert mode(tmp_path / "certs") == 0o700
    assert mode(tmp_path / "certs" / "tls.key") == 0o400
    assert mode(tmp_path / "certs" / "ca.key") == 0o400


def test_s3_a_key_replaced_is_for_our_eyes_only_too(tmp_path):
    ensure(tmp_path, NAMES, NOW)
    ensure(tmp_path, ("other.svc",), NOW)
    assert mode(tmp_path / "tls.key") == 0o400


@pytest.mark.claim("W12")
def test_an_authority_is_limited_to_the_names_and_replaced_for_another(tmp_path):
    first = ensure(tmp_path, NAMES, NOW)
    (authority,) = parse_certificates(first.files.ca_crt, "ca.crt")
    assert permitted_names(authority) == set(NAMES)
    assert ensure(tmp_path, NAMES[:1], NOW).files.ca_crt == first.files.ca_crt
    more = ensure(tmp_path, (*NAMES, "hm.svc"), NOW)
    assert more.files.ca_crt != first.files.ca_crt
    assert accepts(more.files.ca_crt, more.files.tls_crt, "hm.svc", NOW)


def test_certificates_are_kept_between_runs(tmp_path):
    first = ensure(tmp_path, NAMES, NOW)
    assert ensure(tmp_path, NAMES, NOW + timedelta(days=1)) == first


def test_no_temporary_files_are_left(tmp_path):
    ensure(tmp_path, NAMES, NOW)
    ensure(tmp_path, ("other.svc",), NOW)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_failed_write_leaves_the_files_as_they_were(tmp_path, monkeypatch):
    ensure(tmp_path, NAMES, NOW)
    before = contents(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(UnreadableError, match="can't be written: disk full"):
        ensure(tmp_path, ("other.svc",), NOW)
    assert contents(tmp_path) == before


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableError) as caught:
        ensure(tmp_path / "file" / "certs", NAMES, NOW)
    assert str(tmp_path / "file") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_foreign_pair_is_only_read(tmp_path):
    put_foreign(tmp_path)
    before = contents(tmp_path)
    bundle = ensure(tmp_path, NAMES, NOW)
    assert bundle.names == {"hm.svc"}
    assert is_foreign(bundle.files)
    assert contents(tmp_path) == before


def test_a_broken_foreign_pair_is_an_error_and_not_overwritten(tmp_path):
    put_foreign(tmp_path)
    (tmp_path / "tls.key").write_bytes(trustme.CA().issue_cert("a").private_key_pem.bytes())
    before = contents(tmp_path)
    with pytest.raises(KeyMismatchError, match=f"^{tmp_path}: tls.key is not the key of tls.crt$"):
        ensure(tmp_path, NAMES, NOW)
    assert contents(tmp_path) == before


def test_an_expired_foreign_pair_is_an_error(tmp_path):
    put_foreign(tmp_path, not_after=NOW - timedelta(hours=1))
    with pytest.raises(ValidityError, match=r"tls\.crt expired at"):
        ensure(tmp_path, NAMES, NOW)


def test_loading_never_makes_anything(tmp_path):
    with pytest.raises(UnreadableError, match=r"tls\.crt is missing"):
        load(tmp_path, NOW)
    assert not list(tmp_path.iterdir())


def test_a_mounted_secret_is_read_from_one_generation(tmp_path, monkeypatch):
    authority = trustme.CA()
    for generation in ("..1", "..2"):
        put_foreign(tmp_path / generation, generation.strip(".") + ".svc", authority)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    first_read = type(tmp_path).open

    def swap_after_first_read(path, *args):
        file = first_read(path, *args)
        if path.name == "tls.crt":
            (tmp_path / "..new").symlink_to("..2")
            (tmp_path / "..new").rename(tmp_path / "..data")
        return file

    monkeypatch.setattr(type(tmp_path), "open", swap_after_first_read)
    assert load(tmp_path, NOW).names == {"1.svc"}
    monkeypatch.undo()
    assert load(tmp_path, NOW).names == {"2.svc"}


def test_links_in_a_circle_are_a_missing_file(tmp_path):
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "..1").symlink_to("..data")
    with pytest.raises(UnreadableError, match=r"tls\.crt is missing"):
        load(tmp_path, NOW)


def test_a_file_far_too_large_is_not_read_on(tmp_path):
    (tmp_path / "tls.crt").write_bytes(bytes(2 * 1024 * 1024))
    with pytest.raises(UnreadableError, match="expected a certificate"):
        read_files(tmp_path)


def test_missing_files_are_not_written(tmp_path):
    write_files(tmp_path, read_files(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_invalid_name_is_an_error(tmp_path):
    with pytest.raises(MissingNamesError, match=r'^"höst" is not a valid DNS name'):
        ensure(tmp_path, ("höst",), NOW)


def put_authority(directory, authority, key):
    (directory / "ca.crt").write_bytes(pem(authority))
    (directory / "ca.key").write_bytes(pem(key))


def test_an_rsa_authority_issues_too(tmp_path):
    authority = foreign_authority(NOW, rsa_key(), lifetime=timedelta(days=365))
    put_authority(tmp_path, *authority)
    ensure(tmp_path, NAMES, NOW)
    files = contents(tmp_path)
    assert accepts(files["ca.crt"], files["tls.crt"], "localhost", NOW)


def test_an_authority_with_a_weak_key_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("harbourmaster.certs.authority._MIN_RSA_BITS", 4096)
    put_authority(tmp_path, *foreign_authority(NOW, rsa_key(), lifetime=timedelta(days=365)))
    with pytest.raises(UnreadableError, match=r"ca\.key is neither ECDSA nor RSA of 4096 bits;"):
        ensure(tmp_path, NAMES, NOW)
