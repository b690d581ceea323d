"""Tests of computed versions, with the vectors of keptn-spec 2.5."""

from __future__ import annotations

import pytest

from harbourmaster.gates.version import (
    Container,
    EnvVar,
    fnv1a,
    image_version,
    is_tag_of,
    version_of,
)

NGINX = Container("nginx", "nginx:1.25")
DIGEST = "sha256:4c1c50d0ffc614f90b93b07d778028dc765548e823f676fb027f61d281ac380d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ciaopeppetest12", 1253120182),
        ("busyboxbusybox", 1105821909),
        ("", 0x811C9DC5),
    ],
)
def test_the_hash_is_fnv_1a_of_32_bits(text, expected):
    assert fnv1a(text) == expected
    assert fnv1a(text) == expected


@pytest.mark.parametrize("text", ["a" * 16_384, "a", "ü" * 16_384])
def test_a_further_byte_goes_into_the_hash_however_long_the_text(text):
    assert fnv1a(f"{text}b") == (fnv1a(text) ^ ord("b")) * 0x01000193 % 2**32


def test_the_bytes_of_utf_8_are_hashed():
    assert fnv1a("ü") == ((((0x811C9DC5 ^ 0xC3) * 0x01000193) ^ 0xBC) * 0x01000193) % 2**32


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ((Container("busybox", "busybox"),), "1105821909"),
        ((NGINX,), "930232967"),
        (
            (Container("a", "img:1", (EnvVar("K", "V"),)), Container("b", "img:2")),
            "3782378110",
        ),
    ],
)
def test_c06_c08_without_a_container_to_look_at_the_version_is_a_hash(containers, expected):
    assert version_of(containers).text == expected


def test_a_variable_from_elsewhere_counts_by_its_name():
    version = version_of([Container("a", "b", (EnvVar("K"),))])
    assert version == version_of([Container("a", "b", (EnvVar("K", ""),))])
    assert version != version_of([Container("a", "b")])


def test_c07_a_named_container_gives_its_tag():
    assert version_of([NGINX, Container("busybox", "busybox:1.36")], "busybox").text == "1.36"


@pytest.mark.parametrize("image", ["busybox", "busybox:latest", "busybox:", None])
def test_c08_without_a_tag_worth_the_name_it_is_a_hash_of_all(image):
    containers = [Container("busybox", image)]
    version = version_of(containers, "busybox")
    assert version.text == version_of(containers).text
    assert not version.misses_container


def test_c09_c10_a_container_that_is_not_there_is_told_and_the_version_is_a_hash():
    version = version_of([NGINX], "nope")
    assert version.text == "930232967"
    assert version.misses_container


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx:1.25", "1.25"),
        ("registry.example.com:5000/img", ""),
        ("registry.example.com:5000/img:2", "2"),
        ("registry.example.com:5000/a/b/img:v1-rc.2", "v1-rc.2"),
        (f"img@{DIGEST}", "4c1c50d0ffc6"),
        (f"img:3@{DIGEST}", "3-4c1c50d0ffc6"),
        (f"registry.example.com:5000/img:main@{DIGEST}", "main-4c1c50d0ffc6"),
        (f"img:latest@{DIGEST}", "4c1c50d0ffc6"),
        (f"registry.example.com:5000/img@{DIGEST}", "4c1c50d0ffc6"),
        ("img@sha256:abc", "abc"),
        ("img:latest", ""),
        ("img", ""),
        ("", ""),
    ],
)
def test_image_references_are_read_with_ports_and_digests(image, expected):
    assert image_version(image) == expected


def test_another_digest_under_the_same_tag_is_another_version():
    images = [f"registry.example.com/cart:main@sha256:{digit * 64}" for digit in "ab"]
    versions = {version_of([Container("main", image)], "main").text for image in images}
    assert versions == {"main-aaaaaaaaaaaa", "main-bbbbbbbbbbbb"}


def test_c06_the_documented_way_takes_the_tag_of_an_only_container():
    assert version_of([NGINX], from_tag=True).text == "1.25"


def test_the_documented_way_hashes_where_there_are_two_containers_or_no_tag():
    two = [NGINX, Container("b", "img:2")]
    assert version_of(two, from_tag=True) == version_of(two)
    untagged = [Container("busybox", "busybox")]
    assert version_of(untagged, from_tag=True).text == "1105821909"
    # A container that is named goes before.
    assert version_of([NGINX], "nope", from_tag=True).text == "930232967"


@pytest.mark.parametrize(
    ("tag", "version", "is_tag"),
    [
        ("main", "main-1a2b3c4d5e6f", True),
        ("1.0-rc1", "1.0-rc1-1a2b3c4d5e6f", True),
        ("main", "main", False),
        ("main", "main-2", False),
        ("main", "main-release-day", False),
        ("main", "other-1a2b3c4d5e6f", False),
        ("1a2b3c4d5e6f", "1a2b3c4d5e6f", False),
        ("", "1a2b3c4d5e6f", False),
        ("", "-1a2b3c4d5e6f", True),
    ],
)
def test_a_tag_alone_is_not_the_version_of_an_image_with_a_digest(tag, version, is_tag):
    assert is_tag_of(tag, version) == is_tag


def test_the_tag_of_an_image_is_the_tag_of_its_version():
    image = "registry.example.com:5000/cart:main@sha256:1A2B3C4D5E6F00".lower()
    assert is_tag_of("main", image_version(image))
