from __future__ import annotations

import pytest

from harbourmaster.api import resources
from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    Resource,
)


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("prod",), "/api/v1/namespaces/prod/pods"),
        (PODS, ("prod", "a", "status"), "/api/v1/namespaces/prod/pods/a/status"),
        (NAMESPACES, (), "/api/v1/namespaces"),
        (NAMESPACES, (None, "prod"), "/api/v1/namespaces/prod"),
        (LEASES, ("x", "y"), "/apis/coordination.k8s.io/v1/namespaces/x/leases/y"),
        (
            CLUSTER_POLICIES,
            (None, "a"),
            "/apis/kupid.gardener.cloud/v1alpha1/clusterpodschedulingpolicies/a",
        ),
    ],
)
def test_paths(resource, arguments, path):
    assert resource.path(*arguments) == path


def test_every_part_is_quoted():
    assert SECRETS.path("a/b", "../c?d#e %") == (
        "/api/v1/namespaces/a%2Fb/secrets/..%2Fc%3Fd%23e%20%25"
    )


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize("place", range(3))
def test_a_part_that_leads_elsewhere_is_refused(name, place):
    arguments = ["prod", "name", "status"]
    arguments[place] = name
    with pytest.raises(ValueError, match="cannot be part of a path"):
        SECRETS.path(*arguments)


def test_a_deletion_never_becomes_one_of_the_collection():
    with pytest.raises(ValueError, match="an object needs a namespace"):
        SECRETS.path(None, "name")
    with pytest.raises(ValueError, match="namespaces have no namespace"):
        NAMESPACES.path("prod", "name")
    with pytest.raises(ValueError, match="belongs to an object"):
        SECRETS.path("prod", subresource="status")


def test_api_versions():
    assert PODS.api_version == "v1"
    assert LEASES.api_version == "coordination.k8s.io/v1"


def test_each_constant_is_another_resource():
    defined = [variable for variable in vars(resources).values() if isinstance(variable, Resource)]
    assert len({resource.path() for resource in defined}) == len(defined) >= 13
