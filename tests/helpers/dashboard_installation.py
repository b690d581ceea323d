"""An installation with the dashboard, people of different rights, and what a person asks it for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
import urllib.request
import uuid
from typing import Any, NamedTuple

import aiohttp

from harbourmaster.playground.installation import Installation
from harbourmaster.playground.ports import free_ports
from helpers.cluster import eventually, fresh_namespace
from helpers.flow.installation import FLAGS
from helpers.flow.manifests import deployment, keptn
from helpers.manifests import overlay
from helpers.objects import policy
from helpers.patience import PATIENCE

PEOPLE = "people"
VIEWER = "harbourmaster-dashboard-viewer"
OPT_IN = {"keptn.sh/lifecycle-toolkit": "enabled"}


class DashboardInstallation:
    """One controller with the dashboard on a plain loopback port; ``with`` runs it."""

    def __init__(self, plane, directory):
        self.plane = plane
        self.kubectl = plane.kubectl
        (self.port,) = free_ports(1)
        self.origin = f"http://127.0.0.1:{self.port}"
        self.flags = (*FLAGS, "--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}")
        self.installation = Installation(
            plane,
            folder=overlay(directory / "overlay", "dashboard"),
            arguments={"controller": self.flags},
        )

    def __enter__(self):
        self.installation.start()
        self.listening()
        self.kubectl("create", "namespace", PEOPLE)
        return self

    def __exit__(self, *_):
        self.installation.stop()

    def namespace(self, stem, **annotations):
        """A fresh namespace whose pods are gated."""
        return fresh_namespace(self.kubectl, stem, annotations={**OPT_IN, **annotations})

    def person(self, *namespaces, everywhere=False):
        """Somebody who may see these namespaces; return name and token."""
        name = f"person-{uuid.uuid4().hex[:6]}"
        account = f"--serviceaccount={PEOPLE}:{name}"
        self.kubectl("create", "serviceaccount", name, f"--namespace={PEOPLE}")
        for namespace in namespaces:
            self.grant(name, namespace)
        if everywhere:
            self.kubectl("create", "clusterrolebinding", name, f"--clusterrole={VIEWER}", account)
        return name, self.token(name)

    def grant(self, name, namespace):
        """Let the user see one more namespace."""
        account = f"--serviceaccount={PEOPLE}:{name}"
        role = f"--clusterrole={VIEWER}"
        self.kubectl("create", "rolebinding", name, role, account, f"--namespace={namespace}")

    def revoke(self, name, namespace):
        """Let the user see one namespace less."""
        self.kubectl("delete", "rolebinding", name, f"--namespace={namespace}")

    def token(self, name, *flags):
        """A token as people get one."""
        where = f"--namespace={PEOPLE}"
        return self.kubectl("create", "token", name, where, *flags).stdout.strip()

    def waiting(self, namespace, name):
        """A policy, and a Deployment whose pod waits for an undefined task."""
        items = [
            policy(name, namespace, nodeSelector={"example.com/dashboard": "x"}),
            deployment(name, keptn(name, pre_deployment_tasks="audit")),
        ]
        for item in items:
            where = f"--namespace={namespace}"
            self.kubectl("create", where, "-f=-", stdin=json.dumps(item))

    def apply(self, namespace, manifest):
        """Create or change an object."""
        self.kubectl("apply", f"--namespace={namespace}", "-f=-", stdin=json.dumps(manifest))

    def restart(self, *flags):
        """Restart the controller with these flags after the others."""
        self.installation.restart("controller", (*self.flags, *flags))

    def listening(self):
        """Wait until the port is open."""

        def is_open():
            with contextlib.closing(socket.socket()) as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        eventually(is_open)

    def watches(self):
        """The watches of the controller, by the names of its mirrors."""
        pattern = r'^harbourmaster_watch_lists_total.resource="([^"]*)"'
        return set(re.findall(pattern, self.metrics(), re.MULTILINE))

    def metrics(self):
        """The text of the controller's metrics."""
        path = f"{self.installation.workloads['controller'].health}/metrics"
        with urllib.request.urlopen(path, timeout=PATIENCE) as answer:  # noqa: S310
            return answer.read().decode()

    @contextlib.asynccontextmanager
    async def pages(self, token=None, **headers):
        """A client of the pages with a bearer token; redirects are shown, not followed."""
        headers = dict(headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(
            self.origin, headers=headers, timeout=timeout, cookie_jar=jar
        ) as session:
            yield Pages(session)


class Answer(NamedTuple):
    """An answer that has come whole."""

    status: int
    headers: Any
    text: str


class Pages:
    """A person's questions."""

    def __init__(self, session):
        self.session = session

    async def get(self, path, **options):
        """One page."""
        return await self.ask("GET", path, **options)

    async def ask(self, method, path, **options):
        """One answer by any method."""
        async with self.session.request(method, path, allow_redirects=False, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.text())

    async def until(self, path, condition, patience=PATIENCE):
        """Ask for a page again and again until it is so; return the last answer.

        What a page shows is what it is asked for: the decisions of 10 s ago end unheard.
        """
        deadline = time.monotonic() + patience
        answer = await self.get(path)
        while not condition(answer):
            assert time.monotonic() < deadline, answer
            await asyncio.sleep(0.5)
            answer = await self.get(path)
        return answer
