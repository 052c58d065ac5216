from typing_extensions import Buffer

from kafkacore._fast.schema.view import Binding

BINDINGS: dict[str, Binding]

def request_header(frame: Buffer) -> tuple[int, int, int, bytes | None, int] | None: ...
def has_response_tags(api_key: int, version: int) -> bool: ...
