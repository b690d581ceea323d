from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from harbourmaster.cli.installed import KEPTN_ADDRESSES, KEPTN_NAMESPACE
from harbourmaster.controller.evaluation.collectors import create_lateness
from harbourmaster.controller.extender.extender import PATH, VERBS
from harbourmaster.controller.names import METRICS
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.policies.model import Policy
from harbourmaster.policies.validation import validate
from harbourmaster.telemetry.metrics import create_metrics
from helpers.manifests import (
    BASES,
    DEPLOY,
    ROOT,
    container,
    controller_settings,
    deployment_of,
    objects,
    of_kind,
    one,
    overlay_of,
    pod_labels,
    pod_of,
    selects,
    settings_of,
)
from manual.families import FAMILIES, shown_name

URL = re.search(r"^url = (https://.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)[1]
RUNBOOKS = f"{URL}/operations/alerts.html"
SUFFIXES = re.compile(r"_(bucket|count|sum)$")


@pytest.fixture
def rules():
    groups = one(objects("default", "monitoring"), "PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_alerts_use_existing_metrics(rules):
    known = {shown_name(family) for families in FAMILIES.values() for family in families()}
    ours = r"\b(?:harbourmaster|rescheduler)_\w+"
    asked = {name for rule in rules for name in re.findall(ours, rule["expr"])}
    assert asked
    assert {SUFFIXES.sub("", name) for name in asked} <= known


def test_alerts_use_the_recorded_series_only(rules):
    recorded = {rule["record"] for rule in rules if "record" in rule}
    used = {name for rule in rules for name in re.findall(r"\bharbourmaster:\S+", rule["expr"])}
    assert used == recorded


def test_every_alert_has_a_severity_and_a_page_that_says_what_to_do(rules):
    alerts = [rule for rule in rules if "alert" in rule]
    page = (ROOT / "docs/operations/alerts.md").read_text()
    assert re.findall(r"^## (Harbourmaster\w+)$", page, re.MULTILINE) == [
        alert["alert"] for alert in alerts
    ]
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}#{alert['alert'].lower()}"
        assert alert["annotations"]["summary"]


def test_each_alert_s_page_says_where_to_see_it_what_to_do_and_when_it_can_be_left(rules):
    page = (ROOT / "docs/operations/alerts.md").read_text()
    _, *sections = re.split(r"^## (Harbourmaster\w+)$", page, flags=re.MULTILINE)
    text_by_alert = dict(zip(sections[::2], sections[1::2], strict=True))
    assert text_by_alert.keys() == {rule["alert"] for rule in rules if "alert" in rule}
    for name, text in text_by_alert.items():
        means, *rest = re.split(r"^\*\*(See:|Do:|Leave it)\*\*", text, flags=re.MULTILINE)
        assert means.strip(), name
        assert rest[::2] == ["See:", "Do:", "Leave it"], name
        assert all(part.strip(" .:\n") for part in rest[1::2]), name
        # Where one can look: a command, a metric or a dashboard.
        assert re.search(r"`harbourmaster[ _]|`kubectl |dashboard \*", rest[1]), name


def test_what_alerts_ask_of_histograms_is_one_of_their_buckets(rules):
    metrics = create_metrics("1", ["mutated"])
    metrics.admission.durations["mutated"].observe(0.1)
    create_lateness(metrics.registry).observe(0.1)
    bounds = {
        (sample.name, sample.labels["le"])
        for family in metrics.registry.collect()
        for sample in family.samples
        if "le" in sample.labels
    }
    bucket = r'(\w+_bucket){[^}]*\ble="([^"]+)"'
    asked = {bound for rule in rules for bound in re.findall(bucket, rule["expr"])}
    assert {bound for _, bound in asked} == {"0.5", "2.0"}
    assert asked <= bounds


def test_prometheus_scrapes_both_processes():
    manifests = objects("default", "monitoring")
    monitor = one(manifests, "ServiceMonitor")["spec"]
    picked = [
        service
        for service in of_kind(manifests, "Service")
        if selects(monitor["selector"], service["metadata"]["labels"])
    ]
    assert monitor["endpoints"]
    for endpoint in monitor["endpoints"]:
        scraped = [
            service["metadata"]["name"]
            for service in picked
            if endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        ]
        assert scraped == ["harbourmaster-controller", "harbourmaster-webhook"]


def test_the_network_policies_cover_all_our_pods_and_name_their_ports():
    manifests = objects("default", "network-policy")
    policies = {
        policy["metadata"]["name"]: policy["spec"] for policy in of_kind(manifests, "NetworkPolicy")
    }
    deployments = of_kind(manifests, "Deployment")
    assert len(deployments) == 2
    for deployment in deployments:
        labels = pod_labels(deployment)
        ports = {port["name"] for port in container(deployment)["ports"]}
        reached, directions = set(), set()
        for policy in policies.values():
            if selects(policy["podSelector"], labels):
                directions |= set(policy["policyTypes"])
                for rule in policy["ingress"]:
                    reached |= {port["port"] for port in rule["ports"]}
        assert directions == {"Ingress", "Egress"}
        assert ports == reached, deployment["metadata"]["name"]


def open_ports(manifests):
    """The ports of our pods that any address reaches by NetworkPolicies, by Deployment."""
    policies = [policy["spec"] for policy in of_kind(manifests, "NetworkPolicy")]
    reached = {}
    for deployment in of_kind(manifests, "Deployment"):
        labels = pod_labels(deployment)
        selecting = [policy for policy in policies if selects(policy["podSelector"], labels)]
        assert any("Ingress" in policy["policyTypes"] for policy in selecting)
        reached[deployment["metadata"]["name"]] = {
            port["port"]
            for policy in selecting
            for rule in policy["ingress"]
            if "from" not in rule
            for port in rule["ports"]
        }
    return reached


OTHERS = ("dashboard", "keptn-metrics-address", "scheduler")


@pytest.mark.parametrize("base", [*BASES, "before-1.30"])
@pytest.mark.parametrize("components", [(), *((name,) for name in OTHERS), OTHERS], ids=str)
def test_the_ingress_rules_leave_open_what_pods_probes_scrapes_and_services_use(base, components):
    """The ports are numbers, because Amazon's network plugin does not resolve names."""
    manifests = objects(base, *components)
    policies = of_kind(manifests, "NetworkPolicy")
    assert [policy["spec"]["policyTypes"] for policy in policies] == [["Ingress"]]
    reached = open_ports(manifests)
    for deployment in of_kind(manifests, "Deployment"):
        ports = {port["containerPort"] for port in container(deployment)["ports"]}
        assert ports <= reached[deployment["metadata"]["name"]]
        named = {port["name"] for port in container(deployment)["ports"]}
        probes = [value for key, value in container(deployment).items() if key.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= named
        for service in of_kind(manifests, "Service"):
            if not is_elsewhere(service) and selects(
                {"matchLabels": service["spec"]["selector"]}, pod_labels(deployment)
            ):
                assert {port["targetPort"] for port in service["spec"]["ports"]} <= named


def test_the_ingress_rules_close_every_port_that_no_component_has():
    manifests = objects("default", *OTHERS)
    known = {
        port["containerPort"]
        for deployment in of_kind(manifests, "Deployment")
        for port in container(deployment)["ports"]
    }
    assert set.union(*open_ports(manifests).values()) == known


def test_ports_that_settings_alone_turn_on_stay_open():
    """An overlay without our components may have them, and worked before."""
    reached = open_ports(objects("default"))["harbourmaster-controller"]
    settings = ControllerSettings()
    ports = settings.dashboard.port, settings.metrics.expose_port, settings.scheduler.extender_port
    assert reached >= set(ports)


@pytest.mark.parametrize("base", ["default", "before-1.30"])
def test_network_policy_leaves_nothing_to_the_ingress_rules(base):
    """NetworkPolicies add up, and an object that an overlay leaves out stays in the cluster."""
    manifests = objects(base, "network-policy")
    assert one(manifests, "NetworkPolicy", "harbourmaster-ingress")["spec"]["ingress"] == []


def test_only_the_ports_that_the_api_server_calls_are_open_to_everybody():
    manifests = objects("default", "network-policy")
    open_to_all = [
        port["port"]
        for policy in of_kind(manifests, "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        if "from" not in rule
        for port in rule["ports"]
    ]
    assert open_to_all == ["metrics-api", "webhook"]


def ports_of(*combination):
    """Return the ports that are opened or reachable, with the kind of object that says so."""
    manifests = objects(*combination)
    opened = {
        (service["kind"], port["name"])
        for service in of_kind(manifests, "Service")
        for port in service["spec"]["ports"]
        if not is_elsewhere(service)
    }
    opened |= {
        (deployment["kind"], port["name"])
        for deployment in of_kind(manifests, "Deployment")
        for port in container(deployment)["ports"]
    }
    return opened | {
        (policy["kind"], port["port"])
        for policy in of_kind(manifests, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }


def is_elsewhere(service):
    return service["spec"].get("type") == "ExternalName"


VALUES = {(kind, "values") for kind in ("Deployment", "NetworkPolicy", "Service")}


@pytest.mark.parametrize("base", [*BASES, "beside-keptn"])
@pytest.mark.claim("M2")
def test_values_are_not_served_without_authentication(base):
    assert not VALUES & ports_of(base, "network-policy")
    assert "9999" not in json.dumps(objects(base, "network-policy"))
    controller = deployment_of(objects(base))
    assert not settings_of(controller).metrics.expose


def test_keptn_s_address_serves_values_where_network_policies_let_them_be_reached():
    combination = ("default", "network-policy", "keptn-metrics-address")
    added = ports_of(*combination) - ports_of("default", "network-policy")
    assert added == VALUES | {("Service", "metrics")}
    manifests = objects(*combination)
    controller = deployment_of(manifests)
    settings = settings_of(controller).metrics
    assert settings.expose
    assert {"name": "values", "containerPort": settings.expose_port, "protocol": "TCP"} in (
        container(controller)["ports"]
    )
    (rule,) = [
        rule
        for rule in one(manifests, "NetworkPolicy", "harbourmaster-controller")["spec"]["ingress"]
        if {"port": "values", "protocol": "TCP"} in rule["ports"]
    ]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["keda", "monitoring"]


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("metrics-operator-service", {443: "metrics-api", 9999: "values"}),
        ("lifecycle-operator-metrics-service", {2222: "health"}),
    ],
)
def test_keptn_s_addresses_lead_to_our_ports(name, targets):
    manifests = objects("default", "keptn-metrics-address")
    assert name in KEPTN_ADDRESSES
    address = one(manifests, "Service", name)
    assert address["metadata"]["namespace"] == KEPTN_NAMESPACE
    ours = one(manifests, "Service", "harbourmaster-metrics")
    namespace = ours["metadata"]["namespace"]
    assert address["spec"]["type"] == "ExternalName"
    assert address["spec"]["externalName"] == (
        f"harbourmaster-metrics.{namespace}.svc.cluster.local"
    )
    # A name leads to the same port.
    ports = {(port["name"], port["port"]): port["targetPort"] for port in ours["spec"]["ports"]}
    assert {
        port["port"]: ports[port["name"], port["port"]] for port in address["spec"]["ports"]
    } == targets
    opened = {port["name"] for port in container(deployment_of(manifests))["ports"]}
    assert set(targets.values()) <= opened


@pytest.mark.parametrize(
    "combination",
    [
        ("beside-keptn",),
        ("default", "no-custom-metrics"),
        ("with-certmanager", "no-custom-metrics"),
        ("default", "gardener"),
        ("with-certmanager", "gardener"),
    ],
    ids="+".join,
)
def test_a_custom_metrics_api_of_somebody_else_is_left_alone(combination):
    manifests = objects(*combination)
    assert not of_kind(manifests, "APIService")
    settings = controller_settings(manifests)
    assert METRICS not in settings.running or not settings.metrics.custom_metrics_api


def test_the_sample_for_gardener_is_a_valid_policy():
    sample = yaml.safe_load((DEPLOY / "components/gardener/samples/etcd.yaml").read_text())
    assert not validate(msgspec.convert(sample, Policy))


def test_gardener_finds_its_labels():
    manifests = objects("default", "gardener")
    kinds = {
        deployment["metadata"]["name"]: deployment["metadata"]["labels"][
            "high-availability-config.resources.gardener.cloud/type"
        ]
        for deployment in of_kind(manifests, "Deployment")
    }
    assert kinds == {"harbourmaster-webhook": "server", "harbourmaster-controller": "controller"}
    for deployment in of_kind(manifests, "Deployment"):
        labels = pod_labels(deployment)
        assert labels["networking.gardener.cloud/to-runtime-apiserver"] == "allowed"
        assert labels["networking.gardener.cloud/to-dns"] == "allowed"
    annotations = one(manifests, "Service", "gardener-extension-kupid")["metadata"]["annotations"]
    opened = {
        port["port"]
        for text in annotations.values()
        if text.startswith("[")
        for port in yaml.safe_load(text)
        if "port" in port
    }
    webhook = deployment_of(manifests, "webhook")
    assert opened == {port["containerPort"] for port in container(webhook)["ports"]}


@pytest.fixture(scope="module")
def scheduler_manifests():
    return objects("default", "network-policy", "scheduler")


def configuration(manifests):
    text = one(manifests, "ConfigMap", "harbourmaster-scheduler")["data"]["kube-scheduler.yaml"]
    return yaml.safe_load(text)


def test_the_scheduler_the_webhook_and_the_controller_know_one_name(scheduler_manifests):
    (profile,) = configuration(scheduler_manifests)["profiles"]
    controller = controller_settings(scheduler_manifests).scheduler
    webhook = settings_of(deployment_of(scheduler_manifests, "webhook"))
    assert profile == {"schedulerName": controller.scheduler_name}
    assert webhook.gate_scheduler_name == controller.scheduler_name
    assert (webhook.gating, controller.enabled) == ("schedulerName", True)


def test_the_scheduler_asks_our_service_by_a_name_of_its_certificate_and_fails_closed(
    scheduler_manifests,
):
    (asked,) = configuration(scheduler_manifests)["extenders"]
    controller = deployment_of(scheduler_manifests)
    settings = settings_of(controller)
    host = urlsplit(asked["urlPrefix"])
    assert host.hostname == settings.scheduler.service_name
    assert host.hostname in names_of(settings, "any")
    service = one(scheduler_manifests, "Service", host.hostname)["spec"]
    (port,) = service["ports"]
    ports = {port["name"]: port["containerPort"] for port in container(controller)["ports"]}
    assert (host.scheme, host.port, host.path) == ("https", port["port"], PATH)
    assert ports[port["targetPort"]] == settings.scheduler.extender_port
    assert settings.scheduler.extender_host == settings.server.host
    assert (asked["filterVerb"], asked["preemptVerb"]) == VERBS
    assert asked["nodeCacheCapable"]
    assert not asked["ignorable"]


def test_the_scheduler_mounts_what_its_configuration_names_and_no_key(scheduler_manifests):
    pod = pod_of(deployment_of(scheduler_manifests, "scheduler"))
    (process,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in process["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (asked,) = configuration(scheduler_manifests)["extenders"]
    assert asked["tlsConfig"] == {"caFile": f"{mounts['authority']}/ca.crt"}
    secret = volumes["authority"]["secret"]
    settings = controller_settings(scheduler_manifests)
    assert secret["secretName"] == settings.certificates.secret_name
    assert [item["key"] for item in secret["items"]] == ["ca.crt"]
    assert f"--config={mounts['configuration']}/kube-scheduler.yaml" in process["args"]


def test_the_scheduler_leads_by_a_lease_that_it_may_write(scheduler_manifests):
    lease = configuration(scheduler_manifests)["leaderElection"]
    rules = one(scheduler_manifests, "Role", "harbourmaster-scheduler")["rules"]
    assert lease["leaderElect"]
    assert [rule.get("resourceNames") for rule in rules] == [None, [lease["resourceName"]]]
    controller = controller_settings(scheduler_manifests)
    assert lease["resourceName"] != controller.leader_election.lease_name


def test_the_controller_may_roll_out_the_scheduler_and_no_other_deployment(scheduler_manifests):
    settings = controller_settings(scheduler_manifests).scheduler
    rules = one(scheduler_manifests, "Role", "harbourmaster-scheduler-rollout")["rules"]
    assert rules == [
        {
            "apiGroups": ["apps"],
            "resources": ["deployments"],
            "resourceNames": [settings.deployment],
            "verbs": ["patch"],
        }
    ]
    scheduler = one(scheduler_manifests, "Deployment", settings.deployment)
    (binding,) = [
        binding
        for binding in of_kind(scheduler_manifests, "RoleBinding")
        if binding["roleRef"]["name"] == "harbourmaster-scheduler-rollout"
    ]
    (subject,) = binding["subjects"]
    assert subject["name"] == "harbourmaster-controller"
    assert scheduler["metadata"]["namespace"] == subject["namespace"]


def test_the_scheduler_is_a_pod_like_ours(scheduler_manifests):
    ours = deployment_of(scheduler_manifests)["spec"]
    theirs = deployment_of(scheduler_manifests, "scheduler")["spec"]
    assert theirs["strategy"] == ours["strategy"]
    pods = [deployment["template"]["spec"] for deployment in (ours, theirs)]
    for key in ("securityContext", "priorityClassName", "nodeSelector", "enableServiceLinks"):
        assert pods[0][key] == pods[1][key]
    first, second = (pod["containers"][0]["securityContext"] for pod in pods)
    assert first == second
    for constraint in pods[1]["topologySpreadConstraints"]:
        assert constraint["labelSelector"] == theirs["selector"]


def test_the_network_policies_let_the_scheduler_ask_and_nobody_else(scheduler_manifests):
    scheduler = deployment_of(scheduler_manifests, "scheduler")
    labels = pod_labels(scheduler)
    rules = one(scheduler_manifests, "NetworkPolicy", "harbourmaster-controller")["spec"]["ingress"]
    (reached,) = [rule for rule in rules if rule["ports"][0]["port"] == "scheduling"]
    assert [selects(peer["podSelector"], labels) for peer in reached["from"]] == [True]
    for role in ("webhook", "controller"):
        deployment = one(scheduler_manifests, "Deployment", f"harbourmaster-{role}")
        other_labels = pod_labels(deployment)
        assert not any(selects(peer["podSelector"], other_labels) for peer in reached["from"])
    egress = one(scheduler_manifests, "NetworkPolicy", "harbourmaster")["spec"]["egress"]
    assert "scheduling" in {port["port"] for rule in egress for port in rule["ports"]}


def test_with_cert_manager_the_certificate_has_the_scheduler_s_name():
    manifests = objects("with-certmanager", "scheduler")
    (asked,) = configuration(manifests)["extenders"]
    names = one(manifests, "Certificate", "harbourmaster-webhook")["spec"]["dnsNames"]
    assert urlsplit(asked["urlPrefix"]).hostname in names
    controller = controller_settings(manifests)
    assert controller.metrics.custom_metrics_cert_dir


def test_the_overlay_of_the_scheduler_s_manual_gives_it_an_image(tmp_path):
    overlay = overlay_of("reference/scheduler.md", tmp_path)
    image = container(deployment_of(overlay, "scheduler"))["image"]
    assert image == "registry.example.com/kube-scheduler:v1.26.15"


def test_kubectl_reads_every_name_in_the_manifests_as_a_string():
    # kubectl reads YAML 1.1, where a plain off, on, yes or no is a boolean; kustomize does not.
    def odd(value, path):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from odd(item, f"{path}.{key}")
                if not isinstance(key, str) or (key == "name" and not isinstance(item, str)):
                    yield f"{path}.{key}"
        elif isinstance(value, list):
            for item in value:
                yield from odd(item, path)

    files = sorted((DEPLOY / "components").rglob("*.yaml"))
    unusual = [
        item
        for file in files
        for document in yaml.safe_load_all(file.read_text())
        for item in odd(document, file.name)
    ]
    assert files
    assert not [obj for obj in unusual if ".properties." not in obj]
