/* ThreadSanitizer intercepts pthread_create and pthread_join, but not glibc's thrd_create, with which librdkafka starts its
 * threads. The first malloc of such a thread would crash. Runs under ThreadSanitizer preload this library. */
#include <pthread.h>
#include <stdlib.h>
#include <threads.h>

struct start {
    thrd_start_t function;
    void *argument;
};

static void *run(void *start)
{
    struct start taken = *(struct start *) start;
    free(start);
    return (void *) (long) taken.function(taken.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    struct start *start = malloc(sizeof(*start));
    if (start == NULL)
        return thrd_nomem;
    start->function = function;
    start->argument = argument;
    if (pthread_create((pthread_t *) thread, NULL, run, start) == 0)
        return thrd_success;
    free(start);
    return thrd_error;
}

int thrd_join(thrd_t thread, int *result)
{
    void *returned;
    if (pthread_join((pthread_t) thread, &returned) != 0)
        return thrd_error;
    if (result != NULL)
        *result = (int) (long) returned;
    return thrd_success;
}
