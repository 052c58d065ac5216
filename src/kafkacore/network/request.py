"""The context of a request: everything that a handler gets in addition to the body."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """The context of a request. `listener` is the listener's name. `client_host` is the peer's address without the
    port. `received_ns` is a time of the node's clock. `forwarded` is true if a broker has forwarded the request for
    its client (KIP-590)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    client_host: str
    received_ns: int = 0
    principal: str = "User:ANONYMOUS"
    forwarded: bool = False
