"""Pods that can not be beside each other (rescheduler-spec 4.2, items 5 and 6)."""

from __future__ import annotations

from helpers.fitting import (
    HOST,
    OTHER,
    OWN,
    ZONE,
    a_case,
    container,
    expression,
    finished,
    leaving,
    pod,
    port,
    sidecar,
    taking,
)

CASES = []


def case(*given, **more):
    CASES.append(a_case(*given, **more))


# 4.2, item 5: host ports


PORTS = (
    ("the same", port(8080), port(8080), False),
    ("another number", port(8080), port(8081), True),
    ("another protocol", port(8080), port(8080, protocol="UDP"), True),
    ("the same protocol", port(8080, protocol="SCTP"), port(8080, protocol="SCTP"), False),
    ("the protocol that is meant", port(8080), port(8080, protocol="TCP"), False),
    ("two addresses", port(8080, "192.0.2.1"), port(8080, "192.0.2.2"), True),
    ("the same address", port(8080, "192.0.2.1"), port(8080, "192.0.2.1"), False),
    ("an address and all", port(8080, "192.0.2.1"), port(8080), False),
    ("all and an address", port(8080), port(8080, "192.0.2.1"), False),
    ("an address and zeros", port(8080, "192.0.2.1"), port(8080, "0.0.0.0"), False),  # noqa: S104
    ("zeros and all", port(8080, "0.0.0.0"), port(8080), False),  # noqa: S104
    ("zeros of the other kind", port(8080, "::"), port(8080, "192.0.2.1"), True),
    ("zeros of both kinds", port(8080, "::"), port(8080, "0.0.0.0"), False),  # noqa: S104
    ("zeros of the other kind and another of it", port(8080, "::"), port(8080, "::1"), True),
    ("zeros of the other kind twice", port(8080, "::"), port(8080, "::"), False),
)
for _name, _wanted, _taken, _fits in PORTS:
    case(f"host ports: {_name}", _fits, taking(_wanted), taking(_taken))
_PORT = port(8080)
case("host ports: of a leaving pod", False, taking(_PORT), leaving(taking(_PORT)))
case("host ports: of a finished pod", True, taking(_PORT), finished(taking(_PORT)))
case("host ports: one of two", False, taking(port(8079), _PORT), taking(_PORT, port(8081)))
_SIDE = pod(inits=[sidecar(ports=[_PORT])])
_INIT = pod(inits=[container("i", ports=[_PORT])])
case("host ports: of a sidecar", False, taking(_PORT), _SIDE)
case("host ports: for a sidecar", False, _SIDE, taking(_PORT))
case("host ports: of an init container", True, taking(_PORT), _INIT)
case("host ports: for an init container", True, _INIT, taking(_PORT))
_NETWORK = pod(container(ports=[{"containerPort": 8080}]), hostNetwork=True)
case("host ports: of the node's network", False, taking(_PORT), _NETWORK)
case("host ports: for the node's network", False, _NETWORK, taking(_PORT))
case(
    "host ports: a mere container port",
    True,
    taking(_PORT),
    pod(container(ports=[{"containerPort": 8080}])),
)

case("host ports: of sidecars", False, _SIDE, _SIDE)


def in_network(*ports, **more):
    return pod(container(ports=ports), hostNetwork=True, **more)


_DNS = {"containerPort": 53}
case("host ports: of the network twice", False, in_network(_DNS), in_network(_DNS))
_UDP = {**_DNS, "protocol": "UDP"}
case("host ports: of the network by protocol", True, in_network(_UDP), in_network(_DNS))
case(
    "host ports: for an init container in the node's network",
    True,
    in_network(inits=[container("i", ports=[_DNS])]),
    taking(port(53)),
)
# 4.2, item 6: anti-affinity
APP = {"app": "a"}
_APP_SELECTOR = {"matchLabels": APP}


def apart(topology=HOST, selector=_APP_SELECTOR, **more):
    """One term; without a selector where that is None."""
    return {
        "topologyKey": topology,
        **({"labelSelector": selector} if selector is not None else {}),
        **more,
    }


def keeping(*terms, **more):
    """A pod that is to be kept apart from others."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return pod(affinity={"podAntiAffinity": required}, **more)


def _team(value):
    return {"matchLabels": {"example.com/team": value}}


_NAME_LABEL = "kubernetes.io/metadata.name"
APART = (
    # name, term, labels and namespace of the one that is to be avoided, fits
    ("by a label", apart(), APP, OWN, False),
    ("by another label", apart(), {"app": "b"}, OWN, True),
    ("by zone", apart(ZONE), APP, OWN, False),
    ("by a topology that the node lacks", apart("example.com/rack"), APP, OWN, True),
    ("in another namespace", apart(), APP, OTHER, True),
    ("in a namespace that is named", apart(namespaces=[OTHER]), APP, OTHER, False),
    ("not in the own namespace", apart(namespaces=[OTHER]), APP, OWN, True),
    ("in all namespaces", apart(namespaceSelector={}), APP, OTHER, False),
    ("in all namespaces, the own one too", apart(namespaceSelector={}), APP, OWN, False),
    ("in selected namespaces", apart(namespaceSelector=_team("b")), APP, OTHER, False),
    ("in selected namespaces, not others", apart(namespaceSelector=_team("c")), APP, OTHER, True),
    ("in selected namespaces, not the own", apart(namespaceSelector=_team("b")), APP, OWN, True),
    (
        "in selected namespaces and named ones",
        apart(namespaceSelector=_team("a"), namespaces=[OTHER]),
        APP,
        OTHER,
        False,
    ),
    (
        "in a namespace by its name's label",
        apart(namespaceSelector={"matchLabels": {_NAME_LABEL: OTHER}}),
        APP,
        OTHER,
        False,
    ),
    ("by no selector", apart(selector=None), APP, OWN, True),
    ("by an empty selector", apart(selector={}), {}, OWN, False),
    (
        "by an expression",
        apart(selector={"matchExpressions": [expression("app", "In", "a", "z")]}),
        APP,
        OWN,
        False,
    ),
    (
        "by a negative expression",
        apart(selector={"matchExpressions": [expression("app", "NotIn", "b")]}),
        {},
        OWN,
        False,
    ),
    (
        "by a negative expression that fails",
        apart(selector={"matchExpressions": [expression("app", "NotIn", "a")]}),
        APP,
        OWN,
        True,
    ),
    (
        "by a label that is missing",
        apart(selector={"matchExpressions": [expression("app", "DoesNotExist")]}),
        {},
        OWN,
        False,
    ),
    (
        "by a label that is there",
        apart(selector={"matchExpressions": [expression("app", "Exists")]}),
        APP,
        OWN,
        False,
    ),
)
for _name, _term, _labels, _namespace, _fits in APART:
    _avoided = pod(labels=_labels, namespace=_namespace)
    case(f"apart {_name}", _fits, keeping(_term, labels={"me": "x"}), _avoided)
    # The same, where the one that keeps away was there before.
    if _namespace == OWN:
        case(f"apart {_name}, by who is there", _fits, _avoided, keeping(_term, labels={"me": "x"}))
for _name, _term, _fits in (
    ("in all namespaces", apart(namespaceSelector={}), False),
    ("in selected namespaces", apart(namespaceSelector=_team("a")), False),
    ("in selected namespaces, not this", apart(namespaceSelector=_team("b")), True),
    ("in its own namespace", apart(), True),
    ("in a namespace that it names", apart(namespaces=[OWN]), False),
):
    case(
        f"apart {_name}, by who is there from elsewhere",
        _fits,
        pod(labels=APP),
        keeping(_term, namespace=OTHER),
    )
_AVOIDED, _KEEPING = pod(labels=APP), keeping(apart())
case("apart from a leaving pod", False, _KEEPING, leaving(_AVOIDED))
case("apart from a finished pod", True, _KEEPING, finished(_AVOIDED))
case("apart, by who is leaving", False, _AVOIDED, leaving(_KEEPING))
case("apart, by who is finished", True, _AVOIDED, finished(_KEEPING))
_BOTH = (apart(selector={"matchLabels": {"app": "z"}}), apart(ZONE))
case("apart by one of two terms", False, keeping(*_BOTH), _AVOIDED)
case("apart by one of two terms, by who is there", False, _AVOIDED, keeping(*_BOTH))
case("apart from its like", False, keeping(apart(), labels=APP), keeping(apart(), labels=APP))
case("apart from none", True, keeping(apart(), labels=APP))
_RACKLESS = keeping(apart("example.com/rack"), apart())
case("apart, where one topology is missing", False, _RACKLESS, _AVOIDED)
case("apart, where one topology is missing, by who is there", False, _AVOIDED, _RACKLESS)
_OF_HASH = apart(matchLabelKeys=["hash"])
case(
    "apart from the same revision",
    False,
    keeping(_OF_HASH, labels={**APP, "hash": "1"}),
    pod(labels={**APP, "hash": "1"}),
)
case(
    "apart from the same revision, not from others",
    True,
    keeping(_OF_HASH, labels={**APP, "hash": "1"}),
    pod(labels={**APP, "hash": "2"}),
)
case(
    "apart from other revisions",
    False,
    keeping(apart(mismatchLabelKeys=["hash"]), labels={**APP, "hash": "1"}),
    pod(labels={**APP, "hash": "2"}),
)
_WISHED = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": apart()}
        ]
    }
}
case("apart as a wish", True, pod(affinity=_WISHED), _AVOIDED)
case("apart as a wish of who is there", True, _AVOIDED, pod(affinity=_WISHED))

case(
    "apart by a topology whose value is empty",
    False,
    keeping(apart("example.com/rack")),
    pod(labels=APP),
    labels={"example.com/rack": ""},
)
case(
    "apart in all namespaces and in a named one",
    False,
    keeping(apart(namespaceSelector={}, namespaces=[OTHER])),
    pod(labels=APP),
)
case("apart in a list of no namespaces", False, keeping(apart(namespaces=[])), pod(labels=APP))
case(
    "apart in namespaces without a label",
    False,
    keeping(apart(namespaceSelector={"matchExpressions": [expression("no", "DoesNotExist")]})),
    pod(labels=APP, namespace=OTHER),
)
