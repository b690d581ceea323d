"""The entry point of the controller process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from harbourmaster import __version__
from harbourmaster.api.field_errors import reason
from harbourmaster.certs.hardening import disable_core_dumps
from harbourmaster.controller.manager import Manager
from harbourmaster.controller.validation import validate
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect, own_namespace
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.serving.drain import StopSignals
from harbourmaster.serving.process import start_tracing
from harbourmaster.serving.settings import StartError
from harbourmaster.serving.site import AddressError
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.telemetry.logging import configure_logging

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.connection import Connection

NAME: Final = "harbourmaster-controller"
"""The name of the process in traces and in requests to the API server."""


def run(arguments: Arguments) -> int:
    """Run the controllers until SIGTERM or SIGINT. Raises StartError."""
    settings: ControllerSettings = arguments.settings
    disable_core_dumps()
    configure_logging(settings.log.level, settings.log.format)
    faults = validate(settings)
    if faults:
        raise StartError(reason(faults))
    cluster = settings.cluster
    directory = Path(cluster.service_account_dir)
    namespace = cluster.namespace or own_namespace(directory)
    if namespace is None:
        raise StartError("own namespace unknown: set --namespace, or $POD_NAMESPACE in the pod")
    try:
        connection = connect(
            cluster.kubeconfig, context=cluster.context, service_account_dir=directory
        )
        uvloop.run(_work(settings, connection, namespace))
    except (AddressError, ConnectionSettingsError) as error:
        raise StartError(str(error)) from None
    return 0


async def _work(settings: ControllerSettings, connection: Connection, namespace: str) -> None:
    metrics = create_controller_metrics(__version__, settings.running)
    tracer = start_tracing(settings.tracing, NAME, __version__, metrics.spans)
    observer = metrics.api_calls.note
    async with Client(connection, user_agent=NAME, observer=observer) as client:
        with StopSignals() as stop:
            await Manager(settings, client, namespace, metrics, tracer).run(stop.wait)
