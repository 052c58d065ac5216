class Layout:
    struct: str
    size: int
    offsets: dict[str, int]
    sparse: bool
    owner: object
    def __init__(
        self, struct: str, offsets: dict[str, int], size: int = 0, owner: object = None, sparse: bool = False
    ) -> None: ...
