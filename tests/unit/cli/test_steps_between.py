"""No step leads in a circle: what doctor and why print never sends a user back and forth."""

from __future__ import annotations

import re
from pathlib import Path

from harbourmaster import cli, lifecycle
from harbourmaster.cli.why.render import STEPS

LEADS = re.compile(r"harbourmaster (doctor|why)\b(?! --)(?: (\w+))?")
WHY = Path(cli.__file__).parent / "why"
SOURCES = {
    "doctor": (
        *(WHY.parent / "doctor").rglob("*.py"),
        WHY.parent / "references.py",
        WHY.parent / "oversized.py",
        Path(lifecycle.__file__).parent / "gate_verdict.py",
    ),
    "why": tuple(WHY.rglob("*.py")),
}
EXAMPLES = ("commands.py", "run.py")


def leads_of(name):
    """The commands to which the texts of one command lead: doctor, or why with a kind."""
    texts = [path.read_text() for path in SOURCES[name] if path.name not in EXAMPLES]
    matched = {match.groups() for text in texts for match in LEADS.finditer(text)}
    return {(command, kind or "") for command, kind in matched}


def test_doctor_leads_to_why_only_where_that_does_not_lead_back():
    # Of an Application and of checks, no step has doctor in it.
    assert {kind for command, kind in leads_of("doctor") if command == "why"} == {"application"}
    back = {code for code, step in STEPS.items() if "harbourmaster doctor" in step}
    assert back <= {"not-reviewed", "break-glass"}
    for name in ("placement", "progress", "metric", "policy", "namespace", "pods"):
        text = (WHY / "sections" / f"{name}.py").read_text()
        assert "harbourmaster doctor" not in text
        assert not back & set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text))


def test_why_leads_down_to_the_causes():
    order = ["application", "keptnapp", "keptnworkloadversion", "keptntask", "keptnmetric"]
    kinds = {kind for command, kind in leads_of("why") if command == "why"}
    assert kinds <= {*order, "keptn", "review", ""}, kinds
