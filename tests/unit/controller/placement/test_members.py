from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.settings import MemberSettings
from harbourmaster.placement.deployed import MemberCluster, MemberSpec
from harbourmaster.placement.model import KubeconfigKey
from harbourmaster.placement.rollout import Reach
from helpers.fake_api import FakeApi


@pytest.fixture
async def members():
    async with FakeApi() as api, api.client() as client:
        cluster_members = Members(
            client,
            MemberSettings(),
            now=lambda: datetime.now(UTC),
            on_change=lambda _key: None,
            on_objects=lambda _uids: None,
        )
        yield cluster_members
        await cluster_members.close()


def cluster(*, secret=""):
    reference = KubeconfigKey(name=secret) if secret else None
    metadata = Metadata(name="one", namespace="team")
    return MemberCluster(metadata=metadata, spec=MemberSpec(kubeconfig_secret_ref=reference))


async def test_nobody_is_lost_who_was_not_looked_for(members):
    assert members.reach("team/one") is Reach.UNKNOWN
    members.follow(cluster(secret="one"))  # noqa: S106 - a name
    assert members.reach("team/one") is Reach.UNKNOWN
    assert members.fault("team/one") == ""


async def test_a_cluster_without_a_kubeconfig_answers_nobody(members):
    members.follow(cluster())
    assert members.reach("team/one") is Reach.NO
    assert members.fault("team/one") == "kubeconfigSecretRef is missing"
    members.drop("team/one")
    assert members.reach("team/one") is Reach.UNKNOWN
