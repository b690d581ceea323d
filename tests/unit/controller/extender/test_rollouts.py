"""The second scheduler is rolled out once for each authority that signs our certificate."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.errors import UnreadableError
from harbourmaster.certs.model import BundleFiles
from harbourmaster.certs.reload import TlsOptions
from harbourmaster.certs.rotation import mark_of
from harbourmaster.controller.extender.rollouts import MARK, RolloutReconciler, rollouts_controller
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.certificates import MountedCertificate
from helpers.patience import PATIENCE

HOME = "harbourmaster-system"
NAME = "harbourmaster-scheduler"
NOW = datetime.now(UTC)
OTHERS = {"kubectl.kubernetes.io/default-container": "scheduler"}


def bundle():
    """A leaf of an authority of its own."""
    authority = create_authority(NOW)
    leaf = issue_serving_certificate(NOW, authority, ("hm.svc",))
    return parse_bundle(
        BundleFiles(ca_crt=authority.certificate, tls_crt=leaf.certificate, tls_key=leaf.key)
    )


BEFORE, AFTER = bundle(), bundle()


class ServingCertificate:
    """A stand-in for the certificate of the Secret."""

    def __init__(self, bundle):
        self.current = bundle
        self.on_change = []

    async def bundle(self):
        if self.current is None:
            raise UnreadableError("tls.crt is missing")
        return self.current

    def change(self, bundle):
        self.current = bundle
        for listener in self.on_change:
            listener()


@pytest.fixture
def leaf():
    return ServingCertificate(BEFORE)


@pytest.fixture
def runtime(client, events, metrics):
    return Runtime(ControllerSettings(), client, HOME, events=events, metrics=metrics)


@pytest.fixture
def rollouts(api, runtime, leaf):
    api.define(DEPLOYMENTS)
    return RolloutReconciler(runtime, leaf, NAME)


def deploy(api, name=NAME, annotations=OTHERS):
    """A scheduler whose pods have these annotations."""
    metadata = {"labels": {"a": "b"}}
    if annotations is not None:
        metadata["annotations"] = annotations
    spec = {"replicas": 2, "template": {"metadata": metadata}}
    return api.put(DEPLOYMENTS, {"metadata": {"name": name, "namespace": HOME}, "spec": spec})


def template(api, name=NAME):
    return api.get(DEPLOYMENTS, name, HOME)["spec"]["template"]


@pytest.mark.parametrize("annotations", [None, {}, OTHERS, {**OTHERS, MARK: "0123"}])
async def test_the_template_gets_the_mark_and_nothing_else(api, rollouts, events, annotations):
    deploy(api, annotations=annotations)
    deploy(api, name="ledger")
    await rollouts.reconcile(NAME)
    wanted = {**(annotations or {}), MARK: mark_of(BEFORE)}
    assert template(api)["metadata"] == {"labels": {"a": "b"}, "annotations": wanted}
    assert api.get(DEPLOYMENTS, NAME, HOME)["spec"]["replicas"] == 2
    assert MARK not in template(api, "ledger")["metadata"]["annotations"]
    assert len(events.of("AuthorityChanged")) == 1


async def test_one_that_knows_the_authority_is_left_alone(api, rollouts, events):
    deploy(api, annotations={MARK: mark_of(BEFORE)})
    await rollouts.reconcile(NAME)
    assert api.seen("patch") == []
    assert events.sent == []


async def test_each_authority_rolls_out_once_though_somebody_takes_the_mark_away(
    api, rollouts, leaf
):
    deploy(api)
    await rollouts.reconcile(NAME)
    deploy(api)
    await rollouts.reconcile(NAME)
    assert MARK not in template(api)["metadata"]["annotations"]
    leaf.current = AFTER
    await rollouts.reconcile(NAME)
    assert template(api)["metadata"]["annotations"][MARK] == mark_of(AFTER)
    assert len(api.seen("patch")) == 2


async def test_without_a_scheduler_or_a_certificate_nothing_happens(api, rollouts, leaf, events):
    await rollouts.reconcile(NAME)
    leaf.current = None
    deploy(api)
    await rollouts.reconcile(NAME)
    assert api.seen("patch") == []
    assert events.sent == []


async def test_one_that_is_made_later_knows_what_is_there_then(api, rollouts):
    await rollouts.reconcile(NAME)
    deploy(api)
    await rollouts.reconcile(NAME)
    assert api.seen("patch") == []


async def test_without_the_right_it_is_said_once(api, rollouts, events):
    deploy(api)
    api.fail_next("patch", status=403)
    await rollouts.reconcile(NAME)
    await rollouts.reconcile(NAME)
    assert len(api.seen("patch")) == 1
    assert events.sent == []


async def test_a_failed_attempt_is_made_again_and_a_new_authority_calls(
    api, runtime, leaf, events, lead
):
    api.define(DEPLOYMENTS)
    deploy(api)
    api.fail_next("patch", status=500)
    lead(rollouts_controller(runtime, leaf, NAME))
    async with asyncio.timeout(PATIENCE):
        await events.until("AuthorityChanged")
        leaf.change(AFTER)
        await events.until("AuthorityChanged", 2)
    assert template(api)["metadata"]["annotations"][MARK] == mark_of(AFTER)


async def test_a_mounted_certificate_calls_too(api, runtime, events, lead, background, tmp_path):
    api.define(DEPLOYMENTS)
    deploy(api)
    leaf = MountedCertificate("extender", TlsOptions(), str(tmp_path))
    lead(rollouts_controller(runtime, leaf, NAME))
    # It looks, and there is nothing yet.
    await asyncio.sleep(0.05)
    mount(tmp_path, BEFORE)
    async with asyncio.timeout(PATIENCE):
        holder = await leaf.first()
        await events.until("AuthorityChanged")
        background(leaf.keep(holder))
        mount(tmp_path, AFTER)
        await events.until("AuthorityChanged", 2)
    assert template(api)["metadata"]["annotations"][MARK] == mark_of(AFTER)


def mount(directory, bundle):
    """Replace all files at once, as the kubelet does."""
    generation = directory / f"..{mark_of(bundle)}"
    generation.mkdir()
    files = bundle.files
    for name, content in (
        ("ca.crt", files.ca_crt),
        ("tls.crt", files.tls_crt),
        ("tls.key", files.tls_key),
    ):
        (generation / name).write_bytes(content)
    link = directory / "..new"
    link.symlink_to(generation.name)
    link.rename(directory / "..data")
