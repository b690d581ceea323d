from __future__ import annotations

import io
import json

import pytest

from harbourmaster.cli.main import main


@pytest.fixture
def run(monkeypatch, capsysbinary):
    """Run an action on lines; returns its exit code and its answers."""

    def give(action, *lines):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        data = "\n".join(texts).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["placement", action])
        return code, [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    return give


def expression(kind, text, name=1):
    return {"id": name, "kind": kind, "expression": text}


def test_constraints_get_their_canonical_spelling(run):
    code, answers = run(
        "parse",
        expression("label", "location==DE", "a"),
        "",
        expression("metric", "load>=5", 2),
        expression("customResource", "shirts.example.com", None),
    )
    assert code == 0
    assert answers == [
        {"id": "a", "valid": True, "canonical": "location is DE", "error": None},
        {"id": 2, "valid": True, "canonical": "load greater than or equal 5", "error": None},
        {"id": None, "valid": True, "canonical": "shirts.example.com", "error": None},
    ]


def test_an_invalid_constraint_is_an_answer_with_a_caret(run):
    code, answers = run("parse", expression("metric", "load >> 5"))
    assert code == 0
    text = "expected a number, found '>'\n  load >> 5\n        ^"
    assert answers == [{"id": 1, "valid": False, "canonical": None, "error": text}]


@pytest.mark.parametrize("action", ["parse", "decide"])
def test_lines_that_are_no_cases_are_answered_and_counted(run, action):
    code, answers = run(
        action, "nonsense", {"id": "x"}, {"id": 7, "kind": "label", "expression": 5}
    )
    assert code == 1
    assert [answer["id"] for answer in answers] == [None, "x", 7]
    assert [answer["line"] for answer in answers] == [1, 2, 3]
    assert all(set(answer) == {"id", "error", "line"} for answer in answers)
    assert all("\n" not in answer["error"] for answer in answers)


def test_a_missing_file_is_one_line(capsys, tmp_path):
    assert main(["placement", "decide", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def make_object(kind, name, spec=None, status=None, **metadata):
    obj = {"kind": kind, "metadata": {"name": name, **metadata}, "spec": spec or {}}
    return {**obj, "status": status or {}}


def cluster(name, *weights, status=None, **metadata):
    metrics = [{"name": metric, "weight": weight} for metric, weight in weights]
    status = {"state": "Online"} if status is None else status
    return make_object("Cluster", name, {"metrics": metrics}, status, namespace="ns", **metadata)


def application(constraints=None, **status):
    spec = {"constraints": {"cluster": constraints or {}}}
    return make_object("Application", "app", spec, status, namespace="ns", generation=1)


COST = make_object("GlobalMetric", "cost", {"min": 0, "max": 10})


def case(*objects, **more):
    return {
        "id": "c",
        "now": "2026-03-01T12:00:00Z",
        "objects": list(objects),
        "application": "ns/app",
        **more,
    }


def test_a_decision_by_names(run):
    objects = (
        application({"labels": ["x is y"]}),
        cluster("a", ("cost", 1), labels={"x": "y"}),
        cluster("b", labels={"x": "y"}),
        cluster("c"),
        cluster("d", status={"state": "Offline"}),
        cluster("e", ("gone", 1)),
        COST,
    )
    code, (answer,) = run("decide", case(*objects, samples={"cost": 5}))
    assert code == 0
    assert answer == {
        "id": "c",
        "decision": {
            "candidates": ["a", "b", "c"],
            "matched": ["a", "b"],
            "excluded": {
                "c": "label constraint 'x is y': the label is missing",
                "d": "it is Offline, not Online",
                "e": "UnknownMetric: there is no GlobalMetric 'gone'",
            },
            "scores": {"a": 0.5},
            "chosen": ["a"],
            "stays": False,
            "error": None,
        },
    }


def decision(run, *objects, **more):
    code, (answer,) = run("decide", case(*objects, **more))
    assert code == 0, answer
    return answer["decision"]


LOAD = make_object(
    "GlobalMetric", "load", {"max": 1, "provider": {"name": "p", "byLabel": "cluster"}}
)


@pytest.mark.parametrize("names", [("a", "b"), ("ns/a", "ns/b")])
def test_samples_may_be_those_of_each_cluster(run, names):
    objects = (application(), cluster("a", ("load", 1)), cluster("b", ("load", 1)), LOAD)
    if names == ("a", "b"):
        # Without a namespace it is the default one, as for the other names of a case.
        objects = tuple(
            {**obj, "metadata": {**obj["metadata"], "namespace": "default"}} for obj in objects
        )
    values = dict(zip(names, (0.2, 0.9), strict=True))
    made = decision(run, *objects, application=names[0][:-1] + "app", samples={"load": values})
    assert made["scores"] == {"a": 0.2, "b": 0.9}
    assert made["chosen"] == ["b"]
    values = {names[0]: {"error": "no answer"}, names[1]: 0.9}
    made = decision(run, *objects, application=names[0][:-1] + "app", samples={"load": values})
    assert made["excluded"] == {"a": "UnreachableMetricsProvider: no answer"}


def test_a_sample_of_a_cluster_that_is_no_number_is_named(run):
    code, (answer,) = run("decide", case(LOAD, samples={"load": {"a": "many"}}))
    assert code == 1
    assert answer["error"] == "samples.load.a: 'many' is not a number"


def test_all_that_tie_are_chosen(run):
    assert decision(run, application(), cluster("b"), cluster("a"))["chosen"] == ["a", "b"]


def test_settings_of_a_case_count(run):
    placed = application(scheduledTo={"name": "a"}, scheduledTime="2026-03-01T11:59:00Z")
    objects = (placed, cluster("a"), cluster("b", ("cost", 1)), COST)
    for after, stays in ((60, False), (61, True)):
        settings = {"rescheduleAfter": after, "stickiness": 0.5}
        made = decision(run, *objects, settings=settings, samples={"cost": 0})
        assert made["stays"] is stays


@pytest.mark.parametrize("sample", [{"error": "HTTP 503"}, "NaN", "-Infinity", 11, -1])
def test_samples_may_be_faults(run, sample):
    objects = (application(), cluster("a", ("cost", 1)), cluster("b"), COST)
    made = decision(run, *objects, samples={"cost": sample})
    assert (made["candidates"], made["chosen"]) == (["b"], ["b"])


def test_a_sample_with_a_namespace_is_of_a_metric_of_it(run):
    metrics = [{"name": "cost", "weight": 1, "scope": "Namespaced"}]
    objects = (
        application(),
        make_object("Cluster", "a", {"metrics": metrics}, {"state": "Online"}, namespace="ns"),
        make_object("Metric", "cost", {"min": 0, "max": 10}, namespace="ns"),
    )
    made = decision(run, *objects, samples={"ns/cost": 5, "cost": 7})
    assert made["scores"] == {"a": 0.5}


@pytest.mark.parametrize(
    ("when", "status", "causes"),
    [
        (["Deploy", "Update", "Move"], {}, "Deploy"),
        (["Update", "Move"], {}, ""),
        (["Deploy", "Update"], {"scheduledTo": {"name": "a"}, "scheduledGeneration": 1}, ""),
        (["Update"], {"scheduledTo": {"name": "b"}, "scheduledGeneration": 0}, "Update"),
        (["Move"], {"scheduledTo": {"name": "a"}, "scheduledGeneration": 0}, "Move"),
    ],
)
def test_a_decision_says_which_changes_would_be_checked(run, when, status, causes):
    """Nothing is deployed until its checks passed (krake-spec 7.12)."""
    checked = application(**status)
    checked["spec"]["checks"] = {"preDeployment": {"tasks": ["smoke"]}, "when": when}
    clusters = (cluster("a"), cluster("b", ("cost", 1)))
    answer = decision(run, checked, *clusters, COST, samples={"cost": 9})
    assert answer["chosen"] == ["b"]
    assert answer.get("check") == (f"would be checked first: {causes}" if causes else None)


def test_clusters_and_magnum_clusters_are_decided_too(run):
    wanted = make_object("Cluster", "wanted", namespace="ns")
    clouds = (make_object("Cloud", "os", namespace="ns"), make_object("GlobalCloud", "os"))
    more = {"application": None, "cluster": "ns/wanted"}
    made = decision(run, wanted, *clouds, **more)
    assert (made["chosen"], "check" in made) == (["os"], False)
    objects = (
        make_object("MagnumCluster", "m", namespace="ns"),
        make_object("Project", "p", namespace="o"),
    )
    more = {"application": None, "magnumCluster": "ns/m"}
    assert decision(run, *objects, **more)["chosen"] == ["o/p"]


def test_two_clouds_of_one_name_are_both_listed(run):
    constraints = {"cloud": {"labels": ["a is b"]}}
    wanted = make_object("Cluster", "wanted", {"constraints": constraints}, namespace="ns")
    clouds = (make_object("Cloud", "os", namespace="ns"), make_object("GlobalCloud", "os"))
    made = decision(run, wanted, *clouds, application=None, cluster="ns/wanted")
    assert set(made["excluded"]) == {"os", "GlobalCloud/os"}


def test_objects_without_a_namespace_are_in_default(run):
    objects = (
        make_object("Application", "app"),
        make_object("Cluster", "a", status={"state": "Online"}),
    )
    for name in ("app", "default/app"):
        assert decision(run, *objects, application=name)["chosen"] == ["a"]


@pytest.mark.parametrize("now", [1772366400, 1772366400.5, "2026-03-01T13:00:00+01:00", None])
def test_times_may_be_written_in_several_ways(run, now):
    assert decision(run, application(), cluster("a"), now=now)["chosen"] == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"now": "noon"},
        {"now": 1e300},
        {"now": "9999-12-31T23:59:59Z"},
        {"settings": {"sticky": 1}},
        {"settings": {"stickiness": -1}},
        {"samples": {"cost": "many"}},
        {"application": "ns/other"},
        {"cluster": "ns/x"},
        {"objects": [{"kind": "Pod"}]},
        {"objects": [{}]},
        {"objects": [{"kind": "Cluster"}]},
    ],
    ids=json.dumps,
)
def test_an_invalid_case_is_reported_with_the_field(run, change, assert_golden):
    code, (answer,) = run("decide", case(application(), cluster("a"), **change))
    assert (code, answer["id"]) == (1, "c")
    assert_golden(answer["error"])
