"""The APIServices of the custom metrics API carry our authorities, as conversions do."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.api.resources import API_SERVICES
from harbourmaster.certs.authority import create_authority
from harbourmaster.controller.registration.ca_injector import SERVED
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from helpers.patience import PATIENCE
from helpers.registration import CONFIGURATIONS, HOME, NAME, Registration, data_of

FOREIGN = base64.b64encode(create_authority(datetime.now(UTC)).certificate).decode()
FIRST, SECOND = SERVED


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


class Setting(Registration):
    def spec(self, name=FIRST):
        return self.api.get(API_SERVICES, name)["spec"]

    def bundle(self, name):
        return self.spec(name).get("caBundle")

    def is_registered(self):
        return all(
            ("", NAME) in self.api.objects.all(configuration) for configuration in CONFIGURATIONS
        )

    def patches(self):
        return self.api.seen("patch", API_SERVICES.plural)


@pytest.fixture
def setting(api, client, events, metrics, background):
    return Setting(api, client, events, metrics, background)


async def test_both_get_the_authority_and_nothing_else_changes(setting, api, events):
    before = {name: api.put(API_SERVICES, api_service(name)) for name in SERVED}
    setting.start()
    await setting.until(lambda: setting.carries(*SERVED))
    for name, stored in before.items():
        after = dict(setting.spec(name))
        del after["caBundle"]
        assert after == stored["spec"]
    assert await events.until("Updated", 2) == "caBundle of the APIService carries our authorities"


async def test_it_goes_by_a_patch_that_tests_where_the_api_service_leads(setting, api):
    api.put(API_SERVICES, api_service())
    setting.start()
    await setting.until(lambda: setting.carries(FIRST))
    (seen,) = setting.patches()
    tests = [operation for operation in msgspec.json.decode(seen.body) if operation["op"] == "test"]
    assert {test["path"]: test["value"] for test in tests} == {
        "/spec/service/namespace": HOME,
        "/spec/service/name": "harbourmaster-metrics",
    }


@pytest.mark.parametrize(
    "service",
    [
        {"service": "prometheus-adapter", "namespace": "monitoring"},
        {"service": "metrics-operator-service", "namespace": "keptn-system"},
        {"namespace": "elsewhere"},
    ],
)
async def test_what_leads_to_somebody_else_is_left_alone(setting, api, service):
    before = api.put(API_SERVICES, api_service(**service, caBundle=FOREIGN))
    api.put(API_SERVICES, api_service(SERVED[1]))
    setting.start()
    await setting.until(lambda: setting.carries(SERVED[1]))
    assert setting.spec() == before["spec"]
    assert len(setting.patches()) == 1


async def test_whoever_answers_is_not_believed_any_more(setting, api):
    api.put(API_SERVICES, api_service(insecureSkipTLSVerify=True))
    setting.start()
    await setting.until(lambda: setting.carries(FIRST))
    assert setting.spec()["insecureSkipTLSVerify"] is False


async def test_without_the_kind_all_else_is_kept(setting, api):
    api.undefine(API_SERVICES)
    setting.start()
    await setting.until(setting.is_registered)
    assert all(reflector.synced.is_set() for reflector in setting.controller.reflectors)


async def test_what_may_not_be_written_keeps_nothing_else_from_it(setting, api):
    api.put(API_SERVICES, api_service())
    api.fail_next("patch", API_SERVICES.plural, None, status=403)
    setting.start()
    await setting.until(lambda: setting.is_registered() and setting.patches())
    assert setting.secret() is not None


async def test_one_that_may_not_be_written_keeps_the_other_from_nothing(setting, api):
    for name in (FIRST, SECOND):
        api.put(API_SERVICES, api_service(name))
    api.fail_next("patch", f"/{FIRST}$", None, status=403)
    setting.start()
    await setting.until(lambda: setting.carries(SECOND))
    assert "caBundle" not in setting.spec(FIRST)


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
