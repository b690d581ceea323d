"""The registration on a real API server: made, kept, repaired."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import time

import msgspec
import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from helpers import rights
from helpers.cluster import bare_pod, create, delete, delete_namespace, fresh_namespace
from helpers.faults.stored_objects import Stored
from helpers.patience import COLLECTED, PATIENCE, WAIT
from helpers.processes import Controller, Watched
from helpers.registration import (
    CONFIGURATIONS,
    KEYS,
    NAME,
    SECRET,
    bundles_of,
    data_of,
    entry,
    served_leaf,
    trusts,
    with_data,
)
from helpers.schemas import definition

pytestmark = pytest.mark.gate

ANNOTATION = "keptn.sh/lifecycle-toolkit"
LABEL = "gates.harbourmaster.dev/enabled"
LABEL_PATH = r"{.metadata.labels.gates\.harbourmaster\.dev/enabled}"
MARK_PATH = r"{.metadata.annotations.certs\.harbourmaster\.dev/serving-certificate}"
NOTE = "change the setting"
QUICK = ("--certificates-publish-seconds=1",)


WEBHOOK_LABELS = {
    "app.kubernetes.io/name": "harbourmaster",
    "app.kubernetes.io/component": "webhook",
}


@pytest.fixture
def home(request, kubectl, namespaces_stay):
    """The name of the controller's own namespace, alone with its name."""
    name = fresh_namespace(kubectl, request.node.name)
    account = rights.account(name)
    create(kubectl, *account)
    yield name
    for kind in CONFIGURATIONS:
        Stored(kubectl.__self__).remove(kind.path(name=NAME))
    delete(kubectl, *account)
    if not namespaces_stay:
        delete_namespace(kubectl, name)


@pytest.fixture
def conversion_at_home(kubectl, home):
    """Let the definitions of two kinds say that they are converted by the webhook at home."""

    def lead_to(namespace):
        items = copy.deepcopy([definition(name.partition(".")[0]) for name in rights.CONVERTED])
        for item in items:
            client = item["spec"]["conversion"]["webhook"]["clientConfig"]
            client["service"]["namespace"] = namespace
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        kubectl("apply", "--server-side", "--force-conflicts", "-f=-", stdin=manifest)

    lead_to(home)
    yield
    lead_to("harbourmaster-system")


@pytest.fixture
async def watch(admin, home):
    async with Watched(admin, home) as watched:
        yield watched


@pytest.fixture
def start(control_plane, kubectl, home, tmp_path):
    """Return a function that starts a controller process with flags, and no right too many."""
    started = []
    path = f"/api/v1/namespaces/{home}/serviceaccounts/{rights.ACCOUNT}/token"
    token = Stored(kubectl.__self__).ask("POST", path, {})["status"]["token"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(rights.kubeconfig(control_plane.kubeconfig, token=token))

    def run(*flags):
        # An APIService at home would lead nowhere, and keep other namespaces from being deleted.
        alone = ("--controllers=registration,namespaces", "--metrics-custom-metrics-api=false")
        started.append(Controller(kubeconfig, home, *alone, *flags))
        return started[-1]

    yield run
    for process in started:
        process.stop()
        # Shown where the test failed.
        print("".join(process.lines))  # noqa: T201


def is_registered(watched):
    secret = watched.secret()
    configurations = [watched.configuration(resource) for resource in CONFIGURATIONS]
    if secret is None or not all(configurations):
        return False
    leaf = served_leaf(secret)
    return leaf is not None and all(
        trusts(bundle, leaf.serving_der)
        for configuration in configurations
        for bundle in bundles_of(configuration)
    )


async def until_registered(watched):
    return (await watched.until(lambda: is_registered(watched)))[1]


async def test_a_fresh_start_registers_everything(start, watch, home, admin):
    start()
    await until_registered(watch)
    secret = watch.secret()
    assert set(data_of(secret)) == set(KEYS)
    assert secret["type"] == "Opaque"
    assert served_leaf(secret).names == {
        "harbourmaster-webhook",
        f"harbourmaster-webhook.{home}",
        f"harbourmaster-webhook.{home}.svc",
        f"harbourmaster-webhook.{home}.svc.cluster.local",
    }
    uid = (await _object(admin, NAMESPACES, home))["metadata"]["uid"]
    for resource in CONFIGURATIONS:
        configuration = watch.configuration(resource)
        assert configuration["metadata"]["generation"] == 1
        assert [reference["uid"] for reference in configuration["metadata"]["ownerReferences"]] == [
            uid
        ]


async def _object(client, resource, name, namespace=None):
    return msgspec.json.decode(await client.get(resource, name, namespace))


async def test_what_is_stored_is_what_was_sent_so_nothing_is_ever_rewritten(start, watch):
    first = start()
    await until_registered(watch)
    versions = {
        configuration: _version(watch.configuration(configuration))
        for configuration in CONFIGURATIONS
    }
    assert first.stop() == 0
    start("--webhook-object-selector={matchExpressions: [{key: a, operator: Exists}]}")
    await watch.until(
        lambda: _version(watch.configuration(MUTATING_WEBHOOKS)) != versions[MUTATING_WEBHOOKS]
    )
    last = start("--leader-election-enabled=false")
    with contextlib.suppress(TimeoutError):
        await watch.until(lambda: _version(watch.configuration(VALIDATING_WEBHOOKS)) != "", 0.1)
    last.stop()
    # Written once each, for each of the two settings.
    assert watch.configuration(VALIDATING_WEBHOOKS)["metadata"]["generation"] == 1


def _version(configuration):
    return configuration["metadata"]["resourceVersion"]


@pytest.mark.parametrize("resource", CONFIGURATIONS, ids=lambda value: value.kind)
async def test_a_deleted_configuration_is_back(start, watch, resource):
    start()
    await until_registered(watch)
    uid = watch.configuration(resource)["metadata"]["uid"]
    await watch.delete(resource)
    await watch.until(
        lambda: is_registered(watch) and watch.configuration(resource)["metadata"]["uid"] != uid
    )
    note = await watch.until_note("DriftRepaired", resource.kind)
    assert note == (
        f"{resource.kind} harbourmaster was deleted by hand and is created again: "
        "to keep your own configurations, set registerWebhooks to false"
    )


EDITS = {
    "failurePolicy": ("Fail", "webhook.failurePolicy"),
    "timeoutSeconds": (29, "webhook.timeoutSeconds"),
    "matchPolicy": ("Exact", ""),
    "reinvocationPolicy": ("Never", "webhook.reinvocationPolicy"),
    "sideEffects": ("NoneOnDryRun", ""),
    "admissionReviewVersions": (["v1", "v1beta1"], ""),
    "namespaceSelector": ({}, "webhook.namespaceSelector"),
    "rules": (
        [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["*"],
                "resources": ["pods"],
                "scope": "*",
            }
        ],
        "",
    ),
}


def add_terms(configuration):
    """Add what AKS, GKE and users add."""
    webhook = entry(configuration, "gated-pods.harbourmaster.dev")
    webhook["namespaceSelector"]["matchExpressions"] += [
        {"key": "control-plane", "operator": "DoesNotExist"},
        {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gmp-system"]},
    ]
    webhook["objectSelector"] = {"matchLabels": {"a": "b"}}
    webhook["matchConditions"] = [{"name": "mine", "expression": "object.kind == 'Pod'"}]
    return configuration


async def test_each_field_edited_by_hand_is_repaired_and_told_of(start, watch):
    start()
    await until_registered(watch)
    await watch.write(MUTATING_WEBHOOKS, add_terms)
    gated = "gated-pods.harbourmaster.dev"
    await watch.until(
        lambda: "matchConditions" in entry(watch.configuration(MUTATING_WEBHOOKS), gated)
    )
    # The additions to another entry stay, whatever is repaired.
    wanted = watch.configuration(MUTATING_WEBHOOKS)["webhooks"]
    for field, (value, setting) in EDITS.items():

        def edit(configuration, field=field, value=value):
            entry(configuration)[field] = value
            return configuration

        version = await watch.write(MUTATING_WEBHOOKS, edit)
        await watch.until(
            lambda version=version: int(_version(watch.configuration(MUTATING_WEBHOOKS))) > version
        )
        assert watch.configuration(MUTATING_WEBHOOKS)["webhooks"] == wanted, field
        note = await watch.until_note("DriftRepaired", f"{field} of pods.harbourmaster.dev")
        assert "by hand" in note
        assert (f"{NOTE} {setting} instead" in note) == bool(setting), note
    note = await watch.until_note("DriftRepaired", "failurePolicy")
    assert note == (
        "failurePolicy of pods.harbourmaster.dev was set to Fail by hand and is Ignore again: "
        "change the setting webhook.failurePolicy instead"
    )


def drop(configuration):
    configuration["webhooks"] = configuration["webhooks"][1:]
    return configuration


def add(configuration):
    mine = {**entry(configuration), "name": "mine.example.com"}
    configuration["webhooks"].append(mine)
    return configuration


def turn(configuration):
    configuration["webhooks"].reverse()
    return configuration


def unlabel(configuration):
    configuration["metadata"]["labels"] = {"example.com/team": "a"}
    return configuration


def disown(configuration):
    configuration["metadata"]["ownerReferences"] = []
    return configuration


def spoil(configuration):
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(b"garbage").decode()
    return configuration


def clear(configuration):
    for webhook in configuration["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    return configuration


async def test_entries_labels_and_bundles_changed_by_hand_are_repaired(start, watch):
    start()
    await until_registered(watch)
    wanted = watch.configuration(MUTATING_WEBHOOKS)
    for edit in (drop, add, turn, unlabel, disown, spoil, clear):
        version = await watch.write(MUTATING_WEBHOOKS, edit)
        await watch.until(
            lambda version=version: int(_version(watch.configuration(MUTATING_WEBHOOKS))) > version
        )
        stored = watch.configuration(MUTATING_WEBHOOKS)
        assert stored["webhooks"] == wanted["webhooks"], edit.__name__
        assert stored["metadata"]["ownerReferences"] == wanted["metadata"]["ownerReferences"]
        assert wanted["metadata"]["labels"].items() <= stored["metadata"]["labels"].items()
    assert stored["metadata"]["labels"]["example.com/team"] == "a"


@pytest.mark.parametrize("key", KEYS)
async def test_a_key_removed_from_the_secret_comes_back_and_every_leaf_stays_trusted(
    start, watch, key
):
    start(*QUICK)
    await until_registered(watch)
    version = await watch.write(
        SECRETS, lambda secret: with_data(secret, **{key.replace(".", "_"): None})
    )

    def is_healed():
        secret = watch.secret()
        return (
            int(_version(secret)) > version
            and is_registered(watch)
            and set(data_of(secret)) == set(KEYS)
        )

    await watch.until(is_healed)
    assert watch.observer().broken == []


async def test_a_deleted_secret_comes_back_when_its_authority_is_trusted(start, watch):
    start(*QUICK)
    await until_registered(watch)
    first = served_leaf(watch.secret()).serving_der
    await watch.delete(SECRETS)
    await watch.until_replaced(SECRETS)
    await until_registered(watch)
    observer = watch.observer()
    assert observer.broken == []
    assert observer.leaf != first
    assert observer.order[-3:] == ["bundle", "bundle", "leaf"]
    for configuration in CONFIGURATIONS:
        assert all(
            trusts(bundle, first) for bundle in bundles_of(watch.configuration(configuration))
        )


@pytest.mark.full
async def test_rotations_make_each_authority_known_before_a_leaf_of_it_is_served(
    start, watch, home, kubectl, control_plane, conversion_at_home
):
    create(kubectl, bare_pod("webhook", {"namespace": home, "labels": WEBHOOK_LABELS}))
    start(
        "--certificates-ca-lifetime-seconds=60",
        "--certificates-leaf-lifetime-seconds=12",
        "--certificates-publish-seconds=2",
        f"--certificates-adopt-secret={rights.ADOPTED}",
    )
    await until_registered(watch)
    await watch.write(MUTATING_WEBHOOKS, fail_closed)
    await watch.until_note("DriftRepaired", "failurePolicy")
    authorities = set()

    def is_rotated():
        authorities.add(data_of(watch.secret())["ca.crt"][:200])
        return len(authorities) > 1

    begun = time.monotonic()
    await watch.until(is_rotated, patience=90)
    seconds = time.monotonic() - begun
    observer = watch.observer()
    assert observer.broken == []
    # Two thirds of a leaf's life, again and again; then the authority after two thirds of its own.
    assert 3 <= len(observer.leaves) <= 12
    assert observer.order[-3:] == ["bundle", "bundle", "leaf"]
    assert 30 < seconds < 80
    assert await watch.until_note("CertificateIssued", "every caBundle holds", SECRET)
    # The same again counts on the event that is there.
    await watch.write(MUTATING_WEBHOOKS, fail_closed)
    gated = fresh_namespace(kubectl, f"{home}-gated")
    kubectl("annotate", "namespace", gated, f"{ANNOTATION}=enabled")
    try:
        await watch.until_counted("DriftRepaired", "failurePolicy", 2)
        kubectl("wait", "namespace", gated, f"--for=jsonpath={LABEL_PATH}=true", WAIT)
    finally:
        delete_namespace(kubectl, gated)
    kubectl("wait", "pod/webhook", f"--namespace={home}", f"--for=jsonpath={MARK_PATH}", WAIT)
    done, refused = rights.used_rights(control_plane.layout.logs / "audit.log", home)
    assert refused == []
    assert done == rights.granted_rights()


def fail_closed(configuration):
    entry(configuration)["failurePolicy"] = "Fail"
    return configuration


@pytest.mark.full
async def test_two_that_start_at_once_make_one_registration(start, watch):
    first, second = start(), start()
    await until_registered(watch)
    metrics = [await process.metrics() for process in (first, second)]
    assert sorted("harbourmaster_leader 1.0" in text for text in metrics) == [False, True]
    assert int(_version(watch.secret())) == min(
        version for version, (resource, _) in watch._versions.items() if resource == SECRETS
    )
    leader = (first, second)["harbourmaster_leader 1.0" in metrics[1]]
    follower = second if leader is first else first
    # The lease is given back, so the other need not wait for its end.
    assert leader.stop() == 0
    await watch.delete(VALIDATING_WEBHOOKS)
    await watch.until_replaced(VALIDATING_WEBHOOKS)
    assert await until_registered(watch) < 5
    assert "harbourmaster_leader 1.0" in await follower.metrics()


async def test_without_registration_nothing_is_touched(start, watch, admin, home):
    controller = start("--register-webhooks=false")
    controller.await_event("became leader")
    name = f"{home}-gated"
    namespace = {"metadata": {"name": name, "annotations": {ANNOTATION: "enabled"}}}
    await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace})
    try:
        controller.await_event("gates label updated", namespace=name)
    finally:
        await admin.delete(NAMESPACES, name)
    assert watch.secret() is None
    assert not any(watch.configuration(configuration) for configuration in CONFIGURATIONS)


async def test_the_annotation_of_a_namespace_is_mirrored(start, admin, home, kubectl, watch):
    start("--controllers=namespaces")
    name = fresh_namespace(kubectl, f"{home}-gated")

    async def label():
        return (await _object(admin, NAMESPACES, name))["metadata"]["labels"].get(LABEL)

    async def until(value):
        async with asyncio.timeout(PATIENCE):
            while await label() != value:  # noqa: ASYNC110 - as a user would look
                await asyncio.sleep(0.02)

    try:
        kubectl("annotate", "namespace", name, f"{ANNOTATION}=enabled")
        await until("true")
        kubectl("annotate", "namespace", name, f"{ANNOTATION}-")
        await until(None)
        kubectl("label", "namespace", name, f"{LABEL}=true")
        await until(None)
        note = await watch.until_note("GatesLabelRemoved", LABEL, name)
        assert note.endswith("and both are missing: set one of them instead")
    finally:
        delete_namespace(kubectl, name)


async def test_deleting_the_namespace_removes_the_registration(start, watch, home, kubectl):
    controller = start()
    await until_registered(watch)
    assert controller.stop() == 0
    delete_namespace(kubectl, home)
    await watch.until(
        lambda: not any(watch.configuration(configuration) for configuration in CONFIGURATIONS),
        COLLECTED,
    )


async def test_the_process_stops_cleanly(start, watch):
    controller = start()
    await until_registered(watch)
    assert controller.stop() == 0
    assert controller.errors == []
