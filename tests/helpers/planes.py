"""Control planes of tests, whose folders stay if a test fails meanwhile."""

from __future__ import annotations

import contextlib
import shutil

from harbourmaster.playground.control_plane import ControlPlane


@contextlib.contextmanager
def plane_for(request, factory, name, **options):
    """Run a control plane; keep its folder, and say where its logs are, if a test fails.

    ``options`` are those of ControlPlane.
    """
    directory = factory.mktemp(name)
    failed = request.session.testsfailed
    with ControlPlane(directory, **options) as plane:
        yield plane
    if request.session.testsfailed > failed:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nlogs of the control plane: {directory / 'logs'}")  # noqa: T201
    else:
        shutil.rmtree(directory)
