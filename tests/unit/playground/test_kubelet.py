"""The volumes that the local kubelet mounts, and how their files change."""

from __future__ import annotations

import base64
import json
import queue
import stat
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from harbourmaster.playground import kubelet
from harbourmaster.playground.kubelet import (
    Duties,
    Kubelet,
    SecretVolume,
    TokenVolume,
    is_mounted,
    publish,
    refresh_in,
    write_duties,
)
from helpers.patience import PATIENCE

KEYS = ["tls.crt", "tls.key"]


class ApiServer(ThreadingHTTPServer):
    """Issues tokens numbered from 1 and streams what is put into ``events``; None ends a watch."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.life = 3600.0
        self.refusals = 0
        self.requests = []
        self.events = queue.SimpleQueue()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body))
        if self.server.refusals:
            self.server.refusals -= 1
            self.answer(500, {"message": "no"})
            return
        expires = datetime.now(UTC) + timedelta(seconds=self.server.life)
        status = {
            "token": f"token-{len(self.server.requests)}",
            "expirationTimestamp": expires.isoformat(),
        }
        self.answer(201, {"status": status})

    def do_GET(self):
        self.server.requests.append((self.path, None))
        self.send_response(200)
        self.end_headers()
        while (event := self.server.events.get()) is not None:
            self.wfile.write(json.dumps(event).encode() + b"\n")

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ApiServer() as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.events.put(None)
        http.shutdown()
        thread.join()


@pytest.fixture
def pki(tmp_path):
    folder = tmp_path / "pki"
    folder.mkdir()
    (folder / "ca.crt").write_text("authority")
    return folder


@pytest.fixture
def keep(server, pki, plain, monkeypatch):
    """Keep a volume in the background; return the queue of what is said."""
    monkeypatch.setattr(kubelet, "PAUSE_SECONDS", 0.01)
    stop, threads = threading.Event(), []

    def start(volume):
        said = queue.SimpleQueue()
        duties = Duties(server.server_port, str(pki), [volume])
        keeper = Kubelet(duties, None, stop=stop, say=said.put)
        threads.extend(keeper.start())
        return said

    yield start
    stop.set()
    # One ends one watch, also a watch that the keeper has given up and the server has not.
    for _ in range(len(server.requests) + len(threads)):
        server.events.put(None)
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def token(tmp_path):
    return TokenVolume(str(tmp_path / "token"), "harbour", "pilot")


@pytest.fixture
def secret(tmp_path):
    return SecretVolume(str(tmp_path / "secret"), "harbour", "certificate", KEYS)


def event(type_, **data):
    encoded = {
        key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()
    }
    return {"type": type_, "object": {"kind": "Secret", "data": encoded}}


def files(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name[:2] != ".."}


def test_a_token_is_mounted_as_in_a_pod(keep, token, server, tmp_path):
    assert "token of pilot until " in keep(token).get(timeout=PATIENCE)
    assert files(tmp_path / "token") == {
        "token": "token-1",
        "ca.crt": "authority",
        "namespace": "harbour",
    }
    ((path, body),) = server.requests
    assert path == "/api/v1/namespaces/harbour/serviceaccounts/pilot/token"
    assert body["spec"] == {"expirationSeconds": 3600}


def test_the_next_token_is_due_after_four_fifths_of_a_life():
    now = datetime.now(UTC)
    assert refresh_in(now + timedelta(hours=1), now) == pytest.approx(48 * 60)


def test_a_token_is_renewed_when_it_is_due(keep, token, server, tmp_path):
    server.life = 0.1
    said = keep(token)
    for _ in range(3):
        said.get(timeout=PATIENCE)
    mounted = files(tmp_path / "token")["token"]
    assert int(mounted.removeprefix("token-")) >= 3


def test_a_refused_token_is_said_once_and_asked_for_again(keep, token, server):
    server.refusals = 3
    said = keep(token)
    assert "500" in said.get(timeout=PATIENCE)
    assert "token of pilot until " in said.get(timeout=PATIENCE)
    assert len(server.requests) == 4


def test_a_secret_is_mirrored_when_it_changes(keep, secret, server, tmp_path):
    said = keep(secret)
    server.events.put(event("ADDED", tls_crt=b"1", tls_key=b"1", ca_key=b"secret"))
    assert said.get(timeout=PATIENCE).endswith("new content of certificate")
    assert files(tmp_path / "secret") == {"tls.crt": "1", "tls.key": "1"}
    server.events.put(event("MODIFIED", tls_crt=b"2", tls_key=b"2"))
    said.get(timeout=PATIENCE)
    assert files(tmp_path / "secret") == {"tls.crt": "2", "tls.key": "2"}
    assert server.requests[0][0] == (
        "/api/v1/namespaces/harbour/secrets?watch=true&timeoutSeconds=300"
        "&fieldSelector=metadata.name%3Dcertificate"
    )


def test_a_secret_without_a_key_leaves_what_is_mounted(keep, secret, server, tmp_path):
    publish(tmp_path / "secret", {"tls.crt": b"1", "tls.key": b"1"})
    said = keep(secret)
    server.events.put(event("ADDED", tls_crt=b"2"))
    assert said.get(timeout=PATIENCE).endswith("certificate has no tls.key")
    assert files(tmp_path / "secret") == {"tls.crt": "1", "tls.key": "1"}


def test_a_deleted_secret_leaves_what_is_mounted(keep, secret, server, tmp_path):
    said = keep(secret)
    server.events.put(event("ADDED", tls_crt=b"1", tls_key=b"1"))
    said.get(timeout=PATIENCE)
    server.events.put(event("DELETED", tls_crt=b"2", tls_key=b"2"))
    server.events.put(event("ADDED", tls_crt=b"3"))
    assert said.get(timeout=PATIENCE).endswith("certificate has no tls.key")
    assert files(tmp_path / "secret") == {"tls.crt": "1", "tls.key": "1"}


def test_a_watch_that_ends_is_followed_by_another(keep, secret, server):
    said = keep(secret)
    server.events.put(None)
    server.events.put(event("ADDED", tls_crt=b"1", tls_key=b"1"))
    assert said.get(timeout=PATIENCE).endswith("new content of certificate")
    assert len(server.requests) == 2


def test_an_answer_that_is_no_json_is_said(keep, secret, server):
    said = keep(secret)
    server.events.put("no object")
    assert "Expected `object`, got `str`" in said.get(timeout=PATIENCE)


def test_duties_survive_the_file(tmp_path, token, secret):
    duties = Duties(1, "/pki", [token, secret])
    write_duties(tmp_path / "duties", duties)
    assert msgspec.json.decode((tmp_path / "duties").read_bytes(), type=Duties) == duties


@pytest.fixture
def volume(tmp_path):
    return tmp_path / "volume"


def read(volume):
    return {path.name: path.read_bytes() for path in volume.iterdir() if path.name[:2] != ".."}


def test_files_are_seen_through_one_link(volume):
    assert publish(volume, {"token": b"one", "namespace": b"x"})
    assert read(volume) == {"token": b"one", "namespace": b"x"}
    assert str((volume / "token").readlink()) == "..data/token"
    assert str((volume / "..data").readlink()).startswith("..20")


def test_a_change_swaps_the_link_and_leaves_no_old_folder(volume):
    publish(volume, {"token": b"one", "gone": b"x"})
    before = (volume / "..data").readlink()
    assert publish(volume, {"token": b"two", "new": b"y"})
    assert read(volume) == {"token": b"two", "new": b"y"}
    assert (volume / "..data").readlink() != before
    assert len(list(volume.glob("..2*"))) == 1


def test_an_open_folder_of_before_keeps_both_of_its_files_until_it_is_swapped(volume, monkeypatch):
    publish(volume, {"tls.crt": b"1", "tls.key": b"1"})
    seen = []
    replace = type(volume).replace

    def spy(path, target):
        seen.append(read(volume))
        return replace(path, target)

    monkeypatch.setattr(type(volume), "replace", spy)
    publish(volume, {"tls.crt": b"2", "tls.key": b"2"})
    assert seen == [{"tls.crt": b"1", "tls.key": b"1"}]


def test_the_same_content_changes_nothing(volume):
    publish(volume, {"token": b"one"})
    before = (volume / "..data").readlink()
    assert not publish(volume, {"token": b"one"})
    assert (volume / "..data").readlink() == before


def test_a_volume_is_mounted_once_it_is_filled(volume):
    assert not is_mounted(volume)
    volume.mkdir()
    assert not is_mounted(volume)
    publish(volume, {})
    assert is_mounted(volume)


def test_what_a_killed_kubelet_left_behind_does_not_matter(volume):
    publish(volume, {"token": b"one"})
    (volume / "..data_tmp").symlink_to("nowhere")
    (volume / "..2000_01_01_00_00_00.x").mkdir()
    assert publish(volume, {"token": b"two"})
    assert read(volume) == {"token": b"two"}
    assert len(list(volume.glob("..2*"))) == 1


def test_only_the_owner_reads(volume):
    publish(volume, {"token": b"one"})
    assert stat.S_IMODE(volume.stat().st_mode) == 0o700
    assert stat.S_IMODE((volume / "token").stat().st_mode) == 0o600
