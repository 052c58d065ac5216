"""AlterUserScramCredentials: which credentials the controller stores, and which ones it refuses."""

from __future__ import annotations

import hashlib
import hmac

from controllers import Caller
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterUserScramCredentialsRequest

SHA_256, SHA_512 = 1, 2
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def user(name, mechanism=SHA_256, iterations=4096, salted=b"salted"):
    return Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)


async def alter(harness, *upsertions, gone=()):
    request = AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=list(gone))
    answer = await harness.controller.alter_user_scram_credentials(Caller(), request)
    return {each.user: each.error_code for each in answer.results}


def users(harness):
    kept = harness.controller.image.kept.items()
    return {(key[1], key[2]): record for key, record in kept if key[0] == "UserScramCredentialRecord"}


def test_user_is_stored_without_the_password(run) -> None:
    async def story(harness):
        assert await alter(harness, user("alice", SHA_512)) == {"alice": 0}
        record = users(harness)["alice", SHA_512]
        client_key = hmac.digest(b"salted", b"Client Key", "sha512")
        assert record.stored_key == hashlib.sha512(client_key).digest()
        assert record.server_key == hmac.digest(b"salted", b"Server Key", "sha512")
        assert (record.salt, record.iterations) == (b"salt", 4096)
        assert await alter(harness, gone=[Deletion(name="alice", mechanism=SHA_512)]) == {"alice": 0}
        assert users(harness) == {}

    run(story)


def test_refused_user_does_not_affect_the_others(run) -> None:
    async def story(harness):
        told = await alter(
            harness,
            user("twice"), user("twice", SHA_512), user("few", iterations=4095), user("many", iterations=16385),
            user("other", mechanism=3), user(""), user("good"), user("both"),
            gone=[Deletion(name="absent", mechanism=SHA_256), Deletion(name="both", mechanism=SHA_256)],
        )  # fmt: skip
        assert told == {
            "good": 0,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "other": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "absent": ErrorCode.RESOURCE_NOT_FOUND,
            "both": ErrorCode.RESOURCE_NOT_FOUND,
        }
        assert list(users(harness)) == [("good", SHA_256)]

    run(story)
