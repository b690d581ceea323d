"""``harbourmaster reschedule plan``: what it shows of a dump and of a cluster, and refuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import uuid
from functools import partial

import pytest
import yaml

from harbourmaster.api.resources import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    VOLUMES,
)
from harbourmaster.cli.main import main
from helpers.command import kubeconfig
from helpers.rescheduling.objects import (
    RESERVATIONS,
    TOLERATED,
    budget,
    critical,
    node,
    pod,
    removable,
)

POD = "kube-system/c"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def as_stored(obj, namespace=None, **status):
    """An object as the API server would have it."""
    metadata = {**obj["metadata"], "uid": str(uuid.uuid4())}
    metadata["creationTimestamp"] = "2026-03-01T12:00:00Z"
    if namespace is not None:
        metadata["namespace"] = namespace
    return {**obj, "metadata": metadata, "status": {**obj.get("status", {}), **status}}


def on_node(name, on, cpu=1, **options):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return as_stored(removable(name, on, cpu, **options), "shop", phase="Running", **ready)


def waiting(cpu=1, namespace="kube-system", conditions=(UNSCHEDULABLE,), **options):
    pod = critical("c", "a", cpu, **options)
    pod["spec"].pop("nodeSelector")
    return as_stored(pod, namespace, phase="Pending", conditions=list(conditions))


def cluster(*more, **options):
    """Two nodes full of small pods, one of which ends slowly, and a pod that waits."""
    return [
        as_stored(node("n1", 2)),
        as_stored(node("n2", 2)),
        on_node("a1", "n1"),
        on_node("a2", "n1"),
        on_node("slow", "n2", 2, grace=60),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        *(more or (waiting(**options),)),
    ]


def make_dump(items):
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that plans from a dump of these objects."""

    def start(items, *arguments, write=json.dumps, asked=POD):
        file = tmp_path / "dump"
        file.write_text(write(make_dump(items)))
        command = ["reschedule", "plan", f"--pod={asked}", f"--dump={file}", *arguments]
        return main(command), *capsys.readouterr()

    return start


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_the_plan_is_shown_with_all_that_speaks_for_it(run, write, assert_golden):
    code, out, err = run(cluster(), write=write)
    assert (code, err) == (0, "")
    assert_golden(out.splitlines())


def test_the_plan_as_json(run):
    code, out, _ = run(cluster(), "-o", "json")
    result = json.loads(out)
    assert (code, result["pod"], result["nodes"], result["notes"]) == (0, POD, 2, [])
    first, second = result["candidates"]
    assert (first["node"], first["tier"]) == ("n1", 1)
    assert [victim["name"] for victim in first["victims"]] == ["a2"]
    assert dict(map(tuple, first["score"]))["victims"] == 1
    (slow,) = second["victims"]
    assert (slow["grace"], slow["new_grace"]) == (60, 10)


def test_a_budget_is_named_and_its_violation_said(run):
    labels = {"app": "a"}
    items = [
        as_stored(node("n1", 1)),
        on_node("a", "n1", labels=labels),
        {**as_stored(budget("of-a", 1, labels), "shop"), "status": {"disruptionsAllowed": 0}},
        waiting(),
    ]
    code, out, _ = run(items)
    assert code == 0
    assert out.splitlines()[2] == "1. n1, tier 3"
    assert "violates its budget" in out
    code, out, _ = run(items, "--rescheduling-allow-pdb-violation=false")
    assert code == 1
    assert out.startswith("kube-system/c: room cannot be made on any of 1 nodes")


def test_nodes_that_are_out_of_the_question_are_counted_by_their_reasons(run):
    items = [as_stored(node(f"n{number}", 1)) for number in range(3)]
    items.append(as_stored(node("n9", 8, cordoned=True)))
    code, out, _ = run([*items, waiting(cpu=4)])
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "kube-system/c: room cannot be made on any of 4 nodes"
    at = lines.index("Why not on other nodes:")
    assert lines[at + 1].startswith("  3 nodes: ")
    assert lines[at + 2].startswith("  1 node: ")


def test_a_pod_that_fits_needs_no_eviction(run):
    code, out, _ = run(cluster(waiting(), as_stored(node("n3", 2))))
    assert code == 0
    assert out.startswith("kube-system/c: it fits on n3, and no pod has to move\n")


def test_room_that_is_kept_for_another_one_is_taken_into_account(run):
    second = waiting()
    second["metadata"]["name"] = "other"
    items = cluster(waiting(), second)
    entry = {
        "pod": "kube-system/other",
        "uid": second["metadata"]["uid"],
        "victims": [{"uid": items[3]["metadata"]["uid"], "ns": "shop", "name": "a2"}],
    }
    items[0]["metadata"]["annotations"] = {RESERVATIONS: json.dumps([entry])}
    code, out, _ = run(items)
    assert code == 0
    assert out.splitlines()[5].split()[0] == "shop/a1"


def test_unsupported_constraints_are_listed(run):
    code, out, _ = run(cluster(volumes=CLAIMED))
    assert code == 1
    assert out == "kube-system/c: no plan: unsupported constraints: PersistentVolumeClaim data\n"


@pytest.mark.parametrize(
    ("down", "percent", "is_paused"), [(1, 0, False), (2, 30, True), (2, 67, False)]
)
def test_the_plan_says_when_too_many_nodes_are_not_ready(run, down, percent, is_paused):
    """One of three may always be, whatever the share."""
    items = [*cluster(), as_stored(node("n3", 2))]
    for stored_node in [item for item in items if item["kind"] == "Node"][-down:]:
        stored_node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    arguments = (f"--rescheduling-max-not-ready-percent={percent}",)
    code, out, _ = run(items, *arguments)
    paused = [line for line in out.splitlines() if line.startswith("paused: ")]
    assert (code, len(paused)) == (0, is_paused)
    _, out, _ = run(items, *arguments, "-o", "json")
    reason = json.loads(out)["paused"]
    assert bool(reason) is is_paused
    if is_paused:
        assert reason.startswith("2 of 3 nodes are not ready, and 1 may be: ")
        assert paused == [f"paused: the controller evicts nothing now: {reason}"]


CLAIMED = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def test_a_victim_with_a_claim_is_marked(run):
    code, out, _ = run([as_stored(node("n1", 1)), on_node("a", "n1", volumes=CLAIMED), waiting()])
    assert code == 0
    assert out.splitlines()[-1].endswith("has a PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tolerant": False}, "note: it does not tolerate CriticalAddonsOnly:NoSchedule: "),
        ({"conditions": ()}, "note: its scheduler has not reported it as unschedulable: "),
        ({"schedulingGates": [{"name": "a"}]}, "note: it has a scheduling gate: "),
    ],
)
def test_what_would_keep_us_from_doing_it_is_noted(run, options, text):
    code, out, _ = run(cluster(**options))
    assert code == 0
    assert out.splitlines()[1].startswith(text)


def test_a_preemption_under_way_is_noted(run):
    pod = waiting()
    pod["status"]["nominatedNodeName"] = "n2"
    _, out, _ = run(cluster(pod))
    assert "note: its scheduler preempts pods on n2: nothing else is done\n" in out


def finished_pod():
    return as_stored(critical("c", "a"), "kube-system", phase="Succeeded")


def placed_pod():
    pod = waiting()
    return {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}


def going():
    pod = waiting()
    pod["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:05Z"
    return pod


PODS_WITHOUT_PLAN = {
    "none": (waiting(), "kube-system/other"),
    "one with a node": (placed_pod(), POD),
    "one that has ended": (finished_pod(), POD),
    "one that is being deleted": (going(), POD),
    "one of another namespace": (waiting(namespace="shop"), "shop/c"),
    "one without priority": (waiting(annotated=False), POD),
}


@pytest.mark.parametrize(("pod", "asked"), PODS_WITHOUT_PLAN.values(), ids=PODS_WITHOUT_PLAN)
def test_why_there_is_nothing_to_plan(run, pod, asked, assert_golden):
    code, out, err = run(cluster(pod), asked=asked)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert_golden(line)


@pytest.mark.parametrize(
    ("setting", "pod"),
    [
        (
            "--rescheduling-critical-selector={matchLabels: {tier: top}}",
            waiting(annotated=False, labels={"tier": "top"}),
        ),
        (
            "--rescheduling-critical-classes=add-on",
            waiting(annotated=False, priorityClassName="add-on"),
        ),
        ("--rescheduling-taint-key=ours", waiting(tolerations=[{**TOLERATED, "key": "ours"}])),
    ],
)
def test_the_settings_are_the_controller_s(run, setting, pod):
    code, out, err = run(cluster(pod), setting)
    assert (code, err) == (0, "")
    assert "note:" not in out


@pytest.mark.parametrize("selector", ["{matchLabels: 5}", "{a: b}"])
def test_settings_that_the_controller_refuses(run, selector):
    code, out, err = run(cluster(), f"--rescheduling-critical-selector={selector}")
    assert (code, out) == (2, "")
    assert err.startswith("harbourmaster: rescheduling.criticalSelector.")
    assert len(err.splitlines()) == 1


UNREADABLE = [
    "",
    "[",
    "kind: List\nitems: [1]",
    '{"kind": "List", "items": [1]}',
    '{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n1"}}]}',
    '{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": 5}}]}',
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_invalid_dump_is_one_line(tmp_path, capsys, text, assert_golden):
    file = tmp_path / "dump"
    file.write_text(text)
    assert main(["reschedule", "plan", f"--pod={POD}", f"--dump={file}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert_golden(line.replace(str(file), "dump"))


def test_a_dump_that_is_not_there(tmp_path, capsys):
    file = tmp_path / "none"
    assert main(["reschedule", "plan", f"--pod={POD}", f"--dump={file}"]) == 2
    message = f"harbourmaster: {file}: cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == message


def test_a_dump_from_standard_input(monkeypatch, capsys):
    class Input:
        buffer = io.BytesIO(json.dumps(make_dump(cluster())).encode())

    monkeypatch.setattr("sys.stdin", Input)
    assert main(["reschedule", "plan", f"--pod={POD}", "--dump=-"]) == 0
    assert "1 pod would have to move from n1" in capsys.readouterr().out


@pytest.mark.parametrize("asked", ["a/b/c", "/c", "kube-system/", "pod/"])
def test_what_names_no_pod_is_refused(capsys, asked):
    with pytest.raises(SystemExit) as ended:
        main(["reschedule", "plan", f"--pod={asked}"])
    assert ended.value.code == 2
    assert f'invalid Pod "{asked}": expected [NAMESPACE/]NAME' in capsys.readouterr().err


@pytest.fixture
def live(command):
    """Return a function that plans with the fake API server."""
    return partial(command, "reschedule", "plan", f"--pod={POD}")


def put(api, items):
    resources = {
        resource.kind: resource for resource in (DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS)
    }
    for item in items:
        api.put(resources[item["kind"]], item)


async def test_a_live_cluster_is_read_and_nothing_is_written(api, live):
    put(api, cluster())
    code, out, err = await live()
    assert (code, err) == (0, "")
    assert out.startswith("kube-system/c: 1 pod would have to move from n1\n")
    assert {request.method for request in api.requests} == {"GET"}


async def test_the_volume_of_a_claim_decides_which_nodes_are_used(api, live):
    put(api, cluster(volumes=CLAIMED))
    code, out, _ = await live()
    assert code == 1
    assert "unsupported constraints: PersistentVolumeClaim data (" in out
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"}
    metadata = {"name": "data", "namespace": "kube-system", "annotations": bound}
    api.put(VOLUME_CLAIMS, {"metadata": metadata, "spec": spec})
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    api.put(VOLUMES, {"metadata": {"name": "pv"}, "spec": {"csi": {}, "nodeAffinity": affinity}})
    code, out, _ = await live()
    assert code == 0
    first, note, *_, last = out.splitlines()
    assert first == "kube-system/c: 1 pod would have to move from n2"
    assert note.startswith("note: how many volumes its CSI driver can attach")
    assert last == "  1 node: volume pv is not available there"


async def test_an_object_that_cannot_be_read_is_named_and_the_plan_is_shown(api, live):
    put(api, cluster())
    put(api, [{"kind": "Pod", "metadata": {"name": "broken", "namespace": "a"}, "spec": "x"}])
    code, out, err = await live()
    assert code == 0
    assert out.startswith("kube-system/c: 1 pod would have to move from n1\n")
    assert "Pod a/broken is skipped, because it cannot be read: spec: expected object" in err
    assert len(err.splitlines()) == 1


async def test_without_the_rights_that_is_said(api, live):
    put(api, cluster())
    api.forbid("list", NODES)
    code, out, err = await live()
    assert (code, out) == (1, "")
    assert err.startswith("harbourmaster: no plan: missing permission: ")
    assert 'cannot list resource "nodes"' in err
    assert len(err.splitlines()) == 1


def test_without_a_cluster_that_is_said(tmp_path, capsys):
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert main(["reschedule", "plan", f"--pod={POD}", f"--kubeconfig={file}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("harbourmaster: ")
    assert len(err.splitlines()) == 1


def test_the_command_line_loads_no_planner_before_it_is_asked_for():
    code = (
        "import sys; from harbourmaster.cli.main import create_parser; "
        "create_parser().parse_args(['reschedule', 'fit']); "
        "late = ('aiohttp', 'harbourmaster.cli.reschedule.fit', "
        "'harbourmaster.cli.reschedule.plan', 'harbourmaster.kube.client', "
        "'harbourmaster.rescheduling.accounting', 'harbourmaster.rescheduling.planner'); "
        "sys.exit(any(name.startswith(late) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_kind_in_a_dump_is_left_alone(run):
    code, _, err = run([*cluster(), pod("x") | {"kind": "Widget"}])
    assert (code, err) == (0, "")
