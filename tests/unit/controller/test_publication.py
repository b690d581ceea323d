"""A lost caBundle counts, though carriers repair it before the next look at certificates."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from types import SimpleNamespace

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from harbourmaster.controller.registration import certificates
from harbourmaster.registration.trust import Trust
from helpers.registration import NAME, NAMES, SECRET, bundles_of, entry, with_data

pytestmark = pytest.mark.slow
OURS = f"/{SECRET}$"


@pytest.fixture
def until_cached(setting):
    """A function that waits until the controller's cache has these caBundles."""

    async def wait(bundles):
        cache = next(
            reflector
            for reflector in setting.controller.reflectors
            if reflector.resource == MUTATING_WEBHOOKS
        )
        changed = asyncio.Event()
        cache.subscribe(lambda _keys: changed.set())
        while bundles_of(cache.store.get(NAME)) != bundles:
            changed.clear()
            await changed.wait()

    return wait


async def test_a_publication_begins_anew_though_the_watch_shows_the_repair_before_the_look(
    setting, api, until_cached
):
    setting.start(certificates={"publishSeconds": 30})
    await setting.settle()
    old = setting.authority()
    setting.put(SECRETS, with_data(setting.secret(), next__ca_crt=b""))
    await setting.until(setting.publication)
    # A look at certificates hangs, so that carriers come before the next one.
    api.fail_next("update", OURS, kind="hang")
    unpublished = copy.deepcopy(setting.secret())
    del unpublished["metadata"]["annotations"]
    writes = len(api.seen("update", OURS))
    setting.put(SECRETS, unpublished)
    await api.until_seen("update", OURS, writes + 1)
    since = setting.now.isoformat()
    setting.now += timedelta(seconds=20)
    # Carriers have two to repair, and hang at the second until the first repair is seen.
    validating = copy.deepcopy(setting.get(VALIDATING_WEBHOOKS))
    entry(validating, "policies.harbourmaster.dev")["timeoutSeconds"] = 30
    setting.put(VALIDATING_WEBHOOKS, validating)
    mutating = setting.get(MUTATING_WEBHOOKS)
    lacking = copy.deepcopy(mutating)
    entry(lacking)["clientConfig"]["caBundle"] = old
    setting.put(MUTATING_WEBHOOKS, lacking)
    await until_cached(bundles_of(lacking))
    api.fail_next("update", "/validatingwebhook", kind="hang")
    repairs = len(api.seen("update", "/validatingwebhook"))
    api.release()
    await api.until_seen("update", "/validatingwebhook", repairs + 1)
    await until_cached(bundles_of(mutating))
    api.release()
    await setting.until(lambda: setting.publication() not in {None, since})
    assert setting.publication() == setting.now.isoformat()


async def test_the_next_look_counts_from_the_end_of_a_decision(setting, monkeypatch):
    lifetimes = {"caLifetimeSeconds": 3600, "leafLifetimeSeconds": 300, "publishSeconds": 0}
    setting.start(certificates=lifetimes)
    await setting.settle()
    decided = []

    async def decide_slowly(*arguments):
        decided.append(await decide(*arguments))
        setting.now += timedelta(seconds=20)
        return decided[-1]

    decide = certificates.decide
    monkeypatch.setattr(certificates, "decide", decide_slowly)
    bundles = SimpleNamespace(bundles=list, present_bundles=list)
    names = (tuple(NAMES), tuple(NAMES))
    reconciler = certificates.CertificateReconciler(setting.runtime, names, Trust(), bundles, print)
    delay = await reconciler.reconcile()
    assert delay == (decided[-1].until - setting.now).total_seconds()
