"""The kinds of disk operations that a test can order to fail; `fault_disk.FAULT_KINDS` has their names."""

cdef enum:
    FAULT_READ = 0
    FAULT_WRITE = 1
    FAULT_SYNC = 2
    FAULT_NAMES = 3       # open with creation, rename, unlink, make and sync directory
    FAULTS = 4
