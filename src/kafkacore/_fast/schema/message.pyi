from collections.abc import Iterator
from typing import Any, ClassVar, Self

from typing_extensions import Buffer

class Struct:
    FIELDS: ClassVar[tuple[str, ...]]
    unknown_tagged_fields: dict[int, bytes]
    def __init__(self, **values: Any) -> None: ...
    def __eq__(self, other: object) -> bool: ...

class Message(Struct):
    NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    @classmethod
    def decode(cls, data: Buffer, version: int, max_elements: int = 0) -> Self: ...
    @classmethod
    def decode_prefix(cls, data: Buffer, version: int) -> tuple[Self, int]: ...
    @classmethod
    def decode_parts(
        cls, data: Buffer, version: int, elements: int = 1000, prefix: bool = False
    ) -> Iterator[Self | None]: ...
    def encode(self, version: int, prefix: Buffer | None = None) -> bytes: ...
    def encode_parts(self, version: int, elements: int = 1000) -> Iterator[bytes]: ...

# The result is Any, because the class depends on the name. Code that always needs the same message imports its class
# from protocol.messages instead.
def message_class(name: str) -> Any: ...
