"""Implements fibers with makecontext(3) and swapcontext(3). fiber.pxd has the contract."""

from kafkacore._fast.base.lock_order cimport lock_order_pause

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <features.h>
    #if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
    #define KC_FIBERS 0
    #else
    #define KC_FIBERS 1
    #include <sys/mman.h>
    #include <ucontext.h>
    #endif

    typedef struct {
        void (*body)(void *argument);
        void *argument;
        int ended;
    #if KC_FIBERS
        char *stack;
        ucontext_t context, resumer;
    #endif
    } kc_fiber;

    #if KC_FIBERS
    enum { KC_STACK = 256 << 10, KC_GUARD = 4096, KC_KEPT = 64 };
    /* Stacks of ended fibers, which later fibers of this thread reuse. */
    static __thread struct { char *items[KC_KEPT]; int count; } kc_stacks;

    static char *kc_stack_new(void) {
        char *stack;
        if (kc_stacks.count) return kc_stacks.items[--kc_stacks.count];
        stack = mmap(NULL, KC_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) return NULL;
        mprotect(stack, KC_GUARD, PROT_NONE);
        return stack;
    }
    static void kc_stack_free(char *stack) {
        if (kc_stacks.count < KC_KEPT) kc_stacks.items[kc_stacks.count++] = stack;
        else munmap(stack, KC_STACK);
    }
    static void kc_fiber_main(unsigned low, unsigned high) {
        kc_fiber *fiber = (kc_fiber *) ((uintptr_t) low | (uintptr_t) high << 32);
        fiber->body(fiber->argument);
        fiber->ended = 1;
        swapcontext(&fiber->context, &fiber->resumer);
    }
    #endif

    static void *kc_fiber_new(void (*body)(void *), void *argument) {
        kc_fiber *fiber = calloc(1, sizeof(kc_fiber));
        if (fiber == NULL) return NULL;
        fiber->body = body;
        fiber->argument = argument;
    #if KC_FIBERS
        fiber->stack = kc_stack_new();
        if (fiber->stack == NULL || getcontext(&fiber->context) != 0) {
            if (fiber->stack != NULL) kc_stack_free(fiber->stack);
            free(fiber);
            return NULL;
        }
        fiber->context.uc_stack.ss_sp = fiber->stack;
        fiber->context.uc_stack.ss_size = KC_STACK;
        fiber->context.uc_link = NULL;
        makecontext(&fiber->context, (void (*)(void)) kc_fiber_main, 2, (unsigned) (uintptr_t) fiber,
                    (unsigned) ((uintptr_t) fiber >> 32));
    #endif
        return fiber;
    }
    static int kc_fiber_resume(void *resumed) {
        kc_fiber *fiber = resumed;
    #if KC_FIBERS
        swapcontext(&fiber->resumer, &fiber->context);
        return !fiber->ended;
    #else
        fiber->body(fiber->argument);
        return 0;
    #endif
    }
    static void kc_fiber_pause(void *running) {
    #if KC_FIBERS
        kc_fiber *fiber = running;
        swapcontext(&fiber->context, &fiber->resumer);
    #endif
    }
    static void kc_fiber_free(void *freed) {
    #if KC_FIBERS
        kc_stack_free(((kc_fiber *) freed)->stack);
    #endif
        free(freed);
    }
    """
    bint KC_FIBERS
    void *kc_fiber_new(void (*body)(void *argument) noexcept nogil, void *argument) noexcept
    bint kc_fiber_resume(void *fiber) noexcept
    void kc_fiber_pause(void *fiber) noexcept
    void kc_fiber_free(void *fiber) noexcept


cdef bint fiber_may_pause() noexcept nogil:
    return KC_FIBERS


cdef Fiber *fiber_new(void (*body)(void *argument) noexcept nogil, void *argument) noexcept nogil:
    return <Fiber *> kc_fiber_new(body, argument)


cdef bint fiber_resume(Fiber *fiber) noexcept nogil:
    return kc_fiber_resume(fiber)


cdef void fiber_pause(Fiber *fiber) noexcept nogil:
    lock_order_pause()
    kc_fiber_pause(fiber)


cdef void fiber_free(Fiber *fiber) noexcept nogil:
    kc_fiber_free(fiber)
