class Encoded:
    message: str
    struct: str
    version: int
    count: int
    body: bytes
    def __init__(self, message: str, struct: str, version: int, count: int, body: bytes) -> None: ...
    def __len__(self) -> int: ...
