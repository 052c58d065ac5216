"""The request log. It contains one line for each request that a handler answered, as Kafka's `kafka.request.logger`
writes it at DEBUG.

While that logger is enabled, handlers also serve the hot APIs (Produce, Fetch and the like), so that no request is
missing from the log. The log contains no secrets. The values of unknown settings are left out, because they may be
secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from kafkacore.config import keys
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey

LOGGER: Final = logging.getLogger("kafka.request.logger")
MAX_SHOWN: Final = 2_000  # the log shows this number of characters of a request or a response, and cuts off the rest


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
        _shown(_HIDERS[call.api_key](request, call.api_version) if call.api_key in _HIDERS else request),
        _shown(response),
    )


def _shown(message: Any) -> str:
    text = f"{len(message)} bytes" if isinstance(message, bytes) else str(message)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _without_secret_settings(request: Any, version: int) -> Any:
    """Hides secret values in AlterConfigs and IncrementalAlterConfigs."""

    tables = {2: keys.TOPIC, 4: keys.BROKER, 16: keys.CLIENT_METRICS, 32: keys.GROUP}
    copied = type(request).decode(request.encode(version), version)
    for resource in copied.resources:
        known = tables.get(resource.resource_type)
        for config in resource.configs:
            # The levels of loggers are not secret.
            key = None if known is None else known.get(config.name)
            if resource.resource_type != _LOGGERS and (key is None or key.type == "password"):
                config.value = _HIDDEN
    return copied


def _without_passwords(request: Any, version: int) -> Any:
    """Hides salted passwords in AlterUserScramCredentials."""
    copied = type(request).decode(request.encode(version), version)
    for user in copied.upsertions:
        user.salt = user.salted_password = _HIDDEN.encode()
    return copied


def _without_content(request: Any, version: int) -> str:
    """Leaves out the request inside an Envelope, because that request has its own line."""
    return f"{request.NAME} of {len(request.request_data)} bytes"


_LOGGERS: Final = 8
_HIDDEN: Final = "[hidden]"
_HIDERS: Final[dict[int, Callable[[Any, int], Any]]] = {
    ApiKey.ALTER_CONFIGS: _without_secret_settings,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _without_secret_settings,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _without_passwords,
    ApiKey.ENVELOPE: _without_content,
}
