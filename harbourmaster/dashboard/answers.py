"""Composes answers other than pages, and the notes of a page about its data."""

from __future__ import annotations

import math
from http import HTTPStatus
from shlex import join
from typing import TYPE_CHECKING, Any

from harbourmaster.api.names import dns_label
from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.registry import OVERVIEW
from harbourmaster.kube.errors import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.registry import Page
    from harbourmaster.dashboard.sources import PageSources, Source
    from harbourmaster.dashboard.tokens import RateLimit
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.kube.access import User
    from harbourmaster.kube.errors import ApiError


class PageRefused(Exception):  # noqa: N818 - it is an answer, and named after it
    """An answer that is not a page: what is wrong, and how to mend it (``advice``, ``command``)."""

    def __init__(
        self,
        status: HTTPStatus,
        text: str,
        advice: str = "",
        *,
        retry_after: float = 0.0,
        command: str = "",
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.advice = advice
        self.retry_after = retry_after
        self.command = command


def check_rate(limit: RateLimit, user: str, text: str) -> None:
    """Raise PageRefused if the user must wait."""
    delay = limit.delay(user)
    if delay:
        advice = f"Try again in {math.ceil(delay)} s."
        raise PageRefused(HTTPStatus.TOO_MANY_REQUESTS, text, advice, retry_after=delay)


def forbidden(page: Page, user: User, namespace: str, unchecked_namespaces: int = 0) -> PageRefused:
    """Return the answer to a user that may list nothing of a page.

    ``unchecked_namespaces`` is that of the Visibility.
    """
    places = _places(namespace)
    advice, command = _grant(user, namespace, page.needed_kinds)
    if unchecked_namespaces:
        places[True] = (
            f"in the namespaces that were asked about; {unchecked_namespaces} were too many"
        )
        advice = f"Name yours in the address: {page.path}?namespace=NAME. Or {advice.lower()}"
    kinds = "; or list ".join(
        f"{' and '.join(kind.name for kind in group)} {places[group[0].namespaced]}"
        for group in page.needed
    )
    text = f"Missing permission: list {kinds}."
    return PageRefused(HTTPStatus.FORBIDDEN, text, advice, command=command)


def hidden_on(page: Page, user: User, namespace: str, visible: Visibility) -> tuple[str, str, str]:
    """Return the kinds that a page omits for lack of permissions, advice, and commands."""
    kinds = [kind for kind in page.kinds if visible.of(kind).is_empty]
    names: dict[str, list[str]] = {}
    for kind in sorted(kinds, key=lambda kind: not kind.namespaced):
        names.setdefault(_places(namespace)[kind.namespaced], []).append(kind.name)
    hidden = "; ".join(f"{where}: {', '.join(kind)}" for where, kind in names.items())
    return (hidden, *_grant(user, namespace, kinds))


def check_failed(error: ApiError | TimeoutError) -> PageRefused:
    """Return the answer to a user whose permissions could not be checked."""
    text = "The API server did not answer who you are or what you can list."
    advice, command = "Try again in a moment.", ""
    if isinstance(error, ForbiddenError):
        text = f"The controller has no permission to {error.call}."
        advice = "Ask an administrator to apply the component dashboard. What is missing:"
        command = "harbourmaster doctor"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return PageRefused(status, text, advice, retry_after=2, command=command)


def _places(namespace: str) -> dict[bool, str]:
    """Return where kinds must be listed, by whether they are namespaced."""
    named = f"in the namespace {namespace}" if namespace else "in any namespace"
    return {True: named, False: "in the whole cluster"}


def _grant(user: User, namespace: str, kinds: Iterable[Resource]) -> tuple[str, str]:
    """Return advice for a user that cannot list these kinds, and one command for each scope."""
    if namespace and dns_label(namespace):
        return "This is not a valid namespace: choose another one.", ""
    inside = ("rolebinding", f"--namespace={namespace or 'NAMESPACE'}")
    bindings = {True: inside, False: ("clusterrolebinding",)}
    scopes = sorted({kind.namespaced for kind in kinds}, reverse=True)
    which = " one of these, the second for the whole cluster" if len(scopes) > 1 else ""
    account = user.name.removeprefix("system:serviceaccount:")
    subject = f"--user={user.name}" if account == user.name else f"--serviceaccount={account}"
    name = f"dashboard-{account.replace('/', '-').replace('%', '-')}"
    role = "--clusterrole=harbourmaster-dashboard-viewer"
    lines = (join(("kubectl", "create", *bindings[scope], name, role, subject)) for scope in scopes)
    return f"Ask an administrator to run{which}:", "\n".join(lines)


def notes_on(page: Page, sources: PageSources, visible: Visibility) -> list[str]:
    """Return remarks about the data of a page, such as that it is incomplete."""
    shown = [(kind, sources.of(kind)) for kind in page.kinds]
    if page.counts:
        shown = [(kind, source) for kind, source in shown if kind is not PODS]
        shown.append((PODS, sources.labels))
    if page is OVERVIEW:
        shown.append((PODS, sources.gated_pods))
    texts = (_note(page, kind, source) for kind, source in shown if not visible.of(kind).is_empty)
    notes = list(dict.fromkeys(filter(None, texts)))
    if visible.unchecked_namespaces:
        notes.append(
            f"There are {visible.unchecked_namespaces} more namespaces than one page asks about: "
            "choose one."
        )
    return notes


def _note(page: Page, kind: Resource, source: Source[Any] | None) -> str:
    if source is None:
        if kind in page.needed_kinds and page is not OVERVIEW:
            return f"No data on {kind.plural}: their controller is switched off."
    elif source.error is not None and source.is_forbidden:
        return (
            f"The controller has no permission to list and watch {kind.name}: the data may be "
            "out of date; harbourmaster doctor lists what is missing."
        )
    elif source.error is not None:
        return f"The watch of {kind.plural} is disconnected: the data may be out of date."
    elif not source.synced.is_set():
        return f"The {kind.plural} are being listed: the data is incomplete."
    elif source.absent and kind in page.needed_kinds:
        return f"The kind {kind.kind} is not installed in this cluster."
    return ""
