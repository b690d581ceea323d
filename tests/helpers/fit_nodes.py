"""Taints that pods tolerate or not, and nodes that they select.

See rescheduler-spec 4.2, items 1-3.
"""

from __future__ import annotations

from helpers.fitting import a_case, expression, pod

CASES = []


def case(*given, **more):
    CASES.append(a_case(*given, **more))


# 4.2, items 1 and 2: taints
KEY = "example.com/dedicated"


def taint(effect="NoSchedule", value="ml", key=KEY):
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def toleration(**given):
    return {name: value for name, value in given.items() if value is not None}


def tolerating(*tolerations):
    return pod(tolerations=list(tolerations))


def _tolerations():
    """Name, toleration, and which of the two effects that keep away it covers."""
    both, none = ("NoSchedule", "NoExecute"), ()
    exists = {"operator": "Exists"}
    yield "its key", toleration(key=KEY, **exists), both
    yield "its key and value", toleration(key=KEY, operator="Equal", value="ml"), both
    yield "its key and value without an operator", toleration(key=KEY, value="ml"), both
    yield "another value", toleration(key=KEY, operator="Equal", value="web"), none
    yield "no value", toleration(key=KEY, operator="Equal"), none
    yield "another key", toleration(key="example.com/other", **exists), none
    yield "everything", toleration(**exists), both
    for effect in both:
        yield f"everything of {effect}", toleration(effect=effect, **exists), (effect,)
        yield f"its key and {effect}", toleration(key=KEY, effect=effect, **exists), (effect,)
        given = toleration(key=KEY, value="ml", effect=effect)
        yield f"its key and value and {effect}", given, (effect,)
    yield (
        "its key for a minute",
        toleration(key=KEY, effect="NoExecute", tolerationSeconds=60, **exists),
        ("NoExecute",),
    )
    yield "its key and a mere wish", toleration(key=KEY, effect="PreferNoSchedule", **exists), none


for _effect in ("NoSchedule", "NoExecute"):
    case(f"a taint {_effect}", False, pod(), taints=[taint(_effect)])
    for _name, _toleration, _covered in _tolerations():
        case(
            f"a taint {_effect}, tolerating {_name}",
            _effect in _covered,
            tolerating(_toleration),
            taints=[taint(_effect)],
        )
case("a taint that is a wish", True, pod(), taints=[taint("PreferNoSchedule")])
_BARE = taint(value=None)
case(
    "a taint without a value, tolerating no value",
    True,
    tolerating(toleration(key=KEY)),
    taints=[_BARE],
)
case(
    "a taint without a value, tolerating one",
    False,
    tolerating(toleration(key=KEY, value="ml")),
    taints=[_BARE],
)
_TWO = [taint(), taint(key="example.com/second")]
_FIRST = toleration(key=KEY, operator="Exists")
case("two taints, tolerating one", False, tolerating(_FIRST), taints=_TWO)
case(
    "two taints, tolerating both",
    True,
    tolerating(_FIRST, toleration(key="example.com/second", operator="Exists")),
    taints=_TWO,
)
case(
    "two effects of a key, tolerating one",
    False,
    tolerating(toleration(key=KEY, operator="Exists", effect="NoSchedule")),
    taints=[taint(), taint("NoExecute")],
)
CORDON = "node.kubernetes.io/unschedulable"
_CORDONS = (
    ("nothing", None, False),
    ("it", toleration(key=CORDON, operator="Exists", effect="NoSchedule"), True),
    ("it by value", toleration(key=CORDON, effect="NoSchedule"), True),
    ("it, whatever the effect", toleration(key=CORDON, operator="Exists"), True),
    ("everything", toleration(operator="Exists"), True),
    ("another effect", toleration(key=CORDON, operator="Exists", effect="NoExecute"), False),
    ("another value", toleration(key=CORDON, value="yes", effect="NoSchedule"), False),
)
for _name, _toleration, _fits in _CORDONS:
    _pod = tolerating(_toleration) if _toleration else pod()
    case(f"a cordoned node, tolerating {_name}", _fits, _pod, cordoned=True)

# 4.2, item 3: selectors
DISK, SIZE = "example.com/disk", "example.com/size"


def term(*expressions, fields=()):
    return {
        **({"matchExpressions": list(expressions)} if expressions else {}),
        **({"matchFields": list(fields)} if fields else {}),
    }


def needing(*terms, **more):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return pod(affinity={"nodeAffinity": required}, **more)


_LABELS = {DISK: "ssd", SIZE: "40"}
_IS_SSD, _IS_HDD = expression(DISK, "In", "ssd"), expression(DISK, "In", "hdd")
EXPRESSIONS = (
    (_IS_SSD, True),
    (expression(DISK, "In", "hdd", "ssd"), True),
    (_IS_HDD, False),
    (expression("example.com/none", "In", "ssd"), False),
    (expression(DISK, "NotIn", "ssd"), False),
    (expression(DISK, "NotIn", "hdd"), True),
    (expression("example.com/none", "NotIn", "ssd"), True),
    (expression(DISK, "Exists"), True),
    (expression("example.com/none", "Exists"), False),
    (expression(DISK, "DoesNotExist"), False),
    (expression("example.com/none", "DoesNotExist"), True),
    (expression(SIZE, "Gt", "39"), True),
    (expression(SIZE, "Gt", "40"), False),
    (expression(SIZE, "Lt", "41"), True),
    (expression(SIZE, "Lt", "40"), False),
    (expression(SIZE, "Gt", "04"), True),
    (expression(SIZE, "Lt", "04"), False),
    (expression(SIZE, "Gt", "abc"), False),
    (expression(SIZE, "Lt", "1.5"), False),
    (expression(SIZE, "Lt", "9" * 20), False),
    (expression(SIZE, "Lt", str(2**63 - 1)), True),
    (expression(SIZE, "Lt", str(2**63)), False),
    (expression(DISK, "Gt", "1"), False),
    (expression(DISK, "Lt", "1"), False),
    (expression("example.com/none", "Gt", "0"), False),
    (expression("example.com/none", "Lt", "0"), False),
)
for _expression, _fits in EXPRESSIONS:
    _shown = f"{_expression['key']} {_expression['operator']} {_expression.get('values', '')}"
    case(f"affinity: {_shown}", _fits, needing(term(_expression)), labels=_LABELS)
_HERE, _AWAY = (
    {"key": "metadata.name", "operator": operator, "values": ["@node"]}
    for operator in ("In", "NotIn")
)
_UNREADABLE = term(expression(SIZE, "Gt", "abc"))
TERMS = (
    ("an empty term", [{}], False),
    ("an empty term and one that matches", [{}, term(_IS_SSD)], True),
    ("one of two terms", [term(_IS_HDD), term(_IS_SSD)], True),
    ("none of two terms", [term(_IS_HDD), term(expression(SIZE, "Lt", "1"))], False),
    ("one of two expressions", [term(_IS_SSD, expression(SIZE, "Lt", "1"))], False),
    ("an unreadable term and one that matches", [_UNREADABLE, term(_IS_SSD)], True),
    (
        "an unreadable expression beside one that matches",
        [term(_IS_SSD, expression(SIZE, "Gt", "x"))],
        False,
    ),
    ("the node by name", [term(fields=[_HERE])], True),
    ("any node but this", [term(fields=[_AWAY])], False),
    (
        "another node by name",
        [term(fields=[{"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}])],
        False,
    ),
    (
        "any node but another",
        [term(fields=[{"key": "metadata.name", "operator": "NotIn", "values": ["elsewhere"]}])],
        True,
    ),
    ("the node by name and by a label", [term(_IS_SSD, fields=[_HERE])], True),
    ("the node by name but not by its label", [term(_IS_HDD, fields=[_HERE])], False),
    ("another label or the node by name", [term(_IS_HDD), term(fields=[_HERE])], True),
)
for _name, _terms, _fits in TERMS:
    case(f"affinity: {_name}", _fits, needing(*_terms), labels=_LABELS)
_WISH = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": term(_IS_HDD)}
        ]
    }
}
case("affinity: a wish that is not met", True, pod(affinity=_WISH), labels=_LABELS)
SELECTORS = (
    ("its label", {DISK: "ssd"}, True),
    ("another value", {DISK: "hdd"}, False),
    ("both of its labels", {DISK: "ssd", SIZE: "40"}, True),
    ("one label of two", {DISK: "ssd", SIZE: "4"}, False),
    ("a label that is missing", {"example.com/none": ""}, False),
)
for _name, _selector, _fits in SELECTORS:
    case(f"selector: {_name}", _fits, pod(nodeSelector=_selector), labels=_LABELS)
case("selector: an empty value", True, pod(nodeSelector={DISK: ""}), labels={DISK: ""})
case(
    "selector and affinity, of which one holds",
    False,
    needing(term(_IS_SSD), nodeSelector={SIZE: "4"}),
    labels=_LABELS,
)

for _label, _operator, _operand, _fits in (
    ("4x", "Lt", "39", False),
    ("9" * 20, "Gt", "39", False),
    ("04", "Gt", "3", True),
    ("", "Lt", "1", False),
):
    case(
        f"affinity: a size of {_label!r} {_operator} {_operand}",
        _fits,
        needing(term(expression(SIZE, _operator, _operand))),
        labels={SIZE: _label},
    )
case(
    "affinity: an empty value",
    True,
    needing(term(expression(SIZE, "In", ""))),
    labels={SIZE: ""},
)
_ELSEWHERE = {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}
case("affinity: two names", True, needing(term(fields=[_ELSEWHERE]), term(fields=[_HERE])))
case("affinity: two names at once", False, needing(term(fields=[_ELSEWHERE, _HERE])))
