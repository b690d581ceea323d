"""The definitions and conversions that ``harbourmaster uninstall`` keeps, deletes or turns off."""

from __future__ import annotations

from harbourmaster.api.resources import APPS, DEFINITIONS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.cli.installed import DEFAULT_NAMESPACE, WEBHOOK
from helpers.uninstalling import POLICY_CRD, calls, done, install, names, put, run


async def test_definitions_go_with_the_flag(api, client):
    install(api)
    told = await done(client, delete_definitions=True)
    assert f"definitions: deleted {POLICY_CRD}" in told
    assert names(api, DEFINITIONS) == []


async def test_definitions_that_kupid_uses_stay(api, client):
    install(api)
    kupid = calls("kupid", "gardener-extension-kupid", "mutate.kupid.gardener.cloud")
    put(api, MUTATING_WEBHOOKS, "gardener-extension-kupid", labels={}, webhooks=[kupid])
    told = await done(client, delete_definitions=True, code=1)
    assert f"left: definition {POLICY_CRD}: kupid is registered and uses it" in told
    assert names(api, DEFINITIONS) == [POLICY_CRD]
    assert names(api, MUTATING_WEBHOOKS) == ["gardener-extension-kupid"]


APPS_CRD = f"{APPS.plural}.{APPS.group}"


def put_converted(api, service, namespace=DEFAULT_NAMESPACE):
    client = {"service": {"name": service, "namespace": namespace}, "caBundle": "eA=="}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
    spec = {"group": APPS.group, "conversion": conversion}
    put(api, DEFINITIONS, APPS_CRD, labels={}, spec=spec)


async def test_kept_definitions_are_read_without_us(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    put(api, APPS, "ledger", namespace="shop", labels={})
    told = await done(client)
    assert f"conversions: turned off {APPS_CRD}" in told
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"] == {"strategy": "None"}
    kept = "1 policy and 1 object of Keptn's kinds"
    assert f"definitions: kept 2, with {kept}; --delete-crds deletes them all" in told
    assert names(api, APPS) == ["ledger"]


async def test_conversions_go_before_the_webhook_that_makes_them(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    await run(client)
    paths = [seen.path for seen in api.seen("*", "customresourcedefinitions/|deployments/harbour")]
    assert paths.index(next(path for path in paths if path.endswith(APPS_CRD))) < paths.index(
        next(path for path in paths if path.endswith(WEBHOOK))
    )


async def test_conversions_of_others_stay(api, client):
    put_converted(api, "lifecycle-webhook-service", "keptn-system")
    told = await done(client)
    assert not any(line.startswith("conversions") for line in told)
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"]["strategy"] == "Webhook"


async def test_a_dry_run_turns_no_conversion_off(api, client):
    put_converted(api, WEBHOOK)
    _, told = await run(client, dry_run=True)
    assert f"conversions: would turn off {APPS_CRD}" in told
    assert {seen.method for seen in api.requests} == {"GET"}


async def test_definitions_that_keptn_uses_stay(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    entry = calls("keptn-system", "metrics-webhook-service", "vkeptnmetric.kb.io")
    put(api, VALIDATING_WEBHOOKS, "metrics", labels={}, webhooks=[entry])
    told = await done(client, delete_definitions=True, code=1)
    assert f"left: definition {APPS_CRD}: Keptn is registered and uses it" in told
    assert names(api, DEFINITIONS) == [APPS_CRD]
