"""The rules by which Secrets are copied with an application, and the fields of a copy."""

from __future__ import annotations

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.copied_secrets import ALLOW_COPY, Secret, copy_of, refusal
from harbourmaster.placement.deployed import SecretCopy

APP = Metadata(name="shop", namespace="team")


def secret(allowed=None, name="db"):
    annotations = {} if allowed is None else {ALLOW_COPY: allowed}
    labels = {"a": "b"}
    metadata = Metadata(name=name, namespace="team", annotations=annotations, labels=labels)
    return Secret(metadata, "example.com/login", {"password": "c2VjcmV0"})


@pytest.mark.parametrize("allowed", ["shop", "*", "other, shop", "shop,other", " shop "])
def test_a_secret_that_names_the_application_is_copied(allowed):
    assert refusal(APP, secret(allowed), []) == ""


@pytest.mark.claim("P7")
@pytest.mark.parametrize(
    ("allowed", "names"),
    [(None, "shop"), ("", "shop"), ("other", "other,shop"), ("shop2,sh*", "shop2,sh*,shop")],
)
def test_any_other_is_refused_with_the_command_that_allows_it(allowed, names):
    assert refusal(APP, secret(allowed), []) == (
        "Secret team/db does not allow this application to copy it: run kubectl annotate "
        "--overwrite secret db -n team "
        f"placement.harbourmaster.dev/allow-copy={names}"
    )


@pytest.mark.claim("P7")
def test_a_kubeconfig_is_never_copied():
    assert refusal(APP, secret("*"), ["one"]) == (
        "Secret team/db has the kubeconfig of Cluster one, which is never copied: use another "
        "Secret"
    )


def test_a_copy_has_the_values_and_the_type_and_no_labels_or_annotations():
    assert copy_of(SecretCopy(name="db"), secret("*")) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "db"},
        "type": "example.com/login",
        "data": {"password": "c2VjcmV0"},
    }
    there = SecretCopy(name="db", target_name="login", target_namespace="shop")
    assert copy_of(there, secret("*"))["metadata"] == {"name": "login", "namespace": "shop"}
