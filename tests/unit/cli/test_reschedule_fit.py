from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.cli.lines import answer_lines as answers_to
from harbourmaster.cli.reschedule.fit import fit, judge

NODE = {
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
    "status": {
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def pod(cpu="1", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"namespace": "shop"}, "spec": {"containers": containers, **spec}}


def line(name=None, pods=(), **given):
    return {"id": name, "node": NODE, "pods": list(pods), "pod": pod(), **given}


def answer_cases(*cases):
    lines = [json.dumps(case).encode() + b"\n" for case in cases]
    return [json.loads(json.dumps(_plain(answer))) for answer in answers_to(lines, judge)]


def _plain(answer):
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


def run(path):
    return fit(argparse.Namespace(file=Path(path)))


def test_cases_are_answered_in_order():
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    assert answer_cases(
        line("a"),
        line(2, pods=[pod()]),
        line({"b": 1}, pods=[pod("2")]),
        line(None, pod=pod(**claim)),
    ) == [
        {"id": "a", "fits": True, "reasons": []},
        {"id": 2, "fits": True, "reasons": []},
        {"id": {"b": 1}, "fits": False, "reasons": ["too little cpu"]},
        {"id": None, "fits": None, "reasons": ["not judged: PersistentVolumeClaim c"]},
    ]


def test_a_constraint_that_fails_decides_beside_one_that_is_not_judged():
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    (answer,) = answer_cases(line(pod=pod("3", **claim)))
    assert answer == {"id": None, "fits": False, "reasons": ["too little cpu"]}


def test_pods_and_namespaces_may_be_left_out():
    assert answer_cases({"node": NODE, "pod": pod()}) == [{"id": None, "fits": True, "reasons": []}]


@pytest.mark.parametrize(
    ("conditions", "is_ready"),
    [
        ({}, True),
        ({"conditions": []}, True),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"conditions": [{"type": "MemoryPressure", "status": "False"}]}, False),
    ],
)
def test_a_node_that_is_made_up_without_conditions_is_ready(conditions, is_ready):
    status = {"allocatable": NODE["status"]["allocatable"], **conditions}
    (answer,) = answer_cases(line(node={**NODE, "status": status}))
    assert answer["fits"] is is_ready


def test_pods_of_other_nodes_are_left_out():
    elsewhere, here = pod("2", nodeName="n2"), pod("2", nodeName="n1")
    assert [
        answer["fits"] for answer in answer_cases(line(pods=[elsewhere]), line(pods=[here]))
    ] == [
        True,
        False,
    ]


def test_namespaces_are_looked_at_where_they_are_given():
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    far = {**pod(affinity={"podAntiAffinity": required}), "metadata": {"namespace": "far"}}
    known = [{"metadata": {"name": "shop", "labels": {"team": "a"}}}]
    namespaces = [{"metadata": {"name": "shop", "labels": {"team": "b"}}}]
    answers = answer_cases(
        line(pods=[far]),
        line(pods=[far], namespaces=known),
        line(pods=[far], namespaces=namespaces),
    )
    assert [answer["fits"] for answer in answers] == [None, False, True]


NO_CASES = [
    b"x",
    b"\xff",
    b'"a"',
    b'{"id": 7}',
    b'{"id": 7, "node": {}}',
    b'{"id": 7, "node": null, "pod": {}}',
    b'{"id": 7, "node": {}, "pod": []}',
    b'{"id": 7, "node": {}, "pod": {}, "pods": {}}',
    b'{"id": 7, "node": {}, "pod": {}, "pods": [{}, 1]}',
    b'{"id": 7, "node": {}, "pod": {}, "namespaces": [{"metadata": []}]}',
    b'{"id": 7, "node": {"status": {"allocatable": {"cpu": "x"}}}, "pod": {}}',
    b'{"id": 7, "node": {}, "pod": {"spec": {"overhead": {"memory": -1}}}}',
]


def test_a_line_that_is_no_case_is_answered_by_what_is_wrong(assert_golden):
    answers = map(_plain, answers_to(NO_CASES, judge))
    assert_golden([[str(line), answer] for line, answer in zip(NO_CASES, answers, strict=True)])


def test_nesting_without_end_is_refused():
    deep = b'{"node": ' + b"[" * 100_000 + b"]" * 100_000 + b', "pod": {}}'
    (answer,) = answers_to([deep], judge)
    assert "error" in _plain(answer)


def test_a_file_is_answered_and_a_bad_line_does_not_end_it(tmp_path, capsysbinary):
    path = tmp_path / "cases.jsonl"
    good = json.dumps(line("a")).encode()
    path.write_bytes(good + b"\n\n  \n?\n" + good)
    assert run(path) == 1
    answers = [json.loads(printed) for printed in capsysbinary.readouterr().out.splitlines()]
    assert answers == [
        {"id": "a", "fits": True, "reasons": []},
        {"id": None, "error": "JSON is malformed: invalid character (byte 0)", "line": 4},
        {"id": "a", "fits": True, "reasons": []},
    ]


def test_it_needs_no_server_and_no_client():
    script = (
        "import sys, harbourmaster.cli.reschedule.fit\n"
        "print({'aiohttp', 'kubernetes_asyncio', 'asyncio', 'yaml'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"
