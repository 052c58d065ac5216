"""Kafka's UUID: 16 bytes, shown as 22 characters of URL-safe base64."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final, Self

_MINUS: Final = 62  # the value of `-` in URL-safe base64
_AT_ONCE: Final = 128  # UUIDs generated together
_VERSION_BITS: Final = int.from_bytes((bytes(6) + b"\x40\0\x80" + bytes(7)) * _AT_ONCE, "big")
_RANDOM_BITS: Final = int.from_bytes((b"\xff" * 6 + b"\x0f\xff\x3f" + b"\xff" * 7) * _AT_ONCE, "big")


class Uuid(bytes):
    """A topic, directory or cluster id. A Uuid is a bytes object of 16 bytes, so it is compared, hashed and encoded as
    these bytes."""

    __slots__ = ()

    def __new__(cls, value: bytes | bytearray | memoryview = bytes(16)) -> Self:
        """Raises ValueError unless `value` has 16 bytes."""
        if len(value) != 16:
            raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses 22 characters of base64. A trailing `==` is allowed. Raises ValueError for any other text. The error's
        message contains the text."""
        stripped = text.removesuffix("==")
        try:
            value = urlsafe_b64decode(stripped + "==")
        except ValueError:
            value = b""
        # The last character has unused bits, so several texts decode to the same bytes. The decoder also skips unknown
        # characters. This comparison accepts only the canonical text.
        if len(value) != 16 or urlsafe_b64encode(value)[:22].decode() != stripped:
            raise ValueError(f"{text!r} is not a UUID: 22 characters of URL-safe base64 are expected")
        return cls(value)

    @classmethod
    def random(cls, random_bytes: Callable[[int], bytes] = os.urandom) -> Self:
        """Returns a version 4 UUID. The text of the UUID never begins with `-`, because a command line would take it
        for an option. A simulated world passes its own source of random bytes (`Environment.random_bytes`)."""
        while True:
            value = bytearray(random_bytes(16))
            value[6] = value[6] & 0x0F | 0x40
            value[8] = value[8] & 0x3F | 0x80
            # The first six bits encode the first character.
            if value[0] >> 2 != _MINUS:
                # Skips the length check, because one request may make a thousand UUIDs.
                return bytes.__new__(cls, value)

    def __str__(self) -> str:
        return urlsafe_b64encode(self)[:22].decode()

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"

    @property
    def is_reserved(self) -> bool:
        """Whether this is one of the first hundred values, which Kafka reserves (KIP-516, KIP-858)."""
        return self[:15] == bytes(15) and self[15] < 100


class RandomUuids:
    """Makes version 4 UUIDs, as bytes. It generates many UUIDs at a time, so each one costs a tenth of a call of
    `Uuid.random`. The text of these UUIDs may begin with `-`. Only one thread of the process that created a RandomUuids
    may use it."""

    def __init__(self, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._random_bytes = random_bytes
        self._made = b""
        self._taken = 0

    def __call__(self) -> bytes:
        if self._taken >= len(self._made):
            size = 16 * _AT_ONCE
            drawn = int.from_bytes(self._random_bytes(size), "big")
            self._made = (drawn & _RANDOM_BITS | _VERSION_BITS).to_bytes(size, "big")
            self._taken = 0
        begin = self._taken
        self._taken = end = begin + 16
        return self._made[begin:end]


ZERO: Final = Uuid()
ONE: Final = Uuid(bytes(15) + b"\x01")
METADATA_TOPIC_ID: Final = ONE
# Three reserved directory ids (KIP-858). Their meanings, in this order: the broker is too old to report directories;
# the broker has not reported the directory yet; the directory is lost for good.
MIGRATING_DIRECTORY: Final = ZERO
UNASSIGNED_DIRECTORY: Final = ONE
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")
