"""The server listens on the addresses of both families, and names them as URLs do."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from pathlib import Path

import pytest

from helpers.objects import cluster_policy
from helpers.patience import PATIENCE
from helpers.server import Server

REVIEW = Path(__file__).parents[1] / "fixtures/reviews/bare.json"


def families():
    """The addresses of this machine by which it reaches itself."""
    hosts = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as trial:
                trial.bind((host, 0))
        except OSError:
            continue
        hosts.append(host)
    return hosts


def test_all_addresses_serve_reviews_and_health(tmp_path):
    with Server(tmp_path, "--host=::", policies=[cluster_policy("one")]) as server:
        context = ssl.create_default_context(cadata=server.bundle.decode())
        hosts = families()
        assert "127.0.0.1" in hosts
        for host in hosts:
            name = f"[{host}]" if ":" in host else host
            health = f"http://{name}:{server.first['health'].rpartition(':')[2]}/readyz"
            with urllib.request.urlopen(health, timeout=PATIENCE) as answer:
                assert answer.read() == b"ok\n"
            reviews = f"https://{name}:{server.url.rpartition(':')[2]}/mutate"
            request = urllib.request.Request(
                reviews, REVIEW.read_bytes(), {"Content-Type": "application/json"}
            )
            asked = urllib.request.urlopen(request, timeout=PATIENCE, context=context)  # noqa: S310
            with asked as answer:
                assert json.load(answer)["response"]["allowed"]


@pytest.mark.parametrize("host", families()[-1:])
def test_an_example_is_sent_to_the_address_that_is_listened_on(tmp_path, capfd, host):
    options = (f"--host={host}", f"--try={REVIEW}")
    with Server(tmp_path, *options, policies=[cluster_policy("one")]) as server:
        server.stop()
        port = server.url.rpartition(":")[2]
    name = "[::1]" if host == "::1" else "localhost"
    assert f"https://{name}:{port}/mutate" in capfd.readouterr().out
