from array import array
from typing import Any

from typing_extensions import Buffer

from kafkacore._fast.schema.object_sink import Encoded

class RowCodec:
    name: str
    struct: str
    version: int
    def __init__(self, name: str, version: int, struct: str | None = None) -> None: ...
    def encode(
        self, columns: dict[str, Any], rows: Buffer | None = None, prefix: Buffer | None = None
    ) -> tuple[bytes, array[int]]: ...
    def encode_array(self, columns: dict[str, Any], rows: Buffer | None = None) -> Encoded: ...
    def decode(self, data: Buffer, starts: Buffer, ends: Buffer, columns: dict[str, Any]) -> None: ...
