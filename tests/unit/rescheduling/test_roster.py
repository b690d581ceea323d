"""What is kept of a node's pods as they come and go, against counting them anew."""

from __future__ import annotations

import random

from msgspec.structs import replace

from harbourmaster.rescheduling.roster import Roster
from harbourmaster.rescheduling.stands import Stand, usual
from helpers.planning import cluster, node, pod, requests

ASKS = [
    requests(cpu, memory, **others)
    for cpu in (0, 0.5, 1)
    for memory in (0, 1, 2)
    for others in ({}, {}, {"example_com__gpu": 1}, {"ephemeral-storage": 5})
]
SETS = (
    ("cpu", "memory"),
    ("cpu",),
    (),
    ("cpu", "example.com/gpu"),
    ("ephemeral-storage", "memory"),
)


def some_pod(rng, name):
    return pod(
        name,
        requests=rng.choice(ASKS),
        priority=rng.choice([0, 0, 5]),
        grace=rng.choice([5, 60]),
        phase=rng.choice(["Running", "Pending"]),
        is_ready=rng.random() < 0.7,
        controller_kind=rng.choice(["ReplicaSet", "ReplicaSet", "DaemonSet", ""]),
        owner=rng.choice(["", "one", "two"]),
    )


def figures(stand):
    return {
        "sums": (stand.fixed, stand.movable, stand.long),
        "columns": [sorted(column) for column in stand.columns],
        "rows": [row._replace(place=0) for row in stand.rows],
        "shares": [stand.shares[row.place] for row in stand.rows],
        "amounts": [[column[row.place] for column in stand.columns] for row in stand.rows],
        "roster": (stand.roster.longs, stand.roster.special, stand.roster.unusual),
        "drains": stand.roster.non_drainable,
    }


def test_a_stand_that_is_kept_is_like_a_new_one():
    for seed in range(20):
        rng = random.Random(seed)  # noqa: S311 - a fixed seed
        extra = {"example.com/gpu": 8, "ephemeral-storage": 1000}
        where = node("n1", 16, 32, extra=extra)
        account = cluster(where)
        space = account.spaces["n1"]
        for step in range(60):
            name = f"p{rng.randrange(12)}"
            account.remove_pod(f"default-{name}")
            if rng.random() < 0.7:
                account.put_pod(some_pod(rng, name))
            scale = account.scale(rng.choice(SETS))
            kept = usual(space, where, scale)
            entries = [each for each in space.entries.values() if not each.is_required]
            required = [each.pod.requests for each in space.entries.values() if each.is_required]
            new = Stand(where, scale, Roster(entries, required))
            assert figures(kept) == figures(new), (seed, step)


def test_columns_that_nobody_needs_are_forgotten():
    account = cluster(node("n1"), pod("p1"))
    where = account.node("n1")
    space = account.spaces["n1"]
    for index in range(10):
        usual(space, where, account.scale((f"example.com/{index}",)))
    assert len(space.stands) <= 4
    space.roster.forget_but(["example.com/9"])
    assert list(space.roster._columns) == ["example.com/9"]


def test_where_the_pods_of_an_owner_are():
    pods = [
        pod(f"p{index}", f"n{index % 2}", owner="one" if index < 2 else "two") for index in range(5)
    ]
    account = cluster(node("n0"), node("n1"), *pods)
    assert account.places_of("one") == {"n0", "n1"}
    account.remove_pod(pods[0].uid)
    assert account.places_of("one") == {"n1"}
    account.put_pod(replace(pods[1], owner="two"))
    assert account.places_of("one") == set()
    assert account.places_of("two") == {"n0", "n1"}
    assert account.places_of("nobody") == set()
