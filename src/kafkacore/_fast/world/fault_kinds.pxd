"""What a disk can be told to fail with; `faultdisk.FAULT_KINDS` has the names."""

cdef enum:
    FAULT_READ = 0
    FAULT_WRITE = 1
    FAULT_SYNC = 2
    FAULT_NAMES = 3       # open with creation, rename, unlink, make and sync directory
    FAULTS = 4
