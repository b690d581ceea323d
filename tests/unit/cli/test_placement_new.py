"""``harbourmaster placement new`` by the examples of the document, rok's options and all."""

from __future__ import annotations

import base64
import shlex
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import trustme
import yaml

from harbourmaster.cli.main import main
from harbourmaster.kube.untrusted_kubeconfig import access_from
from harbourmaster.placement.model import API_VERSION
from harbourmaster.placement.validation import CHECKS

MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"


@pytest.fixture
def new(capsys, tmp_path):
    """Run ``placement new``; returns the code, the objects, and the lines on stderr."""
    for name, text in (("FILE", MANIFEST), ("OTHER", MANIFEST.replace("name: a", "name: b"))):
        (tmp_path / name).write_text(text)

    def run(kind, name, *options):
        files = ("FILE", "OTHER")
        given = [str(tmp_path / option) if option in files else option for option in options]
        code = main(["placement", "new", kind, name, *given])
        out, err = capsys.readouterr()
        objects = list(yaml.safe_load_all(out))
        for obj in objects:
            if obj["apiVersion"] == API_VERSION:
                check = CHECKS[obj["kind"]]
                assert check.faults(msgspec.convert(obj, check.model)) == []
        return code, objects, err.splitlines()

    return run


OPTIONS = [
    ("application shop -f FILE -L 'location is DE' -M 'load = 5' -R shirts.example.com"),
    (
        "application shop --file FILE --cluster-label-constraint 'location is DE'"
        " --cluster-metric-constraint 'load = 5' --cluster-resource-constraint shirts.example.com"
    ),
    (
        "application a -f FILE -f OTHER -L 'a is b' -L 'c is d' --disable-migration -n shop"
        " -l team=a -l tier="
    ),
    "cluster a -L 'a is b' -M 'c > 1' -R d.e -m f 2",
    (
        "cluster a --cloud-label-constraint 'a is b' --cloud-metric-constraint 'c > 1'"
        " --custom-resource d.e --metric f 2"
    ),
    (
        "cluster zone_1 --global-metric heat_demand_zone_1 0.45 --metric cost 3"
        " -M 'heat_demand_zone_1 > 2'"
    ),
    "project my-project --template 9c --metric heat 3",
    "magnumcluster a --metric heat 3 -L 'a in (b)' --master-count 1 --node-count 2",
    "magnumcluster a --project-label-constraint 'a is b'",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_options_become_an_object_with_notes_about_changed_names(new, options, assert_golden):
    code, objects, told = new(*shlex.split(options))
    assert code == 0
    assert_golden([objects, told])


@pytest.fixture
def new_cluster(new, tmp_path):
    """Run ``placement new cluster``; returns the kubeconfig of the Secret, and the lines."""

    def run(config, *options):
        file = tmp_path / "kubeconfig"
        file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        code, objects, told = new("cluster", "a", "--kubeconfig", str(file), *options)
        told = [line.replace(str(file), "FILE") for line in told]
        assert code == (0 if objects else 2)
        if not objects:
            return None, told
        text = base64.b64decode(objects[0]["data"]["kubeconfig"])
        assert access_from(text, "it").connection.server.startswith("https://")
        return yaml.safe_load(text), told

    return run


def kubeconfig(*contexts, current="a", user=None, server="https://{}.example.com", **cluster):
    """A kubeconfig whose contexts have a cluster and a user of their name each."""
    contexts = contexts or ("a",)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": current,
        "clusters": [
            {"name": name, "cluster": {"server": server.format(name), **cluster}}
            for name in contexts
        ],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "shop"}}
            for name in contexts
        ],
        "users": [{"name": name, "user": user or {"token": f"of-{name}"}} for name in contexts],
    }


def certificate(authority, days):
    ends = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=days)
    return authority.issue_cert("me@example.com", not_after=ends)


def user_of(issued):
    pair = (issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
    names = ("client-certificate-data", "client-key-data")
    return {name: base64.b64encode(pem).decode() for name, pem in zip(names, pair, strict=True)}


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def test_a_kubeconfig_becomes_a_secret_beside_the_cluster(new, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig()))
    code, (secret, obj), told = new("cluster", "a", "--kubeconfig", str(file), "-n", "shop")
    assert (code, told) == (0, [])
    assert secret["metadata"] == {"name": "a-kubeconfig", "namespace": "shop"}
    assert obj["spec"]["kubeconfigSecretRef"] == {"name": "a-kubeconfig"}
    assert obj["spec"]["server"] == "https://a.example.com"
    _, (obj,), _ = new("cluster", "a", "--kubeconfig-secret", "mine")
    assert obj["spec"]["kubeconfigSecretRef"] == {"name": "mine"}
    assert "server" not in obj["spec"]


@pytest.mark.parametrize(("options", "chosen"), [((), "a"), (("--context", "b"), "b")])
def test_a_kubeconfig_is_reduced_to_one_context(new_cluster, options, chosen):
    config, told = new_cluster(kubeconfig("b", "a", "c"), *options)
    assert told == []
    assert config == {
        name: value
        for name, value in kubeconfig(chosen, current=chosen).items()
        if name != "preferences"
    }


def test_contexts_that_share_a_user_are_reduced(new_cluster):
    config = kubeconfig("shoot-external", "shoot-internal", current="shoot-external")
    config["users"] = config["users"][:1]
    config["contexts"][1]["context"]["user"] = "shoot-external"
    reduced, _ = new_cluster(config, "--context", "shoot-internal")
    assert [user["name"] for user in reduced["users"]] == ["shoot-external"]
    assert [cluster["name"] for cluster in reduced["clusters"]] == ["shoot-internal"]


def test_the_files_of_a_kubeconfig_are_included(new_cluster, tmp_path, authority):
    issued = certificate(authority, 365)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/client.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    (tmp_path / "profiles/client.key").write_bytes(issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    files = {"client-certificate": "profiles/client.crt", "client-key": "profiles/client.key"}
    trust = {"certificate-authority": str(tmp_path / "ca.crt"), "extensions": [{"name": "x"}]}
    config, told = new_cluster(kubeconfig(user=files, **trust))
    assert config["users"][0]["user"] == user_of(issued)
    assert set(config["clusters"][0]["cluster"]) == {
        *("server", "extensions", "certificate-authority-data")
    }
    (line,) = told
    assert line.startswith("its credentials expire on ")


def test_credentials_that_expire_are_noted(new_cluster, authority):
    _, (line,) = new_cluster(kubeconfig(user=user_of(certificate(authority, 1))))
    assert line.startswith("its credentials expire on ")
    assert line.endswith(" UTC: renew them in its Secret before")


@pytest.mark.parametrize("host", ["127.0.0.1:6443", "localhost:8443", "0.0.0.0:41231", "[::1]:1"])
def test_a_server_that_is_refused_by_default_is_noted(new_cluster, host):
    config, (line,) = new_cluster(kubeconfig(server=f"https://{host}"))
    assert config is not None
    assert line.startswith("the controller refuses server ")
    assert line.endswith("list it in placement.members.allowedAddresses")


EXEC = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws"}}


@pytest.mark.parametrize(
    ("config", "options", "text"),
    [
        (kubeconfig(user=EXEC), [], "FILE: exec of its user plugins are not run: give a token"),
        (kubeconfig(user={"tokenFile": "/a"}), [], "FILE: tokenFile of its user names a file"),
        (
            kubeconfig(**{"insecure-skip-tls-verify": True}),
            [],
            "FILE: insecure-skip-tls-verify of its cluster is refused",
        ),
        (kubeconfig(server="http://{}.example.com"), [], "is not like https://host:port"),
        (kubeconfig("a", "b", current=""), [], "set current-context, or give --context"),
        (kubeconfig(), ["--context", "b"], 'FILE: has no context "b"'),
        ({**kubeconfig(), "clusters": []}, [], 'FILE: has no cluster "a"'),
        ({**kubeconfig(), "users": []}, [], 'FILE: has no user "a"'),
        (kubeconfig(user={"client-certificate": "/nowhere"}), [], "/nowhere: No such file"),
        (kubeconfig(user={"client-certificate": 7}), [], "/7: No such file"),
        ("apiVersion: v1\nkind: Config\n", [], 'FILE: has no context "": set current-context'),
        ("users: [", [], "FILE: is not valid YAML in line 1"),
        ("a: !!timestamp x", [], "FILE: is not valid YAML"),
        ("", [], "FILE: is empty"),
        ({**kubeconfig(), "contexts": [7]}, [], 'FILE: has no context "a"'),
        ({**kubeconfig(), "users": [{"name": "a"}]}, [], 'FILE: has no user "a"'),
        ({**kubeconfig(), "clusters": {}}, [], 'FILE: has no cluster "a"'),
    ],
)
def test_what_the_controller_would_refuse_is_said_at_once(new_cluster, config, options, text):
    made, (line,) = new_cluster(config, *options)
    assert made is None
    assert line.startswith("harbourmaster: ")
    assert text in line


def test_credentials_that_have_expired_are_refused_at_once(new_cluster, authority):
    _, (line,) = new_cluster(kubeconfig(user=user_of(certificate(authority, -1))))
    assert line.startswith("harbourmaster: FILE: its credentials expired on ")
    assert line.endswith(" UTC: renew them")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["application", "a", "-f", "FILE", "-L", "a IS b"], "spec.constraints.cluster.labels[0]"),
        (["application", "a", "-f", "/nowhere.yaml"], "/nowhere.yaml: no such file"),
        (["application", "_", "-f", "FILE"], "name _: none of its characters is valid in a name"),
        (["cluster", "a", "--kubeconfig", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["cluster", "a", "--metric", "b", "-1"], "spec.metrics[0].weight"),
        (["cluster", "a", "--context", "b"], "--context is for a kubeconfig: give --kubeconfig"),
        (["project", "a", "--metric", "b", "0"], "at least one weight must be above 0"),
    ],
)
def test_what_could_not_work_is_one_line_and_nothing_is_printed(new, options, text):
    code, objects, told = new(*options)
    assert (code, objects) == (2, [])
    (line,) = told
    assert line.startswith("harbourmaster: ")
    assert text in line


@pytest.mark.parametrize(
    "options",
    [
        ["application", "a"],
        ["cluster", "a", "--metric", "b"],
        ["cluster", "a", "--metric", "b", "much"],
        ["cluster", "a", "--kubeconfig", "a", "--kubeconfig-secret", "b"],
        ["project", "a", "-l", "b"],
        ["something", "a"],
    ],
)
def test_options_that_are_none_are_usage_errors(options, capsys):
    with pytest.raises(SystemExit) as error:
        main(["placement", "new", *options])
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("harbourmaster placement new")
    assert line.endswith(" --help")
