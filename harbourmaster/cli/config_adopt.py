"""``harbourmaster config adopt``: lets a KeptnConfig of another namespace count.

The adoption is a KeptnConfig in our namespace, which only administrators can write.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.json import Decoder

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client, say
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import raise_unusable
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.keptn_config import (
    ADOPTS,
    choose_config,
    status_text,
    waits_for_adoption,
)
from harbourmaster.lifecycle.model import Config

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator, Sequence

    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.keptn_config import ChosenConfig

NAME: Final = "adopted"
"""The name of the KeptnConfig that is created."""


def adopt(arguments: Arguments) -> int:
    """Adopt one, or list those that wait; 0 done or nothing waits, 1 refused or some wait."""
    return run_with_client(arguments, partial(_adopt, arguments))


async def _adopt(arguments: Arguments, client: Client) -> int:
    home = arguments.installed_in
    live = Installation(client, home)
    try:
        places = (home, *(await live.known_settings()).lifecycle.definition_namespaces)
        configs = await live.items(KEPTN_CONFIGS, Decoder(Config).decode)
        choice = choose_config(configs, places)
        if arguments.config is None:
            waiting = [config for config in configs if waits_for_adoption(config, choice, places)]
            for config in waiting:
                say(f"{config.metadata.key}: {status_text(config, choice, places)}")
            return LEFT if waiting else DONE
        namespace, name = subject_of(arguments, arguments.config, client.connection.namespace)
        key = f"{namespace}/{name}"
        for refusal in _refusals(key, configs, choice):
            complain(refusal)
            return LEFT
        body = {
            **KEPTN_CONFIGS.type_fields,
            "metadata": {"name": NAME, "namespace": home, "annotations": {ADOPTS: key}},
        }
        await client.create(KEPTN_CONFIGS, body, home)
    except ApiError as error:
        raise_unusable(error)
        complain(str(error))
        return LEFT
    say(f"{key} adopted: users that can write it configure the whole cluster")
    say(f"to undo it, run kubectl -n {home} delete keptnconfig {NAME}")
    return DONE


def _refusals(key: str, configs: Sequence[Config], choice: ChosenConfig) -> Iterator[str]:
    """Why ``key`` can't be adopted."""
    if choice.counts is not None and choice.counts.metadata.key == key:
        yield f"KeptnConfig {key} is in force already"
    elif key not in [config.metadata.key for config in configs]:
        remedy = "harbourmaster config adopt lists those that can be adopted"
        yield f'KeptnConfig "{key}" not found: {remedy}'
    elif choice.first is not None:
        own = choice.first.metadata
        what = f"adopts {choice.adopted}" if choice.adopted else "comes first"
        remedy = f"first run kubectl -n {own.namespace} delete keptnconfig {own.name}"
        yield f"KeptnConfig {own.key} {what}: {remedy}"
