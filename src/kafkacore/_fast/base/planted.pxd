"""Bugs that tests plant in native code on purpose: a simulator that did not find them would prove nothing.

Only a build with KAFKACORE_PLANTED=1 has them; any other build compiles none of it. There the environment variable
KAFKACORE_PLANTED_BUG names the one that is planted at the moment. `simulation/planted_native.py` lists them all.
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
