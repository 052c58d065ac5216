"""The request log: one line for each request a handler loop answered, as Kafka's `kafka.request.logger` at DEBUG.

Off unless that logger is enabled for DEBUG; then the hot APIs are punted by the node, so that the log misses none.
"""

from __future__ import annotations

import logging
from typing import Any, Final

LOGGER: Final = logging.getLogger("kafka.request.logger")


def enabled() -> bool:
    return LOGGER.isEnabledFor(logging.DEBUG)


def log(listener: str, connection: str, header: tuple[int, int, int, str | None], request: Any, response: Any, local_ms: float) -> None:
    """`header` is API key, version, correlation id and client id. Records of a Produce or Fetch are not shown."""
    api_key, version, correlation_id, client_id = header
    LOGGER.debug(
        "Completed request: apiKey=%d version=%d correlationId=%d clientId=%s listener=%s connection=%s localTimeMs=%.3f request=%s response=%s",
        api_key, version, correlation_id, client_id, listener, connection, local_ms, request, response,
    )
