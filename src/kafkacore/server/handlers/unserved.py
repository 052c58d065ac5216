"""Refuses the APIs that Apache Kafka has and this node does not serve. Each response is an error in the API's own
format.

ApiVersions does not list these APIs, so a client that uses ApiVersions does not send them. A client that sends one
anyway gets the error that Apache Kafka returns when the feature is turned off, and keeps its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import Message

_NO_AUTHORIZER: Final = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
_NO_SASL: Final = ErrorCode.ILLEGAL_SASL_STATE, "This listener is PLAINTEXT: it accepts no SASL request"
_NO_TOKENS: Final = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation token feature is not enabled"
_REASONS: Final[Mapping[int, tuple[ErrorCode, str]]] = {
    ApiKey.SASL_HANDSHAKE: _NO_SASL,
    ApiKey.SASL_AUTHENTICATE: _NO_SASL,
    ApiKey.DESCRIBE_ACLS: _NO_AUTHORIZER,
    ApiKey.CREATE_ACLS: _NO_AUTHORIZER,
    ApiKey.DELETE_ACLS: _NO_AUTHORIZER,
    ApiKey.CREATE_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _NO_TOKENS,
}


def handle(context: Any, call: RequestContext, request: Message) -> NoReturn:
    name = apis.api(call.api_key).message
    usual = ErrorCode.UNSUPPORTED_VERSION, f"{name} is not supported by this node; ApiVersions lists the APIs that are"
    raise error_for(*_REASONS.get(call.api_key, usual))
