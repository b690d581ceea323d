"""Mounts volumes for local processes: ``python -m harbourmaster.playground.kubelet DUTIES``.

Like the kubelet, it requests a token for each service account, renews it after 80 % of the
token's life, and mirrors Secrets when they change. Tokens are not bound to a pod.

The files of a volume change all at once, in the shape that the kubelet gives to its mounts:
``FOLDER/NAME`` leads to ``..data/NAME``, and ``..data`` to a folder named after the time; a change
fills a new folder and swaps the one link.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec import Struct

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.pki import write_private
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

DATA = "..data"
_NEXT = "..data_tmp"


def publish(volume: Path, files: Mapping[str, bytes]) -> bool:
    """Make ``files`` what the volume holds; return whether that is a change. Only we may read."""
    if _content(volume) == files:
        return False
    volume.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=volume))
    for name, content in files.items():
        descriptor = os.open(fresh / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    following = volume / _NEXT
    following.unlink(missing_ok=True)
    following.symlink_to(fresh.name)
    following.replace(volume / DATA)
    _show(volume, files)
    for folder in volume.glob("..[0-9]*"):
        if folder != fresh:
            shutil.rmtree(folder)
    return True


def is_mounted(volume: Path) -> bool:
    """Whether the volume was ever filled, which a kubelet waits for before it starts a pod."""
    return (volume / DATA).exists()


def _content(volume: Path) -> dict[str, bytes] | None:
    if not is_mounted(volume):
        return None
    return {path.name: path.read_bytes() for path in (volume / DATA).iterdir()}


def _show(volume: Path, files: Mapping[str, bytes]) -> None:
    """Give each file its link, and take the links of files that are gone."""
    links = {path.name for path in volume.iterdir() if not path.name.startswith("..")}
    for name in files.keys() - links:
        (volume / name).symlink_to(f"{DATA}/{name}")
    for name in links - files.keys():
        (volume / name).unlink()


TOKEN_SECONDS = 3600
REFRESH_AT = 0.8
# The API server ends a watch after this time, and the next one begins with the current objects.
WATCH_SECONDS = 300
# Between an attempt that failed and the next, and between two watches.
PAUSE_SECONDS = 1.0


class TokenVolume(Struct, frozen=True, tag="token"):
    """A volume with the files of ``/var/run/secrets/kubernetes.io/serviceaccount``."""

    directory: str
    namespace: str
    account: str


class SecretVolume(Struct, frozen=True, tag="secret"):
    """Some keys of a Secret as files."""

    directory: str
    namespace: str
    secret: str
    keys: list[str]


class Duties(Struct, frozen=True):
    """The volumes to mount; ``port`` is the API server's, ``pki`` has the keys of the plane."""

    port: int
    pki: str
    volumes: list[TokenVolume | SecretVolume]


class _TokenStatus(Struct, frozen=True, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _TokenRequest(Struct, frozen=True):
    status: _TokenStatus


class _Secret(Struct, frozen=True):
    # msgspec reads bytes from base64.
    data: dict[str, bytes] = {}


class _Event(Struct, frozen=True):
    type: str
    object: msgspec.Raw


# A decoder that two threads make of one type at the same time can crash the process.
_decode_token = msgspec.json.Decoder(_TokenRequest).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_secret = msgspec.json.Decoder(_Secret).decode


class Kubelet:
    """Keeps volumes, until ``stop`` is set; every method blocks meanwhile."""

    def __init__(
        self,
        duties: Duties,
        context: ssl.SSLContext,
        *,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self._duties = duties
        self._context = context
        self._stop = stop
        self._say = say

    def start(self) -> list[threading.Thread]:
        """Keep each volume in a thread of its own."""
        threads = [
            threading.Thread(target=self.keep, args=(volume,), daemon=True)
            for volume in self._duties.volumes
        ]
        for thread in threads:
            thread.start()
        return threads

    def keep(self, volume: TokenVolume | SecretVolume) -> None:
        """Keep one volume; a fault is said once, and tried to overcome every second."""
        fault = ""
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                if isinstance(volume, TokenVolume):
                    pause = self._mount_token(volume)
                else:
                    pause = self._mirror_secret(volume)
                fault = ""
            except (PlaygroundError, OSError, msgspec.DecodeError) as error:
                pause = PAUSE_SECONDS
                if reason(error) != fault:
                    fault = reason(error)
                    self._say(f"{volume.directory}: {fault}")

    def _mount_token(self, volume: TokenVolume) -> float:
        """Mount a new token; return after how many seconds the next is due."""
        path = f"{_namespace(volume.namespace)}/serviceaccounts/{quote(volume.account)}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        answer = api.request(self._duties.port, self._context, "POST", path, body)
        status = _decode_token(answer).status
        files = {
            "token": status.token.encode(),
            "ca.crt": Path(self._duties.pki, "ca.crt").read_bytes(),
            "namespace": volume.namespace.encode(),
        }
        publish(Path(volume.directory), files)
        expires = status.expiration_timestamp
        self._say(f"{volume.directory}: token of {volume.account} until {expires:%H:%M:%S}")
        return refresh_in(expires, datetime.now(UTC))

    def _mirror_secret(self, volume: SecretVolume) -> float:
        """Mirror a Secret through one watch."""
        path = (
            f"{_namespace(volume.namespace)}/secrets?watch=true&timeoutSeconds={WATCH_SECONDS}"
            f"&fieldSelector=metadata.name%3D{quote(volume.secret)}"
        )
        # It begins with the Secret as it is, if there is one.
        for line in api.watch(self._duties.port, self._context, path, WATCH_SECONDS + 10):
            event = _decode_event(line)
            if event.type in {"ADDED", "MODIFIED"}:
                self._mount_secret(volume, _decode_secret(event.object))
        return PAUSE_SECONDS

    def _mount_secret(self, volume: SecretVolume, secret: _Secret) -> None:
        """Mount the keys, or leave what is mounted where one is missing, as the kubelet does."""
        missing = [key for key in volume.keys if key not in secret.data]
        if missing:
            self._say(f"{volume.directory}: {volume.secret} has no {', '.join(missing)}")
            return
        if publish(Path(volume.directory), {key: secret.data[key] for key in volume.keys}):
            self._say(f"{volume.directory}: new content of {volume.secret}")


def refresh_in(expires: datetime, now: datetime) -> float:
    """Return after how many seconds a token got now is to be replaced."""
    return REFRESH_AT * (expires - now).total_seconds()


def write_duties(path: Path, duties: Duties) -> None:
    """Write the file that the kubelet is started with."""
    write_private(path, msgspec.json.format(msgspec.json.encode(duties)) + b"\n")


def main(arguments: Sequence[str]) -> int:
    """Keep the volumes until a signal ends the process."""
    duties = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Duties)
    context = api.client_context(Path(duties.pki), "admin")
    Kubelet(duties, context, stop=threading.Event(), say=_say).start()
    while True:
        signal.pause()


def _say(line: str) -> None:
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    print(f"{stamp} {line}", flush=True)


def _namespace(name: str) -> str:
    return f"/api/v1/namespaces/{quote(name)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
