from __future__ import annotations

import contextlib
import re
import shutil
import uuid

import pytest

from playground.build import ensure_binaries
from playground.control_plane import ControlPlane
from playground.errors import PlaygroundError


def pytest_collection_finish(session):
    # A first build outlasts any test's timeout, so it comes before the first test.
    if session.config.option.collectonly:
        return
    if not any(item.get_closest_marker("cluster") for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            ensure_binaries()
        except PlaygroundError as error:
            raise pytest.UsageError(str(error)) from error


@contextlib.contextmanager
def folder(request, factory, name):
    """Yield a folder for a control plane; keep it, and say where, if a test fails meanwhile."""
    directory = factory.mktemp(name)
    failed = request.session.testsfailed
    yield directory
    if request.session.testsfailed > failed:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nlogs of the control plane: {directory / 'logs'}")  # noqa: T201
    else:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def control_plane(request, tmp_path_factory):
    """The control plane that all tests share; tests that disturb it start one of their own."""
    with folder(request, tmp_path_factory, "shared") as directory, ControlPlane(directory) as plane:
        yield plane


@pytest.fixture
def throwaway_control_plane(request, tmp_path_factory):
    """Return a function that starts a control plane; it takes ControlPlane's keywords."""
    with contextlib.ExitStack() as stack:

        def start(**options):
            directory = stack.enter_context(folder(request, tmp_path_factory, "throwaway"))
            return stack.enter_context(ControlPlane(directory, **options))

        yield start


@pytest.fixture
def kubectl(control_plane):
    """Return ``kubectl(*arguments, stdin=None, check=True)`` for the shared control plane."""
    return control_plane.kubectl


@pytest.fixture
def namespace(request, kubectl):
    """Return the name of a fresh namespace in which pods can be created."""
    stem = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    kubectl(
        "wait", "--for=create", "--timeout=30s", "serviceaccount/default", f"--namespace={name}"
    )
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
