"""A thread's own settings in the kernel's scheduler. None of them needs a privilege.

Kernels below 6.12 have no slices for ordinary threads and ignore `ask_slice`.
"""

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* Linux keeps a nice value for each thread; the process may have been started with one. */
    static inline void kc_lower_priority(int nice) {
        id_t self = (id_t) syscall(SYS_gettid);
        if (nice > 0) setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + nice);
    }

    /* sched_setattr(2) and its struct, which glibc has from 2.41 on. */
    struct kc_schedule {
        uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period;
    };
    /* Whether the calling thread is an ordinary one. A batch or real-time thread keeps its policy. */
    static inline int kc_schedule_now(struct kc_schedule *now) {
        memset(now, 0, sizeof(*now));
        return syscall(SYS_sched_getattr, 0, now, sizeof(*now), 0) == 0 && now->policy == 0;
    }
    static inline void kc_ask_slice(int64_t slice_ns) {
        struct kc_schedule wish;
        prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
        if (!kc_schedule_now(&wish)) return;
        wish.size = sizeof(wish);
        wish.runtime = (uint64_t) slice_ns;
        syscall(SYS_sched_setattr, 0, &wish, 0);
    }
    static inline void kc_name_thread(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
    static inline long kc_timer_slack_ns(void) { return prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); }
    static inline int64_t kc_slice_ns(void) {
        struct kc_schedule now;
        return kc_schedule_now(&now) ? (int64_t) now.runtime : -1;
    }
    """
    void lower_priority "kc_lower_priority"(int nice)  # only lowers it; for threads that never hold the GIL
    # Asks for short time slices: once woken, the thread runs at once, before threads that ask for long slices. Its
    # timers, and its waits for the GIL, are exact to 1 us.
    void ask_slice "kc_ask_slice"(long long slice_ns)
    void name_thread "kc_name_thread"(const char *name)
    long timer_slack_ns "kc_timer_slack_ns"()
    long long slice_ns "kc_slice_ns"()

cdef enum:
    URGENT_SLICE_NS = 100000  # the least that Linux gives; 1.4 ms or more is its own choice
