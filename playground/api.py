"""The few requests that the playground itself makes."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

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
_NODES: Final = "/api/v1/nodes"


def client_context(pki: Path, client: str) -> ssl.SSLContext:
    """Trust the control plane's CA alone and present a client certificate."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / f"{client}.crt", pki / f"{client}.key")
    return context


def ask(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return status and text of a GET to this machine; over TLS the context is needed."""
    parts = urlsplit(url)
    tls = context if parts.scheme == "https" else None
    path = url.partition(parts.netloc)[2]
    with _open("no answer", parts.port or 0, tls, "GET", path) as response:
        return response.status, response.read().decode(errors="replace")


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
    with _send(port, context, method, path, body) as response:
        return response.read()


def watch(port: int, context: ssl.SSLContext, path: str, timeout: float) -> Iterator[bytes]:
    """Yield the events of a watch until the API server ends it. Raises PlaygroundError."""
    with _send(port, context, "GET", path, timeout=timeout) as response:
        yield from iter(response.readline, b"")


def create_nodes(
    port: int, context: ssl.SSLContext, count: int, labels: Mapping[str, str]
) -> list[str]:
    """Create ``count`` nodes for kwok, numbered after those that exist; return their names."""
    existing = json.loads(request(port, context, "GET", _NODES))["items"]
    taken = {node["metadata"]["name"] for node in existing}
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
        request(port, context, "POST", _NODES, node)
    return names


def await_ready_nodes(
    port: int, context: ssl.SSLContext, names: Iterable[str], timeout: float
) -> None:
    """Return when pods can be scheduled on all named nodes."""
    waiting = set(names)
    deadline = time.monotonic() + timeout
    # The watch starts with one event for each node that exists.
    path = f"{_NODES}?watch=true&timeoutSeconds={int(timeout)}"
    events = watch(port, context, path, 2 * timeout)
    while waiting and time.monotonic() < deadline and (line := next(events, None)):
        node = json.loads(line)["object"]
        if _is_usable(node):
            waiting.discard(node["metadata"]["name"])
    if waiting:
        raise PlaygroundError(
            f"{len(waiting)} nodes are not ready after {timeout:.0f} s, one is {min(waiting)}: "
            "see the logs of the playground"
        )


def _is_usable(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
    taints = node.get("spec", {}).get("taints", ())
    return ready and NOT_READY not in {taint["key"] for taint in taints}


@contextmanager
def _send(
    port: int,
    context: ssl.SSLContext,
    method: str,
    path: str,
    body: object = None,
    timeout: float = REQUEST_SECONDS,
) -> Iterator[http.client.HTTPResponse]:
    """Send a request, and yield the answer. Raises PlaygroundError if it is a refusal."""
    call = f"{method} {path}"
    fault = f"{call}: the API server fails"
    with _open(fault, port, context, method, path, body, timeout) as response:
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            content = response.read().decode(errors="replace")
            raise PlaygroundError(f"{call}: {response.status} {content}")
        yield response


@contextmanager
def _open(  # noqa: PLR0913, PLR0917 -- what a request has
    fault: str,
    port: int,
    context: ssl.SSLContext | None,
    method: str,
    path: str,
    body: object = None,
    timeout: float = REQUEST_SECONDS,
) -> Iterator[http.client.HTTPResponse]:
    """Send a request, and yield the answer. Raises PlaygroundError that begins with ``fault``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    if context is not None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=timeout, context=context
        )
    content = None if body is None else msgspec.json.encode(body)
    try:
        with closing(connection):
            connection.request(method, path, content, {"Content-Type": "application/json"})
            yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise PlaygroundError(f"{fault}: {reason(error)}") from error
