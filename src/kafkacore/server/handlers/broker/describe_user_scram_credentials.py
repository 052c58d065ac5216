"""DescribeUserScramCredentials: who can authenticate how, and nothing of the secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from kafkacore.server.context import BrokerContext

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[Any]] = {}
    for _, record in sorted(item for item in broker.image.kept.items() if item[0][0] == "UserScramCredentialRecord"):
        known.setdefault(record.name, []).append(Info(mechanism=record.mechanism, iterations=record.iterations))
    asked = Counter(user.name for user in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(name, count, known.get(name)) for name, count in asked.items()]
    )


def _result(name: str, count: int, infos: list[Any] | None) -> Any:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return Result(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)
    return Result(user=name, error_message=None, credential_infos=infos)
