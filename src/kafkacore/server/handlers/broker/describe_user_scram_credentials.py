"""DescribeUserScramCredentials: returns the mechanisms and iterations of users, but not their secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Work[DescribeUserScramCredentialsResponse]:
    known: dict[str, list[Info]] = {}
    for key, record in tuple(broker.image.kept.items()):
        if key[0] == "UserScramCredentialRecord":
            known.setdefault(record.name, []).append(Info(mechanism=record.mechanism, iterations=record.iterations))
        yield
    counts: dict[str, int] = Counter()
    for user in request.users or ():
        counts[user.name] += 1
        yield
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, count in (counts or dict.fromkeys(sorted(known), 1)).items():
        response.results.append(_result(name, count, known.get(name)))
        yield
    return response


def _result(name: str, count: int, infos: list[Info] | None) -> Result:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return Result(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)
    infos = sorted(infos, key=lambda info: info.mechanism)
    return Result(user=name, error_message=None, credential_infos=infos)
