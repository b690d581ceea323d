"""Requests of pods for a node: exactly enough of it and a little less (rescheduler-spec 4.1)."""

from __future__ import annotations

from helpers.fitting import (
    GPU,
    HUGE,
    IMAGE,
    OVERHEAD,
    RUNTIME_CLASS,
    a_case,
    asking,
    container,
    finished,
    leaving,
    pod,
    sidecar,
    with_status,
)

CASES = []


def case(*given, **more):
    CASES.append(a_case(*given, **more))


# 4.1: what a pod asks for
_WHOLE = {"overhead": OVERHEAD, "runtimeClassName": RUNTIME_CLASS}
TABLE = (
    ("two containers", 1500, pod(container(cpu="1"), container("more", cpu="0.5"))),
    ("a larger init container", 2000, pod(container(cpu="1"), inits=[container("i", cpu="2")])),
    (
        "a sidecar before an init container",
        2500,
        pod(container(cpu="1"), inits=[sidecar(cpu="0.5"), container("i", cpu="2")]),
    ),
    (
        "a sidecar after an init container",
        2000,
        pod(container(cpu="1"), inits=[container("i", cpu="2"), sidecar(cpu="0.5")]),
    ),
    (
        "two sidecars",
        2000,
        pod(container(cpu="1"), inits=[sidecar(cpu="0.5"), sidecar("other", cpu="0.5")]),
    ),
    ("overhead", 1250, pod(container(cpu="1"), **_WHOLE)),
    (
        "a request of the pod",
        3000,
        pod(container(cpu="1"), resources={"requests": {"cpu": "3"}}),
    ),
    (
        "a request of the pod and overhead",
        3250,
        pod(container(cpu="1"), resources={"requests": {"cpu": "3"}}, **_WHOLE),
    ),
    ("a limit of the pod", 3000, pod(resources={"limits": {"cpu": "3"}})),
    ("a limit of a container", 1000, pod(container(limits={"cpu": "1"}))),
    (
        "sidecars around an init container",
        2750,
        pod(
            container(cpu="0.5"),
            inits=[
                sidecar(cpu="0.5"),
                container("i", cpu="2.25"),
                sidecar("late", cpu="1"),
            ],
        ),
    ),
    (
        "a limit of the pod beside a request of a container",
        1000,
        pod(container(cpu="1"), resources={"limits": {"cpu": "3"}}),
    ),
    ("parts of a milli", 2, pod(container(cpu="0.1m"), container("more", cpu="0.0001"))),
    ("an exponent", 1200, pod(container(cpu="12e-1"))),
)
for _name, _milli, _pod in TABLE:
    case(f"cpu of {_name}, exactly", True, _pod, allocatable={"cpu": f"{_milli}m"})
    case(f"cpu of {_name}, one less", False, _pod, allocatable={"cpu": f"{_milli - 1}m"})

_HALVES = pod(container(memory="500m"), container("more", memory="500m"))
_PAGES = pod(
    container(cpu="1m", limits={HUGE: "4Mi"}),
    container("more", cpu="1m", limits={HUGE: "2Mi"}),
)
_PAGES_OF_POD = pod(
    container(cpu="1m"), resources={"requests": {"cpu": "1m"}, "limits": {HUGE: "6Mi"}}
)
_GPUS = {GPU: "2"}
AMOUNTS = (
    ("memory", asking(memory="1Gi"), (), "memory", "1Gi", str(2**30 - 1)),
    ("memory in thousands", asking(memory="1k"), (), "memory", "1000", "999"),
    ("halves of a byte", _HALVES, (), "memory", "1", "0"),
    ("halves of a byte in two pods", asking(memory="500m"), (_HALVES,), "memory", "2", "1"),
    (
        "memory of an init container",
        pod(container(memory="1Mi"), inits=[container("i", memory="3Mi")]),
        (),
        "memory",
        "3Mi",
        str(3 * 2**20 - 1),
    ),
    (
        "memory of the pod",
        pod(container(memory="1Mi"), resources={"requests": {"memory": "5Mi"}}),
        (),
        "memory",
        "5Mi",
        str(5 * 2**20 - 1),
    ),
    (
        "storage",
        asking(**{"ephemeral-storage": "3Gi"}),
        (asking(**{"ephemeral-storage": "1Gi"}),),
        "ephemeral-storage",
        "4Gi",
        str(4 * 2**30 - 1),
    ),
    ("devices", pod(container(limits=_GPUS)), (pod(container(limits=_GPUS)),), GPU, "4", "3"),
    ("devices that are not there", pod(container(limits=_GPUS)), (), GPU, "2", None),
    ("huge pages", _PAGES, (), HUGE, "6Mi", "4Mi"),
    ("huge pages of the pod", _PAGES_OF_POD, (), HUGE, "6Mi", "4Mi"),
    ("cpu beside a pod", asking(cpu="1"), (asking(cpu="3"),), "cpu", "4", "3999m"),
    ("cpu that is not there", asking(cpu="1m"), (), "cpu", "1m", None),
    ("cpu beside a leaving pod", asking(cpu="1"), (leaving(asking(cpu="3")),), "cpu", "4", "3999m"),
    ("pods", pod(), (pod(), pod()), "pods", "3", "2"),
    ("pods that can't be", pod(), (), "pods", "1", None),
    (
        "devices of a pod with a request of its own",
        pod(container(limits=_GPUS, cpu="1"), resources={"requests": {"cpu": "2"}}),
        (),
        GPU,
        "2",
        "1",
    ),
)
for _name, _pod, _present, _resource, _enough, _less in AMOUNTS:
    case(f"{_name}, exactly", True, _pod, *_present, allocatable={_resource: _enough})
    case(f"{_name}, one less", False, _pod, *_present, allocatable={_resource: _less})
for _phase in ("Succeeded", "Failed"):
    case(
        f"a pod that is {_phase} takes nothing",
        True,
        asking(cpu="4"),
        finished(asking(cpu="4"), _phase),
    )
    case(
        f"a pod that is {_phase} takes no place",
        True,
        pod(),
        finished(pod(), _phase),
        allocatable={"pods": "1"},
    )
_GREEDY = asking(cpu="6", memory="6Gi")
case("an overcommitted resource that is not asked for", True, asking(memory="1Gi"), _GREEDY)
case("an overcommitted resource that is asked for", False, asking(cpu="1m"), _GREEDY)
case("nothing is asked of a full node", True, pod(), _GREEDY, allocatable={"cpu": "0"})
case("a zero is asked of a full node", True, asking(cpu="0"), _GREEDY)
case("more than any node has", False, asking(cpu="100k"))
case("as much as there may be", False, asking(memory="9E"))
case("a device that is limited to none", True, pod(container(limits={GPU: "0"})))
case("an exbibyte of memory", False, asking(memory="7Ei"))

for _name, _resource, _quantity in (
    ("CPU", "cpu", "10P"),
    ("CPU", "cpu", "1e30"),
    ("CPU", "cpu", "18446744073709552"),
    ("memory", "memory", "10E"),
    ("memory", "memory", "9223372036854775808"),
):
    case(
        f"more {_name} than 64 bits hold: {_quantity}",
        False,
        asking(**{_resource: "1"}),
        allocatable={_resource: _quantity},
    )
case("memory at its most", True, asking(memory="1"), allocatable={"memory": "100Ei"})
case("half a byte more", True, asking(memory="2"), allocatable={"memory": "1500m"})
case("a part of a milli", True, asking(cpu="1m"), allocatable={"cpu": "100u"})
case("no pods at all", False, pod(), allocatable={"pods": "0"})
_MORE_PAGES = pod(
    container(cpu="1m", limits={HUGE: "4Mi"}),
    resources={"requests": {"cpu": "1m"}, "limits": {HUGE: "8Mi"}},
)
case("huge pages beyond the containers', exactly", True, _MORE_PAGES, allocatable={HUGE: "8Mi"})
case("huge pages beyond the containers', one less", False, _MORE_PAGES, allocatable={HUGE: "6Mi"})
case(
    "limits of a container and of the pod",
    True,
    pod(container(limits={"memory": "1Mi"}), resources={"limits": {"memory": "3Mi"}}),
    allocatable={"memory": "1Mi"},
)
case(
    "a limit of the pod beside a request for something else",
    False,
    pod(
        container(cpu="1"),
        resources={"requests": {"cpu": "2"}, "limits": {"memory": "3Mi"}},
    ),
    allocatable={"memory": "2Mi"},
)
case(
    "a request of the pod that its sidecar takes a part of",
    True,
    pod(container(cpu="1"), inits=[sidecar(cpu="1")], resources={"requests": {"cpu": "2"}}),
    allocatable={"cpu": "2"},
)
case("a zero beside a limit", True, pod(container(cpu="0", limits={"cpu": "9"})))
_ZERO_LIMITED = {"resources": {"limits": {"cpu": "9"}}}
case("a zero beside a limit of the pod", True, pod(container(cpu="0"), **_ZERO_LIMITED))
case(
    "a zero of an init container beside a limit of the pod",
    True,
    pod(container(), inits=[container("i", cpu="0")], **_ZERO_LIMITED),
)
# 4.1: pods that are resized in place


def status_of(name="main", resources=None, allocated=None):
    """A container as the kubelet shows it."""
    return {
        "name": name,
        "image": IMAGE,
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        **({"resources": {"requests": resources}} if resources is not None else {}),
        **({"allocatedResources": allocated} if allocated is not None else {}),
    }


_INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
_DEFERRED = {**_INFEASIBLE, "reason": "Deferred"}


def resized(*statuses, spec="1", conditions=(), **more):
    """A running pod; its spec asks for one CPU unless told otherwise."""
    status = {"containerStatuses": list(statuses), **more}
    return with_status(asking(cpu=spec), conditions=list(conditions), **status)


_SIDECARED = pod(container(cpu="500m"), inits=[sidecar(cpu="500m")])
RESIZES = (
    # name, the pod that is there, the milli-CPU that it counts for
    ("in use is more", resized(status_of(resources={"cpu": "2"})), 2000),
    ("in use is less", resized(status_of(resources={"cpu": "500m"})), 1000),
    ("granted is more", resized(status_of(resources={}, allocated={"cpu": "3"})), 3000),
    ("granted counts only beside what is in use", resized(status_of(allocated={"cpu": "3"})), 1000),
    (
        "infeasible",
        resized(
            status_of(resources={"cpu": "1"}, allocated={"cpu": "1"}),
            spec="3",
            conditions=[_INFEASIBLE],
        ),
        1000,
    ),
    (
        "deferred",
        resized(
            status_of(resources={"cpu": "1"}, allocated={"cpu": "1"}),
            spec="3",
            conditions=[_DEFERRED],
        ),
        3000,
    ),
    (
        "infeasible, nothing in use told",
        resized(status_of(), spec="3", conditions=[_INFEASIBLE]),
        3000,
    ),
    ("another container", resized(status_of("other", resources={"cpu": "3"})), 1000),
    (
        "a sidecar in use is more",
        with_status(
            _SIDECARED, initContainerStatuses=[status_of("side", resources={"cpu": "1500m"})]
        ),
        2000,
    ),
    (
        "an init container in use does not count",
        with_status(
            pod(container(cpu="1"), inits=[container("i", cpu="500m")]),
            initContainerStatuses=[status_of("i", resources={"cpu": "3"})],
        ),
        1000,
    ),
    (
        "the pod in use is more",
        with_status(
            pod(container(cpu="1"), resources={"requests": {"cpu": "2"}}),
            resources={"requests": {"cpu": "3"}},
        ),
        3000,
    ),
    (
        "the pod, infeasible",
        with_status(
            pod(container(cpu="1"), resources={"requests": {"cpu": "3"}}),
            resources={"requests": {"cpu": "2"}},
            allocatedResources={"cpu": "1500m"},
            conditions=[_INFEASIBLE],
        ),
        2000,
    ),
    (
        "the pod, granted only",
        with_status(
            pod(container(cpu="1"), resources={"requests": {"cpu": "2"}}),
            allocatedResources={"cpu": "3"},
        ),
        2000,
    ),
)
for _name, _present_pod, _milli in RESIZES:
    _rest = 4000 - _milli
    case(f"resize: {_name}, exactly", True, asking(cpu=f"{_rest}m"), _present_pod)
    case(f"resize: {_name}, one less", False, asking(cpu=f"{_rest + 1}m"), _present_pod)
