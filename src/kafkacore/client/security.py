"""The client's side of TLS and SASL: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), as in KIP-43 and
KIP-152."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from typing import Any, Final, Protocol

from kafkacore.client.errors import OptionError
from kafkacore.client.options import Options
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkacore.protocol.response_errors import error_of_peer

_MOST_ITERATIONS: Final = 1 << 20  # protects the CPU from a malicious server; Kafka's default is 4096 iterations
_LEAST_ITERATIONS: Final = 4096
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAAS: Final = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s*(.*?)\s*;\s*", re.DOTALL)
_PAIR: Final = re.compile(r"""\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")


class Asked(Protocol):
    """A connection with the methods that SASL needs."""

    def ask(self, request: Any, version: int, deadline: float) -> Any: ...

    def version(self, api_key: int, highest: int | None = None) -> int: ...


def tls_context(options: Options) -> ssl.SSLContext:
    """Returns the TLS context for the options ssl.*. Raises OptionError if a file is missing or not PEM."""
    location, certificates = options["ssl.truststore.location"], options["ssl.truststore.certificates"]
    try:
        context = ssl.create_default_context(cafile=location, cadata=certificates)
        if not options["ssl.endpoint.identification.algorithm"]:
            context.check_hostname = False
        if options["ssl.keystore.location"]:
            # Without a callback, OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(options["ssl.keystore.location"], password=options["ssl.key.password"] or "")
    except (OSError, ValueError) as error:
        raise OptionError(f"ssl.truststore.* and ssl.keystore.location must be PEM files: {error}") from error
    return context


def authenticate(connection: Asked, options: Options, deadline: float) -> None:
    """Authenticates the client. Raises KafkaError (SaslAuthenticationFailedError) and OptionError."""
    mechanism = options["sasl.mechanism"]
    user, password = credentials(mechanism, options["sasl.jaas.config"])
    told = connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1, deadline)
    if told.error_code:
        raise error_for(
            error_of_peer(told.error_code),
            f"the broker supports {', '.join(told.mechanisms)}, but not the mechanism {mechanism}",
        )
    version = connection.version(ApiKey.SASL_AUTHENTICATE)

    def exchange(data: bytes) -> bytes:
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=data), version, deadline)
        if answer.error_code:
            raise error_for(error_of_peer(answer.error_code), answer.error_message)
        return bytes(answer.auth_bytes)

    if mechanism == "PLAIN":
        exchange(b"\0".join((b"", user.encode(), password.encode())))
        return
    scram = Scram(mechanism, user, password, secrets.token_urlsafe(24))
    scram.finish(exchange(scram.answer(exchange(scram.first()))))


def credentials(mechanism: str, jaas: str | None) -> tuple[str, str]:
    """Returns the user and the password from sasl.jaas.config. Raises OptionError, which never contains the
    password."""
    matched = _JAAS.fullmatch(jaas or "")
    rest, found = matched[2] if matched else "", {}
    while pair := _PAIR.match(rest):
        text = next(each for each in pair.groups()[1:] if each is not None)
        found[pair[1]] = text if pair[4] is not None else re.sub(r"\\(.)", r"\1", text)
        rest = rest[pair.end() :]
    module = _MODULES[mechanism]
    if matched is None or matched[1] != module or rest.strip() or not {"username", "password"} <= found.keys():
        raise OptionError(f'sasl.jaas.config must be: {module} required username="..." password="...";')
    return found["username"], found["password"]


class Scram:
    """The client side of one SCRAM exchange, without channel binding."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._hash = "sha256" if mechanism.endswith("256") else "sha512"
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, first: bytes) -> bytes:
        """Returns the client's proof for the server's first message. Raises KafkaError."""
        fields = self._fields(first)
        nonce = fields.get("r", "")
        try:
            salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError):
            raise self._refused("its first message is malformed") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._refused("its nonce does not continue the client's")
        if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise self._refused(f"it asks for {iterations} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._sign(salted, b"Client Key")
        unproved = f"c=biws,r={nonce}"
        message = b",".join((self._bare.encode(), first, unproved.encode()))
        signature = self._sign(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._sign(self._sign(salted, b"Server Key"), message)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, last: bytes) -> None:
        """Checks the server's last message, which proves that the server also knows the password. Raises KafkaError."""
        fields = self._fields(last)
        if "e" in fields:
            raise self._refused(fields["e"])
        try:
            signature = base64.b64decode(fields.get("v", ""), validate=True)
        except ValueError:
            signature = b""
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise self._refused("it does not prove that it knows the password")

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            return {each[:1]: each[2:] for each in message.decode().split(",") if each[1:2] == "="}
        except UnicodeDecodeError:
            raise self._refused("its message is not text") from None

    @staticmethod
    def _refused(reason: str) -> KafkaError:
        return error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the server cannot be trusted: {reason}")
