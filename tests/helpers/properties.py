"""Number of random cases of a property, and strategies for pods, workloads and policies.

``gate`` is what ``make test`` takes: a share of the cases, the same in every run. ``full`` takes
all of them, other ones each time: ``--hypothesis-profile=full``, repeated by ``--hypothesis-seed``.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from harbourmaster.policies.tolerations import DEFAULTS
from helpers.oracles import NODE_REQUIRED

NORMAL = 20_000
DEPTH = int(os.environ.get("HARBOURMASTER_PROPERTY_CASES", NORMAL)) / NORMAL
"""The depth of ``full``; 1 is usual."""
SHARE = 20
TIMEOUT = 0 if DEPTH > 1 else 900

COMMON = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}
settings.register_profile("gate", derandomize=True, max_examples=50, **COMMON)
settings.register_profile("full", derandomize=False, max_examples=100, **COMMON)
settings.load_profile("gate")


def is_full():
    """Whether this run takes all cases; for modules, since an option may choose the profile."""
    # Options of Hypothesis append to the name.
    return settings.get_current_profile_name().startswith("full")


def cases(full, least=25):
    """The number of cases where a full run takes ``full`` ones."""
    if is_full():
        return max(int(full * DEPTH), 1)
    return min(full, max(full // SHARE, least))


NODE_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
KEYS = ["a", "b", "example.com/pool"]
VALUES = ["1", "2", "3"]
NODES = ["n1", "n2"]

keys = st.sampled_from(KEYS)
values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)
labels = st.dictionaries(keys, st.sampled_from(VALUES), max_size=2)

expressions = st.one_of(
    st.fixed_dictionaries(
        {"key": keys, "operator": st.sampled_from(["In", "In", "NotIn"]), "values": values}
    ),
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {
            "key": keys,
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=1),
        }
    ),
)
fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(NODES), min_size=1, max_size=1),
    }
)
node_terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions, max_size=2),
        "matchFields": st.lists(fields, max_size=1),
    },
)
selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": labels,
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {"key": keys, "operator": st.sampled_from(["In", "NotIn"]), "values": values}
            ),
            max_size=1,
        ),
    },
)
pod_terms = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(["zone", "host"])},
    optional={
        "labelSelector": selectors,
        "namespaceSelector": selectors,
        "namespaces": st.lists(st.sampled_from(["x", "y"]), max_size=2),
    },
)
weights = st.integers(1, 2)
pod_affinities = st.fixed_dictionaries(
    {},
    optional={
        NODE_REQUIRED: st.lists(pod_terms, max_size=2),
        NODE_PREFERRED: st.lists(
            st.fixed_dictionaries({"weight": weights, "podAffinityTerm": pod_terms}), max_size=2
        ),
    },
)
preferred = st.lists(
    st.fixed_dictionaries({"weight": weights, "preference": node_terms}), max_size=2
)
any_tolerations = st.fixed_dictionaries(
    {"key": keys, "operator": st.just("Exists")},
    optional={"effect": st.sampled_from(["NoSchedule", "NoExecute", ""]), "value": st.just("")},
)
tolerations_of_failed_nodes = st.one_of(
    st.sampled_from(list(DEFAULTS.values())),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["", *DEFAULTS]),
            "operator": st.just("Exists"),
            "effect": st.just("NoExecute"),
        },
        optional={"tolerationSeconds": st.sampled_from([30, 300])},
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(list(DEFAULTS))},
        optional={"operator": st.just("Equal"), "value": st.sampled_from(["", "x"])},
    ),
)
tolerations = st.lists(st.one_of(any_tolerations, tolerations_of_failed_nodes), max_size=3)


def affinities(terms):
    node = st.fixed_dictionaries(
        {},
        optional={
            NODE_REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": terms}),
            NODE_PREFERRED: preferred,
        },
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "nodeAffinity": node,
            "podAffinity": pod_affinities,
            "podAntiAffinity": pod_affinities,
        },
    )


pod_specs = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.one_of(st.none(), affinities(st.lists(node_terms, max_size=3))),
        "nodeName": st.sampled_from(["", *NODES]),
        "nodeSelector": st.one_of(st.none(), labels),
        "schedulerName": st.sampled_from(["", "default-scheduler", "s2"]),
        "tolerations": st.one_of(st.none(), tolerations),
        "schedulingGates": st.sampled_from([[], [{"name": "example.com/gate"}]]),
    },
)
policy_specs = st.fixed_dictionaries(
    {"podSelector": st.just({}), "namespaceSelector": st.just({})},
    optional={
        "affinity": affinities(st.lists(node_terms, min_size=1, max_size=3)),
        "nodeName": st.sampled_from(["", *NODES]),
        "nodeSelector": labels,
        "schedulerName": st.sampled_from(["", "default-scheduler", "s1", "s3"]),
        "tolerations": tolerations,
    },
)


@st.composite
def policies(draw):
    parts = []
    for index, spec in enumerate(draw(st.lists(policy_specs, max_size=3))):
        if draw(st.booleans()):
            kind, metadata = "ClusterPodSchedulingPolicy", {"name": f"p{index}"}
        else:
            kind, metadata = "PodSchedulingPolicy", {"name": f"p{index}", "namespace": "ns1"}
        parts.append(
            {
                "apiVersion": "kupid.gardener.cloud/v1alpha1",
                "kind": kind,
                "metadata": metadata,
                "spec": spec,
            }
        )
    return parts


def with_unknown_fields(value, draw, prefix="u"):
    """Add unknown fields to some objects at every depth, each with a value of its own."""
    counter = [0]

    def walk(node, *, is_map):
        if isinstance(node, list):
            return [walk(item, is_map=False) for item in node]
        if not isinstance(node, dict):
            return node
        obj = {
            name: walk(child, is_map=name in {"nodeSelector", "matchLabels", "labels"})
            for name, child in node.items()
        }
        if not is_map and draw(st.integers(0, 3)) == 0:
            counter[0] += 1
            obj["futureField"] = f"{prefix}{counter[0]}"
        return obj

    return walk(value, is_map=False)
