"""Changes a thread's own settings in the kernel's scheduler. None of these changes needs a privilege.

Kernels before 6.12 do not support time slices for ordinary threads. On such a kernel, `ask_slice` does not change the
time slice.
"""

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* Linux keeps a nice value for each thread. The process may have been started with a nice value, so this function
       adds to that value. */
    static inline void kc_lower_priority(int nice) {
        id_t self = (id_t) syscall(SYS_gettid);
        if (nice > 0) setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + nice);
    }

    /* The struct of sched_setattr(2). glibc defines it from 2.41 on. */
    struct kc_schedule {
        uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period;
    };
    /* Reads the calling thread's scheduling attributes. Returns 1 if the thread has the ordinary policy. Otherwise
       returns 0, and kc_ask_slice does not change the attributes of a batch or real-time thread. */
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
    # Lowers the calling thread's priority if `nice` is above 0. Only threads that never hold the GIL may call this.
    void lower_priority "kc_lower_priority"(int nice)
    # Asks the kernel for short time slices. From then on, when the calling thread wakes up, it runs immediately, before
    # threads with longer slices. Its timers and its waits for the GIL become accurate to 1 us.
    void ask_slice "kc_ask_slice"(long long slice_ns)
    void name_thread "kc_name_thread"(const char *name)
    long timer_slack_ns "kc_timer_slack_ns"()
    long long slice_ns "kc_slice_ns"()

cdef enum:
    URGENT_SLICE_NS = 100000  # the shortest slice that Linux gives; the default is 1.4 ms or more
