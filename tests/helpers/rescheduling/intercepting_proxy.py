"""A proxy before the API server that lets a test step in between our controller and its answers."""

from __future__ import annotations

import asyncio
import json

import yaml
from aiohttp import web

from helpers.fake_store import status
from helpers.faults.api_proxy import ApiProxy
from helpers.rights import kubeconfig


class InterceptingProxy(ApiProxy):
    """Asks ``intercept(method, path, body)`` before each request, a coroutine function of the test.

    It runs in the loop of the test. What it returns, a status and a body, is the answer; None
    passes the request on. ``kubeconfig`` leads an administrator through the proxy.
    """

    def __init__(self, plane):
        super().__init__(plane)
        self._intercept = None
        self._home = None

    @property
    def kubeconfig(self):
        """A file with the address of the proxy and an administrator's token: it ends TLS."""
        token = _token(self._plane.kubectl)
        config = yaml.safe_load(kubeconfig(self._plane.kubeconfig, token=token))
        for cluster in config["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        file = self._plane.layout.directory / f"proxied-{self.port}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def intercept(self, function):
        """Ask ``function`` from now on; with None every request passes."""
        self._home = asyncio.get_running_loop()
        self._intercept = function

    async def _answer(self, request):
        if self._intercept is not None:
            body = await request.read()
            asked = self._intercept(request.method, request.path, json.loads(body) if body else {})
            future = asyncio.run_coroutine_threadsafe(asked, self._home)
            if (answer := await asyncio.wrap_future(future)) is not None:
                code, document = answer
                headers = {"Retry-After": "1"} if code == 429 else {}
                return web.json_response(document, status=code, headers=headers)
        return await super()._answer(request)


def _token(kubectl):
    account = ("serviceaccount", "admin", "--namespace=default")
    kubectl("create", *account, check=False)
    role = ("--clusterrole=cluster-admin", "--serviceaccount=default:admin")
    kubectl("create", "clusterrolebinding", "test-admin", *role, check=False)
    return kubectl(
        "create", "token", "admin", "--namespace=default", "--duration=3h"
    ).stdout.strip()


def overload_answer():
    """The answer of an API server that is too busy: no budget is named."""
    text = "too many requests, please try again later"
    return 429, status(429, text, details={"retryAfterSeconds": 1})


def is_dry(body):
    """Whether an eviction only asks whether it could be."""
    return bool((body.get("deleteOptions") or {}).get("dryRun"))
