/* Preloaded into a process: writes down, in order, everything that the process does to the files below one directory.
 *
 * KAFKACORE_JOURNAL is the file to append to, KAFKACORE_JOURNAL_ROOT the directory. disk_journal.py reads what is
 * written and makes of it the states that a power cut could have left. KAFKACORE_JOURNAL_FAIL=N makes the N-th sync fail
 * with EIO once, as Linux reports a failed writeback: the next sync of the same file goes well and says nothing of it.
 *
 * A file beside the journal with `.kill` at its end has the process killed with its next entry: any other way of killing
 * it may fall between an operation and its entry.
 *
 * One lock orders operations and entries; a sync, which takes long, has an entry where it begins and one where it ends.
 * A way to a file that is not wrapped here is found out by who compares the files with what the journal says of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = 1, CREATE, MKDIR, WRITE, TRUNCATE, RENAME, UNLINK, RMDIR, SYNC_BEGIN, SYNC_END, SYNC_FAILED, UNKNOWN };
enum { MOST_FILES = 65536 };

struct entry { /* little endian; `path`, `other` and `data` follow */
    uint32_t kind;
    uint32_t path_bytes;
    uint32_t other_bytes;
    uint32_t data_bytes;
    uint64_t inode;
    int64_t offset; /* WRITE; TRUNCATE: the size; SYNC_END and SYNC_FAILED: number of the SYNC_BEGIN in its process */
    int64_t process;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static char root[PATH_MAX], killer[PATH_MAX];
static size_t root_bytes;
static uint64_t inode_of[MOST_FILES]; /* of each descriptor that is watched; 0: none */
static int64_t syncs, fail_at = -1;

#define NEXT(name) \
    static __typeof__(&name) next_##name; \
    if (next_##name == NULL) next_##name = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

static void put(uint32_t kind, const char *path, const char *other, const void *data, size_t size, uint64_t inode,
                int64_t offset) {
    struct entry head = {kind, path ? strlen(path) : 0, other ? strlen(other) : 0, size, inode, offset, getpid()};
    struct iovec parts[4] = {{&head, sizeof head}, {(void *) path, head.path_bytes}, {(void *) other, head.other_bytes},
                             {(void *) data, size}};
    size_t whole = sizeof head + head.path_bytes + head.other_bytes + size;
    NEXT(writev);
    if (next_writev(journal, parts, 4) != (ssize_t) whole) abort(); /* without a journal the test says nothing */
    if (access(killer, F_OK) == 0) kill(getpid(), SIGKILL);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KAFKACORE_JOURNAL"), *below = getenv("KAFKACORE_JOURNAL_ROOT");
    const char *fail = getenv("KAFKACORE_JOURNAL_FAIL");
    struct stat about;
    NEXT(open);
    if (path == NULL || below == NULL || realpath(below, root) == NULL) return;
    root_bytes = strlen(root);
    snprintf(killer, sizeof killer, "%s.kill", path);
    if (fail != NULL) fail_at = atoll(fail);
    journal = next_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (journal < 0 || stat(root, &about) != 0) abort();
    put(ROOT, root, NULL, NULL, 0, about.st_ino, 0);
}

__attribute__((destructor)) static void end(void) { journal = -1; }

/* The absolute path where it lies below the root or is it, else NULL. */
static const char *watched(const char *path, char *into) {
    size_t used = 0;
    if (journal < 0 || path == NULL) return NULL;
    if (path[0] != '/') {
        if (getcwd(into, PATH_MAX) == NULL) return NULL;
        used = strlen(into);
        into[used++] = '/';
    }
    if (used + strlen(path) >= PATH_MAX) return NULL;
    strcpy(into + used, path);
    used = strlen(into);
    while (used > 1 && into[used - 1] == '/') into[--used] = 0;
    if (strncmp(into, root, root_bytes) != 0 || (into[root_bytes] != '/' && into[root_bytes] != 0)) return NULL;
    return into;
}

static uint64_t watched_file(int file) { return journal >= 0 && file >= 0 && file < MOST_FILES ? inode_of[file] : 0; }

/* --- names --- */

static int open_watched(int (*really)(int, const char *, int, ...), int at, const char *path, int flags, mode_t mode) {
    char absolute[PATH_MAX];
    struct stat before, after;
    const char *name = watched(path, absolute);
    int was_there, file;
    if (name == NULL) return really(at, path, flags, mode);
    pthread_mutex_lock(&lock);
    was_there = stat(name, &before) == 0;
    file = really(at, path, flags, mode);
    if (file >= 0 && fstat(file, &after) == 0) {
        if (!was_there) put(CREATE, name, NULL, NULL, 0, after.st_ino, 0);
        else if (flags & O_TRUNC && before.st_size) put(TRUNCATE, NULL, NULL, NULL, 0, after.st_ino, 0);
        if (file < MOST_FILES) inode_of[file] = after.st_ino;
    }
    pthread_mutex_unlock(&lock);
    return file;
}

#define OPEN_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        mode_t mode = 0; \
        va_list more; \
        NEXT(name); \
        if (flags & (O_CREAT | O_TMPFILE)) { va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        return open_watched(next_##name, at, path, flags, mode); \
    }
#define OPEN(name, name_at) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = 0; \
        va_list more; \
        NEXT(name_at); \
        if (flags & (O_CREAT | O_TMPFILE)) { va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        return open_watched(next_##name_at, AT_FDCWD, path, flags, mode); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)
OPEN(open, openat)
OPEN(open64, openat64)

int close(int file) {
    int result;
    NEXT(close);
    if (!watched_file(file)) return next_close(file);
    pthread_mutex_lock(&lock);
    inode_of[file] = 0;
    result = next_close(file);
    pthread_mutex_unlock(&lock);
    return result;
}

typedef int change(const char *path, const char *other, mode_t mode);

static int change_name(uint32_t kind, const char *path, const char *other, mode_t mode, change *work) {
    char absolute[PATH_MAX], absolute_other[PATH_MAX];
    const char *name = watched(path, absolute), *new_name = other ? watched(other, absolute_other) : NULL;
    struct stat about;
    int result, error;
    if (name == NULL) return work(path, other, mode);
    pthread_mutex_lock(&lock);
    result = work(path, other, mode);
    error = errno;
    if (result == 0) {
        about.st_ino = 0;
        if (kind == MKDIR) stat(name, &about);
        put(other && !new_name ? UNKNOWN : kind, name, new_name, NULL, 0, about.st_ino, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

#define UNUSED __attribute__((unused))
static int do_rename(const char *old, const char *new, mode_t mode UNUSED) { NEXT(rename); return next_rename(old, new); }
static int do_unlink(const char *path, const char *other UNUSED, mode_t mode UNUSED) { NEXT(unlink); return next_unlink(path); }
static int do_rmdir(const char *path, const char *other UNUSED, mode_t mode UNUSED) { NEXT(rmdir); return next_rmdir(path); }
static int do_mkdir(const char *path, const char *other UNUSED, mode_t mode) { NEXT(mkdir); return next_mkdir(path, mode); }

/* No thread-local state in these: a sanitizer's runtime makes the directory of its reports before it can serve that. */
int rename(const char *old, const char *new) { return change_name(RENAME, old, new, 0, do_rename); }
int unlink(const char *path) { return change_name(UNLINK, path, NULL, 0, do_unlink); }
int rmdir(const char *path) { return change_name(RMDIR, path, NULL, 0, do_rmdir); }
int mkdir(const char *path, mode_t mode) { return change_name(MKDIR, path, NULL, mode, do_mkdir); }

/* --- content --- */

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    uint64_t inode = watched_file(file);
    ssize_t result;
    NEXT(pwrite);
    if (!inode) return next_pwrite(file, data, size, offset);
    pthread_mutex_lock(&lock);
    result = next_pwrite(file, data, size, offset);
    if (result > 0) put(WRITE, NULL, NULL, data, result, inode, offset);
    pthread_mutex_unlock(&lock);
    return result;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) { return pwrite(file, data, size, offset); }

ssize_t write(int file, const void *data, size_t size) {
    uint64_t inode = watched_file(file);
    ssize_t result;
    NEXT(write);
    if (!inode) return next_write(file, data, size);
    pthread_mutex_lock(&lock);
    result = next_write(file, data, size);
    if (result > 0) put(WRITE, NULL, NULL, data, result, inode, lseek(file, 0, SEEK_CUR) - result);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int file, off_t size) {
    uint64_t inode = watched_file(file);
    int result;
    NEXT(ftruncate);
    if (!inode) return next_ftruncate(file, size);
    pthread_mutex_lock(&lock);
    result = next_ftruncate(file, size);
    if (result == 0) put(TRUNCATE, NULL, NULL, NULL, 0, inode, size);
    pthread_mutex_unlock(&lock);
    return result;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

/* --- syncs --- */

static int sync_watched(int file, uint64_t inode, int (*really)(int)) {
    int64_t number;
    int result, failed;
    pthread_mutex_lock(&lock);
    number = syncs++;
    failed = number == fail_at;
    put(SYNC_BEGIN, NULL, NULL, NULL, 0, inode, number);
    pthread_mutex_unlock(&lock);
    result = failed ? -1 : really(file);
    pthread_mutex_lock(&lock);
    put(result == 0 ? SYNC_END : SYNC_FAILED, NULL, NULL, NULL, 0, inode, number);
    pthread_mutex_unlock(&lock);
    if (failed) errno = EIO;
    return result;
}

int fsync(int file) {
    uint64_t inode = watched_file(file);
    NEXT(fsync);
    return inode ? sync_watched(file, inode, next_fsync) : next_fsync(file);
}

int fdatasync(int file) {
    uint64_t inode = watched_file(file);
    NEXT(fdatasync);
    return inode ? sync_watched(file, inode, next_fdatasync) : next_fdatasync(file);
}
