"""Nothing but a user of the Cluster leads it to another server (krake-spec 7.10)."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.model import BoundServer
from harbourmaster.placement.server_binding import ACCEPT_SERVER, TO_ACCEPT, judge_server

OWN = Metadata(name="one", namespace="team")
OLD, NEW, EVIL = "sha256:old", "sha256:new", "sha256:evil"
URL = "https://one.example.com:6443"
BOUND = BoundServer(url=URL, authorities=(OLD,), time="2026-01-01T00:00:00Z")
LATER = "2026-02-01T00:00:00Z"
urls = st.sampled_from([URL, "https://two.example.com", "https://evil.example.com/a'b"])
offers = st.builds(
    BoundServer,
    url=urls,
    tls_server_name=st.sampled_from(["", "one", "evil"]),
    authorities=st.lists(
        st.sampled_from([OLD, NEW, EVIL, "system"]), min_size=1, max_size=3, unique=True
    ).map(lambda keys: tuple(sorted(keys))),
    time=st.sampled_from([LATER, "2026-03-01T00:00:00Z"]),
)


def accepting(fault):
    """The metadata of a Cluster after the command of a fault was run."""
    words = shlex.split(fault.partition(TO_ACCEPT)[2])
    key, _, code = words[-1].partition("=")
    return replace(OWN, annotations={key: code}) if key == ACCEPT_SERVER else OWN


def place(server):
    return server.url, server.tls_server_name


@pytest.mark.claim("P8")
@given(st.lists(st.tuples(offers, st.sampled_from(["", "", "yes", "again"])), max_size=8))
def test_a_session_is_only_opened_to_what_was_first_seen_or_accepted(steps):
    """Whatever the Secret says in turn, and whatever was accepted before."""
    bound, metadata, allowed = None, OWN, None
    for offered, accepts in steps:
        verdict = judge_server(metadata, "", bound, offered)
        if accepts and verdict.fault:
            if accepts == "yes":
                metadata = accepting(verdict.fault)
            verdict = judge_server(metadata, "", bound, offered)
            if accepts == "yes":
                assert verdict.bound == offered
                assert not verdict.fault
                allowed = (place(offered), set(offered.authorities))
        allowed = allowed or (place(offered), set(offered.authorities))
        if not verdict.is_refused:
            trusted = set(offered.authorities) & set(verdict.bound.authorities)
            assert place(offered) == allowed[0]
            assert trusted
            assert trusted <= allowed[1]
        bound = verdict.bound
        assert (place(bound), set(bound.authorities) <= allowed[1]) == (allowed[0], True)


@given(offers, urls, st.none() | offers)
def test_the_server_of_the_spec_is_the_only_one(offered, wanted, bound):
    verdict = judge_server(OWN, wanted, bound, offered)
    if offered.url != wanted:
        assert verdict.is_refused
        assert verdict.bound == bound
    elif bound is None or bound.url != wanted:
        assert verdict.bound == offered
        assert not verdict.fault
    else:
        assert verdict == judge_server(OWN, "", bound, offered)


def test_a_code_is_good_for_one_binding():
    """One that was accepted long ago does not lead back after the Cluster has left."""
    moved = replace(BOUND, url="https://two.example.com", time=LATER)
    metadata = accepting(judge_server(OWN, "", BOUND, moved).fault)
    assert judge_server(metadata, "", BOUND, moved).bound == moved
    back = judge_server(metadata, URL, moved, replace(BOUND, time="2026-03-01T00:00:00Z"))
    assert back.bound.url == URL
    assert judge_server(metadata, "", back.bound, moved).is_refused


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"url": "https://two"}, f"server is https://two, not {URL}"),
        ({"tls_server_name": "x"}, 'tls-server-name is "x"'),
        ({"authorities": (NEW,)}, "certificate authority is another one"),
        ({"authorities": ("system",)}, "certificate authority is another one"),
        (
            {"authorities": (NEW, OLD)},
            "certificate authority is one more, which is not trusted yet",
        ),
        (
            {"url": "https://two", "authorities": (NEW, OLD)},
            f"server is https://two, not {URL}, certificate authority is another one",
        ),
    ],
)
def test_a_fault_names_each_change_and_the_command(change, fault):
    verdict = judge_server(OWN, "", BOUND, replace(BOUND, **change))
    text, _, command = verdict.fault.partition(TO_ACCEPT)
    assert text == fault
    start = "kubectl -n team annotate clusters.placement.harbourmaster.dev one --overwrite "
    assert command.startswith(f"{start}placement.harbourmaster.dev/accept-server=")
    condition = verdict.condition(3)
    assert (condition.status, condition.observed_generation) == ("False", 3)
    reason = "ServerChanged" if verdict.is_refused else "AuthoritiesAdded"
    assert condition.reason == reason
    assert verdict.is_refused == (change != {"authorities": (NEW, OLD)})


def test_authorities_that_go_are_bound_no_more():
    both = replace(BOUND, authorities=(NEW, OLD))
    verdict = judge_server(OWN, "", both, replace(both, authorities=(NEW,), time=LATER))
    assert verdict.bound == replace(both, authorities=(NEW,))
    assert judge_server(OWN, "", verdict.bound, both).fault


def test_a_url_of_a_stranger_is_no_part_of_the_command_line():
    offered = replace(BOUND, url="https://x/'$(id)'")
    verdict = judge_server(OWN, URL, BOUND, offered)
    words = shlex.split(verdict.fault.partition(TO_ACCEPT)[2])
    assert words[-1] == '{"spec":{"server":"https://x/\'$(id)\'"}}'
    assert words[3:] == [
        "patch", "clusters.placement.harbourmaster.dev", "one", "--type", "merge", "-p", words[-1]
    ]  # fmt: skip
