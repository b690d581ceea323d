"""Connections from kubeconfig files, which kubernetes_asyncio reads and merges.

Imported only if a kubeconfig is used. Only the library's reader is used: its client sends requests
without time-outs, keeps keys in temporary files, runs plugins without a limit, and its errors quote
secrets.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_plus, urlsplit

import aiohttp
import msgspec
import yaml
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.kube_config import ConfigNode, FileOrData, KubeConfigMerger
from msgspec import Struct

from harbourmaster.kube.connection import (
    FALLBACK_NAMESPACE,
    Connection,
    TokenFile,
    check_token,
    claims_of,
    fixed_token,
    server_url,
)
from harbourmaster.kube.errors import ConnectionSettingsError, one_line
from harbourmaster.kube.plugins import PluginCommand, PluginToken
from harbourmaster.kube.trust import client_context, load_pair, verifying_context
from harbourmaster.telemetry.text import reason
from harbourmaster.telemetry.transport_errors import explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


PROVIDER_SECONDS: Final = 10.0
MARGIN: Final = 10.0
"""Seconds before its end at which a token is renewed."""
_MAX_BYTES: Final = 1024 * 1024


class Provider(Struct, frozen=True, gc=False, rename="kebab"):
    """An ``auth-provider`` section's ``config``."""

    idp_issuer_url: str
    client_id: str
    client_secret: str = ""
    id_token: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str = ""
    idp_certificate_authority_data: str = ""


class _Discovery(Struct, frozen=True, gc=False):
    token_endpoint: str


class _Tokens(Struct, frozen=True, gc=False):
    id_token: str
    refresh_token: str = ""


class OidcToken:
    """The ID token of a user while it is valid, then new ones."""

    def __init__(
        self,
        provider: Provider,
        context: ssl.SSLContext,
        source: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``context`` is for the identity provider; ``source`` names the kubeconfig in errors."""
        self._provider = provider
        self._context = context
        self._source = source
        self._now = now
        self._id_token = provider.id_token
        self._refresh_token = provider.refresh_token
        self._renewing = asyncio.Lock()

    async def get(self) -> str:
        """Return the ID token. Raises ConnectionSettingsError."""
        async with self._renewing:
            if not self._id_token or self._has_ended():
                await self._renew()
        return self._id_token

    def expire(self) -> None:
        """Renew the token at the next call."""
        self._id_token = ""

    def _has_ended(self) -> bool:
        end = claims_of(self._id_token).exp
        return end is not None and self._now() >= end - MARGIN

    async def _renew(self) -> None:
        if not self._refresh_token:
            raise ConnectionSettingsError(
                f"{self._source}: the id-token has expired and there is no refresh-token: "
                "log in again"
            )
        issuer = self._provider.idp_issuer_url.rstrip("/")
        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._context),
                timeout=aiohttp.ClientTimeout(total=PROVIDER_SECONDS),
                trust_env=False,
            ) as session:
                discovery = await self._ask(session, f"{issuer}/.well-known/openid-configuration")
                endpoint = msgspec.json.decode(discovery, type=_Discovery).token_endpoint
                form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
                if not self._provider.client_secret:
                    form["client_id"] = self._provider.client_id
                tokens = msgspec.json.decode(await self._ask(session, endpoint, form), type=_Tokens)
        except msgspec.DecodeError as error:
            raise self._fault(f"sent an invalid answer: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            text = explain(error, issuer)
            raise ConnectionSettingsError(
                f"{self._source}: renewing the id-token failed: {text}"
            ) from error
        self._id_token = check_token(tokens.id_token, f"{self._source}: the answer of {issuer}")
        self._refresh_token = tokens.refresh_token or self._refresh_token

    async def _ask(
        self, session: aiohttp.ClientSession, url: str, form: dict[str, str] | None = None
    ) -> bytes:
        if urlsplit(url).scheme != "https":
            raise self._fault("has no https URL")
        async with session.request(
            "GET" if form is None else "POST",
            url,
            data=form,
            headers={} if form is None else self._login(),
            allow_redirects=False,
        ) as response:
            body = await response.content.read(_MAX_BYTES)
            if response.status != HTTPStatus.OK:
                raise self._fault(
                    f"rejected the renewal of the id-token: HTTP {response.status}: log in again"
                )
            return body

    def _login(self) -> dict[str, str]:
        """Return the client's header (RFC 6749, 2.3.1); none for a client without a secret."""
        if not self._provider.client_secret:
            return {}
        pair = f"{quote_plus(self._provider.client_id)}:{quote_plus(self._provider.client_secret)}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _fault(self, text: str) -> ConnectionSettingsError:
        return ConnectionSettingsError(
            f"{self._source}: the identity provider {self._provider.idp_issuer_url} {text}"
        )


_EXEC_VERSIONS: Final = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)
_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")


class Credentials(NamedTuple):
    """Callbacks of a Connection: one that returns the token, one for a rejected token."""

    token: Callable[[], Awaitable[str | None]]
    refused: Callable[[], None] | None


def connection_from(paths: str, context: str | None) -> Connection:
    """Return the connection of a context, by default of the current one.

    ``paths`` are files separated by colons, of which some may be missing. Raises
    ConnectionSettingsError.
    """
    try:
        return _connection(_merge(paths), paths, context)
    except OSError as error:
        raise ConnectionSettingsError(
            f"kubeconfig {paths}: {error.filename or ''} can't be read: {reason(error)}"
        ) from error
    except ConfigException:
        # Its text shows the section that it is about, secrets included.
        raise _fault(f"kubeconfig {paths}", "is invalid: a section has the wrong form") from None


def _merge(paths: str) -> ConfigNode:
    given = [Path(path).expanduser() for path in paths.split(":") if path]
    if not any(path.exists() for path in given):
        raise ConnectionSettingsError(f"kubeconfig {paths} is not there")
    try:
        config = KubeConfigMerger(paths).config
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise _fault(f"kubeconfig {paths}", f"is not valid YAML{where}") from None
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise _fault(f"kubeconfig {paths}", "is invalid") from error
    if config is None:
        raise _fault(f"kubeconfig {paths}", "is empty")
    return config


def _connection(config: ConfigNode, paths: str, context: str | None) -> Connection:
    name = context or config.safe_get("current-context")
    if not name:
        raise _fault(f"kubeconfig {paths}", "has no current-context: set a context")
    source = f"kubeconfig {paths}, context {name}"
    chosen, _ = _section(config, "context", str(name), source)
    cluster, cluster_path = _section(config, "cluster", str(chosen.get("cluster") or ""), source)
    user_name = str(chosen.get("user") or "")
    namespace = str(chosen.get("namespace") or FALLBACK_NAMESPACE)
    user, user_path = _section(config, "user", user_name, source) if user_name else ({}, "")
    server = str(cluster.get("server") or "")
    url = server_url(server, {"http", "https"}, source)
    server = server.rstrip("/")
    if cluster.get("proxy-url"):
        raise _fault(source, "proxy-url is not supported")
    if url.scheme == "http":
        # No credentials where anybody can read them, as kubectl does it.
        return Connection(server=server, user=user_name, source=source, namespace=namespace)
    tls = _context(cluster, _folder(cluster_path), source)
    _load_certificate(tls, user, _folder(user_path), source)
    credentials = _credentials(user, _folder(user_path), cluster, tls, source)
    return Connection(
        server=server,
        ssl=tls,
        token=credentials and credentials.token,
        refused=credentials and credentials.refused,
        user=user_name,
        source=source,
        server_name=cluster.get("tls-server-name") or None,
        namespace=namespace,
    )


def _section(config: ConfigNode, kind: str, name: str, source: str) -> tuple[dict[str, Any], str]:
    """Return the content of a named section, and the file that contains it."""
    node = (
        config[f"{kind}s"].get_with_name(name, safe=True) if config.safe_get(f"{kind}s") else None
    )
    if node is None:
        raise _fault(source, f'has no {kind} "{name}"')
    content = node.safe_get(kind)
    if content is None and kind == "user":
        return {}, node.path or ""
    if not isinstance(content, dict):
        raise _fault(source, f'{kind} "{name}" is empty')
    return content, node.path or ""


def _context(cluster: dict[str, Any], folder: Path, source: str) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        context = client_context()
        context.check_hostname = False
        # The user set insecure-skip-tls-verify.
        context.verify_mode = ssl.CERT_NONE
        return context
    authorities = _content(cluster, "certificate-authority", folder, source)
    return verifying_context(authorities, f"{source}: certificate-authority")


def _load_certificate(
    context: ssl.SSLContext, user: dict[str, Any], folder: Path, source: str
) -> None:
    certificate = _content(user, "client-certificate", folder, source)
    if certificate is not None:
        key = _content(user, "client-key", folder, source) or b""
        load_pair(context, certificate, key, source)


def _content(section: dict[str, Any], field: str, folder: Path, source: str) -> bytes | None:
    """Return the content of a field, which names a file or holds data; None if it is not set."""
    if not (section.get(field) or section.get(f"{field}-data")):
        return None
    encoded = FileOrData(section, field, file_base_path=str(folder)).as_data()
    try:
        return base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise _fault(source, f"{field}-data is not valid base64") from None


def _credentials(
    user: dict[str, Any],
    folder: Path,
    cluster: dict[str, Any],
    context: ssl.SSLContext,
    source: str,
) -> Credentials | None:
    """Return the source of the user's tokens; None for a user with a certificate alone."""
    unsupported = [name for name in (*_IMPERSONATION, "username") if user.get(name)]
    if unsupported:
        # Ignoring it would mean acting as a user with other permissions.
        raise _fault(source, f"{unsupported[0]} of a user is not supported")
    if user.get("tokenFile"):
        file = TokenFile(folder / str(user["tokenFile"]))
        file.read()
        return Credentials(file.get, file.expire)
    if user.get("token"):
        return Credentials(fixed_token(str(user["token"]), f"{source}: token"), None)
    if user.get("exec"):
        plugin = PluginToken(_command(user["exec"], folder, cluster, source), context)
        return Credentials(plugin.get, plugin.expire)
    if user.get("auth-provider"):
        oidc = _oidc(user["auth-provider"], folder, source)
        return Credentials(oidc.get, oidc.expire)
    return None


def _command(
    section: dict[str, Any], folder: Path, cluster: dict[str, Any], source: str
) -> PluginCommand:
    try:
        provider = ExecProvider(ConfigNode("exec", section))
    except (ConfigException, TypeError, KeyError):
        raise _fault(source, "exec: invalid section") from None
    if provider.api_version not in _EXEC_VERSIONS:
        version = one_line(str(provider.api_version), 100)
        raise _fault(source, f"exec: apiVersion {version} is not supported")
    if section.get("interactiveMode") == "Always":
        raise _fault(source, "exec: the plugin needs a terminal (interactiveMode: Always)")
    program, *arguments = (str(argument) for argument in provider.args)
    # As in a shell: a bare name is looked for in PATH, anything else stands beside the file.
    if os.sep in program:
        program = str(folder / program)
    return PluginCommand(
        arguments=(program, *arguments),
        environment={str(name): str(value) for name, value in provider.env.items()},
        api_version=provider.api_version,
        cluster=_cluster_info(cluster, folder, source)
        if section.get("provideClusterInfo")
        else None,
        source=source,
    )


def _cluster_info(cluster: dict[str, Any], folder: Path, source: str) -> dict[str, Any]:
    """Return the cluster information for a plugin."""
    info = {
        name: cluster[name]
        for name in ("server", "tls-server-name", "insecure-skip-tls-verify")
        if cluster.get(name)
    }
    authorities = _content(cluster, "certificate-authority", folder, source)
    if authorities is not None:
        info["certificate-authority-data"] = base64.b64encode(authorities).decode()
    return info


def _oidc(section: dict[str, Any], folder: Path, source: str) -> OidcToken:
    if section.get("name") != "oidc":
        name = one_line(str(section.get("name")), 100)
        raise _fault(source, f"auth-provider {name} is not supported: use an exec plugin")
    try:
        provider = msgspec.convert(section.get("config"), Provider)
    except msgspec.ValidationError as error:
        raise _fault(source, f"auth-provider oidc: {error}") from None
    fields = {
        "ca": provider.idp_certificate_authority,
        "ca-data": provider.idp_certificate_authority_data,
    }
    authorities = _content(fields, "ca", folder, source)
    context = verifying_context(authorities, f"{source}: idp-certificate-authority")
    return OidcToken(provider, context, source)


def _folder(path: str) -> Path:
    return Path(path).expanduser().absolute().parent


def _fault(source: str, text: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(f"{source}: {text}")
