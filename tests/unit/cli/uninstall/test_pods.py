"""``harbourmaster uninstall`` releases pods at gates and deletes those in the scheduler."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, PODS
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.metadata import REMOVED_KEY as RELEASED
from harbourmaster.gates.release import CHECKS_KEY, EXPIRED, NONE, RELEASED_KEY
from harbourmaster.gates.waits import MET, ON_TIMEOUT_KEY, TIMEOUT_KEY, WAIT_FOR_KEY, WAITED_KEY
from helpers.small_installation import assert_uninstalled, calls, names, put, run


def pod(api, name, *gates, annotations=None):
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return api.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations or {}},
            "spec": spec,
        },
    )


def annotations(api):
    """The annotations of each pod, by its name."""
    return {
        name: api.get(PODS, name, "shop")["metadata"]["annotations"] for name in names(api, PODS)
    }


def gates(api, name):
    stored = api.get(PODS, name, "shop")
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", [])]


async def test_gates_go_from_every_page_and_others_stay(api, client):
    for number in range(600):
        pod(api, f"ledger-{number}", "example.com/quota", GATE)
    told = await assert_uninstalled(client)
    assert "gates: released 600 pods" in told
    assert all(gates(api, name) == ["example.com/quota"] for name in names(api, PODS))
    assert api.get(PODS, "ledger-7", "shop")["metadata"]["annotations"] == {}


async def test_a_pod_that_changes_meanwhile_is_looked_at_again(api, client):
    pod(api, "moved", "example.com/quota", GATE)
    pod(api, "gone", GATE)
    listed = client.list

    async def list_then_change(resource, *args, **options):
        page = await listed(resource, *args, **options)
        if resource is PODS and args == (None,) and "gone" in names(api, PODS):
            pod(api, "moved", GATE)
            api.remove(PODS, "gone", "shop")
        return page

    client.list = list_then_change
    await assert_uninstalled(client)
    assert gates(api, "moved") == []


async def test_gates_are_left_to_a_registered_keptn(api, client):
    entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
    put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    pod(api, "ledger", GATE)
    told = await assert_uninstalled(client)
    assert "gates: left to Keptn, whose webhook is registered" in told
    assert gates(api, "ledger") == [GATE]


async def test_pods_that_wait_for_objects_alone_are_not_left_to_keptn(api, client):
    entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
    put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    pod(api, "ledger", GATE)
    pod(api, "waits", GATE, annotations={CHECKS_KEY: NONE, WAIT_FOR_KEY: "job/migrate"})
    assert "gates: released 1 pod" in await assert_uninstalled(client)
    assert (gates(api, "ledger"), gates(api, "waits")) == ([GATE], [])


async def test_what_users_wrote_of_waits_stays(api, client):
    asked = {WAIT_FOR_KEY: "job/migrate", TIMEOUT_KEY: "10m", ON_TIMEOUT_KEY: "Fail"}
    pod(api, "waits", GATE, annotations={**asked, CHECKS_KEY: NONE})
    pod(api, "over", annotations={**asked, CHECKS_KEY: NONE, WAITED_KEY: MET})
    assert "gates: released 1 pod" in await assert_uninstalled(client)
    assert gates(api, "waits") == []
    assert annotations(api) == {"waits": asked, "over": asked}


@pytest.mark.parametrize(("keptn", "kept"), [(True, {RELEASED: "true"}), (False, {})])
async def test_beside_keptn_only_the_annotation_that_it_reads_stays(api, client, keptn, kept):
    if keptn:
        entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
        put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    pod(api, "cart", annotations={RELEASED: "true", RELEASED_KEY: EXPIRED})
    pod(api, "ledger", GATE, annotations={PARENT_KEY: UNRESOLVED, "a": "b"})
    put_scheduled(api, "waits", annotations={PARENT_KEY: UNRESOLVED})
    told = await assert_uninstalled(client)
    assert f"annotations: removed annotations from {3 if keptn else 2} pods" in told
    assert annotations(api) == {
        "cart": kept,
        "ledger": {"a": "b"},
        **({"waits": {}} if keptn else {}),
    }


async def test_a_pod_whose_deletion_failed_is_still_known_in_the_next_run(api, client):
    put_scheduled(api, "ledger-1", annotations={PARENT_KEY: UNRESOLVED})
    put_scheduled(api, "lonely", annotations={PARENT_KEY: UNRESOLVED}, owners=())
    api.forbid("delete", PODS)
    await assert_uninstalled(client, code=1)
    assert annotations(api) == {"ledger-1": {PARENT_KEY: UNRESOLVED}, "lonely": {}}
    api.heal()
    await assert_uninstalled(client, code=1)
    assert names(api, PODS) == ["lonely"]


WORKLOAD = {"keptn.sh/workload": "ledger", "keptn.sh/version": "3"}
MADE = {"kind": "ReplicaSet", "name": "ledger-1", "controller": True}


def put_scheduled(api, name, *, annotations=WORKLOAD, owners=(MADE,), **spec):
    """A pod in our scheduler, unless the spec says otherwise."""
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    metadata["ownerReferences"] = list(owners)
    return api.put(
        PODS, {"metadata": metadata, "spec": {"schedulerName": "keptn-scheduler", **spec}}
    )


async def test_pods_in_the_scheduler_are_deleted_if_their_owner_recreates_them(api, client):
    put_scheduled(api, "ledger-1")
    put_scheduled(api, "provisional", annotations={"gates.harbourmaster.dev/parent": "unresolved"})
    put_scheduled(api, "bound", nodeName="n1")
    put_scheduled(api, "elsewhere", schedulerName="default-scheduler")
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    assert "pods in keptn-scheduler: deleted 2 pods, for their owners to recreate" in told
    assert sorted(names(api, PODS)) == ["bound", "elsewhere"]
    code, told = await run(client)
    assert (code, [line for line in told if "keptn-scheduler" in line]) == (0, [])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"owners": ()}, id="nobody makes it anew"),
        pytest.param({"owners": ({**MADE, "controller": False},)}, id="nor who only has it"),
        pytest.param({"owners": ({**MADE, "kind": "Job"},)}, id="one that counts it as failed"),
        pytest.param({"annotations": {}}, id="it names the scheduler itself"),
    ],
)
async def test_others_in_the_scheduler_stay_and_are_named(api, client, given):
    put_scheduled(api, "lonely", **given)
    told = await assert_uninstalled(client, code=1)
    assert "pods in keptn-scheduler: 1 pod that no owner recreates: shop/lonely" in told
    assert told[-1] == (
        "left: 1 pod in keptn-scheduler, which gets no answers now: shop/lonely: delete them, and "
        "remove schedulerName keptn-scheduler from what creates them"
    )
    assert names(api, PODS) == ["lonely"]


async def test_a_pod_that_returns_to_the_scheduler_is_named(api, client):
    put_scheduled(api, "ledger-1")
    deleted = client.delete

    async def make_anew(resource, name, *args, **options):
        await deleted(resource, name, *args, **options)
        if resource is PODS:
            put_scheduled(api, "ledger-2")

    client.delete = make_anew
    told = await assert_uninstalled(client, code=1)
    assert told[-1].startswith("left: 1 pod in keptn-scheduler")
    assert "shop/ledger-2" in told[-1]


async def test_a_dry_run_tells_of_both_and_another_scheduler_can_be_named(api, client):
    put_scheduled(api, "ledger-1")
    put_scheduled(api, "lonely", owners=())
    pod(api, "runs", annotations={RELEASED: "true"})
    told = await assert_uninstalled(client, dry_run=True)
    assert "annotations: would remove annotations from 1 pod" in told
    assert (
        "pods in keptn-scheduler: would delete 1 pod, for their owners to recreate; "
        "1 pod that no owner recreates: shop/lonely"
    ) in told
    for scheduler in ("packer", ""):
        code, told = await run(client, scheduler=scheduler)
        assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
        assert sorted(names(api, PODS)) == ["ledger-1", "lonely", "runs"]


async def test_the_scheduler_is_left_to_a_registered_keptn(api, client):
    entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
    put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    put_scheduled(api, "ledger-1")
    told = await assert_uninstalled(client)
    assert "pods in keptn-scheduler: left to Keptn, whose webhook is registered" in told
    assert names(api, PODS) == ["ledger-1"]
