"""``harbourmaster compile`` without a cluster: the objects that it prints, and its errors."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_POLICIES
from harbourmaster.cli import main as cli
from harbourmaster.cli.compile import apply as apply_module
from harbourmaster.cli.compile import run as run_module
from harbourmaster.cli.installed import GUARDS, VALIDATING_POLICIES
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ForbiddenError
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


@pytest.fixture
def apply(api, command, monkeypatch):
    """Return ``apply(*options)``, which runs ``compile apply`` on the fake API server."""
    monkeypatch.setattr(apply_module, "QUIET", 0.0)
    monkeypatch.setattr(apply_module, "_RETRIES", Backoff(first=0.05, limit=0.05))
    for resource in GUARDS:
        api.define(resource)

    async def run(*options):
        return await command("compile", "apply", *options)

    return run


def ask(api, name="ssd", enforcement="Both", **spec):
    """Store a policy that asks for the API server."""
    policy = cluster_policy(name, **(spec or SSD))
    policy["metadata"]["annotations"] = {"harbourmaster.dev/enforcement": enforcement}
    api.put(CLUSTER_POLICIES, policy)


def enforce(monkeypatch, *answers):
    """Let the trials in the probe namespace end so, one after the other; the last is repeated."""
    left = list(answers)

    async def trial(_self, _client, _selection):
        differences = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(differences, Exception):
            raise differences
        return 6, differences

    monkeypatch.setattr(run_module._Compilation, "_try", trial)


def compiled(api):
    """The names of all compiled objects, by kind."""
    return {kind.kind: sorted(name for _, name in api.objects.all(kind)) for kind in GUARDS}


def policies_in(api):
    """The names of the compiled policies of both kinds."""
    return sorted(name for kind in GUARDS[1::2] for name in compiled(api)[kind.kind])


async def test_apply_takes_all_steps_and_can_be_repeated(api, apply, monkeypatch):
    ask(api)
    account = ForbiddenError("error looking up service account harbourmaster-probe/default")
    enforce(monkeypatch, account, [["--- webhook\n"]], [])
    code, out, err = await apply()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "policies: 4 created",
        "probe: 5 created",
        "tried: waiting until the API server enforces the policies of the probe",
        "tried: 6 objects, 0 differ",
        "final: 4 created",
        "former sets: 0 objects deleted",
    ]
    before = compiled(api)
    assert len(before["MutatingAdmissionPolicyBinding"]) == 6
    code, out, err = await apply()
    assert (code, err, compiled(api)) == (0, "", before)
    assert [line for line in out.splitlines() if "created" in line or "changed" in line] == [
        "policies: 4 unchanged",
        "probe: 5 unchanged",
        "final: 4 unchanged",
    ]


async def test_apply_replaces_a_former_set_after_its_bindings_lead_to_the_new_one(
    api, apply, monkeypatch
):
    enforce(monkeypatch, [])
    ask(api)
    await apply()
    former = policies_in(api)
    ask(api, "gpu", nodeSelector={"gpu": "a100"})
    code, out, _ = await apply()
    assert (code, out.splitlines()[-1]) == (0, "former sets: 4 objects deleted")
    now = policies_in(api)
    assert (len(now), set(now) & set(former)) == (4, set())
    writes = [request for request in api.requests if request.method in {"PATCH", "DELETE"}]
    deleted = [request.path for request in writes[-4:]]
    assert [request.method for request in writes[-8:]] == ["PATCH"] * 4 + ["DELETE"] * 4
    assert sorted(path.rpartition("/")[2] for path in deleted) == former


async def test_apply_binds_nothing_elsewhere_while_the_api_server_differs(api, apply, monkeypatch):
    ask(api)
    enforce(monkeypatch, [["--- pods, webhook\n", "+++ pods, API server\n"]])
    code, out, err = await apply("--timeout=200ms")
    assert code == 1
    assert out.endswith("--- pods, webhook\n+++ pods, API server\n")
    assert err == (
        "harbourmaster: not applied: 1 of 6 objects differ: correct it and run this again; it goes "
        "on from here\n"
    )
    assert all("probe" in name for name in compiled(api)["MutatingAdmissionPolicyBinding"])


async def test_apply_names_an_expression_that_the_api_server_warns_of(api, apply, monkeypatch):
    ask(api)
    enforce(monkeypatch, [])
    policy = cluster_policy("dear", **SSD)
    policy["metadata"]["annotations"] = {
        "harbourmaster.dev/enforcement": "Both",
        "harbourmaster.dev/on-too-large": "Deny",
    }
    api.put(CLUSTER_POLICIES, policy)
    assert (await apply())[0] == 0
    name = min(compiled(api)["ValidatingAdmissionPolicy"])
    stored = api.get(VALIDATING_POLICIES, name)
    warned = {"fieldRef": "spec.validations[0].expression", "warning": "undefined field"}
    stored["status"] = {"typeChecking": {"expressionWarnings": [warned]}}
    code, _, err = await apply()
    assert (code, "spec.validations[0].expression: undefined field" in err) == (1, True)


async def test_a_compiled_policy_that_was_edited_is_created_again(api, apply, monkeypatch):
    ask(api)
    enforce(monkeypatch, [])
    await apply()
    (_, name), *_ = api.objects.all(MUTATING_POLICIES)
    edited = copy.deepcopy(api.get(MUTATING_POLICIES, name))
    edited["spec"]["failurePolicy"] = "Fail"
    api.put(MUTATING_POLICIES, edited)
    assert api.get(MUTATING_POLICIES, name)["metadata"]["generation"] == 2
    code, out, _ = await apply()
    assert (code, out.splitlines()[0]) == (0, "policies: 1 created, 3 unchanged")
    assert api.get(MUTATING_POLICIES, name)["metadata"]["generation"] == 1


async def test_apply_as_a_dry_run_stores_nothing(api, apply, monkeypatch):
    ask(api)
    enforce(monkeypatch, [["never tried\n"]])
    code, out, err = await apply("--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("policies: 4 created (dry run)\n")
    assert not any(compiled(api).values())


async def test_apply_removes_what_is_compiled_when_no_policy_asks_any_more(api, apply, monkeypatch):
    enforce(monkeypatch, [])
    ask(api)
    await apply()
    api.remove(CLUSTER_POLICIES, "ssd")
    code, out, _ = await apply()
    assert (code, out.splitlines()[-1]) == (0, "former sets: 12 objects deleted")
    assert not any(compiled(api).values())
    code, out, err = await apply()
    assert (code, out) == (1, "")
    assert "nothing to compile: annotate policies" in err


@pytest.mark.parametrize("words", [("--step", "final"), ("--try",), ("-f", "policies")])
def test_apply_goes_with_no_other_step(capsys, words):
    assert cli.main(["compile", "apply", *words]) == 2
    assert capsys.readouterr().err == (
        "harbourmaster: compile apply takes the policies of the cluster through all steps\n"
    )
