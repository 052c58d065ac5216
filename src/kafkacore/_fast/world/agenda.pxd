"""The agenda of a simulated world: the native threads of its nodes as tasks that take turns on one thread, and bells in
place of eventfds.

A world has one agenda. An Env without one belongs to the real world, where threads are threads and bells are eventfds.
A task is a fiber, which runs from one pause to the next. The world's loop decides when: it advances `now_ns` and runs
the tasks that are due, or any task that it chooses. `now_ns` is the agenda's time, apart from the clocks of the nodes,
because those may skew and jump.

Only the thread that runs the world may use an agenda. The seed decides how long each task waits for its first turn, so
each seed determines the order in which threads begin.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkacore._fast.base.fiber cimport Fiber

cdef enum:
    BELL_BASE = 1 << 30   # no descriptor is so large

# Private to agenda.pyx, like the fields of an Agenda.
ctypedef struct Task:
    Task *next
    Fiber *fiber
    int64_t owner
    int64_t due_ns

ctypedef struct Agenda:
    int32_t refs
    int64_t now_ns
    int64_t turns         # how often a task ran
    uint64_t random       # the state of the seed's numbers
    int64_t most_start_ns  # the longest wait of a task for its first turn
    Task *oldest          # in the order in which they were started or paused
    Task *newest
    int32_t count
    int64_t owners
    int64_t *stopped      # owners whose tasks do not run
    int32_t stopped_count
    int *bells            # numbers of the bells that ring, in the order in which they were rung
    int32_t ringing
    int32_t bell_count
    int32_t bells_made

cdef void agenda_hold(Agenda *agenda) noexcept nogil
cdef void agenda_release(Agenda *agenda) noexcept nogil  # no-op for NULL

# --- tasks ---
# Begins a task soon. `owner` is a node's number. 0 or -ENOMEM.
cdef int agenda_start(Agenda *agenda, int64_t owner, void (*body)(void *argument) noexcept nogil,
                      void *argument) noexcept nogil
# Pauses the calling task for `ns`. False, at once, when the caller is no task, or when tasks cannot pause.
cdef bint agenda_pause(int64_t ns) noexcept nogil
# Runs the task of an owner that is due first, whenever that is, for code that would block a thread. False: it has none.
cdef bint agenda_run_for(Agenda *agenda, int64_t owner) noexcept nogil
cdef uint64_t agenda_draw(uint64_t *state) noexcept nogil  # splitmix64

# --- bells ---
cdef int bell_new(Agenda *agenda) noexcept nogil  # its number, at least BELL_BASE, or -ENOMEM
cdef void bell_free(Agenda *agenda, int bell) noexcept nogil
cdef void bell_ring(Agenda *agenda, int bell) noexcept nogil
cdef void bell_silence(Agenda *agenda, int bell) noexcept nogil


cdef class SimulatedAgenda:
    """Python's handle of an Agenda."""
    cdef Agenda *agenda
