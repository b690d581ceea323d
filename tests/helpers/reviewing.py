"""Reviews sent to a webhook's own port, and anything asked steadily in the background."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import ExitStack, closing, contextmanager

from harbourmaster.playground.errors import PlaygroundError
from helpers.objects import body, workload
from helpers.patching import patched

NAME = "harbourmaster-webhook.harbourmaster-system.svc"
TIMEOUT = 10.0
# Reviews on one connection; the handshakes of a new one are part of what must go on.
KEPT_FOR = 10


class Reviews:
    """Asks one webhook, as an API server would, by its port and the name in its certificate.

    ``authority`` gives what must have signed that, in PEM form; by default, it is mounted beside.
    """

    def __init__(self, webhook, authority=None):
        self._webhook = webhook
        self._authority = authority or (webhook.certificates / "ca.crt").read_text

    def pods(self, namespaces, **labels):
        """The node selector of a pod in each of the namespaces; None where it is skipped."""
        pod = workload("Pod", labels)
        with closing(self._connect()) as connection:
            answers = {name: _ask(connection, pod, name) for name in namespaces}
        return {name: _node_selector(pod, answer) for name, answer in answers.items()}

    def certificate(self):
        """The certificate that is served, DER."""
        with closing(self._connect()) as connection:
            return connection.sock.getpeercert(binary_form=True)

    @contextmanager
    def repeated(self, document, namespace):
        """A function that asks for a review of the document, and gives the response."""
        with ExitStack() as connections:
            left = 0

            def ask():
                nonlocal connection, left
                if left == 0:
                    connections.close()
                    connection = connections.enter_context(closing(self._connect()))
                    left = KEPT_FOR
                asked, left = left, 0
                response = _ask(connection, document, namespace)
                left = asked - 1
                return response

            connection = None
            yield ask

    def _connect(self):
        context = ssl.create_default_context(cadata=self._authority())
        connection = http.client.HTTPConnection("127.0.0.1", self._webhook.port, timeout=TIMEOUT)
        plain = socket.create_connection(("127.0.0.1", self._webhook.port), timeout=TIMEOUT)
        connection.sock = context.wrap_socket(plain, server_hostname=NAME)
        return connection


class Steady:
    """``with Steady(ask) as steady`` calls ``ask`` ``rate`` times a second, one after the other."""

    def __init__(self, ask, *, rate=20.0):
        self.answered = 0
        self.slowest = 0.0
        """Seconds."""
        self.failures = []
        """Failed answers, and those that differ from the first one."""
        self._ask = ask
        self._pause = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady")

    def __enter__(self):
        self._first = self._ask()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        seconds = 0.0
        while not self._stop.wait(max(self._pause - seconds, 0)):
            began = time.monotonic()
            try:
                answer = self._ask()
                assert answer == self._first, f"{answer} after {self._first}"
            except (
                AssertionError,
                OSError,
                ValueError,
                http.client.HTTPException,
                PlaygroundError,
            ) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            else:
                self.answered += 1
            seconds = time.monotonic() - began
            self.slowest = max(self.slowest, seconds)


def _ask(connection, document, namespace):
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/mutate?timeout=3s", body(document, namespace=namespace), headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == http.HTTPStatus.OK, f"{answer.status}: {text[:200]}"
    return json.loads(text)["response"]


def _node_selector(document, response):
    assert response["allowed"], response
    if "warnings" in response:
        return None
    return patched(document, response)["spec"].get("nodeSelector", {})
