"""The order of ``migrate``: played command by command on what was observed, it loses nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.model import (
    KEPTN,
    KUPID,
    SEVERITIES,
    CalledService,
    Command,
    Judged,
    KeptnFacts,
    Leftover,
    Observed,
    OldNamespace,
    Ours,
    Policy,
    Ref,
    Registration,
    Release,
    ReplacedDefinition,
    ReplacedWorkload,
    Setting,
    StuckPod,
    delete,
    kubectl,
)
from harbourmaster.cli.migrate.plan import plan
from harbourmaster.cli.migrate.run import _finding_lines, _step_lines
from helpers.properties import cases

OURS = "harbourmaster-system"
SERVICES = {
    KUPID: ("shop", "gardener-extension-kupid"),
    KEPTN: ("keptn", "lifecycle-webhook-service"),
}
METRICS_API = Ref("apiservice", "v1beta1.custom.metrics.k8s.io")
BOOLS = st.booleans()
OWN = st.sampled_from(
    [
        Ours(OURS),
        Ours(OURS, is_led=True),
        Ours(OURS, is_ready=True),
        Ours(OURS, is_ready=True, is_registered=True),
        Ours(OURS, is_ready=True, is_registered=True, is_beside_keptn=True),
    ]
)


PROMOTION = Setting("lifecycle.promotionTasks", "true", "PROMOTION_TASKS_ENABLED", "false")
TOKEN = Judged("task-token", "check", {}, kubectl("patch", "keptntaskdefinition", "check", "-p"))
ADOPT = Judged(
    "config-elsewhere",
    "config",
    {"why": "", "places": OURS},
    Command(("harbourmaster", "config", "adopt", "shop/config")),
)
KEPTN_FACTS = st.builds(
    KeptnFacts,
    st.sampled_from([(), (PROMOTION,)]),
    findings=st.lists(st.sampled_from([TOKEN, ADOPT]), unique_by=lambda judged: judged.code).map(
        tuple
    ),
)


@st.composite
def clusters(draw):
    """Draw a cluster in any state in which a user may have left it."""
    answers = {system: draw(st.sampled_from([True, False, None])) for system in (KUPID, KEPTN)}
    service = {
        system: CalledService(*SERVICES[system], answers[system]) for system in (KUPID, KEPTN)
    }
    registrations = [
        Registration(
            Ref(kind, f"{system}-{kind}"),
            system,
            (service[system],),
            fails_closed=draw(BOOLS),
            covers_pods=kind.startswith("mutating"),
            of_certmanager=draw(BOOLS),
        )
        for system in (KUPID, KEPTN)
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
        if draw(BOOLS)
    ]
    gardener = draw(BOOLS)
    definitions = [
        ReplacedDefinition(
            name=f"{name}.{system}.example.com",
            system=system,
            stored_versions=("v1",),
            storage_version="v1",
            objects=draw(st.sampled_from([0, 3, None])),
            conversion=service[KEPTN] if system == KEPTN and draw(BOOLS) else None,
            is_injected=system == KEPTN and draw(BOOLS),
            release=f"shop/{system}" if draw(BOOLS) else "",
            of_gardener=gardener and system == KUPID,
            is_kept=draw(BOOLS),
        )
        for system, name in ((KUPID, "policies"), (KEPTN, "apps"), (KEPTN, "tasks"))
        if draw(BOOLS)
    ]
    workloads = [
        ReplacedWorkload(Ref("deployment", role, system), system, role, is_ready=draw(BOOLS))
        for system, role in (
            (KUPID, KUPID),
            (KEPTN, "scheduler"),
            (KEPTN, "lifecycle"),
            (KEPTN, "metrics"),
            (KEPTN, "certificates"),
        )
        if draw(BOOLS)
    ]
    if draw(BOOLS):
        kind = "validatingwebhookconfiguration"
        metrics = CalledService("keptn", "metrics-webhook-service", answers[KEPTN])
        registrations.append(Registration(Ref(kind, "keptn-metrics"), KEPTN, (metrics,)))
    releases = {definition.release for definition in definitions if definition.release}
    leftovers = [
        Leftover(Ref("service", SERVICES[system][1], SERVICES[system][0]), system)
        for system in (KUPID, KEPTN)
        if draw(BOOLS)
    ]
    if draw(BOOLS):
        leftovers.append(Leftover(METRICS_API, KEPTN, service[KEPTN]))
    pods = [
        StuckPod(
            "shop",
            f"p{i}",
            draw(st.sampled_from([None, 0, 1])),
            failure=draw(st.sampled_from(["", "its check failed"])),
        )
        for i in range(2)
    ]
    return Observed(
        ours=draw(OWN),
        registrations=tuple(registrations),
        definitions=tuple(definitions),
        workloads=tuple(workloads),
        releases=tuple(
            Release("shop", release.partition("/")[2], release.partition("/")[2])
            for release in sorted(releases)
        ),
        gardener=(Ref("managedresource", "extension-kupid", "shop"),) if gardener else (),
        leftovers=tuple(leftovers),
        namespaces=tuple(
            OldNamespace(name, system, ("1 keptntasks",) if draw(BOOLS) else ())
            for name, system in (("old-kupid", KUPID), ("old-keptn", KEPTN))
            if draw(BOOLS)
        ),
        policies=(Policy(Ref("clusterpodschedulingpolicy", "bad"), ("spec: bad",)),)
        if draw(BOOLS)
        else (),
        pods=tuple(pods) if draw(BOOLS) else (),
        keptn=draw(KEPTN_FACTS) if workloads else KeptnFacts(),
    )


class Player:
    """A cluster that obeys commands, and objects when one would do harm."""

    def __init__(self, observed):
        self.now = observed
        self.saved = set()
        self.forgotten = set()

    def play(self, command):
        name, *rest = command.arguments
        if name in {"mkdir", "sed"}:
            return
        if name == "harbourmaster":
            self.run(*rest, output=command.output)
            return
        if name == "make":
            has_overlay = rest[1:] == ["OVERLAY=deploy/migrated"]
            assert has_overlay == bool(self.now.keptn.unset or self.now.keptn.is_overlaid)
            assert not has_overlay or self.now.keptn.is_overlaid or "overlay" in self.saved
            facts = self.now.keptn
            told = tuple(replace(setting, ours=setting.value) for setting in facts.settings)
            facts = replace(facts, settings=told, is_overlaid=has_overlay or facts.is_overlaid)
            self.now = replace(self.now, keptn=facts)
            beside = rest[0] == "deploy-beside-keptn"
            assert beside or rest[0] in {"deploy", "deploy-using-certmanager"}
            assert beside == self.now.has_operator, "all would be done twice, or not at all"
            self.now = replace(self.now, ours=Ours(OURS, True, True, is_beside_keptn=beside))
            if not beside:
                self.keep("leftovers", lambda leftover: leftover.ref != METRICS_API)
            # The definitions are ours from here on, and convert by our webhook.
            for definition in self.now.definitions:
                self.change(definition.name, conversion=None)
            return
        namespace = ""
        if rest[0] == "-n":
            namespace = rest[1]
            rest = rest[2:]
        getattr(self, rest[0])(namespace, *rest[1:])

    def run(self, command, *rest, output):
        assert (command, *rest) == ("migrate", "--output=yaml"), "only a person adopts"
        assert output == "deploy/migrated/kustomization.yaml"
        self.saved.add("overlay")

    def deal_with(self, code):
        left = tuple(judged for judged in self.now.keptn.findings if judged.code != code)
        self.now = replace(self.now, keptn=replace(self.now.keptn, findings=left))

    def get(self, _namespace, what, *_):
        for definition in self.now.definitions:
            if definition.name == what and definition.conversion:
                assert definition.conversion.answers is not False, "they could not be read"
        self.saved.add(what)

    def rollout(self, *_):
        assert self.now.ours.is_ready

    def wait(self, *_):
        assert self.now.ours.is_registered

    def edit(self, namespace, kind, name):
        gone = Ref(kind, name, namespace)
        self.keep("policies", lambda policy: policy.ref != gone)

    def annotate(self, _namespace, kind, name, value, _):
        assert (kind, value) == ("crd", "resources.gardener.cloud/keep-object=true")
        self.change(name, is_kept=True)

    def label(self, _namespace, kind, name, value):
        assert (kind, value) == ("crd", "keptn.sh/inject-cert-")
        self.change(name, is_injected=False)

    def patch(self, namespace, kind, name, _, *rest):
        if kind == "crd":
            assert json.loads(rest[-1])["spec"]["conversion"]["strategy"] == "None"
            self.change(name, conversion=None)
            return
        if kind == "keptntaskdefinition":
            self.deal_with("task-token")
            return
        assert kind == "pod"
        assert not self.asked_about_pods(KEPTN), "a removed gate would come back"
        test, remove, _ = json.loads(rest[-1])
        assert (test["op"], remove["op"]) == ("test", "remove")
        self.free(namespace, name)

    def delete(self, namespace, kind, name, *options):
        if name == "-l":
            release = options[0].partition("name=")[2]
            assert kind == "secret"
            self.keep(
                "releases", lambda stored: (stored.namespace, stored.name) != (namespace, release)
            )
            return
        ref = Ref(kind, name, namespace)
        assert "--ignore-not-found" in options
        assert "policy" not in kind
        assert kind not in {"crd", "customresourcedefinition"}
        broken = [
            registration.ref for registration in self.now.registrations if registration.is_broken
        ]
        if ref not in broken:
            assert not broken, "first of all, let pods be created"
            self.check_safe()
        if kind.endswith("webhookconfiguration"):
            self.unregister(ref, broken)
        elif kind == "pod":
            self.free(namespace, name)
        elif kind == "namespace":
            (old,) = [namespace for namespace in self.now.namespaces if namespace.name == name]
            assert not old.keeps
            self.keep("namespaces", lambda namespace: namespace.name != name)
        elif kind == "deployment":
            (work,) = [workload for workload in self.now.workloads if workload.ref == ref]
            assert not self.registrations_of(work.system)
            assert not (work.system == KUPID and self.now.gardener), "it would come back"
            self.keep("workloads", lambda workload: workload.ref != ref)
        elif kind == "managedresource":
            assert all(
                definition.is_kept for definition in self.now.definitions if definition.of_gardener
            )
            self.keep("gardener", lambda present: present != ref)
        else:
            self.remove(ref, namespace, name)

    def check_safe(self):
        """Before anything that works goes, what the user has is saved and made to stay."""
        going = {item.system for item in self.going}
        for definition in self.now.definitions:
            if definition.system in going and definition.objects != 0:
                assert definition.name in self.saved
        assert not [release for release in self.now.releases if release.system in going]

    @property
    def going(self):
        parts = (self.now.registrations, self.now.workloads, self.now.leftovers)
        return [item for part in parts for item in part]

    def unregister(self, ref, broken):
        ours = self.now.ours
        theirs = [
            registration for registration in self.now.registrations if registration.ref == ref
        ]
        if theirs and ref not in broken:
            assert ours.is_ready, "pods would go without policies"
            assert ours.is_registered, "pods would go without policies"
        self.keep("registrations", lambda registration: registration.ref != ref)

    def remove(self, ref, namespace, name):
        assert ref in [leftover.ref for leftover in self.now.leftovers], "it is ours by now"
        called = (namespace, name)
        for registration in self.now.registrations:
            assert called not in {
                (service.namespace, service.name) for service in registration.services
            }
        for definition in self.now.definitions:
            assert not definition.conversion or called != (
                definition.conversion.namespace,
                definition.conversion.name,
            )
        for leftover in self.now.leftovers:
            assert not leftover.service or called != (
                leftover.service.namespace,
                leftover.service.name,
            )
        self.keep("leftovers", lambda leftover: leftover.ref != ref)

    def registrations_of(self, system):
        return [
            registration for registration in self.now.registrations if registration.system == system
        ]

    def asked_about_pods(self, system):
        return [
            registration
            for registration in self.registrations_of(system)
            if registration.covers_pods and not self.now.is_running(system)
        ]

    def free(self, namespace, name):
        self.keep("pods", lambda pod: (pod.namespace, pod.name) != (namespace, name))

    def keep(self, field, test):
        kept = tuple(item for item in getattr(self.now, field) if test(item))
        self.now = replace(self.now, **{field: kept})

    def change(self, name, **fields):
        changed = tuple(
            replace(definition, **fields) if definition.name == name else definition
            for definition in self.now.definitions
        )
        self.now = replace(self.now, definitions=changed)


def codes(steps):
    return [step.code for step in steps if step.code != "back-up"]


@settings(max_examples=cases(150))
@given(observed=clusters())
def test_every_step_is_safe_and_what_remains_is_the_rest(observed):
    player = Player(observed)
    steps = plan(observed)
    for number, step in enumerate(steps):
        for command in step.commands:
            player.play(command)
        remaining = codes(plan(player.now))
        # Asked again, the plan has nothing that was not in it before.
        assert remaining == codes(steps[number + 1 :])
    assert plan(player.now) == ()
    if not observed.is_running(KEPTN):
        assert not any(definition.conversion for definition in player.now.definitions)
    assert [definition.name for definition in player.now.definitions] == [
        definition.name for definition in observed.definitions
    ]


@settings(max_examples=cases(150))
@given(clusters())
def test_after_the_plan_only_harbourmaster_does_keptns_work(observed):
    player = Player(observed)
    for step in plan(observed):
        for command in step.commands:
            player.play(command)
    assert not player.now.has_operator
    assert not player.now.ours.is_beside_keptn
    assert not [leftover for leftover in player.now.leftovers if leftover.system == KEPTN]


@settings(max_examples=cases(100))
@given(clusters())
def test_findings_are_sorted_by_severity_and_blocking_ones_have_a_command(observed):
    problems = findings(observed)
    ranks = [SEVERITIES.index(problem.severity) for problem in problems]
    assert ranks == sorted(ranks)
    assert all(
        bool(problem.command) != ("its check failed" in problem.why)
        for problem in problems
        if problem.severity == "blocking" and "more" not in problem.object
    )
    broken = [
        str(registration.ref) for registration in observed.registrations if registration.is_broken
    ]
    assert [problem.object for problem in problems if problem.code == "webhook-broken"] == broken


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_no_command_names_a_pod_whose_check_failed(observed):
    steps = [command for step in plan(observed) for command in step.commands]
    commands = [*steps, *(finding.command for finding in findings(observed) if finding.command)]
    failed = {pod.name for pod in observed.pods if pod.failure}
    assert failed & {argument for command in commands for argument in command.arguments} == set()


SERVED = Ours(OURS, is_ready=True, is_registered=True)
BESIDE = replace(SERVED, is_beside_keptn=True)
LIFECYCLE = CalledService("keptn-system", "lifecycle-webhook-service", answers=True)
METRICS = CalledService("keptn-system", "metrics-operator-service", answers=True)
RELEASED = ReplacedDefinition("policies.example.com", KUPID, release="keptn/keptn")


def work(role, *, is_ready=True, system=KEPTN):
    return ReplacedWorkload(Ref("deployment", role, f"{system}-system"), system, role, is_ready)


def registered(system, *services, **fields):
    return Registration(Ref("mutatingwebhookconfiguration", system), system, services, **fields)


CLUSTERS = {
    "nothing": Observed(Ours(OURS)),
    "a running Keptn": Observed(
        Ours(OURS),
        registrations=(registered(KEPTN, LIFECYCLE),),
        definitions=(
            ReplacedDefinition(
                "keptnapps", KEPTN, objects=1, conversion=LIFECYCLE, is_injected=True
            ),
        ),
        workloads=(work("lifecycle"),),
        pods=(StuckPod("shop", "gated", 0), StuckPod("shop", "scheduled")),
    ),
    "a metrics-operator, whose APIService leads to us in the end": Observed(
        Ours(OURS),
        workloads=(work("metrics"),),
        leftovers=(
            Leftover(METRICS_API, KEPTN, METRICS),
            Leftover(Ref("service", METRICS.name, METRICS.namespace), KEPTN),
        ),
    ),
    "a metrics-operator beside us": Observed(SERVED, workloads=(work("metrics"),)),
    "an APIService that does not lead to us": Observed(
        SERVED, leftovers=(Leftover(METRICS_API, KEPTN, replace(METRICS, answers=False)),)
    ),
    "a lifecycle-operator beside us": Observed(SERVED, workloads=(work("lifecycle"),)),
    "a lifecycle-operator that we leave its work to": Observed(
        BESIDE, workloads=(work("lifecycle"),)
    ),
    "a stopped Keptn that we leave its work to": Observed(BESIDE),
    "other settings, and a running operator": Observed(
        SERVED, workloads=(work("metrics"),), keptn=KeptnFacts((PROMOTION,))
    ),
    "other settings, and an operator that has stopped": Observed(
        BESIDE, workloads=(work("certificates", is_ready=False),), keptn=KeptnFacts((PROMOTION,))
    ),
    "a gated pod": Observed(Ours(OURS), pods=(StuckPod("shop", "ledger-0", 1, is_annotated=True),)),
    "a gated pod without annotations, and we serve": Observed(
        SERVED, pods=(StuckPod("shop", "ledger-0", 0),)
    ),
    "a pod of a scheduler that is gone": Observed(
        Ours(OURS, is_ready=True), pods=(StuckPod("shop", "ledger-0"),)
    ),
    "such a pod without an owner": Observed(
        Ours(OURS), pods=(StuckPod("shop", "ledger-0", is_owned=False),)
    ),
    "policies that are not applied": Observed(
        Ours(OURS), definitions=(ReplacedDefinition("policies", KUPID, objects=2),)
    ),
    "policies that kupid applies": Observed(
        Ours(OURS),
        definitions=(ReplacedDefinition("policies", KUPID, objects=2),),
        workloads=(work(KUPID, system=KUPID),),
    ),
    "a registered kupid beside us": Observed(SERVED, registrations=(registered(KUPID),)),
    "definitions of a Helm release": Observed(
        Ours(OURS), definitions=(RELEASED,), workloads=(work(KUPID, system=KUPID, is_ready=False),)
    ),
    "definitions of a Helm release beside a running Keptn": Observed(
        Ours(OURS), definitions=(RELEASED,), workloads=(work("lifecycle"),)
    ),
    "definitions of a Helm release with cert-manager": Observed(
        Ours(OURS),
        definitions=(RELEASED,),
        registrations=(registered(KUPID, of_certmanager=True),),
    ),
}


@pytest.mark.parametrize("observed", CLUSTERS.values(), ids=CLUSTERS)
def test_what_is_printed_about_a_cluster(observed, assert_golden):
    assert_golden([*_finding_lines(findings(observed), ()), *_step_lines(plan(observed), ())])


@settings(max_examples=cases(100))
@given(clusters())
def test_unread_objects_are_not_put_at_risk(observed):
    steps = plan(replace(observed, unread=("list secrets: 403 Forbidden",)))
    assert codes(steps) in ([], ["unblock"])


def test_hostile_names_are_quoted():
    ref = Ref("clusterrole", "x; rm -rf ~ $(id)")
    assert delete(ref).text == ("kubectl delete clusterrole 'x; rm -rf ~ $(id)' --ignore-not-found")
