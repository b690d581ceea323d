"""Stages of a version at admission: the label of staged pods, and warnings about templates."""

from __future__ import annotations

import pytest

from harbourmaster.gates.stages import STAGED_LABEL, STAGES_KEY
from harbourmaster.webhook.review import MAX_WARNING
from helpers.admission import (
    GATE,
    admit,
    answer_after_failure,
    ask,
    engine_of,
    family,
    keys,
    owner,
    pod,
    record_of,
    replayed_response,
)
from helpers.objects import review, workload

OURS = "gates.harbourmaster.dev/"
TRACKED = keys(workload="web", version="1", app="shop")
STAGES = {STAGES_KEY: "1, 25%"}
PAUSE = {f"{OURS}stage-pause": "10m"}
IN_SCHEDULER = {"gating": "schedulerName"}
PLAIN = {"namespaces": [{"metadata": {"name": "ns1"}}]}
SUITABLE = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
AT = "spec.template.metadata.annotations"
RECOMMENDED = "set maxUnavailable: 0, maxSurge: 1"


def without_labels(document):
    del document["metadata"]["labels"]
    return document


def labels_of(answer):
    return answer.after["metadata"].get("labels", {})


def template(kind="Deployment", annotations=None, own=None, labels=None, pod_spec=None, **spec):
    """A workload whose template has stages, and a strategy that suits them unless given."""
    document = workload(kind, {"app": "web"} if labels is None else labels, **(pod_spec or {}))
    metadata = document["spec"]["template"]["metadata"]
    metadata["annotations"] = {**TRACKED, **STAGES} if annotations is None else annotations
    field = "strategy" if kind == "Deployment" else "updateStrategy"
    document["spec"] |= {field: SUITABLE, "replicas": 12, **spec}
    if kind == "DaemonSet":
        document["spec"].pop("replicas")
    document["metadata"] |= own or {}
    return document


def told(answer):
    """The code of each warning, and its text without our name."""
    texts = answer.response.get("warnings", ())
    assert all(len(text) < MAX_WARNING for text in texts)
    removed = [text.removeprefix("harbourmaster: ") for text in texts]
    return list(zip(answer.verdict.codes, removed, strict=True))


def only_warning(document, **options):
    ((code, text),) = told(admit(document, **options))
    return code, text


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_a_staged_pod_gets_the_label_and_waits(kind):
    answer = admit(pod({**TRACKED, **STAGES}, owners=[owner(kind)]))
    assert labels_of(answer) == {"app": "web", STAGED_LABEL: "true"}
    assert answer.gates == [GATE]
    assert told(answer) == []
    again = admit(answer.after)
    assert again.is_untouched


def test_a_pod_without_labels_gets_the_map():
    answer = admit(without_labels(pod({**TRACKED, **STAGES})))
    assert labels_of(answer) == {STAGED_LABEL: "true"}
    answer = admit(
        {**pod({**TRACKED, **STAGES})}
        | {
            "metadata": {
                "labels": None,
                "annotations": {**TRACKED, **STAGES},
                "ownerReferences": [owner()],
            }
        }
    )
    assert labels_of(answer) == {STAGED_LABEL: "true"}


def test_a_pod_that_inherits_its_workload_is_staged_by_its_own_annotation():
    assert labels_of(admit(pod(dict(STAGES)), family(TRACKED)))[STAGED_LABEL] == "true"
    assert STAGED_LABEL not in labels_of(admit(pod(), family({**TRACKED, **STAGES})))


def test_a_provisional_pod_is_labelled_too():
    answer = admit(pod(dict(STAGES)))
    assert answer.annotations[f"{OURS}parent"] == "unresolved"
    assert labels_of(answer)[STAGED_LABEL] == "true"


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "none"])
def test_so_is_a_pod_on_which_nothing_could_be_decided(labels):
    document = pod({**TRACKED, **STAGES})
    answer = answer_after_failure(document if labels else without_labels(document), engine_of())
    assert answer.gates == [GATE]
    assert labels_of(answer)[STAGED_LABEL] == "true"
    malformed = pod({**TRACKED, **STAGES})
    malformed["metadata"]["labels"] = {"app": 1}
    answer = answer_after_failure(malformed, engine_of())
    assert (answer.gates, labels_of(answer)) == ([GATE], {"app": 1})


def test_a_pod_that_only_waits_for_objects_has_no_stages():
    annotations = {**STAGES, f"{OURS}wait-for": "job/migrate"}
    for answer in (
        admit(pod(annotations), **PLAIN),
        answer_after_failure(pod(annotations), engine_of(**PLAIN)),
    ):
        assert answer.gates == [GATE]
        assert STAGED_LABEL not in labels_of(answer)


def test_without_gates_the_annotations_of_stages_change_nothing():
    answer = admit(pod({**TRACKED, **STAGES, **PAUSE}), **PLAIN)
    assert answer.is_untouched
    assert told(answer) == []


@pytest.mark.parametrize(
    ("annotations", "fields", "options"),
    [
        ({}, {}, {}),
        ({STAGES_KEY: "half"}, {}, {}),
        (STAGES, {"schedulerName": "keptn-scheduler"}, {}),
        (STAGES, {}, IN_SCHEDULER),
    ],
    ids=["no stages", "not readable", "names the scheduler", "in its scheduler"],
)
def test_the_label_of_a_pod_that_is_not_staged_is_removed(annotations, fields, options):
    labels = {"app": "web", STAGED_LABEL: "true"}
    answer = admit(pod({**TRACKED, **annotations}, labels=labels, **fields), **options)
    assert answer.verdict.outcome == "gated"
    assert labels_of(answer) == {"app": "web"}


def test_another_value_of_the_label_is_replaced():
    answer = admit(pod({**TRACKED, **STAGES}, labels={STAGED_LABEL: "no"}))
    assert labels_of(answer) == {STAGED_LABEL: "true"}


def test_the_stage_of_a_new_pod_is_removed_and_told():
    answer = admit(pod({**TRACKED, **STAGES, f"{OURS}stage": "2"}))
    assert answer.annotations == {**TRACKED, **STAGES}
    assert [code for code, _ in told(answer)] == ["gate-state-key"]


@pytest.mark.parametrize(
    ("fields", "options", "to_do"),
    [
        ({}, IN_SCHEDULER, "set gating to schedulingGates"),
        ({"schedulerName": "keptn-scheduler"}, {}, "leave out spec.schedulerName"),
    ],
)
def test_stages_are_refused_where_pods_wait_in_a_scheduler(fields, options, to_do):
    text = "stages have no effect where pods wait in a scheduler"
    warning = ("gate-stages-refused", f"{text}: metadata.annotations[{STAGES_KEY}]: {to_do}")
    assert warning in told(admit(pod({**TRACKED, **STAGES}, **fields), **options))
    assert only_warning(template(pod_spec=fields), **options) == warning


@pytest.mark.parametrize(
    ("annotations", "fault"),
    [
        ({STAGES_KEY: "0"}, f'"0" is not a number of pods or a percentage: AT[{STAGES_KEY}]'),
        (PAUSE, f'"" is not a number of pods or a percentage: AT[{STAGES_KEY}]'),
        ({STAGES_KEY: "2, 1"}, f"stage 1 adds no pods to those before it: AT[{STAGES_KEY}]"),
        ({**STAGES, f"{OURS}stage-pause": "5"}, f'"5" is not a pause: AT[{OURS}stage-pause]'),
    ],
)
def test_stages_that_cannot_be_read_are_told(annotations, fault):
    for answer, at in (
        (admit(template(annotations={**TRACKED, **annotations})), AT),
        (admit(pod({**TRACKED, **annotations})), "metadata.annotations"),
    ):
        ((code, text),) = told(answer)
        assert code == "gate-stages-invalid"
        assert text.startswith(f"{fault.replace('AT', at)}: write ")


def test_another_value_for_the_first_version_is_told():
    annotations = {**TRACKED, **STAGES, f"{OURS}stages-on-first": "True"}
    code, text = only_warning(template(annotations=annotations))
    assert code == "gate-stages-invalid"
    assert text == f'"True" counts as false: {AT}[{OURS}stages-on-first]: write true or false'


@pytest.mark.parametrize("key", ["stage-tasks", "stage-evaluations", "stage-analysis"])
@pytest.mark.parametrize(
    ("value", "code"), [(" , ", "gate-list-empty"), ("a;b", "gate-list-invalid")]
)
def test_lists_of_checks_of_a_stage_are_checked_as_others(key, value, code):
    annotations = {**TRACKED, **STAGES, f"{OURS}{key}": value}
    assert only_warning(template(annotations=annotations))[0] == code


def test_stages_in_the_metadata_of_a_workload_have_no_effect():
    code, text = only_warning(
        template(annotations=TRACKED, own={"annotations": {**STAGES, **PAUSE}})
    )
    assert code == "gate-stages-unused"
    shown = f"{OURS}stage-pause, {STAGES_KEY}"
    assert text == f"{shown} has no effect: metadata.annotations: write it in {AT}"
    assert told(admit(template(own={"annotations": STAGES}))) == []


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_version_on_the_owner_stays_after_an_undo(where):
    key = "keptn.sh/version" if where == "annotations" else "app.kubernetes.io/version"
    own = {"annotations": keys(workload="web")} | {where: {key: "1", **keys(workload="web")}}
    code, text = only_warning(template(annotations=STAGES, own=own))
    assert code == "gate-stages-version"
    assert text.endswith(f"after an undo: metadata: move Keptn's keys to {AT}")
    # The version of a pod that names its workload is its own, or is computed.
    assert told(admit(template(annotations={**keys(workload="web"), **STAGES}, own=own))) == []
    named = {"app.kubernetes.io/name": "web"}
    assert told(admit(template(annotations=STAGES, own=own, labels=named))) == []
    computed = {"annotations": keys(workload="web")}
    assert told(admit(template(annotations=STAGES, own=computed))) == []


@pytest.mark.parametrize(
    ("kind", "type_", "reason"),
    [
        ("Deployment", "Recreate", "which deletes all old pods first: spec.strategy.type"),
        ("StatefulSet", "OnDelete", "you replace the pods yourself: spec.updateStrategy.type"),
        ("DaemonSet", "OnDelete", "you replace the pods yourself: spec.updateStrategy.type"),
    ],
)
def test_strategies_without_a_rollout_refuse_stages(kind, type_, reason):
    field = "strategy" if kind == "Deployment" else "updateStrategy"
    code, text = only_warning(template(kind, **{field: {"type": type_}}))
    assert code == "gate-stages-refused"
    assert text.startswith(f"stages have no effect with {type_}, ")
    assert text.endswith(f"{reason}: write RollingUpdate")


@pytest.mark.parametrize(
    ("rolling", "replicas", "fault"),
    [
        (None, 12, "up to 25% of the old pods are missing while a stage waits"),
        (None, None, "up to 25% of the old pods are missing while a stage waits"),
        (None, 3, ""),
        ({"maxUnavailable": 2}, 3, "up to 2 of the old pods are missing while a stage waits"),
        ({"maxUnavailable": "10%"}, 9, "maxSurge 25% creates more pods than the first stage"),
        ({"maxUnavailable": 0}, 12, "maxSurge 25% creates more pods than the first stage"),
        ({"maxUnavailable": 0}, 4, ""),
        ({"maxUnavailable": "0%", "maxSurge": 2}, 12, "maxSurge 2 creates more pods than the"),
        ({"maxUnavailable": 0, "maxSurge": 1}, 12, ""),
        # The API server refuses these.
        ({"maxUnavailable": "half", "maxSurge": "٣%"}, 12, ""),
        ({"maxUnavailable": "9" * 5000, "maxSurge": -1}, 0, ""),
    ],
)
def test_a_deployment_that_lacks_or_adds_pods_while_a_stage_waits_is_told(rolling, replicas, fault):
    document = template(strategy={"rollingUpdate": rolling}, replicas=replicas)
    warnings = told(admit(document))
    if not fault:
        assert warnings == []
        return
    ((code, text),) = warnings
    assert code == "gate-stages-strategy"
    assert text.startswith(fault)
    assert text.endswith(f": spec.strategy.rollingUpdate: {RECOMMENDED}")


def test_without_a_strategy_the_defaults_count():
    document = template()
    del document["spec"]["strategy"]
    assert only_warning(document)[0] == "gate-stages-strategy"
    assert only_warning(template(strategy=None))[0] == "gate-stages-strategy"


@pytest.mark.parametrize(
    ("rolling", "pod_spec", "advice"),
    [
        (None, {}, RECOMMENDED),
        ({"maxUnavailable": "10%"}, {}, RECOMMENDED),
        ({"maxUnavailable": 0, "maxSurge": 1}, {}, ""),
        (
            None,
            {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
            "set maxUnavailable: 1, because host ports allow no less",
        ),
        (None, {"hostNetwork": True}, "set maxUnavailable: 1, because host ports allow no less"),
    ],
)
def test_daemon_sets_likewise_where_host_ports_do_not_forbid_it(rolling, pod_spec, advice):
    strategy = {"rollingUpdate": rolling}
    warnings = told(admit(template("DaemonSet", pod_spec=pod_spec, updateStrategy=strategy)))
    if not advice:
        assert warnings == []
        return
    ((code, text),) = warnings
    assert code == "gate-stages-strategy"
    assert text.endswith(f"while a stage waits: spec.updateStrategy.rollingUpdate: {advice}")


def test_a_stateful_set_lacks_one_pod_at_least():
    assert told(admit(template("StatefulSet", updateStrategy={"type": "RollingUpdate"}))) == []
    strategy = {"rollingUpdate": {"maxUnavailable": 2, "partition": 1}}
    code, text = only_warning(template("StatefulSet", updateStrategy=strategy))
    assert code == "gate-stages-strategy"
    assert text.endswith("spec.updateStrategy.rollingUpdate: set maxUnavailable: 1")


@pytest.mark.parametrize(
    ("pause", "deadline", "is_told"),
    [
        ("10m", None, True),
        ("9m59s", None, False),
        ("", None, False),
        ("Manual", None, True),
        ("Manual", 86400, True),
        ("Manual", 2**31 - 1, False),
        ("10m", 3600, False),
        ("1m", 60, True),
    ],
)
def test_a_pause_that_reaches_the_deadline_is_told(pause, deadline, is_told):
    annotations = {**TRACKED, **STAGES, f"{OURS}stage-pause": pause}
    spec = {} if deadline is None else {"progressDeadlineSeconds": deadline}
    warnings = told(admit(template(annotations=annotations, **spec)))
    if not is_told:
        assert warnings == []
        return
    ((code, text),) = warnings
    assert code == "gate-stages-deadline"
    assert f"after {deadline or 600} s, in a pause ({pause}): spec.progressDeadlineSeconds" in text
    assert text.endswith("or 2147483647 for no limit")
    assert told(admit(template("StatefulSet", annotations=annotations))) == []


def test_all_warnings_about_one_template_fit():
    annotations = {
        **STAGES,
        f"{OURS}stage-pause": "0." + "0" * 4000 + "1s",
        f"{OURS}stages-on-first": "x" * 300,
    }
    own = {"annotations": {**TRACKED, **annotations, f"{OURS}stage-tasks": "t"}}
    document = template(annotations=annotations, own=own, strategy=None, progressDeadlineSeconds=0)
    codes = [code for code, _ in told(admit(document))]
    assert codes == [
        "gate-stages-unused",
        "gate-stages-invalid",
        "gate-stages-version",
        "gate-stages-strategy",
    ]


def test_without_gates_nothing_is_told_of_a_template():
    assert told(admit(template(strategy=None), **PLAIN)) == []


def test_an_update_is_told_as_well_and_unknown_keys_are_refused_as_before():
    document = template(strategy={"type": "Recreate"})
    question = review(document, operation="UPDATE", oldObject=document)
    answer = ask(question, engine_of(onUnknownKeys="Deny"))
    assert [code for code, _ in told(answer)] == ["gate-stages-refused"]


@pytest.mark.parametrize(
    "document",
    [
        template(annotations={**TRACKED, **STAGES, **PAUSE}, strategy=None),
        template("DaemonSet", pod_spec={"hostNetwork": True}, updateStrategy=None),
        template("StatefulSet", updateStrategy={"type": "OnDelete"}),
        pod({**TRACKED, **STAGES}),
    ],
)
def test_a_recorded_review_is_answered_alike(document):
    line, response, _ = record_of(review(document), engine_of())
    assert replayed_response(line) == response
