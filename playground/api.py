"""The few requests that the playground itself makes."""

from __future__ import annotations

import http.client
import ssl
import time
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from harbourmaster.api.metadata import Condition, Metadata
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

REQUEST_SECONDS = 10.0
# What is shown of an answer that says why something is not ready.
REASON_CHARACTERS = 500
# The annotation by which kwok finds the nodes that it simulates.
KWOK_NODE = "kwok.x-k8s.io/node"
# The taint that a new node carries until the controller manager has seen it ready.
NOT_READY = "node.kubernetes.io/not-ready"


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: list[Condition] = []


class _Taint(msgspec.Struct, frozen=True):
    key: str


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: list[_Taint] = []


class _Node(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def usable(self) -> bool:
        ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)
        return ready and NOT_READY not in {taint.key for taint in self.spec.taints}


class _NodeList(msgspec.Struct, frozen=True):
    items: list[_Node]


class _Event(msgspec.Struct, frozen=True):
    object: _Node


def client_context(pki: Path, client: str) -> ssl.SSLContext:
    """Trust the control plane's CA alone and present a client certificate."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / f"{client}.crt", pki / f"{client}.key")
    return context


def ask(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return status and text of a GET to this machine; over TLS the context is needed."""
    parts = urlsplit(url)
    tls = context if parts.scheme == "https" else None
    try:
        with closing(_connect(parts.port or 0, tls)) as connection:
            connection.request("GET", parts.path)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise PlaygroundError(f"no answer: {reason(error)}") from error


def why_not_ready(url: str, context: ssl.SSLContext | None = None) -> str | None:
    """Return None where the URL answers 200, else in one line what it does instead."""
    try:
        status, text = ask(url, context)
    except PlaygroundError as error:
        return str(error)
    if status == http.HTTPStatus.OK:
        return None
    return f"{status}: {'; '.join(filter(None, text.splitlines()))[:REASON_CHARACTERS]}"


def request(
    port: int, context: ssl.SSLContext, method: str, path: str, body: object = None
) -> bytes:
    """Return the answer to one request to the API server. Raises PlaygroundError."""
    content = None if body is None else msgspec.json.encode(body)
    with closing(_connect(port, context)) as connection:
        response = _send(connection, method, path, content)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PlaygroundError(
                f"{method} {path}: the API server fails: {reason(error)}"
            ) from error


def watch(port: int, context: ssl.SSLContext, path: str, timeout: float) -> Iterator[bytes]:
    """Yield the events of a watch until the API server ends it. Raises PlaygroundError."""
    with closing(_connect(port, context, timeout)) as connection:
        response = _send(connection, "GET", path)
        while line := _line(response, path):
            yield line


def create_nodes(
    port: int, context: ssl.SSLContext, count: int, labels: Mapping[str, str]
) -> list[str]:
    """Create ``count`` nodes for kwok, numbered after those that exist; return their names."""
    with closing(_connect(port, context)) as connection:
        existing = msgspec.json.decode(
            _send(connection, "GET", "/api/v1/nodes").read(), type=_NodeList
        )
        taken = {node.metadata.name for node in existing.items}
        numbers = (f"node-{number}" for number in range(len(taken) + count))
        names = [name for name in numbers if name not in taken][:count]
        for name in names:
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": {KWOK_NODE: "fake"},
                    "labels": {
                        "kubernetes.io/arch": "amd64",
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        **labels,
                    },
                },
            }
            _send(connection, "POST", "/api/v1/nodes", msgspec.json.encode(node)).read()
    return names


def await_ready_nodes(
    port: int, context: ssl.SSLContext, names: Iterable[str], timeout: float
) -> None:
    """Return when pods can be scheduled on all named nodes."""
    waiting = set(names)
    deadline = time.monotonic() + timeout
    path = f"/api/v1/nodes?watch=true&timeoutSeconds={int(timeout)}"
    with closing(_connect(port, context, timeout)) as connection:
        response = _send(connection, "GET", path)
        # The watch starts with one event for each node that exists.
        while waiting and time.monotonic() < deadline:
            try:
                line = response.readline()
            except OSError:
                break
            if not line:
                break
            event = msgspec.json.decode(line, type=_Event)
            if event.object.usable:
                waiting.discard(event.object.metadata.name)
    if waiting:
        raise PlaygroundError(
            f"{len(waiting)} nodes are not ready after {timeout:.0f} s, one is {min(waiting)}: "
            "see the logs of the playground"
        )


def _line(response: http.client.HTTPResponse, path: str) -> bytes:
    try:
        return response.readline()
    except (OSError, http.client.HTTPException) as error:
        raise PlaygroundError(f"GET {path}: the API server fails: {reason(error)}") from error


def _connect(
    port: int, context: ssl.SSLContext | None, timeout: float = REQUEST_SECONDS
) -> http.client.HTTPConnection:
    if context is None:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise PlaygroundError(f"{method} {path}: the API server fails: {reason(error)}") from error
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        content = response.read().decode(errors="replace")
        raise PlaygroundError(f"{method} {path}: {response.status} {content}")
    return response
