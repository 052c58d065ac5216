"""The Python face, for threads that Python makes."""


def enter_thread(str name, bint urgent=False) -> None:
    """Names the calling thread for the system's tools (15 bytes). `urgent` asks for the short slices of the control
    plane."""
    cdef bytes encoded = name.encode()[:15]
    name_thread(encoded)
    if urgent:
        ask_slice(URGENT_SLICE_NS)


def own() -> tuple[int, int]:
    """Slice and timer slack of the calling thread, ns. The slice is 0 or -1 if the kernel has none."""
    return slice_ns(), timer_slack_ns()
