"""The namespace that ``harbourmaster uninstall`` deletes, and the objects that keep it."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import CLUSTERS, NAMESPACES, SECRETS, TASK_DEFINITIONS
from harbourmaster.cli.installed import DEFAULT_NAMESPACE
from helpers.uninstalling import OURS, done, install, names, put, run


async def test_shared_definitions_of_users_keep_our_namespace(api, client):
    install(api)
    put(api, TASK_DEFINITIONS, "shared", labels={})
    told = await done(client, code=1)
    kept = f"namespace {DEFAULT_NAMESPACE}: it holds KeptnTaskDefinition shared"
    assert f"left: {kept}" in told


async def test_others_in_the_namespace_keep_it(api, client):
    install(api)
    put(api, SECRETS, "token-of-the-team", labels={})
    put(api, SECRETS, "kube-root-ca.crt", labels={})
    told = await done(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Secret token-of-the-team" in told
    assert names(api, NAMESPACES) == [DEFAULT_NAMESPACE]
    assert names(api, SECRETS) == ["token-of-the-team", "kube-root-ca.crt"]


@pytest.mark.parametrize("name", ["kube-system", "shop"])
async def test_a_namespace_of_others_stays_with_its_content(api, client, name):
    put(api, NAMESPACES, name, labels={})
    put(api, SECRETS, "theirs", namespace=name, labels={})
    put(api, SECRETS, "harbourmaster-webhook-cert", namespace=name, labels={})
    told = await done(client, namespace=name)
    assert f"namespace: kept {name}, which was not created for Harbourmaster" in told
    assert names(api, SECRETS) == ["theirs"]


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_no_label_makes_a_namespace_of_the_cluster_ours(api, client, name):
    put(api, NAMESPACES, name, labels=OURS)
    _, told = await run(client, namespace=name)
    assert f"namespace: kept {name}, which was not created for Harbourmaster" in told
    assert names(api, NAMESPACES) == [name]


async def test_a_namespace_that_does_not_end_is_left(api, client):
    put(api, NAMESPACES, DEFAULT_NAMESPACE, metadata={"finalizers": ["example.com/slow"]})
    told = await done(client, patience=0.05, code=1)
    assert told[-1].startswith(f"left: namespace {DEFAULT_NAMESPACE}: still terminating")


async def test_our_namespace_stays_where_it_holds_clusters(api, client):
    put(api, NAMESPACES, DEFAULT_NAMESPACE)
    put(api, CLUSTERS, "one", labels={})
    told = await done(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Cluster one" in told
