"""Bugs that tests plant in native code on purpose. Tests check that the simulator finds each of them, because a
simulator that finds no planted bug would prove nothing.

Only a build with KAFKACORE_PLANTED=1 contains these bugs. In such a build, the environment variable
KAFKACORE_PLANTED_BUG names the active bug. `simulation/planted_native.py` lists all of these bugs.
"""

cdef extern from * nogil:
    """
    #ifdef KAFKACORE_PLANTED
    #include <stdlib.h>
    #include <string.h>
    #define KC_PLANTED 1
    static inline int kc_is_planted(const char *name) {
        const char *planted = getenv("KAFKACORE_PLANTED_BUG");
        return planted != NULL && strcmp(planted, name) == 0;
    }
    #else
    #define KC_PLANTED 0
    #define kc_is_planted(name) 0
    #endif
    """
    const bint PLANTED "KC_PLANTED"  # whether this build can plant bugs
    bint is_planted "kc_is_planted"(const char *name) noexcept
