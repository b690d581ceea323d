"""No list, key or name in a guard differs from what the code reads and writes (decision D18).

Every text in an expression is one of the code, by the tables below, or a word of Kubernetes.
"""

from __future__ import annotations

import re

import pytest
import yaml

from harbourmaster.api.resources import (
    API_SERVICES,
    APPLICATIONS,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    JOBS,
    LIFECYCLE_GROUP,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOADS,
)
from harbourmaster.controller.extender import rollouts
from harbourmaster.controller.registration import controller as registration
from harbourmaster.controller.rescheduling.eviction_client import DELETION
from harbourmaster.gates.gate import GATE, SCHEDULER_NAME
from harbourmaster.gates.known_keys import IS_OFF, KNOWN_KEYS, PREFIXES
from harbourmaster.gates.metadata import OPT_IN, READ_KEYS
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import OURS, RERUN_KEY, RERUN_NOTES
from harbourmaster.gates.stages import PROMOTE_BY_KEY, PROMOTE_KEY, PROMOTE_REASON_KEY
from harbourmaster.lifecycle.applications import DEPLOYED_KEY
from harbourmaster.lifecycle.conversion import UNCONVERTED
from harbourmaster.lifecycle.failed_nodes import CLEAR_KEY
from harbourmaster.lifecycle.functions import copy_name, function_name
from harbourmaster.registration import desired
from harbourmaster.registration.settings import (
    EXCLUDED_NAMESPACES,
    KINDS,
    MORE_KINDS,
    RegistrationSettings,
)
from harbourmaster.rescheduling import reservation
from harbourmaster.rescheduling.model import RESERVATIONS
from helpers.manifests import DEPLOY, NAMESPACE

GUARDS = ("account-guard", "gate-guard", "guards", "namespace-guard")
EVERYTHING = RegistrationSettings(kinds=(*KINDS, *MORE_KINDS), api_server_gate=True)
RULES = [
    rule
    for configuration in desired.desired_configurations(
        EVERYTHING, desired.Home("home"), None
    ).values()
    for webhook in configuration["webhooks"]
    for rule in webhook["rules"]
]
"""All that our webhooks can be registered for."""
CONVERTED_OR_OLD = {
    spec["names"]["plural"]
    for path in (DEPLOY / "crds").glob("keptn*.yaml")
    if (spec := yaml.safe_load(path.read_text())["spec"])["group"] == LIFECYCLE_GROUP
    and ("conversion" in spec or "v1" not in [version["name"] for version in spec["versions"]])
}
"""Kinds of which an update in an old version loses nothing, or that have no v1."""
PROMOTE_NOTES = (PROMOTE_KEY, PROMOTE_BY_KEY, PROMOTE_REASON_KEY)
TABLES = {
    "account-guard-configmaps": [{TASKS.kind, TASK_DEFINITIONS.kind}],
    "account-guard-jobs": [{*EXCLUDED_NAMESPACES}],
    "account-guard-webhooks": [
        {group for rule in RULES for group in rule["apiGroups"]},
        {name for rule in RULES if rule["apiGroups"] == [""] for name in rule["resources"]},
    ],
    "gate-guard": [{key for key in READ_KEYS if not key.startswith(PREFIXES)}],
    "generated-guard": [{*SUPPORTED}, {CLEAR_KEY, *PROMOTE_NOTES, *RERUN_NOTES}, CONVERTED_OR_OLD],
    "opt-in-warning": [{*IS_OFF}],
    "rerun-guard": [
        {key.removeprefix(f"{RERUN_KEY}-") for key in RERUN_NOTES},
        {key.removeprefix(PROMOTE_KEY) for key in PROMOTE_NOTES},
    ],
}
"""The lists in the expressions of each guard that are tables of the code."""
NAMES = {
    *KNOWN_KEYS,
    *PREFIXES,
    *(f"{resource.group}/" for resource in (APPLICATIONS, TASKS, JOBS)),
    *(resource.plural for resource in (CONFIG_MAPS, WORKLOADS, DEPLOYMENTS, DEFINITIONS)),
    API_SERVICES.plural,
    *(TASKS.kind, TASKS.version),
    *(copy_name(""), f"^({function_name('').rstrip('-')}|{copy_name('').rstrip('-')})-"),
    *(GATE, SCHEDULER_NAME, OPT_IN, UNCONVERTED, DEPLOYED_KEY),
    *(OURS.rstrip("/"), f"{RERUN_KEY}-", desired.GATES_LABEL, desired.ENABLED, desired.NAME),
    *(RESERVATIONS, DELETION, reservation._MARK, rollouts.MARK, registration.MARK, "kube-system_"),
    # The virtual resources and verbs of writer.yaml and releaser.yaml, and our account.
    *("generated", "write-generated", "gates", "release"),
    "^system:serviceaccount:[^:]+:harbourmaster-controller$",
    f"system:serviceaccount:{NAMESPACE}:harbourmaster-controller",
    # A misspelt opt-in, which is only warned of.
    "(?i)life|cycle|toolkit",
}
KUBERNETES = {
    *("", ":", "CREATE", "UPDATE", "DELETE", "status", "eviction", "true"),
    *("annotations", "conditions", "generation", "labels", "managedFields", "metadata"),
    *("ownerReferences", "resourceVersion", "schedulingGates", "taints", "template"),
    *("tolerations", "ttlSecondsAfterFinished", "caBundle", "clientConfig", "conversion"),
    *("insecureSkipTLSVerify", "DisruptionTarget", "Exists", "NoSchedule"),
    *("batch.kubernetes.io/controller-uid", "Opaque", "kubernetes.io/tls"),
    "system:kube-controller-manager",
    *(
        f"system:serviceaccount:kube-system:{name}"
        for name in (
            *("generic-garbage-collector", "job-controller", "namespace-controller"),
            "ttl-after-finished-controller",
        )
    ),
    # The baseline Pod Security Standard.
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    *("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range"),
    *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "unprivileged_port_start")),
    *("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
    *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "keepalive_intvl", "keepalive_probes")),
    *("container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
    *("Default", "Unconfined", "localhost/", "runtime/default", "system-"),
    "container.apparmor.security.beta.kubernetes.io/",
}
"""Words of Kubernetes, in no table of ours."""
LIST = re.compile(r'\[\s*("[^\]]*?)\s*(?:, variables\.home)?\]')
TEXT = re.compile(r'"([^"]*)"')


def expressions():
    """Yield the name of each guard and the text of all its expressions."""
    for component in GUARDS:
        for path in sorted((DEPLOY / "components" / component).glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                if document["kind"] == "ValidatingAdmissionPolicy":
                    spec = document["spec"]
                    parts = ("matchConditions", "variables", "validations")
                    texts = [part["expression"] for key in parts for part in spec.get(key, ())]
                    name = document["metadata"]["name"].removeprefix("harbourmaster-")
                    yield name, " ".join(texts)


EXPRESSIONS = dict(expressions())


@pytest.mark.claim("O17")
@pytest.mark.parametrize("guard", EXPRESSIONS)
def test_the_lists_in_a_guard_are_tables_of_the_code(guard):
    lists = [{*TEXT.findall(listed)} for listed in LIST.findall(EXPRESSIONS[guard])]
    own = [words for words in lists if not words <= KUBERNETES]
    assert sorted(map(sorted, own)) == sorted(map(sorted, TABLES.get(guard, [])))


@pytest.mark.parametrize("guard", EXPRESSIONS)
def test_the_texts_in_a_guard_are_names_in_the_code(guard):
    listed = {word for table in TABLES.get(guard, ()) for word in table}
    assert {*TEXT.findall(EXPRESSIONS[guard])} - listed - NAMES <= KUBERNETES
    # A word of Kubernetes is never one of ours that only looks like it.
    assert [key for key in KUBERNETES if key.startswith(PREFIXES)] == []
