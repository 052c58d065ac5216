from collections.abc import Iterable

class Preload:
    """Opens shared libraries, in order, on a thread that never takes the GIL: an import then finds them mapped and
    relocated. Paths that are not there, and libraries that cannot be opened, are passed over: imports tell.
    """

    def __init__(self, paths: Iterable[str]) -> None: ...
    def wait(self) -> None:
        """Until all are open. Idempotent."""
