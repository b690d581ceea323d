"""Sends bad input again and again, in a process of its own.

``attacker.py PORT FILE tls|plain PAUSE``: FILE is a JSON array of requests as Latin-1 text. Sends
them in turn, ``PAUSE`` seconds apart, and reads one answer or the end of the connection after each.
Prints a line after the first answer. When standard input ends, prints the number of answers.
"""

from __future__ import annotations

import itertools
import json
import re
import select
import socket
import ssl
import sys
from pathlib import Path

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
PATIENCE = 5.0


def connect(port, *, tls):
    raw = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    if not tls:
        return raw
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(raw)


def read_answer(connection):
    """Read one answer; return whether the connection can be used again."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return False
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    match = LENGTH.search(head)
    missing = int(match[1] if match else 0) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536)) or missing
    return b"connection: close" not in head.lower()


def attack(port, requests, *, tls, pause):
    answers = 0
    connection = None
    for request in itertools.cycle(requests):
        is_open = False
        try:
            connection = connection or connect(port, tls=tls)
            connection.sendall(request)
            is_open = read_answer(connection)
        except OSError:
            # A server that closes the connection early has answered, too.
            pass
        if not is_open and connection is not None:
            connection.close()
            connection = None
        answers += 1
        if answers == 1:
            print("begun", flush=True)  # noqa: T201
        # The second request follows at once, so that the attack runs after the first answer.
        if answers > 1 and select.select([sys.stdin], [], [], pause)[0]:
            break
    print(answers, flush=True)  # noqa: T201


if __name__ == "__main__":
    _, to, file, how, wait = sys.argv
    obj = [text.encode("latin-1") for text in json.loads(Path(file).read_text())]
    attack(int(to), obj, tls=how == "tls", pause=float(wait))
