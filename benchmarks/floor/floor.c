/* Measures a lower bound for brokers: one thread of plain C that makes only the system calls that a broker needs.
 *
 *   floor produce DIR BYTES MESSAGES   recv a message, CRC-32C it, pwrite it, acknowledge; 5 messages in flight
 *   floor fetch   DIR BYTES MESSAGES   sendfile a message from the page cache for each request; 5 requests in flight
 *   floor echo    DIR BYTES MESSAGES   receive BYTES after epoll_wait, send them back; 1 message in flight
 *   floor create  DIR BYTES MESSAGES   make MESSAGES directories with a file of BYTES in each, and sync all of them once
 *
 * Prints one JSON object. `produce` and `fetch` give megabytes per second of wall-clock time and of the serving
 * thread's CPU time. `echo` gives the median and the 99th percentile of the round trip in microseconds. `create` gives
 * seconds. The client is another thread of this process, whose CPU time does not count.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 5
#define FILES 4

static int port;
static size_t message_bytes;
static long messages;
static double *round_trips_us;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void receive(int from, uint8_t *into, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = recv(from, into + done, size - done, 0);
        if (got <= 0) fail("recv");
        done += (size_t) got;
    }
}

static void transmit(int to, const uint8_t *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(to, data + done, size - done, 0);
        if (sent <= 0) fail("send");
        done += (size_t) sent;
    }
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t checksum(const uint8_t *data, size_t size) {
    /* Three independent streams hide the latency of the instruction. Combining their results costs almost nothing. */
    uint64_t a = 0, b = 0, c = 0;
    size_t third = size / 24 * 8;
    for (size_t i = 0; i < third; i += 8) {
        uint64_t x, y, z;
        memcpy(&x, data + i, 8);
        memcpy(&y, data + third + i, 8);
        memcpy(&z, data + 2 * third + i, 8);
        a = _mm_crc32_u64(a, x);
        b = _mm_crc32_u64(b, y);
        c = _mm_crc32_u64(c, z);
    }
    return (uint32_t) (a ^ b ^ c);
}
#else
#include <arm_acle.h>
__attribute__((target("+crc"))) static uint32_t checksum(const uint8_t *data, size_t size) {
    uint32_t a = 0;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t x;
        memcpy(&x, data + i, 8);
        a = __crc32cd(a, x);
    }
    return a;
}
#endif

static int connect_peer(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    int one = 1, peer = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (peer < 0 || connect(peer, (struct sockaddr *) &address, sizeof address) < 0) fail("connect");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return peer;
}

static void *producer(void *unused) {
    int peer = connect_peer();
    uint8_t *data = malloc(message_bytes), acknowledgement[4];
    memset(data, 7, message_bytes);
    for (long sent = 0; sent < messages + DEPTH; sent++) {
        if (sent < messages) transmit(peer, data, message_bytes);
        if (sent >= DEPTH) receive(peer, acknowledgement, 4);
    }
    close(peer);
    return unused;
}

static void *consumer(void *unused) {
    int peer = connect_peer();
    uint8_t *data = malloc(message_bytes), request[4] = {0};
    for (long asked = 0; asked < messages + DEPTH; asked++) {
        if (asked < messages) transmit(peer, request, 4);
        if (asked >= DEPTH) receive(peer, data, message_bytes);
    }
    close(peer);
    return unused;
}

static void *pinger(void *unused) {
    int peer = connect_peer();
    uint8_t *data = calloc(1, message_bytes);
    for (long i = 0; i < messages; i++) {
        double began = seconds(CLOCK_MONOTONIC);
        transmit(peer, data, message_bytes);
        receive(peer, data, message_bytes);
        round_trips_us[i] = (seconds(CLOCK_MONOTONIC) - began) * 1e6;
    }
    close(peer);
    return unused;
}

static int open_file(const char *directory, int number, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/floor-%d", directory, number);
    int file = open(path, flags | O_RDWR, 0644);
    if (file < 0) fail(path);
    return file;
}

static uint32_t serve_produce(int client, const char *directory) {
    int files[FILES];
    off_t ends[FILES] = {0};
    uint8_t *data = malloc(message_bytes);
    uint32_t sum = 0;
    for (int i = 0; i < FILES; i++) files[i] = open_file(directory, i, O_CREAT | O_TRUNC);
    for (long i = 0; i < messages; i++) {
        int at = (int) (i % FILES);
        receive(client, data, message_bytes);
        sum ^= checksum(data, message_bytes);
        if (pwrite(files[at], data, message_bytes, ends[at]) != (ssize_t) message_bytes) fail("pwrite");
        ends[at] += (off_t) message_bytes;
        transmit(client, data, 4);
    }
    return sum;
}

static uint32_t serve_fetch(int client, const char *directory) {
    int file = open_file(directory, 0, O_CREAT | O_TRUNC);
    uint8_t *data = malloc(message_bytes), request[4];
    memset(data, 7, message_bytes);
    for (int i = 0; i < 64; i++)
        if (pwrite(file, data, message_bytes, (off_t) i * (off_t) message_bytes) < 0) fail("pwrite");
    for (long i = 0; i < messages; i++) {
        off_t at = (off_t) (i % 64) * (off_t) message_bytes, end = at + (off_t) message_bytes;
        receive(client, request, 4);
        while (at < end)
            if (sendfile(client, file, &at, (size_t) (end - at)) <= 0) fail("sendfile");
    }
    return 0;
}

static uint32_t serve_echo(int client, const char *directory) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    uint8_t *data = malloc(message_bytes);
    (void) directory;
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    for (long i = 0; i < messages; i++) {
        epoll_wait(set, &event, 1, -1);
        receive(client, data, message_bytes);
        transmit(client, data, message_bytes);
    }
    return 0;
}

static void create_logs(const char *directory) {
    uint8_t *data = calloc(1, message_bytes);
    char path[4096];
    for (long i = 0; i < messages; i++) {
        int name = snprintf(path, sizeof path, "%s/log-%ld", directory, i);
        if (mkdir(path, 0755) < 0) fail(path);
        snprintf(path + name, sizeof path - (size_t) name, "/00000000000000000000.log");
        int file = open(path, O_CREAT | O_WRONLY, 0644);
        if (file < 0 || pwrite(file, data, message_bytes, 0) != (ssize_t) message_bytes) fail(path);
        close(file);
    }
    int all = open(directory, O_RDONLY | O_DIRECTORY);
    if (all < 0 || syncfs(all) < 0) fail("syncfs");
    close(all);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    pthread_t peer;
    int one = 1;
    if (count != 5) {
        fprintf(stderr, "usage: floor produce|fetch|echo|create DIR BYTES MESSAGES\n");
        return 2;
    }
    message_bytes = strtoul(words[3], NULL, 10);
    messages = strtol(words[4], NULL, 10);
    round_trips_us = calloc((size_t) messages, sizeof *round_trips_us);
    if (!strcmp(words[1], "create")) {
        double began = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        create_logs(words[2]);
        printf("{\"seconds\": %.3f, \"cpu_seconds\": %.3f}\n", seconds(CLOCK_MONOTONIC) - began,
               seconds(CLOCK_PROCESS_CPUTIME_ID) - used);
        return 0;
    }
    int produce = !strcmp(words[1], "produce"), fetch = !strcmp(words[1], "fetch");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *) &address, sizeof address) < 0 || listen(listener, 1) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *) &address, &size);
    port = ntohs(address.sin_port);
    pthread_create(&peer, NULL, produce ? producer : fetch ? consumer : pinger, NULL);
    int client = accept(listener, NULL, NULL);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    uint32_t sum = (produce ? serve_produce : fetch ? serve_fetch : serve_echo)(client, words[2]);
    cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    pthread_join(peer, NULL);
    wall = seconds(CLOCK_MONOTONIC) - wall;
    if (produce || fetch) {
        double megabytes = (double) message_bytes * (double) messages / 1e6;
        printf("{\"mb_per_s\": %.1f, \"mb_per_cpu_s\": %.1f, \"checksum\": %u}\n", megabytes / wall, megabytes / cpu, sum);
    } else {
        qsort(round_trips_us, (size_t) messages, sizeof *round_trips_us, ascending);
        printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"cpu_us\": %.1f}\n", round_trips_us[messages / 2],
               round_trips_us[messages * 99 / 100], cpu * 1e6 / (double) messages);
    }
    return 0;
}
