"""Bad input over and over, from a process of its own so that it costs the measuring one nothing.

``attacker.py PORT PAYLOAD tls|plain PAUSE``: connect, send the file's bytes, read one answer or
the end, and again after ``PAUSE`` seconds; a kept connection is used again. Writes one line when
the first answer is there; when standard input ends, writes the number of answers and ends.
"""

from __future__ import annotations

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
    """Read one answer; whether the connection may be used again."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return False
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    found = LENGTH.search(head)
    missing = int(found[1] if found else 0) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536)) or missing
    return b"connection: close" not in head.lower()


def attack(port, payload, *, tls, pause):
    answers = 0
    connection = None
    while not select.select([sys.stdin], [], [], pause)[0]:
        kept = False
        try:
            connection = connection or connect(port, tls=tls)
            connection.sendall(payload)
            kept = read_answer(connection)
        except OSError:
            # A server that hangs up before it has read all has answered too.
            pass
        if not kept and connection is not None:
            connection.close()
            connection = None
        answers += 1
        if answers == 1:
            print("begun", flush=True)  # noqa: T201
    print(answers, flush=True)  # noqa: T201


if __name__ == "__main__":
    _, to, file, how, wait = sys.argv
    attack(int(to), Path(file).read_bytes(), tls=how == "tls", pause=float(wait))
