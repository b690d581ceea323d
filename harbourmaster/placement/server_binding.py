"""The server to which a Cluster is bound, whatever its Secret says later (krake-spec 7.10).

Who can write the Secret renews credentials. Another server, TLS name or certificate authority has
to be accepted by a user that can write the Cluster.
"""

from __future__ import annotations

from hashlib import sha256
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.placement.model import FALSE, GROUP, TRUE, BoundServer, Condition

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata

SERVER_BOUND: Final = "ServerBound"
"""The condition; False while the kubeconfig has something that is not accepted."""
ACCEPT_SERVER: Final = f"{GROUP}/accept-server"
"""The annotation: the code of the only change that it accepts."""
TO_ACCEPT: Final = "; to accept it: "
_CHANGED: Final = "ServerChanged"


class ServerVerdict(Struct, frozen=True):
    """The server to stay bound to, and what the kubeconfig has that is not accepted."""

    bound: BoundServer | None
    reason: str = "Bound"
    fault: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether nothing may be sent."""
        return self.reason == _CHANGED

    def condition(self, generation: int) -> Condition:
        """Return the condition of the Cluster."""
        status = FALSE if self.fault else TRUE
        state = Condition(type=SERVER_BOUND, status=status, reason=self.reason)
        return replace(state, message=self.fault, observed_generation=generation)


def judge_server(
    metadata: Metadata, wanted: str, bound: BoundServer | None, offered: BoundServer
) -> ServerVerdict:
    """Judge the server of a kubeconfig; ``wanted`` is that of the spec, empty if it has none.

    ``offered.time`` is now. The first server binds, and so does another one that the spec names.
    """
    target = f"clusters.{GROUP} {metadata.name}"
    kubectl = f"{TO_ACCEPT}kubectl -n {metadata.namespace}"
    if wanted and offered.url != wanted:
        value = quote(msgspec.json.encode({"spec": {"server": offered.url}}).decode())
        command = f"{kubectl} patch {target} --type merge -p {value}"
        return ServerVerdict(bound, _CHANGED, f"server is {offered.url}, not spec.server{command}")
    if bound is None or (wanted and bound.url != wanted):
        return ServerVerdict(offered)
    faults = []
    if offered.url != bound.url:
        faults.append(f"server is {offered.url}, not {bound.url}")
    if offered.tls_server_name != bound.tls_server_name:
        faults.append(f'tls-server-name is "{offered.tls_server_name}"')
    added = set(offered.authorities) - set(bound.authorities)
    if not faults and not added:
        return ServerVerdict(replace(bound, authorities=offered.authorities))
    # With the time, a code is good for one binding: an old one does not lead back.
    change = msgspec.json.encode((bound, replace(offered, time="")))
    code = sha256(change).hexdigest()[:32]
    if metadata.annotations.get(ACCEPT_SERVER) == code:
        return ServerVerdict(offered)
    reason = _CHANGED if faults or len(added) == len(offered.authorities) else "AuthoritiesAdded"
    if added:
        use = "another one" if reason == _CHANGED else "one more, which is not trusted yet"
        faults.append(f"certificate authority is {use}")
    command = f"{kubectl} annotate {target} --overwrite {ACCEPT_SERVER}={code}"
    return ServerVerdict(bound, reason, ", ".join(faults) + command)
