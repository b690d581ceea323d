from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.cli.offline import replay_lines
from harbourmaster.webhook.review import MAX_BODY_BYTES
from helpers.objects import cluster_policy, review, workload
from helpers.oracles import apply_patch

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def policies(tmp_path):
    path = tmp_path / "policies.yaml"
    path.write_text(yaml.safe_dump(cluster_policy(nodeSelector={"disk": "ssd"})))
    return str(path)


@pytest.fixture
def feed(monkeypatch):
    def give(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def lines(*cases):
    return [json.dumps(case).encode() + b"\n" for case in cases]


def answers(given):
    return [(line.id, line.http_status, json.loads(bytes(line.response))) for line in given]


def test_review_reads_standard_input_and_prints_a_review(policies, feed, capsysbinary):
    document = workload()
    feed(json.dumps(review(document)).encode())
    assert main(["replay", "--policies", policies]) == 0
    result = json.loads(capsysbinary.readouterr().out)
    spec = apply_patch(document, result["response"])["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}


def test_review_reads_a_file(policies, capsysbinary):
    fixture = str(FIXTURES / "statefulset-create.json")
    assert main(["replay", "--policies", policies, fixture]) == 0
    assert b'"patchType": "JSONPatch"' in capsysbinary.readouterr().out


def test_review_of_nonsense_answers_400_and_exits_1(policies, feed, capsysbinary):
    feed(b"nonsense")
    assert main(["replay", "--policies", policies]) == 1
    assert json.loads(capsysbinary.readouterr().out)["response"]["status"]["code"] == 400


def test_review_takes_settings_and_namespaces(tmp_path, policies, feed, capsysbinary):
    namespaces = tmp_path / "namespaces.yaml"
    namespaces.write_text("kind: Namespace\nmetadata: {name: other}\n")
    feed(json.dumps(review(workload())).encode())
    assert main(["replay", "--policies", policies, "--namespaces", str(namespaces)]) == 0
    assert b"is not known" in capsysbinary.readouterr().out


def test_replay_answers_each_case_in_order():
    case = {
        "namespaces": [{"metadata": {"name": "ns1"}}],
        "policies": [cluster_policy(nodeName="n")],
    }
    first = {"id": "a", "review": review(workload(), uid="1"), **case}
    second = {"id": 2, "review": review(workload("Pod"), uid="2"), **case}
    results = answers(replay_lines(lines(first, second)))
    assert [(name, status, response["uid"]) for name, status, response in results] == [
        ("a", 200, "1"),
        (2, 200, "2"),
    ]
    assert all("patch" in response for _, _, response in results)


def test_replay_knows_only_the_listed_namespaces():
    case = {"id": "a", "review": review(workload()), "policies": [cluster_policy(nodeName="n")]}
    ((_, _, response),) = answers(replay_lines(lines(case)))
    assert 'namespace "ns1" is not known' in response["status"]["reason"]


def test_replay_takes_settings_per_case():
    case = {
        "id": "a",
        "namespaces": [{"metadata": {"name": "ns1"}}],
        "policies": [cluster_policy(schedulerName="s1")],
        "review": review(workload(schedulerName="default-scheduler")),
    }
    compatible = {**case, "settings": {"treatDefaultSchedulerAsUnset": False}}
    results = answers(replay_lines(lines(case, compatible)))
    assert ["patch" in response for _, _, response in results] == [True, False]


def test_replay_reports_what_is_no_case_and_goes_on(feed, capsysbinary):
    good = {"id": "good", "review": review(workload())}
    too_large = {"id": "large", "review": "x" * MAX_BODY_BYTES}
    feed(
        b'{"id": 1}\nnonsense\n\n{"id": 2, "review": {}, "settings": {"nope": 1}}\n'
        b'{"id": 3, "review": {}, "policies": 5}\n' + b"".join(lines(good, too_large))
    )
    assert main(["replay"]) == 1
    document = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert document[0] == {"id": 1, "error": "object missing required field review", "line": 1}
    assert document[1]["id"] is None
    assert "malformed" in document[1]["error"]
    assert document[1]["line"] == 2
    # The blank line counts, as in an editor.
    assert document[2] == {"id": 2, "error": "settings.nope: unknown field", "line": 4}
    assert document[3] == {"id": 3, "error": "policies: expected array, got integer", "line": 5}
    assert (document[4]["id"], document[4]["httpStatus"]) == ("good", 200)
    assert document[5] == {"id": "large", "httpStatus": 413, "response": None}


def test_replay_check_names_the_lines_that_differ(tmp_path, capsysbinary):
    given = lines({"id": "a", "review": review(workload())}, {"id": "b", "review": {}})
    (answer,) = replay_lines(given[:1])
    same, changed = (
        given[0].removesuffix(b"}\n") + b', "response": %b}\n' % response
        for response in (bytes(answer.response), b'{"allowed": false}')
    )
    file = tmp_path / "cases.jsonl"
    file.write_bytes(b"\n".join((same, changed, given[1])))
    assert main(["replay", "--check", str(file)]) == 1
    out, err = capsysbinary.readouterr()
    differences = [json.loads(line) for line in out.splitlines()]
    assert [(difference["id"], difference["line"]) for difference in differences] == [
        ("a", 3),
        ("b", 5),
    ]
    assert err == b"1 of 3 answered as recorded\n"


def test_replay_of_the_recorded_cases_succeeds(capsysbinary):
    assert main(["replay", str(FIXTURES / "cases.jsonl")]) == 0
    document = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    changed = {line["id"] for line in document if "patch" in line["response"]}
    kinds = "pod replicationcontroller replicaset deployment statefulset daemonset job cronjob"
    expected = {f"{kind}-create" for kind in kinds.split()}
    expected |= {f"{kind}-update" for kind in kinds.split() if kind not in {"pod", "job"}}
    assert changed == expected
    assert all(line["response"]["allowed"] for line in document)


def test_render_prints_what_admission_would_store(tmp_path, policies, capsys):
    manifest = tmp_path / "w.yaml"
    objects = [workload(), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]
    manifest.write_text(yaml.safe_dump_all(objects))
    assert main(["render", "--policies", policies, "-f", str(manifest)]) == 0
    printed = capsys.readouterr()
    deployment, config_map = yaml.safe_load_all(printed.out)
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert config_map == objects[1]
    assert printed.err == ""


def test_render_diff_shows_only_what_changes(tmp_path, policies, capsys):
    manifest = tmp_path / "w.yaml"
    manifest.write_text(yaml.safe_dump_all([workload(), workload(nodeSelector={"disk": "hdd"})]))
    assert main(["render", "--policies", policies, "-f", str(manifest), "--diff"]) == 0
    added = [line for line in capsys.readouterr().out.splitlines() if line.startswith("+ ")]
    assert added == ["+      nodeSelector:", "+        disk: ssd"]


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"},
        {"kind": "Pod"},
        {"apiVersion": "v1", "resources": []},
    ],
    ids=json.dumps,
)
def test_render_passes_nothing_through_that_no_cluster_can_create(
    tmp_path, policies, capsys, manifest, assert_golden
):
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump_all([manifest, workload()]))
    assert main(["render", "--policies", policies, "-f", str(file)]) == 1
    printed = capsys.readouterr()
    (rendered,) = yaml.safe_load_all(printed.out)
    assert rendered["kind"] == "Deployment"
    assert_golden(printed.err.replace(str(file), "w.yaml"))


def test_a_kustomization_of_flux_is_an_object_like_others(tmp_path, policies, capsys):
    file = tmp_path / "w.yaml"
    manifest = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"}
    file.write_text(yaml.safe_dump(manifest))
    assert main(["render", "--policies", policies, "-f", str(file)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == manifest


def test_render_reports_bad_manifests_and_policies(tmp_path, policies, capsys):
    manifest = tmp_path / "w.yaml"
    bad = cluster_policy(nodeName="Not A Name")
    manifest.write_text(yaml.safe_dump_all([bad, workload(tolerations="x")]) + "---\n[\n")
    assert main(["render", "--policies", policies, "-f", str(manifest)]) == 1
    printed = capsys.readouterr().err
    assert f"{manifest}, document 1: spec.nodeName: Invalid value" in printed
    assert "document 2: harbourmaster: Deployment: spec.template.spec.tolerations" in printed
    assert "document 3: line" in printed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            cluster_policy("bad", pods={"app": "a"}, tolerations=[{"operator": "Equals"}]),
            "spec.tolerations[0].operator: Unsupported value",
        ),
        ({**cluster_policy("bad"), "kind": "PodPolicy"}, "kind: expected"),
        (cluster_policy("bad", podSelectr={}), "spec.podSelectr: unknown field"),
        (cluster_policy("bad", nodeSelecto={"a": "b"}), "spec.nodeSelecto: unknown field"),
        ("kind: [", "line"),
    ],
)
@pytest.mark.parametrize("command", ["render", "replay", "why", "preview"])
def test_a_broken_policy_ends_with_1(tmp_path, capsys, command, text, says):
    folder = tmp_path / "policies"
    folder.mkdir()
    bad = folder / "bad.yaml"
    bad.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    good = cluster_policy("good", nodeSelector={"disk": "ssd"})
    (folder / "good.yaml").write_text(yaml.safe_dump(good))
    manifest = tmp_path / "w.yaml"
    manifest.write_text(yaml.safe_dump(workload()))
    recorded = tmp_path / "review.json"
    recorded.write_text(json.dumps(review(workload())))
    policies = ["--policies", str(folder)]
    arguments = {
        "render": [*policies, "-f", str(manifest)],
        "replay": [*policies, str(recorded)],
        "why": ["-f", str(manifest), *policies],
        "preview": ["-f", str(folder), f"--dump={manifest}"],
    }
    assert main([command, *arguments[command]]) == 1
    printed = capsys.readouterr()
    assert f"{bad}, document 1: {says}" in printed.err
    # The good one decides all the same.
    assert ("patch" if command == "replay" else "ssd") in printed.out


def test_a_policy_among_the_manifests_has_no_unknown_field_either(tmp_path, policies, capsys):
    manifest = tmp_path / "p.yaml"
    manifest.write_text(yaml.safe_dump(cluster_policy(nodeName="node", podSelectr={})))
    assert main(["render", "--policies", policies, "-f", str(manifest)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{manifest}, document 1: spec.podSelectr: unknown field"


def test_a_policy_of_a_dump_may_have_fields_that_are_unknown(tmp_path, policies, capsys):
    dump = tmp_path / "dump.json"
    items = [cluster_policy("other", nodeName="n", nodeSelecto={"a": "b"}), workload()]
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["preview", "-f", policies, f"--dump={dump}"]) == 0
    assert capsys.readouterr().err == ""


def test_a_recorded_policy_may_have_fields_that_are_unknown():
    manifest = cluster_policy(nodeName="n", nodeSelecto={"a": "b"})
    case = {
        "id": "a",
        "namespaces": [{"metadata": {"name": "ns1"}}],
        "policies": [manifest],
        "review": review(workload()),
    }
    ((_, status, response),) = answers(replay_lines(lines(case)))
    assert status == 200
    assert "patch" in response


@pytest.mark.parametrize(
    "words",
    [
        "replay --policies absent",
        "replay --policies . absent.json",
        "render --policies . -f absent",
        "why -f absent --policies .",
        "migrate krake absent",
        "preview -f absent --dump x",
        "replay --policies . --on-required-affinity-conflict or",
        "server files --policies . --port 99999",
        "server files --policies . --config absent",
        "server files --policies . --client-ca ca.crt --try review.json",
    ],
)
def test_an_error_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, words, assert_golden):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert_golden(line)


@pytest.mark.parametrize("text", ["nope: 1", "server: {nope: 1}", "server: {port: x}", "[1]", "{"])
def test_a_bad_settings_file_names_the_key(tmp_path, capsys, text, assert_golden):
    config = tmp_path / "settings.yaml"
    config.write_text(text)
    assert main(["server", "files", "--policies", str(tmp_path), "--config", str(config)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert_golden(line.replace(str(config), "settings.yaml"))


OFFLINE = {
    "render": ["--policies={folder}/policy.yaml", "-f={folder}/w.yaml"],
    "replay --policies={folder}/policy.yaml": [str(FIXTURES / "deployment-create.json")],
    "replay": [str(FIXTURES / "cases.jsonl")],
    "preview": ["-f={folder}/policy.yaml", "--dump={folder}/w.yaml"],
    "reschedule plan": ["--pod=kube-system/dns", "--dump={folder}/dump.json"],
}
OF_SERVERS = {"log": {"level": "debug"}, "server": {"healthPort": 1}, "cluster": {"namespace": "a"}}


@pytest.fixture
def offline(tmp_path):
    """Return ``offline(command, settings)``, the exit code with a file of these settings."""
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(cluster_policy(schedulerName="s1")))
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(workload(schedulerName="default-scheduler")))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    items = [node, workload("Pod")]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))

    def offline(command, settings):
        config = tmp_path / "settings.yaml"
        config.write_text(yaml.safe_dump(settings))
        words = [*command.split(), *OFFLINE[command], "--config", str(config)]
        return main([word.format(folder=tmp_path) for word in words])

    return offline


@pytest.mark.parametrize("command", OFFLINE)
def test_offline_commands_take_the_settings_file_of_a_server(offline, capfdbinary, command):
    offline(command, {})
    plain = capfdbinary.readouterr()
    offline(command, OF_SERVERS)
    assert capfdbinary.readouterr() == plain


@pytest.mark.parametrize("command", OFFLINE)
@pytest.mark.parametrize("settings", [{"lg": {}}, {"log": {"levl": "info"}}, {"server": 1}])
def test_offline_commands_refuse_what_no_server_takes(offline, capsys, command, settings):
    assert offline(command, settings) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown field" in line or "server: expected object" in line


def test_offline_commands_use_their_part_of_a_servers_settings(offline, capsys):
    for settings, scheduler in (
        (OF_SERVERS, "s1"),
        ({**OF_SERVERS, "treatDefaultSchedulerAsUnset": False}, "default-scheduler"),
    ):
        offline("render", settings)
        (document,) = yaml.safe_load_all(capsys.readouterr().out)
        assert document["spec"]["template"]["spec"]["schedulerName"] == scheduler


def test_a_flag_wins_over_the_file(tmp_path, policies, feed, capsysbinary):
    config = tmp_path / "settings.yaml"
    config.write_text("treatDefaultSchedulerAsUnset: false\n")
    scheduler = tmp_path / "scheduler.yaml"
    scheduler.write_text(yaml.safe_dump(cluster_policy(schedulerName="s1")))
    question = json.dumps(review(workload(schedulerName="default-scheduler"))).encode()
    common = ["replay", "--policies", str(scheduler), "--config", str(config)]
    for extra, is_patched in (
        ([], False),
        (["--treat-default-scheduler-as-unset", "true"], True),
    ):
        feed(question)
        assert main(common + extra) == 0
        assert (b'"patch"' in capsysbinary.readouterr().out) == is_patched


@pytest.mark.claim("O9")
@pytest.mark.parametrize("command", ["render", "diff", "review", "replay", "import"])
def test_no_command_prints_terminal_controls_of_names_files_or_keys(
    command, tmp_path, policies, feed, capfdbinary
):
    evil = "\x1b]0;owned\x07\x9b31m"
    place = tmp_path / "manifests"
    place.mkdir()
    document = workload(name=evil, labels={"app": evil})
    (place / f"{evil}.yaml").write_text(yaml.safe_dump(document))
    (place / "twice.yaml").write_text('{"\\e[2J": 1, "\\e[2J": 2}')
    file = tmp_path / "case"
    given = ["--policies", policies, "-f", str(place)]
    case = {"id": evil, "policies": [cluster_policy(evil)], "review": review(document, uid=evil)}
    feed(json.dumps(review(document, uid=evil)).encode())
    file.write_bytes(json.dumps(case).encode())
    main(
        {
            "render": ["render", *given],
            "diff": ["render", *given, "--diff"],
            "review": ["replay", "--policies", policies],
            "replay": ["replay", str(file)],
            "import": ["migrate", "krake", str(place)],
        }[command]
    )
    out, err = capfdbinary.readouterr()
    shown = (out + err).decode()
    assert "owned" in shown
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("kind", "who"), [("Pod", "it"), ("Job", "its pods"), ("CronJob", "its pods")]
)
@pytest.mark.parametrize("timeout", [None, "10m"])
def test_render_tells_what_pods_will_wait_for(tmp_path, policies, capsys, kind, who, timeout):
    waits = {"gates.harbourmaster.dev/wait-for": "job/migrate, optional:cm/a"}
    if timeout:
        waits["gates.harbourmaster.dev/wait-timeout"] = timeout
    given = workload(kind)
    spec = given["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else given["spec"]
    (given if kind == "Pod" else spec["template"])["metadata"]["annotations"] = waits
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(given))
    assert main(["render", "--policies", policies, "-f", str(file)]) == 0
    printed = capsys.readouterr()
    limit = ", 10m0s at most, then Keep" if timeout else ""
    assert printed.err.rstrip().endswith(f": {who} will wait for job/migrate, cm/a{limit}")
    assert ("keptn-prechecks-gate" in printed.out) == (kind == "Pod")


ADDED = '  add /spec/template/spec/nodeSelector {"disk":"ssd"}\n'
RECORDED = str(FIXTURES / "statefulset-create.json")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_answer_is_text_on_a_terminal_and_json_elsewhere(
    policies, capsys, monkeypatch, is_terminal
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert main(["replay", "--policies", policies, RECORDED]) == 0
    out = capsys.readouterr().out
    assert out.startswith("{") != is_terminal
    assert main(["replay", "--policies", policies, RECORDED, "--output", "json"]) == 0
    as_json = capsys.readouterr().out
    assert (out == as_json) != is_terminal
    assert main(["replay", "--policies", policies, RECORDED, "-o", "text"]) == 0
    text = capsys.readouterr().out
    assert (out == text) == is_terminal
    assert text.startswith("demo/ledger: allowed\n")
    assert text.endswith(ADDED)


def test_cases_and_their_differences_as_text(tmp_path, feed, capsys):
    policy = cluster_policy(nodeSelector={"disk": "ssd"})
    case = {
        "id": "a\u009b",
        "review": review(workload()),
        "policies": [policy],
        "namespaces": [{"metadata": {"name": "ns1"}}],
    }
    feed(b"".join(lines(case, {"id": 2})))
    assert main(["replay", "-o", "text"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("a\\x9b: allowed\n" + ADDED)
    assert "\n2: " in out
    feed(b"".join(lines({**case, "id": 3, "response": {"uid": "u", "allowed": False}})))
    assert main(["replay", "-o", "text", "--check"]) == 1
    recorded, now = "3, recorded: denied: without a message\n", "3, now: allowed\n"
    assert capsys.readouterr().out == recorded + now + ADDED


def test_render_prints_the_operations_of_each_manifest(tmp_path, policies, capsys):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    (tmp_path / "workload.yaml").write_text(yaml.safe_dump_all([workload(), service]))
    file = f"{tmp_path}/workload.yaml"
    assert main(["render", "--policies", policies, "-f", file, "--patch"]) == 0
    assert capsys.readouterr().out == f"{file} Deployment web\n{ADDED}{file} Service web\n"


def test_a_long_value_is_printed_as_yaml(tmp_path, capsys):
    tolerations = [{"key": "example.com/dedicated-to", "operator": "Exists", "effect": "NoExecute"}]
    (tmp_path / "policies.yaml").write_text(json.dumps(cluster_policy(tolerations=tolerations)))
    (tmp_path / "workload.yaml").write_text(json.dumps(workload()))
    words = ("render", "--policies", f"{tmp_path}/policies.yaml", "--patch")
    assert main([*words, "-f", f"{tmp_path}/workload.yaml"]) == 0
    _, operation, *lines = capsys.readouterr().out.splitlines()
    assert operation == "  add /spec/template/spec/tolerations"
    assert yaml.safe_load("\n".join(lines)) == tolerations
