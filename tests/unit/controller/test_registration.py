"""The objects of a registration: its Secret, its configurations, and break-glass mode."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.controller.registration import certificates
from harbourmaster.registration import break_glass
from helpers.patience import PATIENCE
from helpers.registration import (
    CONFIGURATIONS_PATH,
    HOME,
    KEYS,
    NAMES,
    SECRET,
    SECRETS_PATH,
    bundles_of,
    data_of,
    entry,
    served_leaf,
    trusts,
    with_data,
)

# Together they take as long as a thousand others.
pytestmark = pytest.mark.slow
WATCHES = 7


async def test_a_fresh_start_makes_the_secret_and_then_both_configurations(setting, api, events):
    setting.start()
    await setting.settle()
    data = data_of(setting.secret())
    assert set(data) == set(KEYS)
    assert served_leaf(setting.secret()).names == NAMES
    assert setting.secret()["type"] == "Opaque"
    assert set(setting.bundles()) == {data["ca.crt"]}
    created = [seen.path.rpartition("/")[2] for seen in api.seen("create")]
    assert created == [
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ]
    assert len(events.of("CertificateIssued")) == 1
    await events.until("Registered", 2)


async def test_a_new_leader_finds_everything_right(setting, api, events):
    await setting.stop(await _settled_tasks(setting))
    writes = len(api.seen("create")) + len(api.seen("update"))
    sent = list(events.sent)
    setting.start()
    await api.until_watched(WATCHES)
    await asyncio.sleep(0.05)
    assert len(api.seen("create")) + len(api.seen("update")) == writes
    assert events.sent == sent


async def _settled_tasks(setting, **values):
    tasks = setting.start(**values)
    await setting.settle()
    return tasks


async def test_new_settings_are_no_hand_edit(setting, events):
    await setting.stop(await _settled_tasks(setting))
    setting.start(webhook={"timeoutSeconds": 7})
    assert await events.until("Updated", 5) == (
        "timeoutSeconds of policies.harbourmaster.dev was 3 and is 7 now: change the setting "
        "webhook.timeoutSeconds to have another"
    )
    assert events.of("DriftRepaired") == []
    assert entry(setting.get(MUTATING_WEBHOOKS))["timeoutSeconds"] == 7


@pytest.mark.parametrize(
    "damage",
    [
        *({key.replace(".", "_"): value} for key in KEYS for value in (None, b"", b"garbage")),
        {"tls_crt": None, "tls_key": None},
        {"ca_crt": None, "ca_key": None},
        {"ca_crt": b"x", "ca_key": b"x", "tls_crt": b"x", "tls_key": b"x"},
        {"next__ca_crt": b""},
        {"next__ca_crt": b"garbage", "next__ca_key": b"garbage"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("publish", [0, 1])
@pytest.mark.parametrize("while_away", [False, True])
async def test_an_edited_secret_heals_and_no_served_leaf_is_ever_untrusted(
    setting, damage, publish, while_away
):
    timing = {"certificates": {"publishSeconds": publish}}
    tasks = await _settled_tasks(setting, **timing)
    before = setting.secret()
    if while_away:
        await setting.stop(tasks)
    setting.put(SECRETS, with_data(before, **damage))
    if while_away:
        setting.start(**timing)
    await _heals(setting)
    assert setting.observer().broken == []


async def _heals(setting):
    """Pass the time until the Secret is sound again and nothing is on its way."""

    # Publication counts by the clock and is looked at by timers: a look stands for each.
    def is_healed():
        secret = setting.secret()
        return setting.is_settled() and set(data_of(secret)) == set(KEYS)

    for _ in range(50):
        if is_healed():
            return
        setting.now += timedelta(seconds=0.5)
        setting.look()
        await asyncio.sleep(0.02)
    raise AssertionError(f"not healed: {sorted(data_of(setting.secret() or {}))}")


@pytest.mark.parametrize("while_away", [False, True])
async def test_a_deleted_secret_comes_back_after_everybody_trusts_its_authority(
    setting, api, while_away
):
    timing = {"certificates": {"publishSeconds": 1}}
    tasks = await _settled_tasks(setting, **timing)
    first = served_leaf(setting.secret()).serving_der
    if while_away:
        await setting.stop(tasks)
    api.remove(SECRETS, SECRET, HOME)
    if while_away:
        setting.start(**timing)
    await _heals(setting)
    observer = setting.observer()
    assert observer.broken == []
    assert served_leaf(setting.secret()).serving_der != first
    assert observer.order[-2:] == ["bundle", "leaf"]
    # Replicas that have not read the new one are trusted still.
    assert setting.trusts(first)


async def test_what_the_secret_has_lost_is_trusted_for_an_hour(setting, api):
    await _settled_tasks(setting)
    first = served_leaf(setting.secret()).serving_der
    authority = create_authority(setting.now)
    leaf = issue_serving_certificate(setting.now, authority, sorted(NAMES))
    setting.put(
        SECRETS,
        with_data(
            setting.secret(),
            ca_crt=authority.certificate,
            ca_key=authority.key,
            tls_crt=leaf.certificate,
            tls_key=leaf.key,
        ),
    )
    await setting.settle()
    bundle = bundles_of(setting.get(MUTATING_WEBHOOKS))[0]
    assert trusts(bundle, first)
    setting.now += timedelta(hours=1, seconds=1)
    setting.look()
    await setting.until(lambda: not trusts(bundles_of(setting.get(MUTATING_WEBHOOKS))[0], first))


async def test_a_bundle_lost_during_a_rotation_begins_the_publication_anew(setting, api, events):
    setting.start(certificates={"publishSeconds": 30})
    await setting.settle()
    setting.put(SECRETS, with_data(setting.secret(), next__ca_crt=b""))
    since = await setting.until(setting.publication)
    old = data_of(setting.secret())["ca.crt"]
    setting.now += timedelta(seconds=20)
    configuration = copy.deepcopy(setting.get(MUTATING_WEBHOOKS))
    encoded = certificates.base64.b64encode(old).decode()
    entry(configuration)["clientConfig"]["caBundle"] = encoded
    setting.put(MUTATING_WEBHOOKS, configuration)
    await events.until("DriftRepaired")
    await setting.until(lambda: setting.publication() not in {None, since})
    setting.now += timedelta(seconds=15)
    setting.look()
    await asyncio.sleep(0.02)
    assert data_of(setting.secret())["ca.crt"] == old


async def test_configurations_that_may_not_be_written_do_not_stop_certificates(
    setting, api, metrics
):
    api.forbid("create", MUTATING_WEBHOOKS)
    setting.start()
    await api.until_seen("create", "mutatingwebhook", 2)
    assert served_leaf(setting.secret(), NAMES) is not None
    errors = metrics.reconcile_errors.labels("registration", "ForbiddenError")
    assert errors._value.get() >= 1
    api.heal()
    await setting.settle()


@pytest.mark.parametrize("status", [409, 500, 429])
async def test_faults_of_writes_end_in_the_same_state(setting, api, status):
    api.fail_next("create", SECRETS_PATH, 2, status=status)
    api.fail_next("create", CONFIGURATIONS_PATH, 3, status=status)
    setting.start()
    await setting.settle()
    assert set(setting.bundles()) == {data_of(setting.secret())["ca.crt"]}
    assert setting.observer().broken == []


async def test_a_watch_that_is_behind_makes_no_second_secret(setting, api):
    setting.start()
    api.fail_next("create", SECRETS_PATH, 1, status=500)
    await api.until_watched(WATCHES)
    api.silence()
    await api.until_seen("create", SECRETS_PATH, 2)
    setting.look()
    await api.until_seen("create", SECRETS_PATH, 3)
    api.release()
    await setting.settle()
    assert len({seen.body for seen in api.seen("create", SECRETS_PATH)}) >= 2
    written = [obj for obj in api.objects.history if obj.resource == SECRETS]
    assert len(written) == 1


async def test_nothing_is_registered_for_a_namespace_that_ends(setting, api):
    setting.put(
        NAMESPACES,
        {
            "metadata": {
                "name": HOME,
                "finalizers": ["example.com/x"],
                "deletionTimestamp": "2026-03-01T00:00:00Z",
            }
        },
    )
    api.remove(NAMESPACES, HOME)
    setting.start()
    await api.until_seen("get", f"/namespaces/{HOME}$", 2)
    await asyncio.sleep(0.05)
    assert setting.get(MUTATING_WEBHOOKS) is None


async def test_a_secret_put_back_by_hand_ends_the_wait_for_a_new_one(setting, api):
    timing = {"certificates": {"publishSeconds": 30}}
    setting.start(**timing)
    await setting.settle()
    first = setting.secret()
    authority = data_of(first)["ca.crt"]
    api.remove(SECRETS, SECRET, HOME)
    await setting.until(lambda: all(len(bundle) > len(authority) for bundle in setting.bundles()))
    metadata = {"name": SECRET, "namespace": HOME}
    setting.put(SECRETS, {"metadata": metadata, "type": "Opaque", "data": first["data"]})
    setting.now += timedelta(seconds=60)
    setting.look()
    await asyncio.sleep(0.05)
    assert data_of(setting.secret()) == data_of(first)
    # The one that was announced is needed no more, and gone an hour after that was seen. A look
    # that changes nothing leaves no trace to wait for.
    async with asyncio.timeout(PATIENCE):
        while any(bundle != authority for bundle in setting.bundles()):
            setting.now += timedelta(hours=1)
            setting.look()
            await asyncio.sleep(0.01)
    assert setting.observer().broken == []


async def test_data_that_is_no_base64_is_healed(setting):
    await _settled_tasks(setting)
    spoiled = copy.deepcopy(setting.secret())
    spoiled["data"]["tls.key"] = "#"
    setting.put(SECRETS, spoiled)
    await _heals(setting)
    assert setting.observer().broken == []


def kupid(now, name="gardener-extension-webhook-cert"):
    authority = create_authority(now, common_name="webhook-ca", lifetime=timedelta(days=3650))
    leaf = issue_serving_certificate(now, authority, ["gardener-extension-kupid.harbour.svc"])
    data = {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "tls.crt": leaf.certificate,
        "tls.key": leaf.key,
    }
    secret = {"metadata": {"name": name, "namespace": HOME}, "type": "Opaque", "data": {}}
    changes = {key.replace(".", "_"): value for key, value in data.items()}
    return with_data(secret, **changes), authority.certificate


async def test_the_authority_of_kupid_is_taken_over(setting):
    secret, authority = kupid(setting.now)
    setting.put(SECRETS, secret)
    setting.start(certificates={"adoptSecret": "gardener-extension-webhook-cert"})
    await setting.settle()
    assert authority in data_of(setting.secret())["ca.crt"]
    assert all(authority in bundle for bundle in bundles_of(setting.get(MUTATING_WEBHOOKS)))
    theirs = setting.api.get(SECRETS, "gardener-extension-webhook-cert", HOME)
    assert theirs["data"] == secret["data"]


async def test_nothing_to_adopt_is_no_fault(setting, events):
    setting.start(certificates={"adoptSecret": "absent"})
    await setting.settle()
    assert served_leaf(setting.secret(), NAMES).names == NAMES
    assert {kind for *_, kind, _, _ in events.sent} == {"Normal"}


async def test_adoption_is_for_the_beginning_only(setting, api):
    tasks = await _settled_tasks(setting)
    await setting.stop(tasks)
    secret, authority = kupid(setting.now)
    setting.put(SECRETS, secret)
    setting.start(certificates={"adoptSecret": "gardener-extension-webhook-cert"})
    await api.until_watched(WATCHES)
    await asyncio.sleep(0.05)
    assert authority not in data_of(setting.secret())["ca.crt"]


async def test_no_key_is_in_a_log_or_an_event(setting, events, capfd):
    await _settled_tasks(setting)
    setting.put(SECRETS, with_data(setting.secret(), ca_key=b"garbage"))
    await _heals(setting)
    told = repr(events.sent) + "".join(capfd.readouterr())
    lines = data_of(setting.secret())["tls.key"].decode().splitlines()
    assert len(lines) > 2
    for line in lines:
        assert line not in told


@pytest.mark.parametrize("text", ['{"by": "ada", "reason": "fire"}', "fire"])
async def test_in_break_glass_mode_webhooks_fail_open_and_the_rest_is_kept(
    setting, events, metrics, text
):
    setting.start()
    before = copy.deepcopy((await setting.settle())[MUTATING_WEBHOOKS])
    glass = copy.deepcopy(before)
    glass["metadata"]["annotations"] = {break_glass.ANNOTATION: text}
    # What was not opened by hand is opened, and what has to do with it alone is left alone.
    entry(glass)["timeoutSeconds"] = 30
    setting.put(MUTATING_WEBHOOKS, glass)
    assert (await events.until("BreakGlassStarted")).endswith(
        "fire: all webhooks fail open and failurePolicy is not repaired: to end it, run "
        "harbourmaster doctor --break-glass off"
    )
    opened = await setting.until(
        lambda: (
            policies_of(setting.get(MUTATING_WEBHOOKS)) == {"Ignore"}
            and setting.get(MUTATING_WEBHOOKS)
        )
    )
    assert entry(opened)["timeoutSeconds"] == entry(before)["timeoutSeconds"]
    gauge = metrics.registration.break_glass
    assert gauge.labels(MUTATING_WEBHOOKS.kind)._value.get() == 1
    assert gauge.labels(VALIDATING_WEBHOOKS.kind)._value.get() == 0
    assert policies_of(setting.get(VALIDATING_WEBHOOKS)) == {"Fail", "Ignore"}
    closed = copy.deepcopy(opened)
    del closed["metadata"]["annotations"]
    setting.put(MUTATING_WEBHOOKS, closed)
    await events.until("BreakGlassEnded")
    await setting.until(lambda: setting.get(MUTATING_WEBHOOKS)["webhooks"] == before["webhooks"])
    assert gauge.labels(MUTATING_WEBHOOKS.kind)._value.get() == 0


async def test_break_glass_mode_that_started_before_we_lead_is_respected(setting, events):
    await setting.stop(await _settled_tasks(setting))
    glass = break_glass.with_break_glass(
        setting.get(VALIDATING_WEBHOOKS), break_glass.BreakGlass(reason="fire")
    )
    setting.put(VALIDATING_WEBHOOKS, glass)
    setting.start()
    await events.until("BreakGlassStarted")
    setting.look()
    await asyncio.sleep(0.05)
    assert policies_of(setting.get(VALIDATING_WEBHOOKS)) == {"Ignore"}
    assert events.of("DriftRepaired") == []


def policies_of(configuration):
    return {webhook["failurePolicy"] for webhook in configuration["webhooks"]}
