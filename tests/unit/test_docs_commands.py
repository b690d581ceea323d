"""The commands of the manual that tests/cluster/test_docs_commands.py does not run, and why."""

from __future__ import annotations

import re
import shlex

import pytest

from harbourmaster.cli import program
from harbourmaster.cli.main import parser_of
from helpers.manual_commands import PAGES, ROOT, blocks

NOT_RUN = {
    "README.md": [
        "needs a release, a registry, and a cluster that uses it",
        "needs a release, a registry, and a cluster that uses it",
        "it serves until Ctrl-C, and the tests are what runs this",
    ],
    "docs/howto/dashboard.md": ["needs a cluster that runs the image, and a browser"],
    "docs/howto/deploying.md": [
        "needs a container engine, and a cluster that runs its image",
        "needs a container engine",
        "needs a cluster with cert-manager",
        "needs a cluster that runs the image",
        "needs an installation",
        "needs a cluster that runs the image",
    ],
    "docs/howto/helm.md": [
        "tests/cluster/test_chart_installed.py installs it",
        "tests/cluster/test_chart_installed.py upgrades it",
        "tests/cluster/test_chart_installed.py does it",
        "tests/cluster/test_chart_installed.py uninstalls it",
    ],
    "docs/howto/installing.md": [
        "needs the files of a release; tests/node/test_release.py runs it",
        "needs a signed release",
        "needs the files of a release; tests/node/test_release.py runs it",
        "needs a registry, and a cluster that runs the image",
        "needs the files of a release; tests/unit/deploy/test_release.py runs it",
        "needs an installation; tests/node/test_release.py runs it",
    ],
    "docs/howto/local.md": [
        "needs the files of a release",
        "tests/cluster/test_local_capabilities.py runs it",
        "needs root, and takes minutes",
    ],
    "docs/howto/playground.md": ["tests/cluster/test_demo_evaluation.py runs it"],
    "docs/howto/releasing.md": [
        "tests/node/test_release.py runs it with other images",
        "needs a registry and an identity",
        "needs a signed release",
    ],
    "docs/migration/krake.md": [
        "its file is yours; docs/reference/placement.md runs it",
        "tests/cluster/test_placement_consent.py runs it with its own names",
    ],
    "docs/migration/migrating.md": [
        "needs a cluster that runs the image",
        "needs a cluster that runs the image",
        "tests/cluster/test_migrate_keptn.py runs the printed commands",
        "tests/cluster/test_migrate_keptn.py runs it",
    ],
    "docs/operations/alerts.md": [
        "docs/reference/rescheduler.md runs it",
        "needs an application",
    ],
    "docs/operations/final-state.md": ["needs the audit log of your API server"],
    "docs/operations/repair.md": ["needs a cluster with pods that lack something"],
    "docs/reference/dependencies.md": ["it renews the lock files from the package registry"],
    "docs/reference/exposing-metrics.md": [
        "tests/cluster/test_custom_metrics.py asks for its own metrics",
        "it takes the custom metrics API from a cluster",
    ],
    "docs/reference/placement.md": [
        "tests/cluster/test_placement_consent.py runs it with its own names",
        "tests/cluster/test_placement_consent.py runs it with its own names",
    ],
    "docs/reference/tasks.md": ["needs a container engine"],
}
"""The reasons of the blocks of each page, in order; a new one is added here on purpose."""
SHOWN = re.compile(r"^ *```(?:console|sh|text)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(harbourmaster [a-z][^`\n]*)`(?!`)")
LINE = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/|kubectl )?(harbourmaster [a-z].*)$", re.MULTILINE)


def test_what_is_not_run_is_known_with_its_reason():
    not_run = {
        str(page.relative_to(ROOT)): reasons
        for page in PAGES
        if (reasons := [block.what for block in blocks(page) if block.how == "not run"])
    }
    assert not_run == NOT_RUN


def test_most_blocks_are_run():
    every = [block for page in PAGES for block in blocks(page)]
    assert sum(block.how == "not run" for block in every) < len(every) / 3


def test_no_page_is_forgotten():
    pages = {page for page in (ROOT / "docs").glob("*/*.md") if page.parent.name != "_ext"}
    assert set(PAGES) == {ROOT / "README.md", *pages}
    assert not blocks(ROOT / "docs/index.md")


def commands_of(page):
    """The commands of ours that the page shows, in blocks and in its text."""
    text = page.read_text()
    for block in SHOWN.findall(text):
        joined = block.replace("\\\n", " ")
        yield from LINE.findall(joined)
    yield from INLINE.findall(SHOWN.sub("", text))


COMMANDS = {page: commands for page in PAGES if (commands := list(commands_of(page)))}


def test_many_pages_show_commands():
    assert len(COMMANDS) > len(PAGES) / 3


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_one(page):
    assert COMMANDS[page]
    for command in COMMANDS[page]:
        assert_known(command)


RUNBOOKS = ROOT / "docs/operations/alerts.md"
PLACEHOLDER = re.compile(r"<[A-Za-z-]+>|(?<![$\w{])[A-Z][A-Z_]+(?![\w=])")


def test_no_block_of_commands_has_a_placeholder_that_a_shell_would_redirect():
    texts = [block.text for page in PAGES for block in blocks(page)]
    assert len(texts) > 90
    # A here-document begins with <<.
    assert not [text for text in texts if re.search(r"(?<!<)<[A-Za-z-]+>", text)]


def test_the_commands_of_runbooks_can_be_pasted():
    text = RUNBOOKS.read_text()
    inline = re.findall(r"(?<!`)`((?:kubectl|harbourmaster) [^`]*)`(?!`)", text)
    assert len(inline) > 30
    assert not [command for command in inline if PLACEHOLDER.search(command) or "$" in command]
    for block in blocks(RUNBOOKS):
        is_set = set()
        for line in block.text.splitlines():
            assert set(re.findall(r"\$(\w+)", line)) <= is_set, line
            assert not PLACEHOLDER.search(line), line
            is_set.update(re.findall(r"^(\w+)=", line))


def assert_known(command):
    """Every command, action and flag in it is known; values are not judged."""
    words = iter(shlex.split(command.partition(" | ")[0], comments=True)[1:])
    parser = parser_of(program.OWN)
    for word in words:
        below = {
            name: subparser
            for action in parser._actions
            if isinstance(action.choices, dict)
            for name, subparser in action.choices.items()
        }
        if word in below:
            parser = below[word]
        elif word.startswith("-") and len(word) > 1:
            flag, has_value, _ = word.partition("=")
            assert flag in parser._option_string_actions, f"{command}: there is no {flag}"
            if not has_value and parser._option_string_actions[flag].nargs != 0:
                next(words, None)
        elif below:
            pytest.fail(f"{command}: there is no {word}")
