"""S3 on a real server: the keys do not leave their files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.certs.store import ensure
from helpers.certificates import strict_client
from helpers.objects import body, cluster_policy, workload
from helpers.raw_http import Connection, post
from helpers.server import WatchedServer

POLICY = cluster_policy(nodeSelector={"disk": "ssd"})
KEYS = ("tls.key", "ca.key")
PIECE = 16
"""Characters of base64 that no text has in common with a key by chance."""


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A server at the lowest log level."""
    options = ("--log-level=debug",)
    with WatchedServer(tmp_path_factory.mktemp("busy"), POLICY, options=options) as server:
        yield server


REQUESTS = (
    post(body(workload()), path="/mutate"),
    post(b"nonsense", path="/mutate"),
    post(b"{}", path="/../certificates/tls.key"),
    post(b"{}", "Content-Type: text/plain", path="/mutate"),
    b"GET /tls.key HTTP/1.1\r\nHost: x\r\n\r\n",
    b"garbage\r\n\r\n",
)


def pieces(certificates):
    """Return the texts that reveal a key."""
    revealing = {"PRIVATE KEY"}
    for name in KEYS:
        lines = (certificates / name).read_text().splitlines()
        text = "".join(line for line in lines if not line.startswith("-"))
        revealing |= {text[at : at + PIECE] for at in range(len(text) - PIECE + 1)}
    return revealing


def holds_none(text, secrets):
    return not [secret for secret in secrets if secret in text]


def test_s3_the_keys_can_be_read_by_their_owner_only(busy):
    for name in KEYS:
        assert (busy.certificates / name).stat().st_mode & 0o777 == 0o400
    assert busy.certificates.stat().st_mode & 0o777 == 0o700


def test_s3_the_process_leaves_no_core_dump(busy):
    (line,) = [line for line in busy.proc("limits").splitlines() if "core file" in line]
    assert line.split()[4:6] == ["0", "0"]


def test_s3_no_key_is_in_the_environment_nor_in_the_arguments(busy):
    secrets = pieces(busy.certificates)
    assert len(secrets) > 200
    assert holds_none(busy.proc("environ"), secrets)
    assert holds_none(busy.proc("cmdline"), secrets)


@pytest.mark.claim("P2")
async def test_s3_no_key_is_in_what_a_whole_run_logs_counts_or_answers(tmp_path):
    certificates = tmp_path / "certificates"
    ensure(certificates, ("localhost",), datetime.now(UTC))
    key = certificates / "tls.key"
    secrets = pieces(certificates)
    text = (certificates / "ca.key").read_text()
    # Without the authority's key, the certificates are foreign, and never renewed.
    (certificates / "ca.key").unlink()
    with WatchedServer(tmp_path, POLICY, options=("--log-level=debug",)) as server:
        trusting = strict_client(server.bundle)
        said = [str(await server.ask(request, trusting)) for request in REQUESTS]
        wire = await Connection.open(server)
        wire.send(REQUESTS[0])
        said.append(str(await wire.rest()))
        await wire.drop()
        # A key that is none, and one that does not fit: both are told in the log.
        for broken in ("half a key", text):
            draft = key.with_name("draft")
            draft.write_text(broken)
            draft.rename(key)
            server.await_event("certificates not reloaded, serving the previous ones")
            assert (await server.ask(REQUESTS[0], trusting)).status == 200
        said += [server.get(path) for path in ("/metrics", "/readyz", "/healthz")]
        server.terminate()
        server.await_event("stopped")
    assert holds_none("\n".join(said), secrets)
    assert len(server.lines) >= 5
    assert holds_none("".join(server.lines), secrets)
