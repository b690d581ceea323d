"""S30: a hostile or broken ``--config`` file is one line, and soon."""

from __future__ import annotations

import argparse

import pytest

from cli.options import SettingsError, add_settings, settings_from
from webhook.settings import Settings

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGES = "x: &x {a: 1}\n" + "".join(
    f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}' if i else '*x'] * 9)}]}}\n" for i in range(6)
)


def read(file, text):
    file.write_text(text)
    parser = argparse.ArgumentParser()
    add_settings(parser, Settings)
    return settings_from(parser.parse_args(["--config", str(file)]), Settings)


BAD = {
    "laughs": (LAUGHS + "log: *a11\n", "aliases expand to more than"),
    "itself": ("log: &a {level: *a}\n", "an alias that contains itself"),
    "tag": ("log: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
    "date": ("log: {level: 2020-01-01}\n", "log.level"),
    "merges": (MERGES, "expand"),
    "arrays": ("log: " + "[" * 5000 + "]" * 5000, "nested"),
    "objects": ("log: " + "{a: " * 3000 + "1" + "}" * 3000, "nested"),
    "digits": ("server: {port: " + "9" * 5000 + "}\n", ""),
    "no integer": ("server: {port: !!int x}\n", ""),
    "no date": ("log: {level: 2020-99-99}\n", "log.level"),
    "twice": ("log: {level: info}\nlog: {level: debug}\n", '"log" twice'),
}


@pytest.mark.parametrize("name", BAD)
def test_s30_a_bad_file_is_one_line(tmp_path, name):
    text, says = BAD[name]
    with pytest.raises(SettingsError) as caught:
        read(tmp_path / "config.yaml", text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/config.yaml: ")
    assert says in message
    assert "\n" not in message
