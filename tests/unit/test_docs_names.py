"""Names in the text of the manual exist: settings, flags, metrics, events, fields."""

from __future__ import annotations

import re

import pytest
import yaml

from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.providers import errors
from harbourmaster.webhook.settings import Settings, WebhookSettings
from helpers.command import parsers
from helpers.manual_commands import PAGES, ROOT, settings_of
from manual.families import FAMILIES, labels_of, shown_name

SOURCES = ("certs", "deploy", "harbourmaster", "playground", "policies", "webhook")
# Those pages describe what others do.
OURS = [page for page in PAGES if page.parent.name != "internals"]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
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
    *("splitBy", "ipFamilyPolicy", "PreferDualStack", "PruneLast", "syncOptions"),
    *("OrderedReady", "disableWait", "healthChecks", "progressDeadlineSeconds"),
}
"""Names of Kubernetes, browsers, tools, Dynatrace and Keptn's charts; two are wrong on purpose."""
FOREIGN_FLAGS = {
    *("--admission-control-config-file", "--force-conflicts", "--set", "--take-ownership"),
    *("--to-revision", "--status-taint", "--tracing-config-file", "--build-arg", "--upgrade"),
    *("--upgrade-package", "--without", "--reuse-values", "--rollback-on-failure", "--wait"),
}
"""Flags of the API server, kubectl, helm, uv, the descheduler and the playground."""


def spans(page):
    """Yield the text of a page that is marked as code, without blocks."""
    return SPAN.findall(
        re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    )


def names_matching(pattern):
    """Return what all pages name by a pattern, with the page."""
    return {
        (str(page.relative_to(ROOT)), match)
        for page in OURS
        for span in spans(page)
        for match in pattern.findall(span)
    }


@pytest.fixture(scope="module")
def known_words():
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in files if path.suffix in {".py", ".yaml", ".js", ".tpl"}]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    # Fields of ours are in snake case in the code.
    return words | {re.sub(r"_(\w)", lambda match: match[1].upper(), word) for word in words}


@pytest.fixture(scope="module")
def settings():
    """The keys of all settings, and their flags."""
    every = set().union(*map(settings_of, (Settings, WebhookSettings, ControllerSettings)))
    return {key for key, _, _ in every}, {flag for _, flag, _ in every}


def test_words_that_the_manual_marks_as_code_are_in_the_code(known_words):
    words = names_matching(WORD)
    assert len(words) > 500
    # The names of their classes give their reasons.
    reasons = {getattr(variable, "reason", "") for variable in vars(errors).values()}
    known = known_words | FOREIGN_WORDS | reasons
    assert not {(page, word) for page, word in words if word not in known}


def paths_of(group, prefix=""):
    """Yield the paths of all values in a group of the chart."""
    for name, value in group.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths_of(value, f"{prefix}{name}.")


def test_settings_that_the_manual_names_exist(settings):
    keys, _ = settings
    text = re.sub(r"\$\{[^}]*\}", "null", (ROOT / "deploy/chart/values.yaml").read_text())
    of_chart = set(paths_of(yaml.safe_load(text)))
    prefixes = "|".join({key.partition(".")[0] for key in keys if "." in key})
    # Groups of the API end in dev, sh or io, and metrics.read is a permission of Dynatrace.
    keys_of_pages = names_matching(
        re.compile(rf"^(?:{prefixes})(?:\.(?!dev\b|sh\b|io\b|read\b)[a-z]\w*)+(?![.\w/])")
    )
    assert len(keys_of_pages) > 50
    assert not {pair for pair in keys_of_pages if pair[1] not in keys | of_chart}


def test_flags_that_the_manual_names_exist(settings):
    _, flags = settings
    flags_of_pages = names_matching(FLAG)
    assert len(flags_of_pages) > 50
    known = flags.union(FOREIGN_FLAGS, *(parser._option_string_actions for parser in parsers()))
    assert not {pair for pair in flags_of_pages if pair[1] not in known}


def test_metrics_that_the_manual_names_exist():
    families = [family for collect in FAMILIES.values() for family in collect()]
    known = {shown_name(family) for family in families}.union(*map(labels_of, families))
    known |= {"harbourmaster_playground"}
    metrics = {
        (page, re.sub(r"_(bucket|count|sum)$", "", name)) for page, name in names_matching(METRIC)
    }
    assert len(metrics) > 50
    assert not {pair for pair in metrics if pair[1] not in known}
