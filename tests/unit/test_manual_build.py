"""The manual is built without a warning, and its reference has all that the code has."""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import manual
from harbourmaster.cli.main import create_parser
from manual import without_links_out
from manual.commands import _below
from manual.tables import alerts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "concepts/pictures").glob("*.svg"))
CRDS = [
    definition
    for file in sorted((ROOT / "deploy/crds").glob("*.yaml"))
    for definition in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    if definition["kind"] == "CustomResourceDefinition"
]


@functools.cache
def read_built(page):
    return manual.fill_in((DOCS / "reference" / page).read_text())


@functools.cache
def read_all(pages):
    return "".join(
        read_built(page.name) for page in sorted((DOCS / "reference").glob(f"{pages}.md"))
    )


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(600)
def test_it_is_built_without_a_warning(tmp_path):
    made = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--builder=html", "--fail-on-warning"),
            *("--quiet", f"--doctree-dir={tmp_path / 'doctrees'}", DOCS, tmp_path / "html"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.glob("**/*.md")}
    assert not [page for page in pages if not (tmp_path / "html" / page).exists()]
    picture = (tmp_path / "html/concepts/gates.html").read_text()
    assert '<svg class="picture" role="img" aria-label="Admission adds the gate' in picture
    assert "<style>" not in picture[picture.index('<svg class="picture"') :]


MAX_WORDS = 3000


@pytest.mark.parametrize(
    "page",
    # The pages on internals are specifications, of which code cites sections.
    [page for page in sorted(DOCS.glob("**/*.md")) if page.parent.name != "internals"],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_no_page_is_long(page):
    assert len(manual.fill_in(page.read_text()).split()) <= MAX_WORDS


def test_every_page_is_reachable_from_the_index():
    reached = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for entries in re.findall(
            r"^```{toctree}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            names = [line for line in entries.splitlines() if line and not line.startswith(":")]
            waiting += [(page.parent / f"{name}.md").resolve() for name in names]
    assert reached == {page for page in DOCS.glob("**/*.md") if "_ext" not in page.parts}


def test_every_generated_part_stands_on_one_page():
    parts = [
        part
        for page in DOCS.glob("*/*.md")
        for line in re.findall(r"^<!-- generated: (.+) -->$", page.read_text(), re.MULTILINE)
        for name, *arguments in [line.split()]
        for part in arguments or [name]
    ]
    commands = [name for name, _, _ in _below(create_parser())]
    kinds = [definition["spec"]["names"]["kind"] for definition in CRDS]
    alone = manual.WRITERS.keys() - {"commands", "kinds"}
    assert sorted(parts) == sorted([*commands, *kinds, *alone])


def test_every_command_has_a_section_with_its_flags():
    text = read_all("commands-*")
    settings = read_all("settings*")

    def assert_described(name, parser):
        assert re.search(rf"^#+ {re.escape(name)}$", text, re.MULTILINE), name
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
                for flag in action.option_strings:
                    assert f"`{flag}" in text or f"`{flag}" in settings
        for below, its_parser, _ in _below(parser):
            assert_described(f"{name} {below}", its_parser)

    commands = list(_below(create_parser()))
    assert commands
    for name, parser, _ in commands:
        assert_described(name, parser)


@pytest.mark.parametrize("definition", CRDS, ids=lambda crd: crd["spec"]["names"]["plural"])
def test_every_kind_has_a_section_with_its_fields(definition):
    text = read_all("kinds-*")
    kind = definition["spec"]["names"]["kind"]
    (section,) = re.findall(rf"^## {kind}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    (stored,) = [version for version in definition["spec"]["versions"] if version["storage"]]
    spec = stored["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
    fields = spec.get("properties", {})
    assert fields
    assert all(f"| `spec.{name}` |" in section for name in fields)


def test_every_alert_is_listed_and_leads_to_its_runbook():
    text = read_built("all-alerts.md")
    assert alerts()
    for rule in alerts():
        (page,) = re.findall(rf"^\[{rule['alert']}\]\(\.\./([^)#]+)#", text, re.MULTILINE)
        assert (DOCS / page).exists()


def test_links_out_of_the_manual_become_paths_but_in_code():
    page = DOCS / "howto/x.md"
    text = "[crds](../../deploy/crds) [`deploy/crds`](../../deploy/crds) [a](y.md#b)\n"
    text += "```\n[crds](../../deploy/crds)\n```\n"
    told = "crds (`deploy/crds`) `deploy/crds` [a](y.md#b)\n```\n[crds](../../deploy/crds)\n```\n"
    assert without_links_out(text, page, DOCS) == told


@pytest.mark.parametrize("picture", PICTURES, ids=[picture.stem for picture in PICTURES])
def test_every_picture_is_shown_with_a_text_and_has_both_colours(picture):
    shown = [
        alt
        for page in DOCS.glob("concepts/*.md")
        for alt in re.findall(rf"!\[([^]]+)\]\(pictures/{picture.name}\)", page.read_text())
    ]
    assert [len(alt) > 100 for alt in shown] == [True]
    text = picture.read_text()
    styles = (text, (DOCS / "_static/manual.css").read_text())
    assert "prefers-color-scheme: dark" in text
    used = {name for names in re.findall(r' class="([^"]+)"', text) for name in names.split()}
    assert all(f".{name} " in style for style in styles for name in used)
