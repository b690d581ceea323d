"""``harbourmaster compile``: admission policies of the API server, made of scheduling policies.

It prints what a person or a GitOps tool applies, tries it by dry run, or applies it itself.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api import resources
from harbourmaster.api.times import moment
from harbourmaster.cli.compile import probe
from harbourmaster.cli.compile.apply import StepError, apply_objects, former_objects
from harbourmaster.cli.live.cluster import DONE, LEFT, UNUSABLE, complain, run_with_client, say
from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.reader import ClusterReader, raise_unusable
from harbourmaster.cli.offline import difference
from harbourmaster.controller.enforcement import decode
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.server_version import ServerVersion, server_version
from harbourmaster.policies.cel_paths import PROBE_NAMESPACE
from harbourmaster.policies.delegation import SET_KEY, Objects, Registered, compile_objects, select
from harbourmaster.policies.enforcement import QUIET, WEBHOOK, decode_compiled, enforced_policies
from harbourmaster.registration import desired
from harbourmaster.serving.documents import Document, Problem
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.sources import policies_in, read_policy

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Collection, Iterable, Iterator

    from harbourmaster.controller.enforcement import PolicyProjection
    from harbourmaster.kube.client import Client
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.delegation import Selection
    from harbourmaster.registration.settings import RegistrationSettings
    from harbourmaster.webhook.settings import AdmissionSettings, WebhookSettings

    Json = dict[str, Any]

FIRST_VERSION: Final = ServerVersion(1, 36)
"""The first version of Kubernetes that serves MutatingAdmissionPolicies by default."""
_RESOURCES: Final = dict(
    zip(probe.KINDS, (resources.PODS, resources.DEPLOYMENTS, resources.CRON_JOBS), strict=True)
)
_INTRODUCTIONS: Final = {
    "policies": "1. Apply the policies; without a binding they have no effect.",
    "probe": f"2. Bind them in {PROBE_NAMESPACE}, then run harbourmaster compile --try.",
    "final": "3. Bind them everywhere else; after 30 seconds, delete those of former sets:\n"
    "#    kubectl delete mutatingadmissionpolicies,validatingadmissionpolicies "
    "-l {key},{key}!={set}",
}


def compile_policies(arguments: Arguments) -> int:
    """Print, try or apply the objects; 0 done, 1 one is refused or differs, 2 can't be used."""
    if arguments.action and (arguments.policies or arguments.step or arguments.tries):
        complain("compile apply takes the policies of the cluster through all steps")
        return UNUSABLE
    arguments.cluster = arguments.cluster or bool(arguments.action)
    if bool(arguments.policies) == arguments.cluster:
        complain("give either all policies with -f, or --cluster")
        return UNUSABLE
    if arguments.cluster or arguments.tries:
        return run_with_client(arguments, partial(_live, arguments))
    return _Compilation(arguments).print(_read_policies(arguments))


def _read_policies(arguments: Arguments) -> list[CompiledPolicy]:
    documents = list(read_paths(arguments.policies))
    wrong = [document for document in documents if isinstance(document, Problem)]
    policies = policies_in(
        [document for document in documents if isinstance(document, Document)], wrong
    )
    for problem in wrong:
        complain(str(problem))
    return list(policies.values())


async def _live(arguments: Arguments, client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    compilation = _Compilation(arguments)
    try:
        version = await server_version(client)
        if version < FIRST_VERSION:
            text = f"Kubernetes {version} does not serve MutatingAdmissionPolicies"
            complain(f"{text}: the webhook enforces all policies before {FIRST_VERSION}")
            return LEFT
        policies = _read_policies(arguments)
        if arguments.cluster:
            settings = await live.none_if_unreadable(live.webhook_settings())
            registration = await live.none_if_unreadable(live.controller_settings())
            compilation = _Compilation(arguments, settings, registration)
            policies, early = await _read_stored(client)
            while early and arguments.action and not arguments.dry_run:
                for line in early:
                    say(line)
                await asyncio.sleep(max(early.values()))
                policies, early = await _read_stored(client)
            if early and not arguments.action and arguments.step in {None, "final"}:
                for line in early:
                    complain(line)
                return LEFT
        if arguments.action:
            return await compilation.apply(client, policies)
        if arguments.tries:
            return await compilation.try_out(client, policies)
    except ApiError as error:
        raise_unusable(error)
        complain(str(error))
        return LEFT
    return compilation.print(policies)


async def _read_stored(client: Client) -> tuple[list[CompiledPolicy], dict[str, float]]:
    """Return the policies of the cluster, and why it is too early to compile, with seconds."""
    live, stored = ClusterReader(client), []
    for resource in (resources.CLUSTER_POLICIES, resources.POLICIES):
        stored += await live.items(resource, lambda raw: (decode(raw), decode_anything(raw)))
    mutations = await live.items(resources.MUTATING_POLICIES, decode_compiled)
    bindings = await live.items(resources.MUTATING_POLICY_BINDINGS, decode_compiled)
    bound = {reference for reference, _ in enforced_policies(mutations, bindings)}
    early = dict(too_early((policy for policy, _ in stored), bound, datetime.now(UTC)))
    return [read_policy(value)[0] for _, value in stored], early


def too_early(
    policies: Iterable[PolicyProjection], bound: Collection[str], now: datetime
) -> Iterator[tuple[str, float]]:
    """Yield policies that left the API server so recently that a webhook can still leave them out.

    Each has the seconds until it may be known to be over.
    """
    for policy in policies:
        condition = policy.condition
        if policy.reference not in bound or (
            policy.enforcement != WEBHOOK and not policy.is_audited
        ):
            continue
        since = moment(condition.get("lastTransitionTime"))
        left = QUIET if since is None else QUIET - (now - since).total_seconds()
        if condition.get("status") != "False":
            text = "webhooks can still leave it out: wait until its status says Webhook"
            yield f"{policy.reference} must stay compiled: {text}", QUIET
        elif left > 0:
            text = f"webhooks enforce it again only since {since}: wait {ceil(left)} s"
            yield f"{policy.reference} must stay compiled: {text}", left


class _Compilation:
    """Compiles policies with the settings of an installation."""

    def __init__(
        self,
        arguments: Arguments,
        settings: WebhookSettings | None = None,
        controller: ControllerSettings | None = None,
    ) -> None:
        self._arguments = arguments
        self._settings: AdmissionSettings = settings or arguments.settings
        self._registration = (controller or ControllerSettings()).webhook

    def print(self, policies: Iterable[CompiledPolicy]) -> int:
        """Print the objects of one step or of all."""
        selection = self._select(policies)
        if not selection.policies:
            return self._explain_nothing(selection)
        try:
            objects = self._objects(selection)
        except ValueError as error:
            complain(str(error))
            return LEFT
        steps = (self._arguments.step,) if self._arguments.step else tuple(_INTRODUCTIONS)
        for step in steps:
            manifests = getattr(objects, step)
            introduction = _INTRODUCTIONS[step].format(key=SET_KEY, set=objects.set)
            sys.stdout.write(f"# {introduction}\n")
            sys.stdout.write(
                "---\n".join(map(dump, manifests)) + ("" if step == steps[-1] else "---\n")
            )
        return LEFT if selection.refusals else DONE

    async def try_out(self, client: Client, policies: Iterable[CompiledPolicy]) -> int:
        """Create objects by dry run in the probe namespace; report differences to ours."""
        selection = self._select(policies)
        if not selection.policies:
            return self._explain_nothing(selection)
        tried, differences = await self._try(client, selection)
        sys.stdout.writelines(chain.from_iterable(differences))
        say(f"{tried} objects tried, {len(differences)} differ")
        return LEFT if differences or selection.refusals else DONE

    async def _try(self, client: Client, selection: Selection) -> tuple[int, list[list[str]]]:
        """Return the number of objects that were tried, and the lines of each difference."""
        differences, tried = [], 0
        for part in registered_by(self._registration, self._arguments.installed_in).rules:
            for number, (namespace, pod) in enumerate(probe.probes(selection.policies)):
                obj = probe.object_of(part, f"probe-{number}", namespace, pod)
                created = msgspec.json.decode(
                    await client.create(_RESOURCES[part], obj, PROBE_NAMESPACE, dry_run=True)
                )
                ours, theirs = (
                    probe.fields_by_webhook(obj, selection.policies),
                    probe.owned_fields_of(created),
                )
                tried += 1
                titles = f"{part}, webhook", f"{part}, API server"
                if ours != theirs:
                    differences.append([*difference(ours, theirs, *titles)])
        return tried, differences

    async def apply(self, client: Client, policies: Iterable[CompiledPolicy]) -> int:
        """Take all steps. Raises ApiError if nothing of the cluster can be read."""
        selection = self._select(policies)
        is_dry, patience = self._arguments.dry_run, self._arguments.timeout
        try:
            objects = self._objects(selection) if selection.policies else Objects([], [], [], "")
            if not selection.policies and not await former_objects(client, objects):
                return self._explain_nothing(selection)
            trial = partial(self._try, client, selection)
            await apply_objects(client, objects, trial, patience=patience, is_dry=is_dry)
        except (StepError, ValueError, ApiError) as error:
            if isinstance(error, ApiError):
                raise_unusable(error)
            complain(f"not applied: {error}: correct it and run this again; it goes on from here")
            return LEFT
        return LEFT if selection.refusals else DONE

    def _select(self, policies: Iterable[CompiledPolicy]) -> Selection:
        settings, named = self._settings, self._arguments.policy_namespaces.split(",")
        selection = select(
            policies,
            namespaces=frozenset(filter(None, map(str.strip, named))),
            waiting_scheduler=settings.gate_scheduler_name,
            has_gates=settings.gating != "schedulerName",
        )
        options = settings.merge_options(node_name_as_field=False)
        faults = {
            "onRequiredAffinityConflict: skip": options.skip_conflicts,
            "treatDefaultSchedulerAsUnset: false": not options.treat_default_scheduler_as_unset,
            "treatDefaultTolerationsAsUnset: false": not options.treat_default_tolerations_as_unset,
            "features without policies": "policies" not in settings.features,
        }
        for fault in (setting for setting, is_set in faults.items() if is_set):
            raise StartError(
                f"the setting {fault} can't be compiled: the API server would do what the webhook "
                "does not"
            )
        for refusal in selection.refusals:
            complain(f"{refusal.reference} stays with the webhook: {refusal.reason}")
        return selection

    def _explain_nothing(self, selection: Selection) -> int:
        if not selection.refusals:
            complain(
                "nothing to compile: annotate policies with harbourmaster.dev/enforcement=Both, "
                "and with APIServer when they are bound"
            )
        return LEFT

    def _objects(self, selection: Selection) -> Objects:
        place = self._arguments.installed_in
        return compile_objects(selection.policies, registered_by(self._registration, place))


def registered_by(settings: RegistrationSettings, home: str) -> Registered:
    """Return the rules and selectors by which these settings register the webhook."""
    configuration = desired.desired_configurations(settings, desired.Home(home), None)[
        resources.MUTATING_WEBHOOKS
    ]
    entries = {webhook["name"]: webhook for webhook in configuration["webhooks"]}
    rules: dict[str, list[Json]] = {}
    for name in (desired.PODS_ENTRY, desired.TEMPLATES):
        for rule in entries.get(name, {}).get("rules", ()):
            part = "pods" if name == desired.PODS_ENTRY else "templates"
            if "cronjobs" in rule["resources"]:
                part = "cronjobs"
            rules.setdefault(part, []).append(rule)
    entry = entries.get(desired.PODS_ENTRY) or entries.get(desired.TEMPLATES) or {}
    namespaces = entry.get("namespaceSelector", {})
    expressions = [
        expression
        for expression in namespaces.get("matchExpressions", ())
        if expression["key"] != desired.GATES_LABEL
    ]
    return Registered(
        rules, {**namespaces, "matchExpressions": expressions}, entry.get("objectSelector", {})
    )
