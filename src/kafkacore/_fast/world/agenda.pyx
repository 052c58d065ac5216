"""Implements the agenda of a simulated world. agenda.pxd has the contract."""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32
from kafkacore._fast.base.fiber cimport fiber_free, fiber_may_pause, fiber_new, fiber_pause, fiber_resume

PAUSES = bool(fiber_may_pause())

cdef extern from * nogil:
    """
    /* The agenda and the task that are running on this thread. */
    static __thread struct { void *agenda; void *task; } kc_turn;
    """
    void *turn_agenda "kc_turn.agenda"
    void *turn_task "kc_turn.task"


cdef uint64_t agenda_draw(uint64_t *state) noexcept nogil:
    cdef uint64_t z
    state[0] += <uint64_t> 0x9E3779B97F4A7C15u
    z = state[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9u
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBu
    return z ^ (z >> 31)


cdef void agenda_hold(Agenda *agenda) noexcept nogil:
    if agenda != NULL:
        add32(&agenda.refs, 1)


cdef void agenda_release(Agenda *agenda) noexcept nogil:
    if agenda == NULL or add32(&agenda.refs, -1) != 0:
        return
    # A `Crew` (the I/O threads of a log directory, wait/io.pyx) holds a reference to the agenda until each of its tasks
    # has ended.
    debug_assert(agenda.count == 0, b"an agenda is freed while a task waits")
    free(agenda.bells)
    free(agenda.stopped)
    free(agenda)


# --- tasks ---

cdef void put(Agenda *agenda, Task *task, int64_t due_ns) noexcept nogil:
    task.due_ns = due_ns
    task.next = NULL
    if agenda.newest != NULL:
        agenda.newest.next = task
    else:
        agenda.oldest = task
    agenda.newest = task
    agenda.count += 1


cdef void unlink(Agenda *agenda, Task *task) noexcept nogil:
    cdef Task *before = NULL
    cdef Task *at = agenda.oldest
    while at != task:
        before = at
        at = at.next
    if before != NULL:
        before.next = task.next
    else:
        agenda.oldest = task.next
    if agenda.newest == task:
        agenda.newest = before
    agenda.count -= 1


cdef int agenda_start(Agenda *agenda, int64_t owner, void (*body)(void *argument) noexcept nogil,
                      void *argument) noexcept nogil:
    cdef Task *task = <Task *> calloc(1, sizeof(Task))
    cdef int64_t wait_ns = 0
    if task == NULL:
        return -ENOMEM
    task.fiber = fiber_new(body, argument)
    if task.fiber == NULL:
        free(task)
        return -ENOMEM
    task.owner = owner
    if agenda.most_start_ns > 0:
        wait_ns = <int64_t> (agenda_draw(&agenda.random) % <uint64_t> agenda.most_start_ns)
    put(agenda, task, agenda.now_ns + wait_ns)
    return 0


cdef bint agenda_pause(int64_t ns) noexcept nogil:
    cdef Task *task = <Task *> turn_task
    cdef Agenda *agenda = <Agenda *> turn_agenda
    if task == NULL or not fiber_may_pause():
        return False
    put(agenda, task, agenda.now_ns + max(ns, 0))
    fiber_pause(task.fiber)
    return True


cdef void run(Agenda *agenda, Task *task) noexcept nogil:
    """Runs one turn of a task. A task must not run the turn of another task."""
    debug_assert(turn_task == NULL, b"a task runs another task")
    unlink(agenda, task)
    set_turn(agenda, task)
    agenda.turns += 1
    agenda_hold(agenda)  # the task's last turn may release the agenda
    if not fiber_resume(task.fiber):
        fiber_free(task.fiber)
        free(task)
    set_turn(NULL, NULL)
    agenda_release(agenda)


cdef void set_turn(Agenda *agenda, Task *task) noexcept nogil:
    global turn_agenda, turn_task
    turn_agenda = agenda
    turn_task = task


cdef bint is_stopped(const Agenda *agenda, int64_t owner) noexcept nogil:
    cdef int32_t i
    for i in range(agenda.stopped_count):
        if agenda.stopped[i] == owner:
            return True
    return False


cdef Task *first_of(Agenda *agenda, int64_t owner) noexcept nogil:
    """Returns the task of `owner` with the earliest due time. An `owner` of -1 stands for all owners. If several tasks
    are due at the same time, returns the task that has waited longest."""
    cdef Task *best = NULL
    cdef Task *task = agenda.oldest
    cdef bint mine
    while task != NULL:
        mine = task.owner == owner or (owner < 0 and not is_stopped(agenda, task.owner))
        if mine and (best == NULL or task.due_ns < best.due_ns):
            best = task
        task = task.next
    return best


cdef bint agenda_run_for(Agenda *agenda, int64_t owner) noexcept nogil:
    cdef Task *task = first_of(agenda, owner)
    if task == NULL:
        return False
    run(agenda, task)
    return True


# --- bells ---

cdef int bell_new(Agenda *agenda) noexcept nogil:
    """Makes a bell. Also allocates the memory that its ringing needs, so that ringing a bell cannot fail."""
    cdef int *bells = <int *> realloc(agenda.bells, (agenda.bell_count + 1) * sizeof(int))
    if bells == NULL:
        return -ENOMEM
    agenda.bells = bells
    agenda.bell_count += 1
    agenda.bells_made += 1
    return BELL_BASE + agenda.bells_made


cdef void bell_free(Agenda *agenda, int bell) noexcept nogil:
    bell_silence(agenda, bell)
    agenda.bell_count -= 1


cdef void bell_ring(Agenda *agenda, int bell) noexcept nogil:
    cdef int32_t i
    for i in range(agenda.ringing):
        if agenda.bells[i] == bell:
            return
    agenda.bells[agenda.ringing] = bell
    agenda.ringing += 1


cdef void bell_silence(Agenda *agenda, int bell) noexcept nogil:
    cdef int32_t i
    for i in range(agenda.ringing):
        if agenda.bells[i] == bell:
            agenda.ringing -= 1
            memmove(&agenda.bells[i], &agenda.bells[i + 1], (agenda.ringing - i) * sizeof(int))
            return


@cython.no_gc
cdef class SimulatedAgenda:

    def __cinit__(self, seed=0, *, int64_t most_start_ns=50_000):
        self.agenda = <Agenda *> calloc(1, sizeof(Agenda))
        if self.agenda == NULL:
            raise MemoryError
        self.agenda.refs = 1
        self.agenda.random = <uint64_t> (seed & 0xFFFFFFFFFFFFFFFF)
        self.agenda.most_start_ns = most_start_ns

    def __dealloc__(self):
        agenda_release(self.agenda)

    @property
    def now_ns(self):
        return self.agenda.now_ns

    @now_ns.setter
    def now_ns(self, int64_t now_ns):
        self.agenda.now_ns = now_ns

    @property
    def waiting(self):
        return self.agenda.count

    @property
    def next_ns(self):
        cdef Task *task = first_of(self.agenda, -1)
        return task.due_ns if task != NULL else -1

    @property
    def turns(self):
        return self.agenda.turns

    def run_due(self):
        cdef Task *task
        cdef int64_t count = 0
        with nogil:
            while True:
                task = first_of(self.agenda, -1)
                if task == NULL or task.due_ns > self.agenda.now_ns:
                    break
                run(self.agenda, task)
                count += 1
        return count

    def run_one(self, int64_t index):
        cdef Task *task = self.agenda.oldest
        if not 0 <= index < self.agenda.count:
            raise IndexError(f"{self.agenda.count} tasks wait; there is no number {index}")
        while index:
            task = task.next
            index -= 1
        with nogil:
            run(self.agenda, task)

    def run_for(self, int64_t owner):
        cdef int64_t count = 0
        with nogil:
            while agenda_run_for(self.agenda, owner):
                count += 1
        return count

    def stop(self, int64_t owner):
        cdef int64_t *stopped
        if is_stopped(self.agenda, owner):
            return
        stopped = <int64_t *> realloc(self.agenda.stopped, (self.agenda.stopped_count + 1) * sizeof(int64_t))
        if stopped == NULL:
            raise MemoryError
        self.agenda.stopped = stopped
        stopped[self.agenda.stopped_count] = owner
        self.agenda.stopped_count += 1

    def go_on(self, int64_t owner):
        cdef int32_t i
        for i in range(self.agenda.stopped_count):
            if self.agenda.stopped[i] == owner:
                self.agenda.stopped_count -= 1
                self.agenda.stopped[i] = self.agenda.stopped[self.agenda.stopped_count]
                return

    def rung(self):
        cdef int32_t i
        return [self.agenda.bells[i] for i in range(self.agenda.ringing)]

    def ring(self, int bell):
        if not BELL_BASE < bell <= BELL_BASE + self.agenda.bells_made:
            raise ValueError(f"{bell} is no bell of this world")
        bell_ring(self.agenda, bell)
