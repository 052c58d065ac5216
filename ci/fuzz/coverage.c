/* The callbacks of gcc's -fsanitize-coverage=trace-pc,trace-cmp: they note which edges an input took,
 * and how near its comparisons came to being equal.
 *
 * The library is preloaded, so that every instrumented extension finds it. One thread only: guide.py runs one input at a
 * time. */
#include <stdint.h>
#include <string.h>

enum { EDGES = 1 << 16, MASK = EDGES - 1 };

static uint8_t hits[2 * EDGES], seen[2 * EDGES]; /* edges, then comparisons */
static __thread uintptr_t before;

static uintptr_t mixed(uintptr_t at) { return (at * UINT64_C(0x9E3779B97F4A7C15)) >> 40; }

void __sanitizer_cov_trace_pc(void) {
    uintptr_t at = mixed((uintptr_t) __builtin_return_address(0));
    uint8_t *one = &hits[(at ^ before) & MASK];
    if (*one < 255) ++*one;
    before = at >> 1;
}

static void compared(void *where, uint64_t difference) {
    hits[EDGES + ((mixed((uintptr_t) where) + __builtin_popcountll(difference)) & MASK)] = 1;
}

#define COMPARE(bits) \
    void __sanitizer_cov_trace_cmp##bits(uint64_t a, uint64_t b) { compared(__builtin_return_address(0), a ^ b); } \
    void __sanitizer_cov_trace_const_cmp##bits(uint64_t a, uint64_t b) { compared(__builtin_return_address(0), a ^ b); }
COMPARE(1)
COMPARE(2)
COMPARE(4)
COMPARE(8)
void __sanitizer_cov_trace_cmpf(float a, float b) { (void) a, (void) b; }
void __sanitizer_cov_trace_cmpd(double a, double b) { (void) a, (void) b; }

void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases) {
    for (uint64_t i = 0; i < cases[0]; i++) {
        compared((char *) __builtin_return_address(0) + i, value ^ cases[2 + i]);
    }
}

static uint8_t rank_of(uint8_t count) { /* 1, 2, 3, 4-7, 8-15, 16-31, 32-127, more: one bit each */
    return count < 4 ? 1 << (count - 1) : count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* Returns how much new coverage the run since the last call has shown. */
int kc_coverage_take(void) {
    int found = 0;
    for (int i = 0; i < 2 * EDGES; i += 8) {
        uint64_t eight;
        memcpy(&eight, hits + i, 8);
        if (eight == 0) continue;
        for (int j = i; j < i + 8; j++) {
            if (hits[j] && !(seen[j] & rank_of(hits[j]))) {
                seen[j] |= rank_of(hits[j]);
                found++;
            }
        }
        memset(hits + i, 0, 8);
    }
    before = 0;
    return found;
}

int kc_coverage_edges(void) {
    int count = 0;
    for (int i = 0; i < EDGES; i++) count += seen[i] != 0;
    return count;
}

void kc_coverage_forget(void) {
    memset(seen, 0, sizeof seen);
    memset(hits, 0, sizeof hits);
}
