"""The version of an API server, whatever its provider calls it."""

from __future__ import annotations

import json

import pytest

from harbourmaster.kube.errors import ApiError, BadAnswerError
from harbourmaster.kube.server_version import ServerVersion, parse_version, server_version


def info(major="", minor="", **more):
    return json.dumps({"major": major, "minor": minor, "platform": "linux/amd64", **more}).encode()


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (info("1", "24"), (1, 24)),
        (info("1", "26+"), (1, 26)),
        (info("1", "27"), (1, 27)),
        (info("1", "36+", gitVersion="v1.36.3-eks-1"), (1, 36)),
        (info("1", "30-gke.100"), (1, 30)),
        (info("2", "0"), (2, 0)),
        (info("1", "27+", gitVersion="v1.27.16-eks-a5df82a"), (1, 27)),
        (info("1.27+", "", gitVersion="v1.30.2-eks-abc"), (1, 30)),
        (info(gitVersion="1.30.2"), (1, 30)),
        (info(gitVersion="v1.27.3-gke.100"), (1, 27)),
        (info("1", "", gitVersion="v1.26.15+k3s1"), (1, 26)),
        (b'{"major": "1", "minor": "28", "future": [1]}', (1, 28)),
    ],
)
def test_what_providers_write_is_read(body, version):
    assert parse_version(body) == ServerVersion(*version)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        info(),
        info("one", "27"),
        info("1", "x27"),
        info("1", "27777777777777777"),
        info("1", "\u0663\u0666"),
        info(gitVersion="v0$Format:%H$"),
        # Builds without a version look older than gates.
        info(gitVersion="v0.0.0-master+$Format:%H$"),
        info("", "27+"),
        info("1", "", gitVersion="latest"),
        b'{"major": 1, "minor": 27}',
        b"[" * 5000,
    ],
)
def test_what_is_no_version_is_an_error_of_one_line(body):
    with pytest.raises(ValueError, match=r"^no version: ") as raised:
        parse_version(body)
    assert "\n" not in str(raised.value)


def test_versions_are_compared_as_numbers():
    assert ServerVersion(1, 9) < ServerVersion(1, 27) < ServerVersion(1, 100) < ServerVersion(2, 0)
    assert str(ServerVersion(1, 27)) == "1.27"


async def test_the_api_server_is_asked_once(api, client):
    assert await server_version(client) == ServerVersion(1, 36)
    assert len(api.seen("GET", "^/version$")) == 1


@pytest.mark.parametrize("fault", [{"status": 403}, {"kind": "html"}, {"kind": "reset"}])
async def test_a_refusal_is_an_api_error(api, client, fault):
    api.fail_next("GET", "^/version$", None, **fault)
    with pytest.raises(ApiError):
        await server_version(client)


async def test_an_answer_that_names_no_version_is_a_bad_one(api, client):
    api.fail_next("GET", "^/version$", None, status=200, body=info("x", "y"))
    with pytest.raises(BadAnswerError, match="get /version: 200: no version"):
        await server_version(client)
