"""S30: a hostile or broken ``--config`` file is one line, and soon."""

from __future__ import annotations

import argparse
from typing import Annotated

import msgspec
import pytest

from harbourmaster.api.decoding import describe
from harbourmaster.serving.options import SettingsError, add_settings, settings_from
from harbourmaster.webhook.settings import Settings


def read(file, text):
    file.write_text(text)
    parser = argparse.ArgumentParser()
    add_settings(parser, Settings)
    return settings_from(parser.parse_args(["--config", str(file)]), Settings, describe)


BAD = {
    "itself": ("log: &a {level: *a}\n", "an alias that contains itself"),
    "date": ("log: {level: 2020-01-01}\n", "log.level"),
    "digits": ("server: {port: " + "9" * 5000 + "}\n", ""),
    "no date": ("log: {level: 2020-99-99}\n", "log.level"),
    "twice": ("log: {level: info}\nlog: {level: debug}\n", '"log" twice'),
    "two documents": ("log: {level: info}\n---\nlog: {}\n", "more than one document"),
}
"""``test_documents`` has the other ways in which a document is bad."""


@pytest.mark.parametrize("name", BAD)
def test_s30_a_bad_file_is_one_line(tmp_path, name):
    text, says = BAD[name]
    with pytest.raises(SettingsError) as caught:
        read(tmp_path / "config.yaml", text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/config.yaml: ")
    assert says in message
    assert "\n" not in message


class Deep(msgspec.Struct, frozen=True, rename="camel"):
    """Settings whose defaults can't be shared."""

    runner_limits: Annotated[dict[str, str], msgspec.Meta(description="limits")] = msgspec.field(
        default_factory=lambda: {"memory": "512Mi"}
    )
    none_at_all: Annotated[dict[str, str], msgspec.Meta(description="none")] = msgspec.field(
        default_factory=dict
    )


class Whole(msgspec.Struct, frozen=True):
    deep: Deep = Deep()


def test_a_default_that_is_made_anew_is_shown_and_given_as_any_other():
    parser = argparse.ArgumentParser(
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=200)
    )
    add_settings(parser, Whole)
    shown = parser.format_help()
    assert '[deep.runnerLimits: {"memory":"512Mi"}]' in shown
    assert "[deep.noneAtAll: none]" in shown

    def parse(*flags):
        return settings_from(parser.parse_args(flags), Whole, describe).deep

    assert parse() == Deep(runner_limits={"memory": "512Mi"}, none_at_all={})
    assert parse("--deep-runner-limits={cpu: '1'}").runner_limits == {"cpu": "1"}


class Pair(msgspec.Struct, frozen=True):
    """Settings that may not go together."""

    least: Annotated[int, msgspec.Meta(description="least")] = 1

    def __post_init__(self):
        if not self.least:
            raise ValueError("least: 0 is too few")


class Paired(msgspec.Struct, frozen=True):
    pair: Pair = Pair()


def test_a_fault_of_several_settings_is_told_as_that_of_one():
    parser = argparse.ArgumentParser()
    add_settings(parser, Paired)
    with pytest.raises(SettingsError, match=r"^pair: least: 0 is too few$"):
        settings_from(parser.parse_args(["--pair-least=0"]), Paired, describe)
