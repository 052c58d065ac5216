"""The agenda of a simulated world: a queue of tasks. In a simulated world, nodes run on one thread and in simulated
time. Where a real node would start a native thread, a simulated node adds a task, and the agenda runs one task at a
time. The agenda also has bells, which take the place of eventfds.

A simulated world has one agenda. An `Env` (environment.pxd) without an agenda belongs to the real world, which uses
real threads and eventfds. A task is a fiber (base/fiber.pxd). A turn of a task lasts until the task pauses or ends. The
world's loop decides when a task runs: it advances `now_ns`, and runs either all due tasks or a single task that it
chooses. `now_ns` is the time of the agenda. The nodes have separate clocks, which may drift and jump.

Only the thread that runs the world may use an agenda. The seed of the world decides how long each task waits for its
first turn, and thus the order in which the tasks begin.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkacore._fast.base.fiber cimport Fiber

cdef enum:
    BELL_BASE = 1 << 30   # larger than any file descriptor

# Private to agenda.pyx, as are the fields of an `Agenda`.
ctypedef struct Task:
    Task *next
    Fiber *fiber
    int64_t owner
    int64_t due_ns

ctypedef struct Agenda:
    int32_t refs
    int64_t now_ns
    int64_t turns         # the number of turns so far
    uint64_t random       # the state of the random numbers that the seed determines
    int64_t most_start_ns  # the longest time that a task waits for its first turn
    Task *oldest          # the waiting tasks, in the order in which they were started or paused
    Task *newest
    int32_t count
    int64_t owners
    int64_t *stopped      # the nodes (by their numbers) whose tasks do not run
    int32_t stopped_count
    int *bells            # numbers of the ringing bells, in the order in which they were rung
    int32_t ringing
    int32_t bell_count
    int32_t bells_made

cdef void agenda_hold(Agenda *agenda) noexcept nogil
cdef void agenda_release(Agenda *agenda) noexcept nogil  # does nothing for NULL

# --- tasks ---
# Adds a task, which starts soon. `owner` is the number of the node to which the task belongs. Returns 0 or -ENOMEM.
cdef int agenda_start(Agenda *agenda, int64_t owner, void (*body)(void *argument) noexcept nogil,
                      void *argument) noexcept nogil
# Pauses the calling task for `ns`. Returns False immediately if the caller is not a task, or if tasks cannot pause in
# this build.
cdef bint agenda_pause(int64_t ns) noexcept nogil
# Runs the owner's task with the earliest due time, even if that time has not come yet. Code that would block a thread
# calls this function. Returns False if the owner has no task.
cdef bint agenda_run_for(Agenda *agenda, int64_t owner) noexcept nogil
cdef uint64_t agenda_draw(uint64_t *state) noexcept nogil  # splitmix64

# --- bells ---
cdef int bell_new(Agenda *agenda) noexcept nogil  # returns the bell's number (above BELL_BASE) or -ENOMEM
cdef void bell_free(Agenda *agenda, int bell) noexcept nogil
cdef void bell_ring(Agenda *agenda, int bell) noexcept nogil
cdef void bell_silence(Agenda *agenda, int bell) noexcept nogil


cdef class SimulatedAgenda:
    """The Python handle of an `Agenda`."""
    cdef Agenda *agenda
