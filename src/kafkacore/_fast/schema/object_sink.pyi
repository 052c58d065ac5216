class Encoded:
    message: str
    struct: str
    version: int
    count: int
    @property
    def body(self) -> bytes: ...
    def __len__(self) -> int: ...
