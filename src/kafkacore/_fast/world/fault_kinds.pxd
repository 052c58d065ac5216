"""The kinds of disk operations that a test can make fail. `fault_disk.FAULT_KINDS` has the names of these kinds."""

cdef enum:
    FAULT_READ = 0
    FAULT_WRITE = 1
    FAULT_SYNC = 2
    FAULT_NAMES = 3       # opening with O_CREAT or O_TRUNC, rename, unlink, making and syncing directories
    FAULTS = 4
