from __future__ import annotations

import pytest

from harbourmaster.serving.documents import (
    Document,
    Problem,
    files_in,
    parse_documents,
    read_documents,
)

LAUGHS = (
    "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
    + "kind: Policy\n"
)
DEEP = "kind: A\na0: &a0 [1]\n" + "".join(
    f"a{i}: &a{i} {'[' * 90}*a{i - 1}{']' * 90}\n" for i in range(1, 4)
)
MERGES = f"x: &x {{{', '.join(f'k{i}: 1' for i in range(1500))}}}\ny:\n" + "- <<: *x\n" * 1500


def parse(text):
    return list(parse_documents(text, "f.yaml"))


def test_each_document_comes_with_its_place():
    first, second = parse("kind: A\n---\n---\nkind: B\n")
    assert (first.number, first.value) == (1, {"kind": "A"})
    assert (second.number, second.value) == (3, {"kind": "B"})


def test_json_is_read_too():
    (document,) = parse('{"kind": "A", "n": [1, null]}')
    assert document.value == {"kind": "A", "n": [1, None]}


def test_items_of_a_list_are_documents_of_their_own():
    items = parse("kind: PolicyList\nitems: [{kind: A}, 5, {kind: B}]")
    assert [item.value["kind"] for item in items if isinstance(item, Document)] == ["A", "B"]
    assert [str(item) for item in items if isinstance(item, Problem)] == [
        "f.yaml, document 1: items[1]: expected an object"
    ]


def test_documents_before_a_syntax_error_are_kept():
    good, bad = parse("kind: A\n---\nkind: [\n")
    assert good.value == {"kind": "A"}
    assert str(bad).startswith("f.yaml, document 2: line ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("just text", "expected an object"),
        ("kind: A\nkind: B\n", 'line 2: key "kind" twice'),
        ("spec: {a: 1, a: 2}", 'key "a" twice'),
        (LAUGHS, "aliases expand to more than"),
        (MERGES, "expand to more than"),
        ("a: &a [*a]", "an alias that contains itself"),
        ("a: !!int x", "line 1"),
        ("a: !!float x", "line 1"),
        ("a: !!bool x", "line 1"),
        ("a: .inf", "inf is not a number of JSON: put it in quotes"),
        ('{"a": 1e400}', "inf is not a number of JSON"),
        ("[" * 5000 + "]" * 5000, "nested"),
        ("[" * 100_000, "nested more than 200 levels deep"),
        ("- " * 100_000 + "a", "nested more than 200 levels deep"),
        ('{"a": ' * 100_000, "nested more than 200 levels deep"),
        ('{"a": ' * 300 + "1" + "}" * 300, "nested more than 200 levels deep"),
        (DEEP, "nested more than 200 levels deep"),
        ("{a: " * 300 + "1" + "}" * 300, "nested more than 200 levels deep"),
        ("a: \x00", "control characters are not allowed"),
        ("? {a: 1}\n: b\n", "a key is not text"),
    ],
)
@pytest.mark.claim("O8")
def test_s30_a_bad_document_is_one_line(text, says):
    (problem,) = parse(text)
    assert isinstance(problem, Problem)
    assert says in str(problem)
    assert "\n" not in str(problem)


def test_items_of_a_list_in_json_have_lines_of_their_own():
    text = '{"kind": "List",\n"x": [{"a": 1}],\n"items": [{"a": 1}, {"a": 1},\n\n{"b": "\\ud83d"}]}'
    assert [(item.line, item.value) for item in parse(text)] == [
        (3, {"a": 1}),
        (3, {"a": 1}),
        (5, {"b": "\ufffd"}),
    ]


def test_json_documents_follow_each_other():
    first, second = parse('\ufeff{"a": 1}\n\n{"a": 2}\n'.encode())
    assert (first.number, first.line, first.value) == (1, 1, {"a": 1})
    assert (second.number, second.line, second.value) == (2, 3, {"a": 2})


def test_a_key_that_stands_twice_in_json_is_a_problem_with_its_line():
    (problem,) = parse('{"kind": "A",\n"kind": "B"}')
    assert problem.text == 'line 2: key "kind" twice'


def test_keys_are_twice_if_kubectl_reads_them_alike():
    for text in ("{1: a, '1': b}", "{y: a, true: b}", "{1.0: a, 1: b}"):
        (problem,) = parse(f"a: {text}")
        assert "twice" in problem.text


def test_a_date_stays_text():
    (document,) = parse("value: 2020-01-01")
    assert document.value == {"value": "2020-01-01"}


def test_a_merge_key_may_repeat():
    (document,) = parse("base: &b {a: 1}\nother:\n  <<: *b\n  b: 2\n")
    assert document.value["other"] == {"a": 1, "b": 2}


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    (problem,) = read_documents(tmp_path / "absent.yaml")
    assert str(problem).endswith("absent.yaml: cannot be read: No such file or directory")


def test_files_are_sorted_and_hidden_or_foreign_ones_left_out(tmp_path):
    for name in (
        "b.yaml",
        "a.yml",
        "c.json",
        ".hidden.yaml",
        "notes.txt",
        "..data",
        "kustomization.yaml",
    ):
        (tmp_path / name).touch()
    (tmp_path / "folder.yaml").mkdir()
    assert [path.name for path in files_in(tmp_path)] == ["a.yml", "b.yaml", "c.json"]
