from __future__ import annotations

import asyncio
import base64
import copy
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.resources import DEFINITIONS
from harbourmaster.certs.authority import create_authority
from harbourmaster.controller.registration import certificates
from harbourmaster.controller.registration.ca_injector import CONVERTED, decode_definition
from helpers.registration import CONFIGURATIONS, HOME, NAME, Registration, bundles_of, data_of

APPS = "keptnapps.lifecycle.keptn.sh"
DEFINITIONS_PATH = "customresourcedefinitions"
VERSIONS = "keptnappversions.lifecycle.keptn.sh"
FOREIGN = base64.b64encode(create_authority(datetime.now(UTC)).certificate).decode()


def definition(name=APPS, service="harbourmaster-webhook", namespace=HOME, **client):
    return {
        "metadata": {"name": name},
        "spec": {
            "group": "lifecycle.keptn.sh",
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {
                        "service": {"name": service, "namespace": namespace, "path": "/convert"},
                        **client,
                    },
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    }


def client_of(stored):
    return stored["spec"]["conversion"]["webhook"]["clientConfig"]


class Setting(Registration):
    def bundle(self, name):
        return client_of(self.api.get(DEFINITIONS, name)).get("caBundle", "")

    async def until_cached(self):
        """Wait until the caches know that all carry the authority."""
        _, *configurations, apps = (reflector.store for reflector in self.controller.reflectors[:4])
        while not (  # noqa: ASYNC110 - a cache tells its controller, which we are not
            all(NAME in store for store in configurations)
            and apps.get(APPS).ca_bundle == self.authority()
        ):
            await asyncio.sleep(0)

    def patches(self):
        return self.api.seen("patch", DEFINITIONS_PATH)


@pytest.fixture
def setting(api, client, events, metrics, background):
    return Setting(api, client, events, metrics, background)


async def test_both_definitions_get_the_authority_and_nothing_else_changes(setting, api, events):
    before = {name: api.put(DEFINITIONS, definition(name)) for name in CONVERTED}
    setting.start()
    await setting.until(lambda: setting.carries(*CONVERTED))
    for name, stored in before.items():
        after = copy.deepcopy(api.get(DEFINITIONS, name))
        del client_of(after)["caBundle"]
        assert after["spec"] == stored["spec"]
    assert await events.until("Updated", 2) == "caBundle of the conversion carries our authorities"


async def test_it_goes_by_a_patch_that_tests_where_the_conversion_leads(setting, api):
    api.put(DEFINITIONS, definition())
    setting.start()
    await setting.until(lambda: setting.carries(APPS))
    (patch,) = setting.patches()
    operations = msgspec.json.decode(patch.body)
    assert [operation["op"] for operation in operations] == ["test", "test", "add"]
    assert patch.headers["Content-Type"] == "application/json-patch+json"


async def test_absent_definitions_keep_nothing_from_being_registered(setting, api):
    setting.start()
    await setting.until(
        lambda: all(
            (("", NAME) in api.objects.all(configuration)) for configuration in CONFIGURATIONS
        )
    )
    assert setting.patches() == []


async def test_a_definition_that_comes_later_is_served_at_once(setting, api):
    setting.start()
    await setting.until(setting.secret)
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))


@pytest.mark.parametrize(
    "theirs",
    [
        definition(service="lifecycle-webhook-service", namespace="keptn-system"),
        definition(namespace="elsewhere"),
        {"metadata": {"name": APPS}, "spec": {"conversion": {"strategy": "None"}}},
        {"metadata": {"name": APPS}, "spec": {}},
    ],
)
async def test_what_others_convert_is_left_alone(setting, api, theirs):
    api.put(DEFINITIONS, theirs)
    api.put(DEFINITIONS, definition(VERSIONS))
    setting.start()
    await setting.until(lambda: setting.carries(VERSIONS))
    assert [patch.path.rpartition("/")[2] for patch in setting.patches()] == [VERSIONS]


async def test_the_service_is_that_of_the_settings(setting, api):
    api.put(DEFINITIONS, definition(service="hm", namespace="other"))
    setting.start(webhook={"serviceName": "hm", "serviceNamespace": "other"})
    await setting.until(lambda: setting.carries(APPS))


@pytest.mark.parametrize("broken", [None, FOREIGN, "bm8gUEVN", "no base64"])
async def test_a_bundle_changed_by_hand_is_repaired_and_told_of(setting, api, events, broken):
    api.put(DEFINITIONS, definition())
    setting.start()
    await setting.until(lambda: setting.carries(APPS))
    api.put(DEFINITIONS, definition(**({} if broken is None else {"caBundle": broken})))
    await events.until("DriftRepaired")
    assert setting.carries(APPS)
    repairs = "harbourmaster_registration_repairs_total"
    labels = {"kind": "CustomResourceDefinition", "field": "conversion.caBundle"}
    assert setting.metrics.registry.get_sample_value(repairs, labels) == 1


async def test_the_same_authorities_in_another_form_are_left_alone(setting, api):
    api.put(DEFINITIONS, definition())
    setting.start()
    await setting.until(lambda: setting.carries(APPS))
    same = base64.b64encode(b"# ours\n" + base64.b64decode(setting.authority())).decode()
    api.put(DEFINITIONS, definition(caBundle=same))
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))
    assert setting.bundle(APPS) == same


async def test_a_foreign_authority_is_trusted_nowhere(setting, api):
    api.put(DEFINITIONS, definition(caBundle=FOREIGN))
    setting.start()
    await setting.until(lambda: setting.carries(APPS))
    for resource in CONFIGURATIONS:
        for bundle in bundles_of(
            await setting.until(lambda resource=resource: stored_configuration(api, resource))
        ):
            assert base64.b64decode(FOREIGN) not in bundle


def stored_configuration(api, resource):
    return api.objects.all(resource).get(("", NAME))


async def test_a_first_certificate_waits_for_no_definition(setting, api):
    api.put(DEFINITIONS, definition())
    api.fail_next("patch", DEFINITIONS_PATH, None, status=403)
    setting.start(certificates={"publishSeconds": 30})
    await setting.until(setting.secret)


async def test_a_new_authority_serves_only_once_the_definitions_carry_it(setting, api):
    api.put(DEFINITIONS, definition())
    timing = {"caLifetimeSeconds": 3600 * 24, "leafLifetimeSeconds": 3600 * 6}
    setting.start(certificates={**timing, "publishSeconds": 30})
    await setting.until(lambda: setting.carries(APPS))
    await setting.until(
        lambda: all(stored_configuration(api, configuration) for configuration in CONFIGURATIONS)
    )
    await setting.until_cached()
    for _ in range(3):
        leaf = data_of(setting.secret())["tls.crt"]
        setting.now += timedelta(hours=4, minutes=6)
        setting.controller.enqueue(())
        await setting.until(lambda leaf=leaf: data_of(setting.secret())["tls.crt"] != leaf)
    first = data_of(setting.secret())["ca.crt"]
    api.fail_next("patch", DEFINITIONS_PATH, None, status=500)
    # The authority is due for renewal, and the leaf is not.
    setting.now += timedelta(hours=3, minutes=54)
    setting.controller.enqueue(())
    upcoming = await setting.until(lambda: data_of(setting.secret()).get("next-ca.crt"))
    await setting.until(
        lambda: all(
            upcoming in bundle
            for resource in CONFIGURATIONS
            for bundle in bundles_of(stored_configuration(api, resource))
        )
    )
    for _ in range(3):
        setting.now += timedelta(seconds=31)
        setting.controller.enqueue(())
        await asyncio.sleep(0.02)
    assert certificates.PUBLISHED not in setting.secret()["metadata"].get("annotations", {})
    assert data_of(setting.secret())["ca.crt"] == first
    api.heal()
    setting.controller.enqueue(())
    await setting.until(
        lambda: certificates.PUBLISHED in setting.secret()["metadata"].get("annotations", {})
    )
    assert upcoming in base64.b64decode(setting.bundle(APPS))
    setting.now += timedelta(seconds=31)
    setting.controller.enqueue(())
    await setting.until(lambda: data_of(setting.secret())["ca.crt"].startswith(upcoming))


async def test_a_definition_that_may_not_be_written_is_not_waited_for(setting, api):
    api.put(DEFINITIONS, definition())
    api.fail_next("patch", DEFINITIONS_PATH, None, status=403)
    timing = {"caLifetimeSeconds": 3600 * 24, "leafLifetimeSeconds": 3600 * 23}
    setting.start(certificates={**timing, "publishSeconds": 0})
    await setting.until(
        lambda: all(stored_configuration(api, configuration) for configuration in CONFIGURATIONS)
    )
    first = data_of(setting.secret())["ca.crt"]
    setting.now += timedelta(hours=16, minutes=30)
    setting.controller.enqueue(())
    await setting.until(lambda: data_of(setting.secret())["ca.crt"] != first)


async def test_a_fight_ends_in_one_repair_a_minute(setting, api, events):
    api.put(DEFINITIONS, definition())
    setting.start()
    await setting.until(lambda: setting.carries(APPS))
    for count in range(1, 7):
        api.put(DEFINITIONS, definition(caBundle=FOREIGN))
        await events.until("DriftRepaired", count)
    await events.until("FieldFight")
    api.put(DEFINITIONS, definition(caBundle=FOREIGN))
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))
    assert setting.bundle(APPS) == FOREIGN


async def test_one_that_leads_elsewhere_meanwhile_is_not_written(setting, api):
    api.put(DEFINITIONS, definition())
    api.fail_next("patch", DEFINITIONS_PATH, status=422)
    setting.start()
    await setting.until(setting.patches)
    api.put(DEFINITIONS, definition(service="theirs"))
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))
    assert setting.bundle(APPS) == ""


def test_schemas_are_not_kept():
    decoded = decode_definition(msgspec.json.encode({**definition(), "status": {}}))
    assert (decoded.service.namespace, decoded.service.name) == (HOME, "harbourmaster-webhook")
    assert len(msgspec.json.encode(decoded)) < 400
