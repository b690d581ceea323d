"""The control plane with Harbourmaster in it, for the tests of whole flows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harbourmaster.playground.installation import Installation
from helpers.cluster import plane_for
from helpers.command import local
from helpers.doctor.deployed_installation import DeployedInstallation
from helpers.flow.installation import DEFAULTS, FLAGS, Harbour, config
from helpers.manifests import DEPLOY, hardened_overlay, overlay
from helpers.patience import TEST_SECONDS
from helpers.placement_flow import flow_in, members_of, two_planes
from helpers.processes import client_of
from helpers.prometheus import run_prometheus as scraping
from helpers.rescheduling.cases import outcomes_of
from helpers.schemas import apply_definitions

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Tests here need the control plane, and belong to the full run unless they say otherwise."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.slow)
        if not any(item.iter_markers("gate")):
            item.add_marker(pytest.mark.full)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def control_plane(control_plane):
    """The shared one with all our kinds, none of which ever goes.

    Of itself the garbage collector finds new kinds up to a minute later, and collects nothing
    while it looks; one that is started now knows them from the first.
    """
    apply_definitions(control_plane.kubectl)
    control_plane.restart("kube-controller-manager")
    return control_plane


@pytest.fixture(scope="session")
def harbour(request, tmp_path_factory, namespaces_stay):
    """An installation that all flows share; it registers itself for all of its control plane."""
    with plane_for(request, tmp_path_factory, "harbour") as plane:
        plane.add_nodes(3)
        with Installation(plane, arguments={"controller": FLAGS}) as installation:
            # The garbage collector of now knows the kinds that came with it.
            plane.restart("kube-controller-manager")
            plane.kubectl("create", "-f=-", stdin=json.dumps(config(DEFAULTS)))
            yield Harbour(plane, installation, stays=namespaces_stay)


@pytest.fixture(scope="session")
def guarded(request, tmp_path_factory):
    """An installation with all guards; of its Deployments only the flags are taken."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "hardened").mkdir()
    hardened_overlay(folder / "hardened", "127.0.0.1/32")
    base = os.path.relpath(folder / "hardened", DEPLOY)
    guards = ("api-server-gate", "final-state-check")
    arguments = {"controller": (*FLAGS, "--metrics-allowed-addresses=127.0.0.0/8")}
    with plane_for(request, tmp_path_factory, "hardened", audit=True) as plane:
        plane.add_nodes(2)
        folder = overlay(folder / "overlay", *guards, base=base)
        with Installation(plane, arguments=arguments, folder=folder) as installation:
            plane.kubectl("create", "-f=-", stdin=json.dumps(config(DEFAULTS)))
            yield Harbour(plane, installation)


@pytest.fixture(scope="session")
def local_up(tmp_path_factory):
    """The folder in which ``local up`` started everything, and its result."""
    folder = tmp_path_factory.mktemp("local") / "harbour"
    yield folder, local("up", folder, "--audit")
    local("down", folder)


@pytest.fixture(scope="session")
def patient(request, tmp_path_factory):
    """An installation with its Deployments, which tests break and heal again."""
    with plane_for(request, tmp_path_factory, "deployed") as plane:
        plane.add_nodes(2)
        with DeployedInstallation(plane) as installation:
            plane.restart("kube-controller-manager")
            yield installation


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """The results of a module's ``CASES`` of rescheduling."""
    return outcomes_of(request, tmp_path_factory, request.module.CASES)


@pytest.fixture
def controller_flags():
    """Further flags of the controller; a test that needs others gives them by parametrize."""
    return ()


@pytest.fixture
async def client(harbour, controller_flags):
    """A client of the control plane with Harbourmaster in it."""
    harbour.use(controller_flags)
    async with client_of(harbour.plane.kubeconfig) as client:
        yield client


@pytest.fixture
def opts_in():
    """Whether the namespace of ``flow`` asks for gates; a module may say no."""
    return True


@pytest.fixture
async def flow(request, harbour, client, opts_in):
    """A namespace, and all that happens in it; nothing may crash meanwhile."""
    async with harbour.flow(client, request.node.name, enabled=opts_in) as flow:
        yield flow
        assert harbour.new_faults() == []
        assert harbour.restarts() == 0


@pytest.fixture
async def admin(control_plane):
    """The administrator's client of the shared control plane."""
    async with client_of(control_plane.kubeconfig) as client:
        yield client


@pytest.fixture
async def observer(patient):
    """A client of the control plane of ``patient``."""
    async with client_of(patient.plane.kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def planes(tmp_path_factory):
    """Two member API servers without any controllers; what they don't do, the tests do."""
    with two_planes(tmp_path_factory) as planes:
        yield planes


@pytest.fixture
async def world(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow:
        yield flow


@pytest.fixture(scope="module")
def gauges(tmp_path_factory):
    """A Prometheus whose values a module's tests set."""
    with scraping(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.fixture
async def members(planes):
    """Create the same namespace on all member ``planes``."""
    async with members_of(planes) as clusters:
        yield clusters
