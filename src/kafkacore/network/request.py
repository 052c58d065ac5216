"""A request's context: everything that a handler gets besides the body."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """`listener` is the listener's name, `client_host` the peer's address without port, `received_ns` a time of the
    node's clock. `forwarded` says that a broker has forwarded the request for its client (KIP-590)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    client_host: str
    received_ns: int = 0
    principal: str = "User:ANONYMOUS"
    forwarded: bool = False
