"""``harbourmaster preview`` of a dump: its output, and its errors."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from harbourmaster.cli.admission import DUMPED_KINDS
from harbourmaster.cli.main import main
from harbourmaster.cli.preview.inputs import FIRST, THEN
from helpers.objects import cluster_policy, policy, workload
from helpers.preview_cluster import (
    CLUSTER,
    NOWHERE,
    SSD,
    bare,
    deployment,
    names,
    namespace,
    owner,
    ready_node,
)


@pytest.fixture
def preview(tmp_path, capsys):
    """Return a function that previews policies on a dump."""

    def start(policies, items=CLUSTER, *arguments):
        dump = tmp_path / "dump.json"
        dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        given = []
        if policies:
            (tmp_path / "policies.yaml").write_text(yaml.safe_dump_all(policies))
            given = ["-f", str(tmp_path / "policies.yaml")]
        code = main(["preview", *given, "--dump", str(dump), *arguments])
        return code, *capsys.readouterr()

    return start


@pytest.fixture
def report(preview):
    """Return a function that runs the preview, and returns its JSON."""

    def start(policies, items=CLUSTER, *arguments):
        _, out, _ = preview(policies, items, *arguments, "-o", "json")
        return json.loads(out)

    return start


def test_changes_are_printed_with_the_pods_that_fit_no_node(preview, assert_golden):
    code, out, err = preview([NOWHERE], CLUSTER, "--fail-on", "unschedulable")
    assert code == 1
    assert_golden([err, *out.splitlines()])


def test_pods_that_still_fit_are_not_a_failure(preview):
    code, out, err = preview([SSD], CLUSTER, "--fail-on", "unschedulable")
    assert (code, err) == (0, "")
    assert "0 pods would no longer fit any of 2 nodes." in out


def test_a_change_is_a_failure_on_demand(preview):
    assert preview([SSD], CLUSTER, "--fail-on", "changed")[0] == 1
    foreign = cluster_policy("ssd", pods={"app": "nobody"}, nodeSelector={"disk": "ssd"})
    code, out, _ = preview([foreign], CLUSTER, "--fail-on", "changed")
    assert code == 0
    assert "None of 2 workloads would change." in out


def test_current_policies_are_compared_and_replaced_by_name(report):
    result = report([NOWHERE], [*CLUSTER, SSD, policy("kept", "shop", nodeSelector={"a": "b"})])
    assert result["policies"] == {
        "added": [],
        "changed": ["ClusterPodSchedulingPolicy ssd"],
        "removed": [],
        "unchanged": 1,
    }
    assert names(result) == ["Deployment shop/web"]
    (change,) = result["workloads"][0]["changes"]
    assert change == {
        "field": "nodeSelector",
        "now": {"a": "b", "disk": "ssd"},
        "then": {"a": "b", "disk": "tape"},
    }
    assert result["workloads"][0]["path"] == "spec.template.spec"
    (note,) = result["notes"]
    assert note.startswith("what a changed or removed policy wrote before stays")


def test_an_equal_policy_in_another_notation_is_unchanged(report):
    same = cluster_policy("ssd", pods={"app": "web"}, nodeSelector={"disk": "ssd"})
    same["spec"]["tolerations"] = None
    same["metadata"]["annotations"] = {"a": "b"}
    result = report([same], [*CLUSTER, SSD])
    assert (result["policies"]["unchanged"], result["totals"]["changed"]) == (1, 0)


@pytest.mark.parametrize(
    ("reference", "present"),
    [("ssd", SSD), ("shop/ssd", policy("ssd", "shop", nodeSelector={"disk": "ssd"}))],
)
def test_a_policy_can_be_removed(report, reference, present):
    result = report([], [*CLUSTER, present], "--delete", reference)
    assert len(result["policies"]["removed"]) == 1
    assert "Deployment shop/web" in names(result)
    assert result["workloads"][0]["changes"][0]["then"] is None


def test_removing_a_missing_policy_is_an_error(preview):
    code, out, err = preview([], [*CLUSTER, SSD], "--delete", "shop/ssd")
    assert (code, out) == (2, "")
    assert err == (
        "harbourmaster: --delete shop/ssd: there is no PodSchedulingPolicy shop/ssd; "
        "there are ClusterPodSchedulingPolicy ssd\n"
    )


def test_all_removes_policies_that_are_not_given(report):
    old = cluster_policy("old", nodeSelector={"old": "yes"})
    result = report([SSD], [*CLUSTER, old], "--all")
    assert result["policies"]["removed"] == ["ClusterPodSchedulingPolicy old"]
    assert names(result) == ["Deployment shop/other", "Deployment shop/web"]


def test_current_policies_can_come_from_files(report, tmp_path):
    now = tmp_path / "now"
    now.mkdir()
    (now / "one.yaml").write_text(yaml.safe_dump(SSD))
    result = report([SSD], CLUSTER, "--policies-now", str(now))
    assert result["policies"]["unchanged"] == 1


def test_an_invalid_policy_is_reported_and_the_others_are_previewed(preview):
    bad = cluster_policy("bad", nodeName="No Name")
    pod = workload("Pod")
    code, out, err = preview([bad, SSD, pod, SSD])
    assert code == 1
    told = err.splitlines()
    assert "policies.yaml, document 1: spec.nodeName: Invalid value" in told[0]
    assert "document 3: kind: expected PodSchedulingPolicy or ClusterPod" in told[1]
    assert "document 4: ClusterPodSchedulingPolicy ssd was defined before: ignored" in told[2]
    assert "1 of 2 workloads" not in out
    # An invalid policy gives its targets a warning.
    assert "warning: harbourmaster: ClusterPodSchedulingPolicy bad" in out


def test_each_kind_of_workload_is_compared_once(report):
    cron = workload("CronJob", {"app": "web"}, name="cron")
    cron["metadata"] |= {"namespace": "shop", "uid": "cron-1"}
    job = workload("Job", {"app": "web"}, name="cron-123")
    job["metadata"] |= {"namespace": "shop", "uid": "job-1", "ownerReferences": [owner(cron)]}
    done = workload("Job", {"app": "web"}, name="done")
    done["metadata"]["namespace"] = "shop"
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    rollout["metadata"] = {"name": "canary", "uid": "ro-1"}
    sets = []
    for index, replicas in enumerate((0, 2)):
        replica_set = workload("ReplicaSet", {"app": "web"}, name=f"canary-{index}")
        replica_set["metadata"] |= {"namespace": "shop", "uid": f"rs-{index}"}
        replica_set["metadata"]["ownerReferences"] = [owner(rollout)]
        replica_set["spec"]["replicas"] = replicas
        sets.append(replica_set)
    items = [
        *CLUSTER,
        *deployment("state", kind="StatefulSet", labels={"app": "web"}, on=["n1"]),
        *deployment("daemon", kind="DaemonSet", labels={"app": "web"}, on=["n1"]),
        cron,
        job,
        done,
        *sets,
        bare("lonely", "n1", labels={"app": "web"}),
        bare("of-job", "n1", labels={"app": "web"}, owners=[owner(job)]),
        bare("of-rollout", "n1", labels={"app": "web"}, owners=[owner(sets[1])]),
        bare("of-widget-1", "n1", labels={"app": "web"}, owners=[widget("w")]),
        bare("of-widget-2", "n1", labels={"app": "web"}, owners=[widget("w")]),
    ]
    finished = bare("finished", "n1", labels={"app": "web"})
    finished["status"]["phase"] = "Succeeded"
    result = report([SSD], [*items, finished])
    assert dict(
        zip(names(result), (changed["pods"] for changed in result["workloads"]), strict=True)
    ) == {
        "CronJob shop/cron": 1,
        "DaemonSet shop/daemon": 1,
        "Deployment shop/web": 2,
        "Pod shop/lonely": 1,
        "Rollout shop/canary": 1,
        "StatefulSet shop/state": 1,
        "Widget shop/w": 2,
    }


def widget(name):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "name": name,
        "uid": name,
        "controller": True,
    }


def test_namespaces_match_by_labels_unless_they_are_excluded(report):
    new_policy = cluster_policy("ssd", namespaces={"team": "a"}, nodeSelector={"disk": "ssd"})
    items = [namespace("a", team="a"), namespace("b", team="b"), namespace("kube-system", team="a")]
    for name in ("a", "b", "kube-system"):
        items += deployment("web", place=name)
    assert report([new_policy], items)["namespaces"] == {"a": 1}
    result = report([new_policy], items, "--excluded-namespaces", "a, b")
    assert result["namespaces"] == {"kube-system": 1}


def test_missing_nodes_and_namespaces_are_noted(report):
    result = report([SSD], deployment("web"))
    assert names(result) == ["Deployment shop/web"]
    assert result["workloads"][0]["fit"] is None
    assert result["totals"]["unschedulable"] == 0
    assert [note.partition(":")[0] for note in result["notes"]] == [
        "no current policies",
        "no namespaces found",
        "no nodes found",
    ]


def test_unknown_nodes_fail_on_demand(preview):
    code, _, err = preview([SSD], deployment("web"), "--fail-on", "unschedulable")
    assert code == 1
    assert err == (
        "harbourmaster: no nodes found: whether pods fit is unknown (--fail-on unschedulable)\n"
    )


def test_pods_with_claims_of_a_stateful_set_are_unjudged(report):
    items = [*CLUSTER, *deployment("state", kind="StatefulSet", labels={"app": "web"}, on=["n2"])]
    (before,) = [item for item in items if item["kind"] == "StatefulSet"]
    assert report([SSD], items)["totals"]["unjudged"] == 0
    # Its pods have volumes that its template does not.
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    after = {**before, "spec": {**before["spec"], "volumeClaimTemplates": claims}}
    items[items.index(before)] = after
    result = report([SSD], items)
    fits = {workload["kind"]: workload["fit"] for workload in result["workloads"]}
    assert fits["StatefulSet"]["unjudged"] == fits["StatefulSet"]["pods"] == 1
    assert fits["Deployment"]["unjudged"] == 0
    result = report([NOWHERE], items)
    assert result["totals"]["unschedulable"] == 3


def test_nodes_without_known_pods_do_not_count_as_empty(preview):
    items = [namespace(), ready_node("n1", disk="ssd"), *deployment("web")]
    code, out, err = preview([SSD], items, "--fail-on", "unschedulable")
    assert code == 1
    assert err == (
        "harbourmaster: no pods found: every node counts as empty (--fail-on unschedulable)\n"
    )
    assert "note: no pods found: every node counts as empty\n" in out
    assert preview([SSD], items)[0] == 0


def test_objects_that_cannot_be_read_are_a_reason_for_1_and_do_not_affect_others(preview):
    broken = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 7}}] * 12
    code, out, _ = preview([SSD], [*broken, {"kind": 7}, *CLUSTER], "-o", "json")
    result = json.loads(out)
    assert code == 1
    assert names(result) == ["Deployment shop/web"]
    assert result["totals"]["workloads"] == 2
    assert result["notes"][-1] == "3 more objects can't be read"
    assert any(note.startswith("Pod: metadata.name: expected") for note in result["notes"])


def test_settings_are_those_of_the_server(report):
    scheduler = cluster_policy("ssd", pods={"app": "web"}, schedulerName="s2")
    items = [namespace(), *deployment("web", schedulerName="default-scheduler")]
    assert names(report([scheduler], items)) == ["Deployment shop/web"]
    off = "--treat-default-scheduler-as-unset=false"
    assert names(report([scheduler], items, off)) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cluster"], "nothing to preview: give policies with -f"),
        (["--dump", "x", "-f", "gone.yaml"], "gone.yaml: no such file or directory"),
        (["--dump", "-", "-f", "-"], "standard input can be read once"),
        (["--dump", "gone.json", "--delete", "x"], "gone.json: cannot be read: No such file"),
    ],
)
def test_unusable_arguments_are_one_line(monkeypatch, tmp_path, capsys, arguments, text):
    monkeypatch.chdir(tmp_path)
    assert main(["preview", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"harbourmaster: {text}")
    assert err.count("\n") == 1


def test_a_dump_without_workloads_is_refused(preview):
    code, _, err = preview([SSD], [namespace(), ready_node("n1")])
    assert code == 2
    assert "no workload and no pod in it" in err


def test_a_dump_can_be_yaml_from_standard_input(monkeypatch, tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(SSD))
    text = yaml.safe_dump_all(CLUSTER).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["preview", "-f", str(file), "--dump", "-"]) == 0
    assert "1 of 2 workloads would change" in capsys.readouterr().out


def test_s31_control_characters_are_escaped(preview):
    evil = deployment("web\x1b[31m", labels={"app": "web"}, on=["n1"])
    for form in ("text", "markdown"):
        _, out, _ = preview([SSD], [namespace(), ready_node("n1"), *evil], "-o", form)
        assert "\x1b" not in out
        assert "\\x1b" in out


def test_markdown_is_a_table_and_folded_diffs(preview, assert_golden):
    code, out, _ = preview([NOWHERE], CLUSTER, "-o", "markdown")
    assert code == 0
    assert_golden(out.splitlines())


def test_names_and_values_are_not_markup(preview):
    name = "a</summary><script>|`x`"
    evil = cluster_policy("ssd", nodeSelector={"disk": "ssd"})
    items = [namespace(), *deployment(name, on=(), nodeSelector={"a": "</details>\n```"})]
    _, out, _ = preview([evil], items, "-o", "markdown")
    assert "<script>" not in out.replace("\\<script", "")
    lines = out.splitlines()
    (begun,) = [line for line in lines if line.endswith("diff") and line.startswith("`")]
    fence = begun.removesuffix("diff")
    assert len(fence) > 3
    assert lines.count(fence) == 1


def test_a_comment_is_never_too_long(preview):
    items = [namespace()]
    for index in range(200):
        spec = {"nodeSelector": {f"key-{n}": f"{index}-{n}" * 16 for n in range(20)}}
        items += deployment(f"web-{index}", labels={"app": "web"}, **spec)
    _, out, _ = preview([SSD], items, "-o", "markdown")
    assert len(out) < 65_536
    assert "more groups of changes, left out here." in out


def test_the_help_names_all_that_is_read():
    assert set(DUMPED_KINDS.split(",")) == {resource.plural for resource in (*FIRST, *THEN)}
