"""One real node for all tests of this folder, with Harbourmaster installed as its users do it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from harbourmaster.playground.errors import PlaygroundError
from helpers import node_objects as objects
from helpers.node import FIGURES, IMAGE, NAMESPACE, RUNNERS, RealNode, figure

HERE = Path(__file__).parent
LAST = "test_undeploy.py"
TIMEOUT_SECONDS = 400


def pytest_collection_modifyitems(items):
    # After it, nothing is installed.
    items.sort(key=lambda item: item.path == HERE / LAST)
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.full)
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def bare_node(tmp_path_factory):
    """Two nodes, and nothing on them. A test that stops one leaves them ready."""
    try:
        real_node = RealNode(tmp_path_factory.mktemp("node"), nodes=2)
    except PlaygroundError as error:
        pytest.skip(str(error))
    FIGURES.unlink(missing_ok=True)
    with real_node:
        yield real_node


@pytest.fixture(scope="session")
def node(bare_node):
    """The nodes after ``make deploy``, with our runners, and a policy that is in force."""
    begun = time.monotonic()
    bare_node.make("deploy", f"IMG={IMAGE}")
    pods = bare_node.get("pods", f"--namespace={NAMESPACE}")
    figure(f"make deploy: {len(pods)} pods ready after {time.monotonic() - begun:.1f} s")
    bare_node.add_flags("controller", *RUNNERS)
    bare_node.apply(objects.policy())
    deadline = time.monotonic() + TIMEOUT_SECONDS / 4
    while time.monotonic() < deadline:
        with bare_node.load(per_second=4, threads=1) as load:
            time.sleep(1)
        if not load.bad:
            break
    return bare_node


@pytest.fixture
def place(node):
    """A namespace with gates, under the restricted profile."""
    name = f"shop-{uuid.uuid4().hex[:6]}"
    node.apply(objects.namespace(name))
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")
