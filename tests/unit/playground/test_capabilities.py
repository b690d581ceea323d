from __future__ import annotations

from harbourmaster.playground.capabilities import SCHEDULER, overlay, scheduler_configuration
from helpers.manifests import kustomize, parse


def test_only_the_overlay_of_a_scheduler_has_one(tmp_path):
    names = [
        [
            obj["metadata"]["name"]
            for text in kustomize(folder).split("\n---\n")
            # Definitions take a second to parse.
            if "\nkind: Service\n" in text
            for obj in parse(text)
        ]
        for folder in (
            overlay(tmp_path / "gates", ["dashboard"]),
            overlay(tmp_path / "scheduler", [SCHEDULER]),
        )
    ]
    assert "harbourmaster-scheduling" not in names[0]
    assert "harbourmaster-scheduling" in names[1]


def test_the_scheduler_is_the_shipped_one_and_asks_a_controller_of_this_machine(tmp_path):
    configuration = scheduler_configuration(1234, tmp_path / "ca.crt")
    (extender,) = configuration["extenders"]
    assert [profile["schedulerName"] for profile in configuration["profiles"]] == [
        "keptn-scheduler"
    ]
    assert extender["urlPrefix"] == "https://127.0.0.1:1234/scheduler"
    assert extender["tlsConfig"] == {
        "caFile": str(tmp_path / "ca.crt"),
        "serverName": "harbourmaster-scheduling",
    }
    assert extender["ignorable"] is False
