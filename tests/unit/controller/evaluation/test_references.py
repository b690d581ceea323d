"""References of analyses into other namespaces (decision D17)."""

from __future__ import annotations

import asyncio

import pytest

from helpers.analysis_controller import objective

PLATFORM = {"namespace": "platform"}
REFUSED = (
    'no consent to references from namespace "prod": keptnmetricsprovider platform/prom: '
    "kubectl annotate keptnmetricsprovider -n platform prom harbourmaster.dev/allow-from=prod"
)
pytestmark = pytest.mark.claim("O14")


@pytest.fixture
def foreign(life):
    """An analysis of prod whose template names platform's provider, which is there."""
    life.provider(**PLATFORM)
    life.template("a", provider={"name": "prom", **PLATFORM})
    life.definition(objective("a"))
    life.questions.answers["a"] = "1"
    life.analysis()
    return life


def stored(life):
    return {name: each["errMsg"] for name, each in life.status["storedValues"].items()}


async def test_a_provider_without_consent_is_not_asked(foreign):
    assert await foreign.settle() is None
    assert foreign.questions.asked == []
    assert stored(foreign) == {"a": REFUSED}
    assert foreign.events.of("ReferenceRefused") == [f"a: {REFUSED}"]
    # It is told once.
    await foreign.settle(100)
    assert len(foreign.events.of("ReferenceRefused")) == 1


async def test_the_refusal_does_not_tell_whether_the_provider_exists(life):
    life.template("a", provider={"name": "prom", **PLATFORM})
    life.definition(objective("a"))
    life.analysis()
    await life.settle()
    assert stored(life) == {"a": REFUSED}
    assert life.events.of("ReferenceRefused") == [f"a: {REFUSED}"]


@pytest.mark.parametrize("allow", ["prod", "*", "other, prod"])
async def test_consent_lets_the_analysis_go_on(foreign, allow):
    await foreign.settle()
    foreign.provider(**PLATFORM, allow=allow)
    await foreign.settle()
    assert foreign.status["state"] == "Completed"
    assert foreign.questions.providers == ["platform/prom"]


async def test_where_references_are_open_nobody_has_to_consent(foreign):
    foreign.references = "Open"
    foreign.restart()
    await foreign.settle()
    assert foreign.status["state"] == "Completed"


async def test_the_template_refers_to_the_provider_and_not_its_users(life):
    life.provider(**PLATFORM)
    life.template("a", **PLATFORM, provider={"name": "prom", **PLATFORM})
    life.definition(("a", PLATFORM, {}))
    life.questions.answers["a"] = "1"
    life.analysis()
    await life.settle()
    assert life.status["state"] == "Completed"


async def test_consent_for_the_users_of_a_template_is_none_for_the_template(life):
    life.provider(**PLATFORM, allow="prod")
    life.template("a", namespace="shared", provider={"name": "prom", **PLATFORM})
    life.definition(("a", {"namespace": "shared"}, {}))
    life.analysis()
    await life.settle()
    assert life.questions.asked == []
    assert "allow-from=shared" in stored(life)["a-shared"]


async def test_consent_that_is_withdrawn_ends_a_question(foreign):
    waiting = asyncio.get_running_loop().create_future()
    foreign.questions.answers["a"] = waiting
    foreign.provider(**PLATFORM, allow="prod")
    await foreign.look()
    await foreign.look()
    assert foreign.is_asking
    # The question begins.
    await asyncio.sleep(0)
    foreign.provider(**PLATFORM)
    await foreign.look()
    assert not foreign.is_asking
    assert stored(foreign) == {"a": REFUSED}
    await asyncio.sleep(0)
    assert waiting.cancelled()


async def test_a_value_is_not_used_once_consent_is_withdrawn(foreign):
    foreign.template("b")
    foreign.definition(objective("a"), objective("b"))
    foreign.provider(**PLATFORM, allow="prod")
    await foreign.settle()
    assert foreign.status["storedValues"]["a"]["value"] == "1"
    foreign.provider(**PLATFORM)
    await foreign.settle()
    assert stored(foreign)["a"] == REFUSED
    assert "value" not in foreign.status["storedValues"]["a"]


async def test_templates_need_consent_where_all_do(life):
    life.references = "AllNeedConsent"
    life.restart()
    life.provider(**PLATFORM)
    life.template("a", **PLATFORM, provider={"name": "prom", **PLATFORM})
    life.definition(("a", PLATFORM, {}))
    life.questions.answers["a"] = "1"
    life.analysis()
    await life.settle()
    assert life.questions.asked == []
    assert "kubectl annotate analysisvaluetemplate -n platform a" in stored(life)["a-platform"]
    life.template("a", **PLATFORM, provider={"name": "prom", **PLATFORM}, allow="prod")
    await life.settle()
    assert life.status["state"] == "Completed"


@pytest.mark.parametrize("exists", [True, False])
async def test_definitions_need_consent_where_all_do(life, exists):
    life.references = "AllNeedConsent"
    life.restart()
    if exists:
        life.definition(objective("a"), **PLATFORM)
    life.analysis(definition={"name": "checks", **PLATFORM})
    assert await life.settle() is None
    refused = (
        'no consent to references from namespace "prod": analysisdefinition platform/checks: '
        "kubectl annotate analysisdefinition -n platform checks harbourmaster.dev/allow-from=prod"
    )
    assert stored(life) == {"checks-platform": refused}
    assert life.events.of("ReferenceRefused") == [refused]
    life.provider(**PLATFORM)
    life.template("a", **PLATFORM)
    life.questions.answers["a"] = "1"
    life.definition(objective("a"), **PLATFORM, allow="prod")
    await life.settle()
    assert life.status["state"] == "Completed"
