"""Answers other than pages, and the notes of a page about its data."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.registry import OVERVIEW, SOURCES

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.attempts import RateLimit
    from harbourmaster.dashboard.registry import Page
    from harbourmaster.dashboard.sources import PageSources, Source
    from harbourmaster.dashboard.visibility import Visibility


class PageRefused(Exception):  # noqa: N818 - it is an answer, and named after it
    """An answer that is not a page; ``text`` is what is wrong, ``advice`` what to do."""

    def __init__(
        self, status: HTTPStatus, text: str, advice: str = "", *, retry_after: float = 0.0
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.advice = advice
        self.retry_after = retry_after


def check(allowed: RateLimit, who: str, text: str) -> None:
    """Raises PageRefused for who has to wait."""
    wait = allowed.wait(who)
    if wait:
        advice = f"Try again in {math.ceil(wait)} s."
        raise PageRefused(HTTPStatus.TOO_MANY_REQUESTS, text, advice, retry_after=wait)


def forbidden(page: Page, namespace: str, unasked: int = 0) -> PageRefused:
    """The answer to who may list nothing of a page; ``unasked`` as in a Visibility."""
    kinds = "; or ".join(
        " and ".join(f"{kind.plural}.{kind.group}".rstrip(".") for kind in group)
        for group in page.needed
    )
    where = f"in the namespace {namespace}" if namespace else "in any namespace"
    ask = "Ask"
    if unasked:
        where = f"in the namespaces that were asked about; {unasked} were too many"
        ask = f"Name yours in the address: {page.path}?namespace=NAME. Or ask"
    return PageRefused(
        HTTPStatus.FORBIDDEN,
        f"You are not allowed to list what this page shows {where}.",
        f"{ask} for the right to list {kinds}: ClusterRole harbourmaster-dashboard-viewer has it.",
    )


def notes_on(page: Page, sources: PageSources, visible: Visibility) -> list[str]:
    """What is to be known about the data, such as that it is not there yet."""
    shown = [(kind, sources.named(SOURCES[kind])) for kind in page.kinds]
    if page.counts:
        shown = [(kind, source) for kind, source in shown if kind is not PODS]
        shown.append((PODS, sources.labels))
    if page.counts and PODS in page.needed_kinds:
        shown.append((PODS, sources.gated_pods))
    found = (_note(page, kind, source) for kind, source in shown if not visible.of(kind).is_empty)
    notes = list(dict.fromkeys(filter(None, found)))
    if visible.unasked:
        notes.append(
            f"There are {visible.unasked} more namespaces than one page asks about: choose one."
        )
    return notes


def _note(page: Page, kind: Resource, source: Source[Any] | None) -> str:
    if source is None:
        if kind in page.needed_kinds and page is not OVERVIEW:
            return f"No data on {kind.plural}: their controller is switched off."
    elif source.error is not None:
        return f"The watch of {kind.plural} is disconnected: the data may be out of date."
    elif not source.synced.is_set():
        return f"The {kind.plural} are being listed: the data is incomplete."
    elif source.absent and kind in page.needed_kinds:
        return f"The kind {kind.kind} is not installed in this cluster."
    return ""
