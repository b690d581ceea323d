"""Names in the text of the manual exist: settings, flags, metrics, events, fields."""

from __future__ import annotations

import argparse
import re

import pytest
import yaml

from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.providers import errors
from harbourmaster.serving.options import add_settings
from harbourmaster.webhook.settings import Settings, WebhookSettings
from helpers.commands import parsers
from helpers.manual_commands import PAGES, ROOT
from manual.families import FAMILIES, labels_of, shown_name

SOURCES = ("certs", "deploy", "harbourmaster", "playground", "policies", "webhook")
# Those pages describe what others do.
OURS = [page for page in PAGES if page.parent.name != "internals"]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SETTING = re.compile(r"^ +(--[a-z-]+) \S+.*?\[([A-Za-z.]+): [^]]*\]$", re.MULTILINE)
WORD = re.compile(r"(?<![\w/.=-])([a-z]+(?:[A-Z][a-z0-9]*)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)\b")
FLAG = re.compile(r"^--[a-z][a-z-]+")
METRIC = re.compile(r"\b(?:harbourmaster|rescheduler|keptn|kupid)_[a-z_]+[a-z]\b(?!-)")
FOREIGN_WORDS = {
    *("BackoffLimitExceeded", "ClusterFirstWithHostNet", "DoNotSchedule", "FailedScheduling"),
    *("OutOfcpu", "OutOfmemory", "RemovePodsViolatingNodeTaints", "ScalingActive"),
    *("ServerSideDiff", "certFile", "dnsPolicy", "excludedTaints", "searchNamespace"),
    *("HttpOnly", "SameSite", "podSelectr", "isDE", "ExtendedResourceToleration"),
    *("commonAnnotations", "containerSecurityContext", "customMetricsAPIService"),
    *("kubernetesClusterDomain", "lifecycleOperator", "metricsOperator", "webhookService"),
    *("operatorService", "operatorMetricsService", "promotionTasksEnabled", "commonLabels"),
}
"""Of Kubernetes, browsers, tools and Keptn's charts; and two that are wrong on purpose."""
FOREIGN_FLAGS = {
    *("--admission-control-config-file", "--force-conflicts", "--set", "--take-ownership"),
    *("--to-revision", "--status-taint", "--tracing-config-file", "--build-arg", "--upgrade"),
    *("--upgrade-package", "--without"),
}
"""Of the API server, kubectl, helm, uv, the descheduler and the playground's own command."""


def spans(page):
    """What the text of a page marks as code, without its blocks."""
    return SPAN.findall(
        re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    )


def named(pattern):
    """What all pages name so, with the page."""
    return {
        (str(page.relative_to(ROOT)), found)
        for page in OURS
        for span in spans(page)
        for found in pattern.findall(span)
    }


@pytest.fixture(scope="module")
def known_words():
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in files if path.suffix in {".py", ".yaml", ".js", ".tpl"}]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    # Fields of ours are in snake case in the code.
    return words | {re.sub(r"_(\w)", lambda found: found[1].upper(), word) for word in words}


@pytest.fixture(scope="module")
def settings():
    """The keys of all settings, and their flags."""
    keys, flags = set(), set()
    for each in (Settings, WebhookSettings, ControllerSettings):
        parser = argparse.ArgumentParser(
            formatter_class=lambda prog: argparse.HelpFormatter(
                prog, max_help_position=200, width=1000
            )
        )
        add_settings(parser, each)
        found = SETTING.findall(parser.format_help())
        flags |= {flag for flag, _ in found}
        keys |= {key for _, key in found}
    return keys, flags


def test_words_that_the_manual_marks_as_code_are_in_the_code(known_words):
    found = named(WORD)
    assert len(found) > 500
    # The names of their classes give their reasons.
    reasons = {getattr(variable, "reason", "") for variable in vars(errors).values()}
    known = known_words | FOREIGN_WORDS | reasons
    assert not {(page, word) for page, word in found if word not in known}


def test_settings_that_the_manual_names_exist(settings):
    keys, _ = settings
    text = re.sub(r"\$\{[^}]*\}", "null", (ROOT / "deploy/chart/values.yaml").read_text())
    groups = {name: each for name, each in yaml.safe_load(text).items() if isinstance(each, dict)}
    of_chart = {f"{name}.{key}" for name, each in groups.items() for key in each}
    prefixes = "|".join({key.partition(".")[0] for key in keys if "." in key})
    # Groups of the API end in dev, sh or io, and metrics.read is a permission of Dynatrace.
    found = named(
        re.compile(rf"^(?:{prefixes})(?:\.(?!dev\b|sh\b|io\b|read\b)[a-z]\w*)+(?![.\w/])")
    )
    assert len(found) > 50
    assert not {each for each in found if each[1] not in keys | of_chart}


def test_flags_that_the_manual_names_exist(settings):
    _, flags = settings
    found = named(FLAG)
    assert len(found) > 50
    known = flags.union(FOREIGN_FLAGS, *(parser._option_string_actions for parser in parsers()))
    assert not {each for each in found if each[1] not in known}


def test_metrics_that_the_manual_names_exist():
    families = [family for each in FAMILIES.values() for family in each()]
    known = {shown_name(family) for family in families}.union(*map(labels_of, families))
    known |= {"harbourmaster_playground"}
    found = {(page, re.sub(r"_(bucket|count|sum)$", "", name)) for page, name in named(METRIC)}
    assert len(found) > 50
    assert not {each for each in found if each[1] not in known}
