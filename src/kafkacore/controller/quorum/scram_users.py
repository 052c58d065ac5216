"""AlterUserScramCredentials: changes users that authenticate with SCRAM (KIP-554). Clients send the passwords salted
and hashed, so the controller never stores a password itself."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from kafkacore.controller.quorum.decisions import Decision, limit_records
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import AlterUserScramCredentialsResponse, Message, RemoveUserScramCredentialRecord
from kafkacore.runtime.slices import Work
from kafkacore.storage.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, Mechanism, credential

_BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}
Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def alter_users(image: MetadataImage, request: Any) -> Work[Decision]:
    """Alters each user at most once. An error about one user does not affect the other users. Raises POLICY_VIOLATION
    if the request makes too many changes."""
    records: dict[str, Message] = {}
    refused: dict[str, KafkaError] = {}
    for each in chain(request.deletions, request.upsertions):
        yield
        if each.name in refused:
            continue
        try:
            if records.pop(each.name, None) is not None:
                told = "A user credential cannot be altered twice in the same request"
                raise error_for(ErrorCode.DUPLICATE_RESOURCE, told)
            made = _upsertion if type(each) is type(request).ScramCredentialUpsertion else _deletion
            records[each.name] = made(image, each)
        except KafkaError as error:
            refused[each.name] = error
        limit_records(len(records))
    results = [Result(user=name, error_message=None) for name in records]
    for name, problem in refused.items():
        yield
        results.append(Result(user=name, error_code=problem.code, error_message=str(problem)))
    return Decision(list(records.values()), AlterUserScramCredentialsResponse(results=results))


def _mechanism(each: Any) -> Mechanism:
    if not each.name:
        raise error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _BY_NUMBER.get(each.mechanism)
    if mechanism is None:
        raise error_for(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _deletion(image: MetadataImage, each: Any) -> Message:
    mechanism = _mechanism(each)
    if image.kept.get(("UserScramCredentialRecord", each.name, mechanism.number)) is None:
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=each.name, mechanism=mechanism.number)


def _upsertion(image: MetadataImage, each: Any) -> Message:
    mechanism = _mechanism(each)
    if each.iterations < MIN_ITERATIONS:
        raise error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if each.iterations > MAX_ITERATIONS:
        raise error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return credential(each.name, mechanism, bytes(each.salt), bytes(each.salted_password), each.iterations)
