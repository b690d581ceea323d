"""Commands by the names of version 0.2: they work as before and say what replaces them."""

from __future__ import annotations

import contextlib
import json
import shlex

import pytest
import yaml

from harbourmaster.cli import program
from harbourmaster.cli.main import _REPLACED, create_parser, current_words, main, plugin
from helpers.command import parsers
from helpers.objects import cluster_policy, review, workload

LINES = {
    "serve": "serve --policies a --port 1 --try b",
    "webhook": "webhook --cert-dir=a --log-level=debug",
    "controller": "controller --controllers=placement --namespace=a",
    "validate": "validate -R a b --fail-on warning -o json -k c",
    "test": "test --update --case 'Pod a/b' a",
    "review": "review --policies a --namespaces b --parents c d.json",
    "import krake": "import krake a - -n b --drop-hooks",
}
"""Command lines of 0.2."""


@pytest.fixture(autouse=True)
def name_as_before():
    token = program.name.set(program.OWN)
    yield
    program.name.reset(token)


def test_every_old_name_has_a_line():
    assert LINES.keys() == {*_REPLACED} - {"placement why"}


@pytest.mark.parametrize("old", LINES)
def test_an_old_name_means_what_the_new_one_means(old):
    words = shlex.split(LINES[old])
    parser = create_parser()
    new = [*_REPLACED[old].split(), *words[len(old.split()) :]]
    assert current_words(words) == (new, old)
    assert current_words(new) == (new, "")
    with contextlib.redirect_stderr(None), pytest.raises(SystemExit):
        parser.parse_args(words)
    assert parser.parse_args(new).command


@pytest.mark.parametrize("old", _REPLACED)
def test_an_old_name_is_shown_nowhere(old):
    shown = {parser.prog for parser in parsers()}
    assert f"harbourmaster {_REPLACED[old]}" in shown
    assert f"harbourmaster {old}" not in shown


def test_it_says_what_replaces_it_and_does_the_same(tmp_path, capsys):
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(workload()))
    assert main(["check", "manifests", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    line = "harbourmaster: validate is deprecated: use check manifests\n"
    assert main(["validate", str(file)]) == 0
    assert capsys.readouterr() == (out, line)
    assert plugin(["validate", str(file)]) == 0
    assert capsys.readouterr() == (out, f"kubectl {line}")


@pytest.mark.parametrize("old", ["webhook", "controller"])
def test_the_log_of_a_process_stays_json(old, tmp_path, capfd):
    config = tmp_path / "absent"
    flags = ["--kubeconfig", str(config), "--namespace=a", "--log-format=json"]
    assert main([old, *flags]) == 2
    first, *_ = capfd.readouterr().err.splitlines()
    line = json.loads(first)
    assert (line["event"], line["level"]) == ("command deprecated", "warning")
    assert (line["command"], line["use"]) == (old, f"server {old}")
    assert main([old, *flags, "--log-level=error"]) == 2
    assert "deprecated" not in capfd.readouterr().err


@pytest.mark.parametrize("words", [["validate"], ["controller", "lifecycle"], ["import", "krake"]])
def test_help_of_an_old_name_is_that_of_the_new_one(words, capsys):
    texts = []
    for given in (words, current_words(words)[0]):
        with contextlib.suppress(SystemExit):
            main(["help", *given])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != ""


def printed_reviews(text):
    decoder, reviews = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        reviews.append(value)
        text = text[end:]
    return reviews


FORMS = {
    "a line": json.dumps,
    "several lines": lambda value: f"\n\n{json.dumps(value, indent=2)}\n",
    "YAML": lambda value: f"# recorded\n---\n{yaml.safe_dump(value)}",
    "two lines": lambda value: f"{json.dumps(value)}\n\n{json.dumps(value)}\n",
    "two documents": lambda value: f"{yaml.safe_dump(value)}---\n{yaml.safe_dump(value)}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("has_policies", [True, False])
def test_replay_answers_reviews_in_every_form(tmp_path, capsys, form, has_policies):
    policies, file = tmp_path / "policies.yaml", tmp_path / "review"
    policies.write_text(yaml.safe_dump(cluster_policy(nodeSelector={"disk": "ssd"})))
    file.write_text(FORMS[form](review(workload(), uid="a")))
    flags = ["--policies", str(policies)] if has_policies else []
    assert main(["replay", *flags, str(file)]) == 0
    reviews = printed_reviews(capsys.readouterr().out)
    assert len(reviews) == 1 + form.startswith("two")
    assert {result["response"]["uid"] for result in reviews} == {"a"}
    assert {"patch" in result["response"] for result in reviews} == {has_policies}


def test_replay_of_cases_takes_no_policies(tmp_path, capsys):
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps({"review": review(workload())}) + "\n")
    assert main(["replay", "--policies", str(tmp_path), str(file)]) == 2
    text = f"harbourmaster: {file}: cases have their policies: leave out --policies\n"
    assert capsys.readouterr().err == text


def test_replay_of_a_manifest_is_one_line(tmp_path, capsys):
    file = tmp_path / "deployment.yaml"
    file.write_text(yaml.safe_dump(workload()))
    assert main(["replay", str(file)]) == 2
    text = f"harbourmaster: {file}: expected AdmissionReviews or cases: give manifests to render\n"
    assert capsys.readouterr().err == text
