"""Makes the records of SCRAM users. The records contain the keys that RFC 5802 defines.

`storage format --add-scram` writes the first users of a new cluster (KIP-900). If every listener requires SCRAM, a
cluster without users would admit no client, so nobody could create the first user.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkacore.protocol.messages import Message, UserScramCredentialRecord

MIN_ITERATIONS: Final = 4096  # Kafka's limits; the lower limit is also the default
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 32


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its `number` in records, and its `digest` in hashlib."""

    number: int
    digest: str


MECHANISMS: Final = {"SCRAM-SHA-256": Mechanism(1, "sha256"), "SCRAM-SHA-512": Mechanism(2, "sha512")}


class ScramError(ValueError):
    """The value of --add-scram is invalid. The message does not contain passwords."""


def parse_credential(text: str, random_bytes: Callable[[int], bytes] = os.urandom) -> Message:
    """Returns the record for MECHANISM=[name=N,password=P,iterations=I,salt=S]. `saltedpassword` may replace the
    password. Salts and salted passwords are in base64. Raises ScramError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ScramError("--add-scram is not valid UTF-8; names and passwords must be UTF-8") from None
    name, equals, rest = text.strip().partition("=")
    mechanism = MECHANISMS.get(name)
    if not equals or mechanism is None:
        raise ScramError(f"--add-scram must begin with {' or '.join(f'{each}=' for each in MECHANISMS)}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ScramError(f"--add-scram {name}= must be followed by the fields of a user, in [ and ]")
    given = dict(_component(name, each) for each in rest[1:-1].split(","))
    user, iterations = given.pop("name", None), _iterations(name, given.pop("iterations", None))
    if not user:
        raise ScramError(f"--add-scram {name} names no user: add name=")
    salt = _base64(name, "salt", given.pop("salt", None))
    password, salted = given.pop("password", None), _base64(name, "saltedpassword", given.pop("saltedpassword", None))
    if given:
        raise ScramError(f"--add-scram {name} has unknown fields: {', '.join(sorted(given))}")
    if password is not None:
        salt = random_bytes(SALT_BYTES) if salt is None else salt
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    elif salted is None or salt is None:
        raise ScramError(f"--add-scram {name} needs password=, or saltedpassword= with its salt=")
    return credential(user, mechanism, salt, salted, iterations)


def credential(user: str, mechanism: Mechanism, salt: bytes, salted: bytes, iterations: int) -> Message:
    """Returns the record of a user with the salted password `salted`. Nobody can compute the salted password from the
    record."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations=iterations,
    )


def _component(mechanism: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ScramError(f"--add-scram {mechanism} has a part without =: write NAME=VALUE parts, separated by commas")
    quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return key, value[1:-1] if quoted else value


def _iterations(mechanism: str, text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not (text.isascii() and text.isdigit() and MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS):
        raise ScramError(
            f"--add-scram {mechanism} iterations={text}: must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return int(text)


def _base64(mechanism: str, key: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ScramError(f"--add-scram {mechanism}: {key} is not base64") from None
