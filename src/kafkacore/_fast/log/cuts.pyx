"""The Python interface of truncations that wait for a checkpoint (`end_cut` in truncate.pyx)."""

cimport cython

from kafkacore._fast.base.atomics cimport store_ptr
from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.truncate cimport log_checkpointed
from kafkacore._fast.wait.io cimport LogDirectory
from kafkacore._fast.wait.mail cimport inbox_awake, inbox_deliver, inbox_may_sleep, inbox_silence


@cython.no_gc  # it is part of no reference cycle
cdef class CutLogs:
    cdef Log *first           # linked by `next_cut`; holds a reference to each log
    cdef int count
    cdef LogDirectory directory

    def __len__(self):
        return self.count

    def __dealloc__(self):
        self.go_on()

    def go_on(self):
        cdef Log *log
        while self.first != NULL:
            log = self.first
            self.first = log.next_cut
            with nogil:
                log_checkpointed(log)
        self.count = 0


def await_checkpoints(LogDirectory directory not None, bint wanted):
    store_ptr(<void **> &directory.dir.cuts, &directory.inbox if wanted else NULL)


def take(LogDirectory directory not None):
    cdef CutLogs taken = CutLogs()
    cdef Log *log
    with nogil:
        inbox_awake(&directory.inbox)
        inbox_silence(&directory.inbox)
        while True:
            inbox_deliver(&directory.inbox)
            if inbox_may_sleep(&directory.inbox):
                break
    taken.directory = directory
    taken.first = log = <Log *> directory.dir.first_cut
    directory.dir.first_cut = NULL
    while log != NULL:
        taken.count += 1
        log = log.next_cut
    return taken if taken.count else None
