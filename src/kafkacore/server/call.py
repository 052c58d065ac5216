"""What a handler is given beside the request: who asks, and what of the node it may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Call:
    """One request's header and where it came in. `listener` is the listener's name, `client_host` the peer's address."""

    api_key: int
    api_version: int
    correlation_id: int = 0
    client_id: str | None = None
    listener: str = ""
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
