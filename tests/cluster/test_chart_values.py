"""Values of the Helm chart, most of which people of other projects asked for."""

from __future__ import annotations

import json

import pytest
import yaml

from helpers.chart import HELMS, HOOK, KUBERNETES, OF_HELM, chart_folder, helm, template_objects
from helpers.manifests import NAMESPACE, container, deployment_of, of_kind, one, parse, pod_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("helm_is_built")]

IDS = ("runAsUser", "runAsGroup", "fsGroup")
ON_NODE = {"hostNetwork": True, "port": 10260, "healthPort": 10261}


@pytest.fixture
def rendered(tmp_path):
    """Return ``rendered(values, *options, program)``: the objects of a release, without CRDs."""

    def render(values, *options, program="helm"):
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        option = f"--values={path}"
        return template_objects(
            option, "--set=crds.install=false", *options, namespace=NAMESPACE, program=program
        )

    return render


def args_of(objects, role):
    return container(deployment_of(objects, role))["args"]


def ports_of(pod):
    return {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}


def test_every_object_and_pod_has_the_labels_of_helm_and_of_the_values(rendered):
    values = {"commonLabels": {"team": "a"}, "commonAnnotations": {"example.com/a": "b"}}
    objects = rendered({**values, "components": {"monitoring": True}})
    pods = [obj["spec"]["template"] for obj in of_kind(objects, "Deployment")]
    assert len(objects) > 60
    for obj in (*objects, *pods):
        assert obj["metadata"]["labels"].items() >= {**OF_HELM, "team": "a"}.items()
    hooks = [obj for obj in objects if HOOK in obj["metadata"]["annotations"]]
    lacking = [obj for obj in objects if "example.com/a" not in obj["metadata"]["annotations"]]
    assert lacking == hooks


def test_selectors_have_no_label_that_an_upgrade_changes(rendered):
    objects = rendered({"commonLabels": {"team": "a"}, "webhook": {"podLabels": {"b": "c"}}})
    deployment = deployment_of(objects, "webhook")
    assert deployment["spec"]["template"]["metadata"]["labels"]["b"] == "c"
    assert deployment["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/component": "webhook",
        "app.kubernetes.io/name": "harbourmaster",
    }
    service = one(objects, "Service", "harbourmaster-webhook")
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("program", HELMS)
@pytest.mark.parametrize("is_part", [False, True])
def test_fixed_users_can_be_left_to_openshift(program, is_part, tmp_path):
    values = {
        "podSecurityContext": dict.fromkeys(IDS),
        "components": {"scheduler": True},
        "scheduler": {"image": "kube-scheduler"},
    }
    chart = chart_folder()
    if is_part:
        chart, values = tmp_path / "platform", {"harbourmaster": values}
        (chart / "charts").mkdir(parents=True)
        (chart / "charts/harbourmaster").symlink_to(chart_folder())
        (chart / "Chart.yaml").write_text("{apiVersion: v2, name: platform, version: 1.0.0}")
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    result = helm("template", "hm", chart, KUBERNETES, f"--values={path}", program=program)
    assert result.returncode == 0, result.stderr
    pods = [pod_of(obj) for obj in of_kind(list(parse(result.stdout)), "Deployment")]
    assert len(pods) == 3
    for pod in pods:
        context = {key: value for key, value in pod["securityContext"].items() if value is not None}
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not set(IDS) & pod["containers"][0]["securityContext"].keys()


def test_a_security_context_can_be_removed(rendered):
    pods = map(pod_of, of_kind(rendered({}, "--set=podSecurityContext=null"), "Deployment"))
    assert ["securityContext" in pod for pod in pods] == [False, False]


@pytest.mark.parametrize("policy", ["own", "certManager"])
def test_environment_and_volumes_are_added_to_ours(rendered, policy):
    values = {
        "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/etc/company/ca.crt"}],
        "volumes": [{"name": "company", "configMap": {"name": "company-ca"}}],
        "volumeMounts": [{"name": "company", "mountPath": "/etc/company", "readOnly": True}],
    }
    objects = rendered({"webhook": values, "controller": values, "certificates": policy})
    before = rendered({"certificates": policy})
    for role in ("webhook", "controller"):
        deployments = (deployment_of(before, role), deployment_of(objects, role))
        (old, new), (old_pod, pod) = map(container, deployments), map(pod_of, deployments)
        assert new["env"] == [*old["env"], *values["extraEnv"]]
        assert new["volumeMounts"] == [*old.get("volumeMounts", []), *values["volumeMounts"]]
        assert pod["volumes"] == [*old_pod.get("volumes", []), *values["volumes"]]


def test_pods_on_the_network_of_the_node_listen_where_the_values_say(rendered):
    own = {**ON_NODE, "port": 10262, "healthPort": 10263}
    objects = rendered({"webhook": ON_NODE, "controller": own})
    webhook, controller = (deployment_of(objects, role) for role in ("webhook", "controller"))
    assert ports_of(pod_of(webhook)) == {"webhook": 10260, "health": 10261}
    assert ports_of(pod_of(controller)) == {"metrics-api": 10262, "health": 10263}
    assert {"--port=10260", "--health-port=10261"} < set(args_of(objects, "webhook"))
    flags = {"--metrics-custom-metrics-port=10262", "--health-port=10263"}
    assert flags < set(args_of(objects, "controller"))
    for deployment in (webhook, controller):
        pod = pod_of(deployment)
        assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        # Two pods of a node cannot have the same port.
        assert deployment["spec"]["strategy"]["rollingUpdate"] == {
            "maxSurge": 0,
            "maxUnavailable": 1,
        }
    ingress = one(objects, "NetworkPolicy", "harbourmaster-ingress")["spec"]["ingress"]
    opened = {port["port"] for port in ingress[0]["ports"]}
    assert {10260, 10261, 10262} < opened
    assert not {9443, 8080, 6443} & opened
    (namespace,) = of_kind(objects, "Namespace")
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"


def test_no_priority_class_and_no_spread_can_be_set(rendered):
    role = {"priorityClassName": "", "topologySpreadConstraints": []}
    for deployment in of_kind(rendered({"webhook": role, "controller": role}), "Deployment"):
        assert not {"priorityClassName", "topologySpreadConstraints"} & pod_of(deployment).keys()
    zone = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    objects = rendered({"webhook": {"topologySpreadConstraints": [zone]}})
    assert pod_of(deployment_of(objects, "webhook"))["topologySpreadConstraints"] == [zone]
    assert len(pod_of(deployment_of(objects, "controller"))["topologySpreadConstraints"]) == 2


def test_service_accounts_and_services_get_annotations_and_can_be_others(rendered):
    arn = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/metrics"}
    objects = rendered(
        {
            "controller": {"serviceAccount": {"annotations": arn}},
            "webhook": {
                "serviceAccount": {"create": False},
                "service": {"annotations": {"a": "b"}},
            },
        }
    )
    accounts = of_kind(objects, "ServiceAccount")
    names = [account["metadata"]["name"] for account in accounts]
    assert names == ["harbourmaster-controller", "harbourmaster-test"]
    assert accounts[0]["metadata"]["annotations"] == arn
    service = one(objects, "Service", "harbourmaster-webhook")
    assert service["metadata"]["annotations"] == {"a": "b"}
    account = pod_of(deployment_of(objects, "webhook"))["serviceAccountName"]
    assert account == "harbourmaster-webhook"


def test_prometheus_finds_our_objects_by_its_labels(rendered):
    monitoring = {"labels": {"release": "prometheus"}, "interval": "1m", "scrapeTimeout": "30s"}
    objects = rendered({"components": {"monitoring": True}, "monitoring": monitoring})
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("1m", "30s")
    (rule,) = of_kind(objects, "PrometheusRule")
    selected = [obj["metadata"]["labels"].get("release") for obj in (monitor, rule)]
    assert selected == ["prometheus"] * 2
    assert json.dumps(objects).count('"release": "prometheus"') == 2


def test_an_issuer_that_exists_signs_the_certificate(rendered):
    issuer = {"kind": "ClusterIssuer", "name": "company"}
    objects = rendered({"certificates": "certManager", "certManager": {"issuerRef": issuer}})
    (certificate,) = of_kind(objects, "Certificate")
    assert certificate["spec"]["issuerRef"] == issuer
    assert of_kind(objects, "Issuer") == []


def test_an_existing_certificate_is_mounted_and_trusted(tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    objects = template_objects(
        "--set=certificates=existing,existingCertificate.secretName=company-tls",
        f"--set-file=existingCertificate.ca={authority}",
        namespace=NAMESPACE,
    )
    assert of_kind(objects, "Certificate") == of_kind(objects, "Issuer") == []
    secrets = [
        volume["secret"]
        for deployment in of_kind(objects, "Deployment")
        for volume in pod_of(deployment)["volumes"]
    ]
    assert [secret["secretName"] for secret in secrets] == ["company-tls"] * 2
    keys = [[item["key"] for item in secret["items"]] for secret in secrets]
    assert keys == [["tls.crt", "tls.key"]] * 2
    text = json.dumps(objects)
    bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
    # Eleven webhooks, two definitions, two APIServices.
    assert text.count(bundle) == text.count('"caBundle"') == text.count('"clientConfig"') + 2
    assert "--register-webhooks=false" in args_of(objects, "controller")
    assert "cert-manager.io" not in text


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("certificates=existing", "no authority of the certificate: existingCertificate.ca: "),
        (
            "certificates=existing,existingCertificate.ca=x",
            "no Secret with the certificate: existingCertificate.secretName: ",
        ),
        ("monitoring=null", "the values are those of an older chart: --reuse-values: "),
        (
            "webhook.settings.log-levl=debug",
            "'/webhook/settings': additional properties 'log-levl'",
        ),
        ("fullnameOverride=hm", "'/fullnameOverride': value must be one of '', 'harbourmaster'"),
        ("commonLabels.team=1", "'/commonLabels/team': got number, want string"),
        ("webhook.extraEnv[0].value=x", "'/webhook/extraEnv/0': missing property 'name'"),
    ],
)
@pytest.mark.parametrize("program", HELMS)
def test_wrong_values_are_refused_by_their_path(program, values, complaint):
    result = helm("template", chart_folder(), KUBERNETES, f"--set={values}", program=program)
    assert result.returncode
    assert complaint in result.stderr


def test_the_test_of_a_release_runs_doctor_with_permissions_to_read(rendered):
    objects = rendered({"image": {"pullSecrets": [{"name": "registry"}]}})
    hooks = [obj for obj in objects if HOOK in obj["metadata"].get("annotations", {})]
    account, role, binding, pod = hooks
    spec = pod["spec"]
    assert spec["containers"][0]["args"][0] == "doctor"
    names = {spec["serviceAccountName"], account["metadata"]["name"], *subjects(binding)}
    assert names == {"harbourmaster-test"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
    assert "secrets" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    controller = deployment_of(objects, "controller")
    assert spec["imagePullSecrets"] == pod_of(controller)["imagePullSecrets"]
    assert spec["securityContext"] == pod_of(controller)["securityContext"]
    selector = controller["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= pod["metadata"]["labels"].items()


def subjects(binding):
    return [subject["name"] for subject in binding["subjects"]]
