"""The request log: one line for each request that a handler answered, as Kafka's `kafka.request.logger` at DEBUG.

A node that starts with that logger enabled serves its hot APIs by their handlers, so that the log misses none.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis

LOGGER: Final = logging.getLogger("kafka.request.logger")
MAX_SHOWN: Final = 2_000  # characters of a request or a response; records are the most of them


def enabled() -> bool:
    return LOGGER.isEnabledFor(logging.DEBUG)


def log(call: RequestContext, request: Any, response: Any) -> None:
    LOGGER.debug(
        "%s %d, correlation id %d, client %r at %s, listener %s: %s -> %s",
        apis.api(call.api_key).name,
        call.api_version,
        call.correlation_id,
        call.client_id,
        call.client_host,
        call.listener,
        _shown(request),
        _shown(response),
    )


def _shown(message: Any) -> str:
    text = f"{len(message)} bytes" if isinstance(message, bytes) else repr(message)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
