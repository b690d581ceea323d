"""Warnings on keys that have no effect, and on namespaces that ask for gates and get none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbourmaster.webhook.recording import line_of
from harbourmaster.webhook.review import MAX_WARNING, MAX_WARNINGS
from harbourmaster.webhook.verdict import DENIED, GATED, MUTATED, UNCHANGED, UNMATCHED
from helpers.admission import OPT_IN, admit, ask, engine_of, family, keys, owner, pod, take
from helpers.manifests import parse
from helpers.objects import RESOURCES, cluster_policy, review, workload

ROOT = Path(__file__).parents[3]
KEY_CODE, OPT_IN_CODE = "gate-key-unknown", "gate-opt-in-unknown"
CODES = {KEY_CODE, OPT_IN_CODE, "gate-list-empty", "gate-owner-unsupported"}
TYPO = {"keptn.sh/pre-deployment-task": "migrate"}
TRACKED = keys(workload="cart", version="1", app="shop")
PLACES = {
    "Deployment": "spec.template.metadata",
    "Job": "spec.template.metadata",
    "CronJob": "spec.jobTemplate.spec.template.metadata",
}


def warning(at, key="keptn.sh/pre-deployment-task", to_do=""):
    to_do = to_do or 'did you mean "keptn.sh/pre-deployment-tasks"?'
    return f'harbourmaster: key "{key}" is unknown and has no effect: {at}: {to_do}'


def opt_in(fault, verb):
    to_do = f"kubectl {verb} namespace ns1 keptn.sh/lifecycle-toolkit=enabled"
    return f'harbourmaster: namespace "ns1" has no gates: {fault}: {to_do}'


def place(annotations=None, labels=None):
    metadata = {"name": "ns1", "annotations": annotations or {}, "labels": labels or {}}
    return {"namespaces": [{"metadata": metadata}]}


def template(kind, **metadata):
    document = workload(kind)
    holder = document["spec"]
    if kind == "CronJob":
        holder = holder["jobTemplate"]["spec"]
    holder["template"]["metadata"] |= metadata
    return document


def warnings_of(answer):
    return answer.response.get("warnings", [])


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_an_unknown_key_of_a_pod_is_told_and_the_pod_waits_all_the_same(where):
    document = pod(TRACKED | TYPO) if where == "annotations" else pod(TRACKED, labels=TYPO)
    answer = admit(document)
    assert warnings_of(answer) == [warning(f"metadata.{where}")]
    assert answer.verdict.outcome == GATED
    assert answer.verdict.codes == (KEY_CODE,)
    assert list(answer.response["auditAnnotations"]) == [KEY_CODE]


@pytest.mark.parametrize("owners", [[], [owner("Job")]], ids=["bare", "job"])
def test_the_outcome_and_its_reason_stay(owners):
    answer = admit(pod(TYPO, owners=owners))
    assert warnings_of(answer) == [warning("metadata.annotations")]
    assert answer.verdict.outcome == UNMATCHED
    assert "owner of pod is not supported" in answer.response["status"]["reason"]
    assert answer.is_untouched


@pytest.mark.parametrize(
    ("disk", "outcome"), [("ssd", UNCHANGED), ("nvme", MUTATED)], ids=["unchanged", "mutated"]
)
def test_the_patch_of_policies_stays(disk, outcome):
    policy = cluster_policy(nodeSelector={"disk": disk})
    document = pod(TYPO, owners=[], nodeSelector={"disk": "ssd"} if outcome == UNCHANGED else {})
    answer = admit(document, (), policy)
    assert warnings_of(answer) == [warning("metadata.annotations")]
    assert answer.verdict.outcome == outcome
    assert answer.after["spec"]["nodeSelector"] == {"disk": disk}


def test_a_refusal_says_only_why():
    settings = {"gating": "schedulerName", "onForeignScheduler": "deny"}
    answer = admit(pod(TRACKED | TYPO, schedulerName="other"), **settings)
    assert answer.verdict.outcome == DENIED
    assert KEY_CODE not in answer.verdict.codes


@pytest.mark.parametrize("kind", ["Deployment", "Rollout"])
def test_an_unknown_key_of_the_owner_is_told_where_the_pod_inherits(kind):
    answer = admit(pod(), family(TRACKED | TYPO, kind))
    assert warnings_of(answer) == [warning("metadata.annotations of the pod's owner")]
    assert answer.annotations == TRACKED
    mistyped = keys(worklod="cart")
    (text,) = warnings_of(admit(pod(), family(mistyped, kind)))
    assert 'did you mean "keptn.sh/workload"?' in text
    assert warnings_of(admit(pod(TRACKED), family(TYPO, kind))) == []


@pytest.mark.parametrize("kind", PLACES)
def test_unknown_keys_of_a_workload_and_of_its_template_are_told(kind):
    at = PLACES[kind]
    answer = admit(template(kind, annotations=TYPO))
    assert warnings_of(answer) == [warning(f"{at}.annotations")]
    assert answer.is_untouched
    document = template(kind, labels={"app": "web"} | TYPO)
    document["metadata"] |= {"annotations": TYPO, "labels": TYPO}
    assert warnings_of(admit(document)) == [
        warning("metadata.annotations"),
        warning("metadata.labels"),
        warning(f"{at}.labels"),
    ]


def test_an_update_of_a_workload_is_told_and_one_of_a_pod_is_not():
    update = {"operation": "UPDATE"}
    assert warnings_of(admit(template("Deployment", annotations=TYPO), request=update))
    assert not warnings_of(admit(pod(TYPO), request=update))


def test_no_annotations_of_a_template_are_too_odd():
    for odd in ("x", [], {"keptn.sh/a": {}}, {"keptn.sh/a": None}, None):
        answer = admit(template("Deployment", annotations=odd))
        assert answer.is_untouched
        assert "warnings" not in answer.response


@pytest.mark.parametrize(
    ("metadata", "fault", "verb"),
    [
        (
            {"annotations": {"keptn.sh/lifecycle-toolkit": "true"}},
            'annotation keptn.sh/lifecycle-toolkit is "true"',
            "annotate --overwrite",
        ),
        (
            {"annotations": {"keptn.sh/lifecycle-toolkit": "Enabled"}},
            'annotation keptn.sh/lifecycle-toolkit is "Enabled"',
            "annotate --overwrite",
        ),
        (
            {"annotations": {"keptn.sh/lifecyle-toolkit": "enabled"}},
            'its annotation "keptn.sh/lifecyle-toolkit" is unknown',
            "annotate",
        ),
        (
            {"labels": OPT_IN},
            "keptn.sh/lifecycle-toolkit is a label",
            "annotate",
        ),
    ],
    ids=["true", "Enabled", "key", "label"],
)
def test_a_mistyped_opt_in_is_told_for_pods_and_workloads(metadata, fault, verb):
    options = place(**metadata)
    expected = opt_in(fault, verb)
    for document in (pod(TRACKED), pod(owners=[]), workload("Deployment"), workload("Job")):
        answer = admit(document, **options)
        assert warnings_of(answer) == [expected]
        assert answer.is_untouched
        assert answer.verdict.outcome == UNMATCHED
        assert answer.verdict.codes == (OPT_IN_CODE,)


def test_a_mistyped_opt_in_and_a_mistyped_key_are_both_told():
    options = place({"keptn.sh/lifecycle-toolkit": "true"})
    for document, at in (
        (pod(TYPO), "metadata"),
        (template("Deployment", annotations=TYPO), "spec.template.metadata"),
    ):
        first, second = warnings_of(admit(document, **options))
        assert 'is "true"' in first
        assert second == warning(f"{at}.annotations")


@pytest.mark.parametrize("value", ["disabled", "false"])
def test_whoever_asks_for_no_gates_is_told_nothing(value):
    answer = admit(pod(TRACKED | TYPO), **place({"keptn.sh/lifecycle-toolkit": value}))
    assert "warnings" not in answer.response


@pytest.mark.parametrize(
    "settings", [{"deniedNamespaces": ["ns1"]}, {"features": ["policies"]}], ids=["denied", "off"]
)
def test_where_settings_allow_no_gates_nothing_is_told(settings):
    for asked in (OPT_IN, {"keptn.sh/lifecycle-toolkit": "true"}):
        options = place(asked) | settings
        assert not warnings_of(admit(pod(TYPO), **options))
        assert not warnings_of(admit(template("Deployment", annotations=TYPO), **options))


def test_a_namespace_without_gates_is_told_nothing():
    assert not warnings_of(admit(pod(TYPO), **place()))
    assert not warnings_of(admit(template("Deployment", annotations=TYPO), **place()))


def test_a_change_of_the_namespace_counts_at_once():
    engine = engine_of(**place({"keptn.sh/lifecycle-toolkit": "true"}))
    question = review(pod(TRACKED))
    assert warnings_of(ask(question, engine))
    after = engine.with_snapshot(engine_of().snapshot)
    assert not warnings_of(ask(question, after))


def test_many_hostile_keys_are_few_short_printable_warnings():
    hostile = {f'keptn.sh/\n\x1b[31m"{"x" * 300}{index}': "y" for index in range(2000)}
    document = template("Deployment", annotations=hostile, labels=hostile)
    document["metadata"] |= {"annotations": hostile, "labels": hostile}
    warnings = warnings_of(admit(document))
    assert len(warnings) <= MAX_WARNINGS + 1
    assert all(len(text) <= MAX_WARNING and text.isprintable() for text in warnings)
    assert sum(map(len, warnings)) <= 4096
    assert any("1997 more" in text for text in warnings)


USE = "use a Deployment, StatefulSet, DaemonSet or Argo Rollout, or remove these keys"
NEVER = f"are never checked: metadata.ownerReferences: {USE}"
BARE = f"harbourmaster: a pod without an owner is never checked: metadata.ownerReferences: {USE}"


@pytest.mark.parametrize(
    ("metadata", "owners", "expected"),
    [
        ({"annotations": TRACKED}, [], BARE),
        ({"labels": {"app.kubernetes.io/name": "cart"}}, [], BARE),
        ({"annotations": TRACKED}, [owner("Job")], f"harbourmaster: pods of the kind Job {NEVER}"),
        ({"labels": TRACKED}, [owner("Set")], f"harbourmaster: pods of the kind Set {NEVER}"),
        ({"labels": {"app.kubernetes.io/name": "cart"}}, [owner("Job")], ""),
        ({"annotations": keys(task_name="migrate", app="shop")}, [owner("Job")], ""),
        ({"labels": {"app": "cart"}}, [], ""),
    ],
    ids=["bare", "recommended label", "job", "foreign", "helm hook", "task", "no keys"],
)
def test_a_pod_that_asks_for_checks_and_can_have_none_is_told(metadata, owners, expected):
    answer = admit(pod(owners=owners, **metadata))
    assert warnings_of(answer) == ([expected] if expected else [])
    assert answer.is_untouched


@pytest.mark.parametrize("kind", ["Job", "CronJob", "ReplicationController"])
def test_keys_in_a_template_whose_pods_are_never_checked_are_told(kind):
    at = PLACES.get(kind, "spec.template.metadata")
    (text,) = warnings_of(admit(template(kind, annotations=TRACKED)))
    assert text == f"harbourmaster: pods of the kind {kind} are never checked: {at}: {USE}"
    assert not warnings_of(admit(template(kind, labels={"app.kubernetes.io/name": "cart"})))


@pytest.mark.parametrize("value", [" , ", ",", " "])
def test_a_list_that_names_nothing_is_told(value):
    empty = keys(pre_deployment_tasks=value)
    expected = (
        'harbourmaster: key "keptn.sh/pre-deployment-tasks" names no check: '
        "metadata.annotations{}: name definitions, separated by commas, or remove it"
    )
    answer = admit(pod(TRACKED | empty))
    assert warnings_of(answer) == [expected.format("")]
    assert answer.verdict.outcome == GATED
    inherited = admit(pod(), family(TRACKED | empty))
    assert warnings_of(inherited) == [expected.format(" of the pod's owner")]
    assert len(warnings_of(admit(template("Deployment", annotations=empty)))) == 1


def test_an_empty_value_and_a_list_with_a_name_are_told_nothing():
    for value in ("", "a", " , a"):
        assert not warnings_of(admit(pod(TRACKED | keys(pre_deployment_tasks=value))))


DENY = {"onUnknownKeys": "Deny"}


@pytest.mark.parametrize(
    "document",
    [pod(TYPO, owners=[]), template("Deployment", annotations=TYPO)],
    ids=["bare", "template"],
)
def test_unknown_keys_are_refused_where_the_settings_say_so(document):
    answer = admit(document, **DENY)
    assert not answer.response["allowed"]
    assert answer.verdict.outcome == DENIED
    assert KEY_CODE in answer.verdict.codes
    assert answer.response["status"]["reason"].endswith(
        'did you mean "keptn.sh/pre-deployment-tasks"? (onUnknownKeys is Deny)'
    )


def test_a_pod_or_replica_set_with_an_owner_can_be_created_again_despite_unknown_keys():
    made = template("ReplicaSet", annotations=TYPO)
    made["metadata"]["ownerReferences"] = pod()["metadata"]["ownerReferences"]
    for document in (pod(TRACKED | TYPO), made):
        answer = admit(document, **DENY)
        assert answer.response["allowed"]
        assert warnings_of(answer)


def test_a_refusal_of_unknown_keys_spares_everything_else():
    for document, parents in (
        (pod(TRACKED), ()),
        (pod(), family(TRACKED | TYPO)),
        (pod(TRACKED, owners=[]), ()),
        (pod(TRACKED | keys(pre_deployment_tasks=",")), ()),
    ):
        assert admit(document, parents, **DENY).response["allowed"]
    assert admit(template("Deployment", annotations=TYPO), **DENY, **place()).response["allowed"]


def test_a_workload_that_had_an_unknown_key_can_still_be_updated():
    document = template("Deployment", annotations=TYPO)
    same = {"operation": "UPDATE", "oldObject": document}
    answer = admit(document, request=same, **DENY)
    assert answer.response["allowed"]
    assert warnings_of(answer)
    fresh = {"operation": "UPDATE", "oldObject": template("Deployment")}
    assert not admit(document, request=fresh, **DENY).response["allowed"]


def test_the_longest_warning_is_whole():
    near = "gates.harbourmaster.dev/post-deployment-evaluation"
    far = "gates.harbourmaster.dev/" + "x" * 63
    warnings = warnings_of(admit(template("CronJob", annotations={near: "", far: ""})))
    assert warnings[0].endswith('did you mean "keptn.sh/post-deployment-evaluations"?')
    assert warnings[1].endswith(": correct or remove it")


def test_a_hostile_opt_in_is_cut():
    value = "\n" * 9 + "é" * 100_000
    (text,) = warnings_of(admit(pod(), **place({"keptn.sh/lifecycle-toolkit": value})))
    assert len(text) <= MAX_WARNING
    assert text.isprintable()
    assert text.endswith("keptn.sh/lifecycle-toolkit=enabled")


def test_equal_pods_share_the_answer_with_its_warnings():
    engine = engine_of()
    first, second = (ask(review(pod(TRACKED | TYPO)), engine) for _ in range(2))
    assert warnings_of(first)
    assert first.verdict is second.verdict


@pytest.mark.parametrize(
    ("document", "parents", "options"),
    [
        pytest.param(pod(TRACKED | TYPO), (), {}, id="pod"),
        pytest.param(pod(), family(TRACKED | TYPO), {}, id="owner"),
        pytest.param(template("Deployment", annotations=TYPO), (), {}, id="template"),
        pytest.param(pod(), (), place({"keptn.sh/lifecycle-toolkit": "x" * 300}), id="value"),
        pytest.param(pod(), (), place({"keptn.sh/lifecyle-toolkit": "enabled"}), id="name"),
        pytest.param(pod(), (), place({}, OPT_IN), id="label"),
    ],
)
def test_a_recording_of_a_warning_is_faithful(document, parents, options):
    engine = engine_of(parents, **options)
    assert warnings_of(ask(review(document), engine))
    line, outcome = line_of(take(json.dumps(review(document)).encode(), engine))
    assert line is not None, outcome


def documents():
    for path in sorted((*ROOT.glob("deploy/**/*.yaml"), *ROOT.glob("tests/**/*.yaml"))):
        # Mistakes are warned of, and a template of Helm is no YAML yet.
        if path.parent in {ROOT / "tests/mistakes", ROOT / "deploy/chart/templates"}:
            continue
        for parsed_document in parse(path.read_text()):
            for item in parsed_document if isinstance(parsed_document, list) else [parsed_document]:
                if isinstance(item, dict) and item.get("kind") in RESOURCES:
                    yield path.relative_to(ROOT).as_posix(), item


def test_no_sample_of_ours_is_warned_of():
    named_documents = list(documents())
    assert "deploy/samples/gates/shop.yaml" in dict(named_documents)
    for name, document in named_documents:
        codes = admit(document).verdict.codes
        assert not CODES & set(codes), name


def test_no_recorded_review_is_warned_of():
    folder = ROOT / "tests/fixtures"
    reviews = [json.loads(path.read_text()) for path in folder.rglob("*.json")]
    for name in ("cases.jsonl", "recorded.jsonl"):
        lines = (folder / name).read_text().splitlines()
        reviews += [json.loads(line)["review"] for line in lines]
    asked = [review for review in reviews if review.get("request", {}).get("object")]
    assert len(asked) > 20
    for question in asked:
        namespace = question["request"].get("namespace", "ns1")
        verdict = ask(question, engine_of(namespace=namespace)).verdict
        assert not {KEY_CODE, OPT_IN_CODE, "gate-list-empty"} & set(verdict.codes)
