from collections.abc import Iterable

class Preload:
    """Opens shared libraries, in order, on a thread that never takes the GIL: an import then finds them mapped and
    relocated. Paths that are not there, and libraries that cannot be opened, are passed over: imports tell.

    Then it touches `arena_bytes` of memory, where the interpreter's next objects will lie (PyObject_SetArenaAllocator):
    to whom memory belongs that nobody has touched, the kernel decides a page at a time, which costs more than to fill
    the page. The first such wish in a process counts.
    """

    def __init__(self, paths: Iterable[str], arena_bytes: int = 0) -> None: ...
    def wait(self) -> None:
        """Until all are open. Idempotent."""
