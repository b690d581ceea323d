from __future__ import annotations

import socket
import subprocess
import sys

from harbourmaster.playground import ports
from harbourmaster.playground.ports import free_ports

CHOOSE = """
from harbourmaster.playground import ports
ports._PORTS = range({first}, {first} + 4)
print(*ports.free_ports(4))
"""


def test_they_differ_and_can_be_bound():
    ports = free_ports(6)
    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_none_is_given_out_twice(monkeypatch):
    (first,) = free_ports(1)
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 1))
    assert free_ports(1) == []


def test_one_that_is_in_use_is_left_out(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", range(taken, taken + 1))
        assert free_ports(1) == []


def test_another_process_gets_others():
    (held,) = free_ports(1)
    code = CHOOSE.format(first=held - 1)
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True
    )
    further = [int(word) for word in result.stdout.split()]
    assert further
    assert held not in further
