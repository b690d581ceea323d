"""References of analyses into other namespaces (decision D17)."""

from __future__ import annotations

import asyncio

import pytest

from helpers.evaluation import objective

PLATFORM = {"namespace": "platform"}
REFUSED = (
    'no consent to references from namespace "prod": keptnmetricsprovider platform/prom: '
    "kubectl annotate keptnmetricsprovider -n platform prom harbourmaster.dev/allow-from=prod"
)
pytestmark = pytest.mark.claim("O14")


@pytest.fixture
def foreign_env(analysis_env):
    """An analysis of prod whose template names platform's provider, which is there."""
    analysis_env.put_provider(**PLATFORM)
    analysis_env.put_template("a", provider={"name": "prom", **PLATFORM})
    analysis_env.put_definition(objective("a"))
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_analysis()
    return analysis_env


def stored_errors(analysis_env):
    return {name: value["errMsg"] for name, value in analysis_env.status["storedValues"].items()}


async def test_a_provider_without_consent_is_not_asked(foreign_env):
    assert await foreign_env.settle() is None
    assert foreign_env.queries.asked == []
    assert stored_errors(foreign_env) == {"a": REFUSED}
    assert foreign_env.events.of("ReferenceRefused") == [f"a: {REFUSED}"]
    # It is told once.
    await foreign_env.settle(100)
    assert len(foreign_env.events.of("ReferenceRefused")) == 1


async def test_the_refusal_does_not_tell_whether_the_provider_exists(analysis_env):
    analysis_env.put_template("a", provider={"name": "prom", **PLATFORM})
    analysis_env.put_definition(objective("a"))
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert stored_errors(analysis_env) == {"a": REFUSED}
    assert analysis_env.events.of("ReferenceRefused") == [f"a: {REFUSED}"]


@pytest.mark.parametrize("allow", ["prod", "*", "other, prod"])
async def test_consent_lets_the_analysis_go_on(foreign_env, allow):
    await foreign_env.settle()
    foreign_env.put_provider(**PLATFORM, allow=allow)
    await foreign_env.settle()
    assert foreign_env.status["state"] == "Completed"
    assert foreign_env.queries.providers == ["platform/prom"]


async def test_the_template_refers_to_the_provider_and_not_its_users(analysis_env):
    analysis_env.put_provider(**PLATFORM)
    analysis_env.put_template("a", **PLATFORM, provider={"name": "prom", **PLATFORM})
    analysis_env.put_definition(("a", PLATFORM, {}))
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"


async def test_consent_for_the_users_of_a_template_is_none_for_the_template(analysis_env):
    analysis_env.put_provider(**PLATFORM, allow="prod")
    analysis_env.put_template("a", namespace="shared", provider={"name": "prom", **PLATFORM})
    analysis_env.put_definition(("a", {"namespace": "shared"}, {}))
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert analysis_env.queries.asked == []
    assert "allow-from=shared" in stored_errors(analysis_env)["a-shared"]


async def test_consent_that_is_withdrawn_ends_a_question(foreign_env):
    waiting = asyncio.get_running_loop().create_future()
    foreign_env.queries.answers["a"] = waiting
    foreign_env.put_provider(**PLATFORM, allow="prod")
    await foreign_env.reconcile()
    await foreign_env.reconcile()
    assert foreign_env.is_asking
    # The question begins.
    await asyncio.sleep(0)
    foreign_env.put_provider(**PLATFORM)
    await foreign_env.reconcile()
    assert not foreign_env.is_asking
    assert stored_errors(foreign_env) == {"a": REFUSED}
    await asyncio.sleep(0)
    assert waiting.cancelled()


async def test_a_value_is_not_used_once_consent_is_withdrawn(foreign_env):
    foreign_env.put_template("b")
    foreign_env.put_definition(objective("a"), objective("b"))
    foreign_env.put_provider(**PLATFORM, allow="prod")
    await foreign_env.settle()
    assert foreign_env.status["storedValues"]["a"]["value"] == "1"
    foreign_env.put_provider(**PLATFORM)
    await foreign_env.settle()
    assert stored_errors(foreign_env)["a"] == REFUSED
    assert "value" not in foreign_env.status["storedValues"]["a"]


async def test_templates_need_consent_where_all_do(analysis_env):
    analysis_env.references = "AllNeedConsent"
    analysis_env.restart()
    analysis_env.put_provider(**PLATFORM)
    analysis_env.put_template("a", **PLATFORM, provider={"name": "prom", **PLATFORM})
    analysis_env.put_definition(("a", PLATFORM, {}))
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_analysis()
    await analysis_env.settle()
    assert analysis_env.queries.asked == []
    assert (
        "kubectl annotate analysisvaluetemplate -n platform a"
        in stored_errors(analysis_env)["a-platform"]
    )
    analysis_env.put_template("a", **PLATFORM, provider={"name": "prom", **PLATFORM}, allow="prod")
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"


@pytest.mark.parametrize("exists", [True, False])
async def test_definitions_need_consent_where_all_do(analysis_env, exists):
    analysis_env.references = "AllNeedConsent"
    analysis_env.restart()
    if exists:
        analysis_env.put_definition(objective("a"), **PLATFORM)
    analysis_env.put_analysis(definition={"name": "checks", **PLATFORM})
    assert await analysis_env.settle() is None
    refused = (
        'no consent to references from namespace "prod": analysisdefinition platform/checks: '
        "kubectl annotate analysisdefinition -n platform checks harbourmaster.dev/allow-from=prod"
    )
    assert stored_errors(analysis_env) == {"checks-platform": refused}
    assert analysis_env.events.of("ReferenceRefused") == [refused]
    analysis_env.put_provider(**PLATFORM)
    analysis_env.put_template("a", **PLATFORM)
    analysis_env.queries.answers["a"] = "1"
    analysis_env.put_definition(objective("a"), **PLATFORM, allow="prod")
    await analysis_env.reconcile()
    # It would look like a query without an answer.
    assert analysis_env.status["state"] == "Progressing"
    assert "storedValues" not in analysis_env.status
    await analysis_env.settle()
    assert analysis_env.status["state"] == "Completed"
