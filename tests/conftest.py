"""The real control plane, for every test that asks for it."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import time
from asyncio import BaseEventLoop
from pathlib import Path

import aiohttp
import pytest

import helpers.properties  # noqa: F401 - before any test module, for its profiles
from harbourmaster.playground import api as playground_api
from harbourmaster.playground.browser import ensure_axe, ensure_browser
from harbourmaster.playground.build import HELM, ensure, ensure_binaries, ensure_prometheus
from harbourmaster.playground.errors import PlaygroundError
from helpers.cluster import (
    SERVED,
    delete_namespace,
    eventually,
    fresh_namespace,
    keep_registered,
    plane_for,
    tried_pod,
    webhook_configuration,
)
from helpers.objects import cluster_policy, policy
from helpers.prometheus import run_prometheus
from helpers.server import Server
from helpers.shards import Recorder, divide

STALL_CHANCE = 0.15
STALL_SECONDS = (0.1, 0.4)
STALLS_OF_A_TEST = 8


class Stalls:
    """Pauses the process between turns of event loops, like a busy machine, except uvloop's.

    A test that waits only tenths of a second for something fails then. The same seed gives a test
    the same pauses.
    """

    def __init__(self, seed):
        self._seed = seed
        self._left = 0
        self._random = random.Random()  # noqa: S311
        turn = BaseEventLoop._run_once

        def stalled(loop):
            if self._left and self._random.random() < STALL_CHANCE:
                self._left -= 1
                time.sleep(self._random.uniform(*STALL_SECONDS))
            turn(loop)

        BaseEventLoop._run_once = stalled

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self._random.seed(f"{self._seed} {item.nodeid}")
        self._left = STALLS_OF_A_TEST


HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--gate", action="store_true", help="run only the tests of the gate")
    parser.addoption("--stalls", metavar="SEED", help="stand still between turns of event loops")
    parser.addoption("--golden", action="store_true", help="write the golden files")
    parser.addoption("--report", metavar="FILE", help="write which tests ran, and how they ended")


def pytest_configure(config):
    if config.option.stalls:
        config.pluginmanager.register(Stalls(config.option.stalls))
    if config.option.report:
        config.pluginmanager.register(Recorder(Path(config.option.report), config.rootpath))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Thousands of tests stay to the end: collections pass over them, while and after they come."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # A twelfth of the time of tests would be collections that find little.
        gc.set_threshold(20_000, 20, 100)


def pytest_collection_modifyitems(config, items):
    try:
        gate, full = divide(items, HERE)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    if config.option.gate:
        config.hook.pytest_deselected(items=full)
        items[:] = gate


def pytest_collection_finish(session):
    # A first build outlasts any test's timeout, so it comes before the first test.
    if session.config.option.collectonly:
        return
    plane = any(item.get_closest_marker("cluster") for item in session.items)
    pages = any("browser" in item.fixturenames for item in session.items)
    if not (plane or pages):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            if pages:
                ensure_browser()
                ensure_axe()
            if plane:
                ensure_binaries()
            if any("prometheus" in item.fixturenames for item in session.items):
                ensure_prometheus()
            if any("helm_is_built" in item.fixturenames for item in session.items):
                ensure(HELM)
        except PlaygroundError as error:
            raise pytest.UsageError(str(error)) from error


@pytest.fixture
def assert_golden(request):
    """Return ``assert_golden(value)``, which compares a JSON value with the stored one of a test.

    It is in ``golden/MODULE.json`` beside the module, by the test's name; ``--golden`` stores it.
    """
    file = request.path.parent / "golden" / f"{request.path.stem}.json"

    def assert_golden(value):
        stored = json.loads(file.read_text()) if file.exists() else {}
        value = json.loads(json.dumps(value))
        if request.config.option.golden:
            stored = dict(sorted({**stored, request.node.name: value}.items()))
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{json.dumps(stored, indent=1, ensure_ascii=False)}\n")
        assert stored.get(request.node.name) == value

    return assert_golden


@pytest.fixture(scope="session")
def helm_is_built():
    """For tests that run Helm: it is built before the first of them."""


@pytest.fixture(scope="session")
def control_plane(request, tmp_path_factory):
    """The control plane that all tests share; tests that disturb it start one of their own."""
    with plane_for(request, tmp_path_factory, "shared", audit=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """The Prometheus that tests share, and the gauges that it fetches; each takes its own names."""
    with run_prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.fixture
def throwaway_control_plane(request, tmp_path_factory):
    """Return a function that starts a control plane; it takes ControlPlane's keywords."""
    with contextlib.ExitStack() as stack:

        def start(**options):
            plane = plane_for(request, tmp_path_factory, "throwaway", **options)
            return stack.enter_context(plane)

        yield start


@pytest.fixture
def kubectl(control_plane):
    """Return ``kubectl(*arguments, stdin=None, check=True)`` for the shared control plane."""
    return control_plane.kubectl


@pytest.fixture(scope="session")
def namespaces_stay(request):
    """Whether the namespaces of tests outlive them.

    To delete one is hundreds of requests of the controller manager. The pods of the full run would
    not fit on the nodes.
    """
    return request.config.option.gate


@pytest.fixture
def namespace(request, kubectl, namespaces_stay):
    """Return the name of a fresh namespace in which pods can be created."""
    name = fresh_namespace(kubectl, request.node.name)
    yield name
    if not namespaces_stay:
        delete_namespace(kubectl, name)


@pytest.fixture(scope="session")
def server(control_plane, tmp_path_factory):
    """The server that tests share; reviews come to it from the namespaces labelled SERVED.

    Policies are added to it and never taken away, so each of a test's is for its own namespaces.
    """
    kubectl = control_plane.kubectl
    namespace = fresh_namespace(kubectl, "shared-server", SERVED)
    invalid = json.dumps(cluster_policy("tried", nodeName="no name"))
    ready = policy("ready", namespace, nodeSelector={"example.com/ready": ""})
    with Server(tmp_path_factory.mktemp("server"), policies=[ready]) as server:
        selector = {"matchLabels": SERVED}
        configurations = (
            webhook_configuration(kind, server.url, server.bundle, namespaceSelector=selector)
            for kind in ("Mutating", "Validating")
        )
        with keep_registered(kubectl, *configurations):
            eventually(lambda: tried_pod(kubectl, namespace).get("nodeSelector"))
            eventually(
                lambda: (
                    kubectl(
                        "create", "--dry-run=server", "-f=-", stdin=invalid, check=False
                    ).returncode
                )
            )
            yield server


@pytest.fixture
def served_namespace(request, server, kubectl, namespaces_stay):
    """Return the name of a fresh namespace whose reviews go to the shared server."""
    name = fresh_namespace(kubectl, request.node.name, SERVED)
    yield name
    if not namespaces_stay:
        delete_namespace(kubectl, name)


@pytest.fixture
async def api(control_plane):
    """An HTTP session with the API server, as administrator."""
    context = playground_api.client_context(control_plane.layout.pki, "admin")
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(control_plane.server, connector=connector) as session:
        yield session
