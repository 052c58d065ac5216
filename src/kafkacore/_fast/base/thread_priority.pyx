"""Scheduler settings for threads that Python creates."""


def enter_thread(str name, bint urgent=False) -> None:
    """Sets the name of the calling thread (at most 15 bytes), which the system's tools show. With `urgent`, asks the
    kernel for short time slices, which the threads of the control plane need."""
    cdef bytes encoded = name.encode()[:15]
    name_thread(encoded)
    if urgent:
        ask_slice(URGENT_SLICE_NS)


def own() -> tuple[int, int]:
    """Returns the time slice and the timer slack of the calling thread in ns. The time slice is 0 or -1 if the kernel
    does not report it."""
    return slice_ns(), timer_slack_ns()
