"""Objects that refer to a Service of ours carry our authorities: definitions and APIServices."""

from __future__ import annotations

import asyncio
import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS
from harbourmaster.certs.authority import create_authority
from harbourmaster.controller.registration import certificates
from harbourmaster.controller.registration.ca_injector import (
    API_SERVICE,
    CONVERSION,
    CONVERTED,
    SERVED,
    decode_definition,
)
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from helpers.patience import PATIENCE
from helpers.registration import CONFIGURATIONS, HOME, NAME, Registration, bundles_of, data_of

APPS, VERSIONS = CONVERTED
FIRST, SECOND = SERVED
DEFINITIONS_PATH = "customresourcedefinitions"
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


def api_service(name=FIRST, service="harbourmaster-metrics", namespace=HOME, **spec):
    version, _, group = name.partition(".")
    return {
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": service, "namespace": namespace, "port": 443},
            **spec,
        },
    }


class Kind(NamedTuple):
    """A kind of objects with a caBundle, and how a test makes one."""

    field: Any
    names: tuple[str, str]
    make: Any

    def client_of(self, stored):
        """Return the part with the Service and the caBundle."""
        for key in self.field.path.split("/")[1:]:
            stored = stored[key]
        return stored


KINDS = (Kind(CONVERSION, CONVERTED, definition), Kind(API_SERVICE, SERVED, api_service))
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.field.resource.kind)


class Setting(Registration):
    def client_of(self, name):
        kind = next(kind for kind in KINDS if name in kind.names)
        return kind.client_of(self.api.get(kind.field.resource, name))

    def bundle(self, name):
        return self.client_of(name).get("caBundle", "")

    def is_registered(self):
        return all(
            ("", NAME) in self.api.objects.all(configuration) for configuration in CONFIGURATIONS
        )

    async def until_cached(self):
        """Wait until the caches know that all carry the authority."""
        _, *configurations, apps = (reflector.store for reflector in self.controller.reflectors[:4])
        while not (  # noqa: ASYNC110 - a cache tells its controller, which we are not
            all(NAME in store for store in configurations)
            and apps.get(APPS).ca_bundle == self.authority()
        ):
            await asyncio.sleep(0)

    def patched_names(self):
        """Return the names of the objects that were patched."""
        seen = self.api.seen("patch", f"{DEFINITIONS_PATH}|{API_SERVICES.plural}")
        return [patch.path.rpartition("/")[2] for patch in seen]


@pytest.fixture
def setting(api, client, events, metrics, background):
    return Setting(api, client, events, metrics, background)


@kinds
async def test_both_objects_get_the_authority_and_nothing_else_changes(setting, api, events, kind):
    before = {name: api.put(kind.field.resource, kind.make(name)) for name in kind.names}
    setting.start()
    await setting.until(lambda: setting.carries(*kind.names))
    for name, stored in before.items():
        after = copy.deepcopy(api.get(kind.field.resource, name))
        del kind.client_of(after)["caBundle"]
        assert after["spec"] == stored["spec"]
    text = f"{kind.field.title} carries our authorities"
    assert await events.until("Updated", 2) == text


@kinds
async def test_it_goes_by_a_patch_that_tests_where_the_object_leads(setting, api, kind):
    stored = api.put(kind.field.resource, kind.make())
    setting.start()
    await setting.until(lambda: setting.carries(kind.names[0]))
    (patch,) = api.seen("patch", kind.field.resource.plural)
    *tests, added = msgspec.json.decode(patch.body)
    service = kind.client_of(stored)["service"]
    assert tests == [
        {"op": "test", "path": f"{kind.field.path}/service/{key}", "value": service[key]}
        for key in ("namespace", "name")
    ]
    assert (added["op"], added["path"]) == ("add", f"{kind.field.path}/caBundle")
    assert patch.headers["Content-Type"] == "application/json-patch+json"


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        (KINDS[0], definition(service="lifecycle-webhook-service", namespace="keptn-system")),
        (KINDS[0], definition(namespace="elsewhere")),
        (KINDS[0], {"metadata": {"name": APPS}, "spec": {"conversion": {"strategy": "None"}}}),
        (KINDS[0], {"metadata": {"name": APPS}, "spec": {}}),
        (KINDS[1], api_service(service="prometheus-adapter", namespace="monitoring")),
        (KINDS[1], api_service(service="metrics-operator-service", namespace="keptn-system")),
        (KINDS[1], api_service(namespace="elsewhere", caBundle=FOREIGN)),
    ],
)
async def test_what_leads_to_others_is_left_alone(setting, api, kind, theirs):
    before = api.put(kind.field.resource, theirs)
    api.put(kind.field.resource, kind.make(kind.names[1]))
    setting.start()
    await setting.until(lambda: setting.carries(kind.names[1]))
    assert setting.patched_names() == [kind.names[1]]
    assert api.get(kind.field.resource, kind.names[0])["spec"] == before["spec"]


@kinds
async def test_what_may_not_be_written_keeps_nothing_else_from_it(setting, api, kind):
    api.put(kind.field.resource, kind.make())
    api.fail_next("patch", kind.field.resource.plural, None, status=403)
    setting.start(certificates={"publishSeconds": 30})
    await setting.until(lambda: setting.is_registered() and setting.patched_names())
    assert setting.secret() is not None


async def test_a_definition_that_comes_later_is_served_at_once(setting, api):
    setting.start()
    await setting.until(setting.secret)
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))


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
    await setting.until(setting.patched_names)
    api.put(DEFINITIONS, definition(service="theirs"))
    api.put(DEFINITIONS, definition(VERSIONS))
    await setting.until(lambda: setting.carries(VERSIONS))
    assert setting.bundle(APPS) == ""


def test_schemas_are_not_kept():
    decoded = decode_definition(msgspec.json.encode({**definition(), "status": {}}))
    assert (decoded.service.namespace, decoded.service.name) == (HOME, "harbourmaster-webhook")
    assert len(msgspec.json.encode(decoded)) < 400


async def test_whoever_answers_is_not_believed_any_more(setting, api):
    api.put(API_SERVICES, api_service(insecureSkipTLSVerify=True))
    setting.start()
    await setting.until(lambda: setting.carries(FIRST))
    assert setting.client_of(FIRST)["insecureSkipTLSVerify"] is False


async def test_without_the_kind_all_else_is_kept(setting, api):
    api.undefine(API_SERVICES)
    setting.start()
    await setting.until(setting.is_registered)
    assert all(reflector.synced.is_set() for reflector in setting.controller.reflectors)


async def test_one_that_may_not_be_written_keeps_the_other_from_nothing(setting, api):
    for name in (FIRST, SECOND):
        api.put(API_SERVICES, api_service(name))
    api.fail_next("patch", f"/{FIRST}$", None, status=403)
    setting.start()
    await setting.until(lambda: setting.carries(SECOND))
    assert "caBundle" not in setting.client_of(FIRST)


async def test_without_the_api_nothing_of_it_is_read(setting, api):
    setting.start(metrics={"customMetricsApi": False})
    await setting.until(setting.is_registered)
    assert api.seen("*", API_SERVICES.plural) == []
    settings = msgspec.convert({"metrics": {"customMetricsApi": False}}, ControllerSettings)
    assert {name.partition(".")[0] for name in names_of(settings, HOME)} == {
        "harbourmaster-webhook"
    }


def test_where_a_scheduler_is_answered_the_certificate_has_its_service_s_name():
    values = {"scheduler": {"enabled": True, "serviceName": "asked"}}
    names = names_of(msgspec.convert(values, ControllerSettings), HOME)
    assert {"asked", f"asked.{HOME}.svc"} < set(names)


async def test_a_secret_of_an_older_version_gets_a_leaf_with_the_new_names(setting, api):
    setting.start(metrics={"customMetricsApi": False})
    await setting.until(lambda: setting.secret() is not None and setting.is_registered())
    leaf, authority = (data_of(setting.secret())[key] for key in ("tls.crt", "ca.crt"))
    again = Setting(api, setting.client, setting.events, setting.metrics, setting.background)
    again.start()
    await again.until(lambda: data_of(again.secret())["tls.crt"] != leaf)
    # The names are no reason for another authority.
    assert data_of(again.secret())["ca.crt"] == authority


async def test_every_replica_hears_of_a_new_leaf(setting):
    heard = asyncio.Event()
    setting.start()
    setting.runtime.secret.subscribe(lambda _keys: heard.set())
    async with asyncio.timeout(PATIENCE):
        await heard.wait()
    assert setting.runtime.secret_data()["tls.crt"]
