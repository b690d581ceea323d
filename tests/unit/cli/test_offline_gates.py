"""Gates without a cluster: ``review`` and ``replay`` with the owners of pods."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.cli.offline import replay_lines
from harbourmaster.gates.waits import WAITED_KEY
from helpers.admission import GATE, OPT_IN, PARENT, family, keys, pod
from helpers.objects import cluster_policy, review
from helpers.oracles import apply_patch

TRACKED = keys(workload="waiter", version="0.4", app="shop")
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "ns1", "annotations": OPT_IN}}


def replay(document=None, **case):
    """The pod after the answer to one case."""
    document = document or pod()
    line = {"id": 1, "namespaces": [NAMESPACE], "review": review(document), **case}
    (results,) = replay_lines([json.dumps(line).encode()])
    return apply_patch(document, json.loads(bytes(results.response)))


def test_the_parents_of_a_case_are_the_owners():
    after = replay(parents=family(TRACKED), policies=[cluster_policy(nodeSelector={"a": "b"})])
    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["nodeSelector"] == {"a": "b"}
    assert after["metadata"]["annotations"] == TRACKED


def test_an_owner_that_a_case_does_not_list_is_not_known():
    assert replay()["metadata"]["annotations"] == {PARENT: "unresolved"}


def test_a_namespace_that_a_case_does_not_list_is_not_known():
    assert replay(pod(TRACKED), namespaces=[]) == pod(TRACKED)


def test_a_case_may_carry_settings():
    after = replay(pod(keys(workload="w")), settings={"versionFromTag": True})
    assert after["metadata"]["annotations"]["keptn.sh/version"] == "1.25"


def test_a_parent_of_wrong_types_is_no_case():
    line = {"id": 1, "review": review(pod()), "parents": [{"kind": 3}]}
    (results,) = replay_lines([json.dumps(line).encode()])
    assert results.error == "parents[0].kind: expected string, got integer"


def test_flags_are_the_settings_of_cases_without_their_own(tmp_path, capsysbinary):
    line = {"namespaces": [NAMESPACE], "review": review(pod(TRACKED))}
    own = {**line, "settings": {}}
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(map(json.dumps, (line, own))))
    assert main(["replay", "--features", "policies", str(cases)]) == 0
    answers = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert ["patch" in answer["response"] for answer in answers] == [False, True]


@pytest.fixture
def sources(tmp_path):
    """The flags that name policies, namespaces and owners."""
    paths = {"policies": [], "namespaces": [NAMESPACE], "parents": family(TRACKED)}
    for name, documents in paths.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    return [f"--{name}={tmp_path}/{name}.yaml" for name in paths]


@pytest.fixture
def question(tmp_path):
    """The file of a review of a pod."""
    path = tmp_path / "review.json"
    path.write_text(json.dumps(review(pod())))
    return str(path)


def test_review_reads_the_owners_from_a_file(sources, question, capsysbinary):
    assert main(["replay", *sources, question]) == 0
    response = json.loads(capsysbinary.readouterr().out)["response"]
    assert apply_patch(pod(), response)["metadata"]["annotations"] == TRACKED


def test_review_takes_the_settings_of_gates(sources, question, capsysbinary):
    for flag in ("--features=policies", "--denied-namespaces=ns1", "--allowed-namespaces=other"):
        assert main(["replay", *sources, flag, question]) == 0
        assert b'"patch"' not in capsysbinary.readouterr().out


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kind": "Deployment", "metadata": {"name": 3}}, "metadata.name: expected string"),
        ({"kind": "Deployment", "metadata": {}}, "metadata.name: required"),
    ],
)
def test_a_bad_owner_is_reported_and_the_rest_serves(
    sources, question, tmp_path, capsys, document, says
):
    parents = tmp_path / "parents.yaml"
    parents.write_text(yaml.safe_dump_all([document, *family(TRACKED)]))
    assert main(["replay", *sources, question]) == 1
    printed = capsys.readouterr()
    assert f"{parents}, document 1: {says}" in printed.err
    assert '"patch"' in printed.out


def test_an_unknown_feature_is_one_line(sources, capsys):
    assert main(["replay", *sources, "--features=gate"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--features" in said
    assert "gates" in said


@pytest.mark.parametrize(
    ("flags", "gates", "scheduler"),
    [
        ([], [GATE], None),
        (["--gating=auto"], [GATE], None),
        (["--gating=schedulingGates"], [GATE], None),
        (["--gating=schedulerName"], None, "keptn-scheduler"),
        (["--gating=schedulerName", "--gate-scheduler-name=keeper"], None, "keeper"),
    ],
)
def test_review_puts_pods_where_the_settings_say(
    sources, question, capsysbinary, flags, gates, scheduler
):
    assert main(["replay", *sources, *flags, question]) == 0
    response = json.loads(capsysbinary.readouterr().out)["response"]
    spec = apply_patch(pod(), response)["spec"]
    assert (spec.get("schedulingGates"), spec.get("schedulerName")) == (gates, scheduler)


def test_replay_and_render_take_them_too(sources, tmp_path, capsysbinary):
    assert replay(pod(TRACKED), settings={"gating": "schedulerName"})["spec"]["schedulerName"]
    document = pod(TRACKED)
    document["metadata"]["namespace"] = "ns1"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert main(["render", *sources, "--gating=schedulerName", "-f", str(manifest)]) == 0
    after = yaml.safe_load(capsysbinary.readouterr().out)
    assert after["spec"]["schedulerName"] == "keptn-scheduler"
    assert "schedulingGates" not in after["spec"]


def test_render_shows_that_a_pod_is_staged(sources, tmp_path, capsysbinary):
    document = pod({**TRACKED, "gates.harbourmaster.dev/stages": "1"})
    document["metadata"]["namespace"] = "ns1"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert main(["render", *sources, "--diff", "-f", str(manifest)]) == 0
    assert b"+    gates.harbourmaster.dev/staged: 'true'" in capsysbinary.readouterr().out


def test_a_copied_pod_loses_the_marks_of_the_gate(sources, tmp_path, capsysbinary):
    document = pod({**TRACKED, WAITED_KEY: "timed-out"})
    document["metadata"]["namespace"] = "ns1"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert main(["render", *sources, "-f", str(manifest)]) == 0
    after = yaml.safe_load(capsysbinary.readouterr().out)
    assert WAITED_KEY not in after["metadata"]["annotations"]
