"""``harbourmaster compile`` without a cluster: the objects that it prints, and its errors."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.cli import main as cli
from helpers.objects import cluster_policy


@pytest.fixture
def compile_policies(tmp_path, capsys):
    """Compile policies from a file; gives the code, the objects, and the lines of errors."""

    def run(*policies, options=(), enforcement="Both"):
        for policy in policies:
            policy["metadata"]["annotations"] = {"harbourmaster.dev/enforcement": enforcement}
        file = tmp_path / "policies.yaml"
        file.write_text("\n---\n".join(map(json.dumps, policies)))
        code = cli.main(["compile", "-f", str(file), *options])
        out, err = capsys.readouterr()
        return code, list(yaml.safe_load_all(out)), err.splitlines()

    return run


SSD = {"nodeSelector": {"disk": "ssd"}}


def test_all_steps_are_printed_in_order_and_each_alone(compile_policies):
    code, manifests, errors = compile_policies(cluster_policy("a", **SSD))
    assert (code, errors) == (0, [])
    alone = [
        manifest
        for step in ("policies", "probe", "final")
        for manifest in compile_policies(cluster_policy("a", **SSD), options=("--step", step))[1]
    ]
    assert alone == manifests
    kinds = [manifest["kind"] for manifest in manifests]
    assert kinds.index("MutatingAdmissionPolicyBinding") > kinds.index("MutatingAdmissionPolicy")


def test_a_refused_policy_is_one_line_and_the_others_are_printed(compile_policies):
    code, manifests, errors = compile_policies(
        cluster_policy("a", **SSD), cluster_policy("b", nodeName="n")
    )
    assert code == 1
    assert len(manifests) == 13
    [line] = errors
    assert line.startswith("harbourmaster: ClusterPodSchedulingPolicy b stays with the webhook: ")


def test_nothing_to_compile_says_what_to_do(compile_policies):
    code, manifests, [line] = compile_policies(cluster_policy("a", **SSD), enforcement="Webhook")
    assert (code, manifests) == (1, [])
    assert "annotate policies with harbourmaster.dev/enforcement=Both" in line


@pytest.mark.parametrize(
    ("flag", "setting"),
    [
        ("--on-required-affinity-conflict=skip", "onRequiredAffinityConflict: skip"),
        ("--treat-default-scheduler-as-unset=false", "treatDefaultSchedulerAsUnset: false"),
        ("--features=gates", "features without policies"),
    ],
)
def test_settings_that_the_api_server_cannot_follow_leave_all_to_the_webhook(
    compile_policies, flag, setting
):
    code, manifests, [error] = compile_policies(cluster_policy("a", **SSD), options=(flag,))
    assert (code, manifests) == (2, [])
    assert f"the setting {setting} can't be compiled" in error


def test_a_scheduler_stays_with_the_webhook_where_pods_wait_in_another(compile_policies):
    named = cluster_policy("a", schedulerName="bin-packer")
    assert compile_policies(named)[0] == 0
    # The pod would come to the webhook as one of another scheduler, and would not wait.
    code, manifests, [line] = compile_policies(named, options=("--gating=schedulerName",))
    assert (code, manifests) == (1, [])
    assert "a stays with the webhook: spec.schedulerName: pods wait for their checks in" in line


def test_policies_come_from_files_or_from_a_cluster(capsys):
    assert cli.main(["compile"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
