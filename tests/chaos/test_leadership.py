"""Only one of two controllers works, in spite of faults; the evidence is the audit log.

Namespaces change all the time, and a registration is deleted each time, so that a controller which
should not work any more has work to do.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import threading
import time

import pytest

from helpers.faults.api_proxy import Fault
from helpers.faults.proxied_installation import (
    LEASE,
    equals,
    note,
    proxied_installation,
    staleness,
    terms,
    trespasses,
    until,
    work,
)
from helpers.faults.stored_objects import VALIDATING, namespace

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

OPT_IN = "keptn.sh/lifecycle-toolkit"
LABEL = "gates.harbourmaster.dev/enabled"
RESTLESS = [f"restless-{number}" for number in range(4)]
PAUSE = 0.05


@pytest.fixture(scope="module")
def harbour(request, tmp_path_factory):
    with proxied_installation(request, tmp_path_factory, controllers=2) as installed:
        for name in RESTLESS:
            installed.stored.put(_path(name), namespace(name))
        yield installed


class Unrest:
    """``with Unrest(plane)``: opts namespaces in and out, and in again, on one connection."""

    def __init__(self, plane):
        self._connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=plane.admin)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unrest")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _run(self):
        for value in itertools.cycle(("enabled", None)):
            for name in RESTLESS:
                if self._stop.wait(PAUSE):
                    return
                patch = json.dumps({"metadata": {"annotations": {OPT_IN: value}}})
                headers = {"Content-Type": "application/merge-patch+json"}
                self._connection.request("PATCH", _path(name), patch, headers)
                with self._connection.getresponse() as answer:
                    assert answer.status == http.HTTPStatus.OK, answer.read()
                    answer.read()


def _path(name):
    return f"/api/v1/namespaces/{name}"


def disagreeing(stored):
    """The namespaces whose label does not follow their annotation."""
    metadata_by_name = {name: stored.find(_path(name))["metadata"] for name in RESTLESS}
    return [
        name
        for name, metadata in metadata_by_name.items()
        if (OPT_IN in metadata.get("annotations", {})) != (LABEL in metadata["labels"])
    ]


def kill_leader(harbour, leader, follower):
    harbour.installation.kill(leader)
    until(lambda: harbour.leader(among=[follower]))
    harbour.installation.launch(leader)


def standing_still(harbour, leader, follower):
    """Suspend the process, as a suspended machine does: it continues its work afterwards."""
    pid = harbour.installation.pid(leader)
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: harbour.leader(among=[follower]))
    finally:
        os.kill(pid, signal.SIGCONT)


def standing_still_amid_work(harbour, leader, follower):
    """The answer that it waits for lies there when it goes on, and much more is to be written."""
    pid = harbour.installation.pid(leader)
    try:
        with harbour.failing(Fault.HOLD, "/namespaces/restless", names=[leader]):
            until(lambda: len(disagreeing(harbour.stored)) > 1)
            os.kill(pid, signal.SIGSTOP)
            until(lambda: harbour.leader(among=[follower]))
    finally:
        os.kill(pid, signal.SIGCONT)


def failing(fault, concerned=""):
    """Alone, while the other one is well."""

    def harm(harbour, leader, follower):
        with harbour.failing(fault, concerned, names=[leader]):
            until(lambda: harbour.leader(among=[follower]))

    return harm


HARMS = {
    "killed": kill_leader,
    "standing-still": standing_still,
    "standing-still-amid-work": standing_still_amid_work,
    "cut-off": failing(Fault.RESET),
    "hung": failing(Fault.HANG),
    "without-its-lease": failing(Fault.HTML, "/leases/"),
    "waiting-for-its-lease": failing(Fault.HANG, "/leases/"),
    "renewing-unawares": failing(Fault.LOSE, "/leases/"),
}


# Each waits for the end of a Lease; the others are variations of these.
IN_THE_GATE = {"killed", "standing-still", "hung"}


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(harm, id=name, marks=[pytest.mark.gate] if name in IN_THE_GATE else [])
        for name, harm in HARMS.items()
    ],
)
def test_two_never_work_at_once(harbour, harm):
    harbour.installation.await_ready(*harbour.controllers)
    leader, _ = until(harbour.leader)
    (follower,) = {*harbour.controllers} - {leader}
    with Unrest(harbour.plane):
        until(news(harbour, leader, work))
        beginning = time.time()
        harbour.stored.remove(VALIDATING)
        harm(harbour, leader, follower)
        until(news(harbour, follower, work))
        assert_one_at_a_time(harbour, beginning)
        # It stands for the Lease again, and brings no work along.
        until(news(harbour, leader, asking))
    until(lambda: disagreeing(harbour.stored), equals([]))
    until(lambda: harbour.stored.find(VALIDATING))

    deeds = assert_one_at_a_time(harbour, beginning)
    ages = {name: [0.0] for name in (leader, follower)}
    for deed, age in staleness(deeds):
        if deed.begun > beginning:
            ages[deed.who].append(age)
    assert max(map(max, ages.values())) < LEASE.lease_duration
    taken = next(it for it in terms(deeds) if it.who == follower and it.begun > beginning)
    ended = max(it.ended for it in work(deeds) if it.who == leader and it.ended < taken.begun)
    note(
        taken_after=taken.begun - beginning, oldest_work=max(ages[leader]), idle=taken.begun - ended
    )


def assert_one_at_a_time(harbour, beginning):
    deeds = harbour.audit.deeds()
    assert [deed for deed in trespasses(deeds) if deed.begun > beginning] == []
    return deeds


def news(harbour, name, kind):
    """Whether the process has done something of the kind from now on; ask again and again."""
    since = harbour.audit.size
    return lambda: any(deed.who == name for deed in kind(harbour.audit.deeds(since)))


def asking(deeds):
    return [deed for deed in deeds if deed.resource == "leases" and deed.status == 200]
