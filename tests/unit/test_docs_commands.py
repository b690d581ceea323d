"""The commands of the manual that tests/cluster/test_docs_commands.py does not run, and why."""

from __future__ import annotations

import itertools
import re
import shlex

import pytest

from harbourmaster.cli import program
from harbourmaster.cli.main import current_words, parser_of
from helpers.manual_commands import PAGES, ROOT, blocks

SHOWN = re.compile(r"^ *```(?:console|sh|text)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(harbourmaster [a-z][^`\n]*)`(?!`)")
LINE = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/|kubectl )?(harbourmaster [a-z].*)$", re.MULTILINE)


def test_what_is_not_run_is_known_with_its_reason(assert_golden):
    """A new block that is not run is stored on purpose."""
    assert_golden(
        {
            str(page.relative_to(ROOT)): reasons
            for page in PAGES
            if (reasons := [block.what for block in blocks(page) if block.how == "not run"])
        }
    )


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
    given = shlex.split(command.partition(" | ")[0], comments=True)[1:]
    words, old = current_words(given)
    assert not old, f"{command}: {old} is the name of an older version"
    words = iter(words)
    parser = parser_of(program.OWN)
    for word in itertools.takewhile(">".__ne__, words):
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
