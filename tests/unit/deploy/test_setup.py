"""The files that setup.cfg installs besides Python files."""

from __future__ import annotations

import configparser
import importlib

import pytest

from helpers.manifests import ROOT

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
FUNCTIONS = {"harbourmaster": "main", "kubectl-harbourmaster": "plugin"}


def lines(section, key):
    return SETUP[section][key].strip().splitlines()


def test_every_page_of_the_dashboard_is_installed():
    folder = ROOT / "harbourmaster/dashboard"
    (key,) = (key for key in SETUP["options.package_data"] if key.endswith("dashboard"))
    installed = {
        path for pattern in lines("options.package_data", key) for path in folder.glob(pattern)
    }
    files = {path for path in folder.rglob("*") if path.is_file()}
    data = {path for path in files if path.suffix not in {".py", ".pyc"}}
    assert len(data) > 10
    assert data <= installed


@pytest.mark.parametrize("line", lines("options.entry_points", "console_scripts"))
def test_each_command_leads_to_its_function(line):
    name, _, place = line.partition(" = ")
    module, _, function = place.partition(":")
    assert function == FUNCTIONS[name]
    assert callable(getattr(importlib.import_module(module), function))
