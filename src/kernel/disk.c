// The disk cache of compiled code: the folder and its rules, the files and their hashes, and the
// bound on their sum.
#include "kernel/disk.h"

#include "base/folder.h"
#include "base/fd.h"
#include "tenon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Bytes of all files. A sweep removes the oldest ones down to three quarters of this, so that the
// next sweeps find nothing to do for a while.
#define MAX_BYTES ((int64_t)512 << 20)

enum {
    NAME        = 64,         // a file's name, with its end
    HEX         = 32,         // digits of the hash in it
    SWEEP_EVERY = 64,         // files written between two sweeps: listing the folder takes time
    HOUR        = 3600,       // age from which on a temporary file has no writer any more
    DAY         = 24 * HOUR,  // a file that is used gets a new time at most once a day
    MODE_OTHERS = 022         // mode bits: writable by group or others
};

// ---- hashes ------------------------------------------------------------------------------------

// 128 bits over bytes. Files contain it, so that it must not change unless MAGIC does. Two words
// are mixed into each other with every eight bytes; it protects against accidents, not against an
// attacker, who is kept out by the rules of the folder.
typedef struct {
    uint64_t a, b;
} hash;

static uint64_t rotate_bits(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static hash mix_hash(hash h, uint64_t v)
{
    h.a = rotate_bits((h.a ^ v) * 0x9e3779b97f4a7c15u, 29) + h.b;
    h.b = rotate_bits((h.b + v) * 0xc2b2ae3d27d4eb4fu, 31) ^ h.a;
    return h;
}

// Adds bytes and their number, so that texts one after the other cannot run together.
static hash hash_bytes(hash h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t             v = 0;
    h                      = mix_hash(h, n);
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = mix_hash(h, v);
    }
    v = 0;
    if (n) memcpy(&v, p, n);
    return mix_hash(h, v);
}

static hash hash_text(hash h, const char *s)
{
    return hash_bytes(h, s, strlen(s));
}

// Mixes until every bit of the input affects every bit of the result.
static hash finish_hash(hash h)
{
    for (int i = 0; i < 4; i++) h = mix_hash(h, 0x165667b19e3779f9u);
    return h;
}

// The hash of a key; two seeds give two independent ones, for the name and for the check in the
// file.
static hash hash_key(uint64_t seed, const tni_disk_key *key)
{
    hash h = { seed, ~seed };
    h      = mix_hash(h, TN_VERSION_MAJOR << 20 | TN_VERSION_MINOR << 10 | TN_VERSION_PATCH);
    h      = hash_text(hash_text(h, key->kind), key->source);
    h      = hash_text(hash_text(h, key->options), key->compiler);
    return finish_hash(hash_text(h, key->chip));
}

void tni_disk_hash_bytes(const void *data, size_t n, uint64_t out[2])
{
    hash h = finish_hash(hash_bytes((hash){ 7, 11 }, data, n));
    out[0] = h.a;
    out[1] = h.b;
}

// ---- files -------------------------------------------------------------------------------------

#define MAGIC "tenon-1"

// How a file begins; the payload follows.
typedef struct {
    char     magic[8];
    hash     key;  // by another seed than the name's
    uint64_t bytes;
    hash     sum;  // of the payload
} header;

tni_disk_hash tni_disk_hash_of(const tni_disk_key *key)
{
    hash name = hash_key(1, key), other = hash_key(2, key);
    return (tni_disk_hash){ { name.a, name.b }, { other.a, other.b } };
}

static header header_of(tni_disk_hash t, const void *payload, size_t bytes)
{
    header h = { .magic = MAGIC, .key = { t.key[0], t.key[1] }, .bytes = bytes };
    h.sum    = finish_hash(hash_bytes((hash){ 3, 5 }, payload, bytes));
    return h;
}

static void cache_name(tni_disk_hash t, const char *kind, char name[NAME])
{
    snprintf(name, NAME, "%016" PRIx64 "%016" PRIx64 ".%.16s", t.name[0], t.name[1], kind);
}

// Whether a name in the folder is one of the cache's, so that a sweep removes nothing else.
static bool is_cache_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == HEX && name[HEX] == '.';
}

static bool is_temporary(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".tmp");
}

// ---- the folder --------------------------------------------------------------------------------

static void set_cache_path(tni_disk *d, const char *folder, const char *rest)
{
    int n = snprintf(d->path, sizeof d->path, "%s%s", folder, rest);
    if (n < 0 || n >= (int)sizeof d->path - NAME) {
        d->path[0] = 0;
        d->why     = tni_text_of("the path of the cache folder is too long");
    }
}

// Only names the folder: it is made when the first file is written.
void tni_disk_open(tni_disk *d)
{
    const char *own = getenv("TN_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    *d               = (tni_disk){ .kept = 0 };
    // A set-uid program must not trust the environment of its caller.
    if (geteuid() != getuid() || getegid() != getgid())
        d->why = tni_text_of("this program runs with the rights of another user");
    else if (own && (!*own || !strcmp(own, "none"))) d->why = tni_text_of("TN_CACHE_DIR is none");
    else if (own) set_cache_path(d, own, "");
    else if (xdg && *xdg == '/') set_cache_path(d, xdg, "/tenon");
    else if (home && *home == '/') set_cache_path(d, home, "/.cache/tenon");
    else d->why = tni_text_of("neither TN_CACHE_DIR nor HOME names a folder");
}

// Why an open folder must not be used; NULL if it may. Code is loaded from it, so only its owner
// may write.
static const char *folder_fault(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return strerror(errno);
    if (!S_ISDIR(st.st_mode)) return "it is not a folder";
    if (st.st_uid != geteuid()) return "it belongs to another user";
    return st.st_mode & MODE_OTHERS ? "others can write to it" : NULL;
}

// Returns the open folder, or -1 with the reason. The rules are checked on what was opened, not on
// the path, which may be replaced in between.
static int open_folder(const tni_disk *d, bool make, tni_text *why)
{
    if (!*d->path) {
        *why = d->why;
        return -1;
    }
    int fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        tni_make_folder(d->path, 0700);
        fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    const char *fault = fd < 0 ? strerror(errno) : folder_fault(fd);
    if (!fault) return fd;
    *why = tni_text_of("%s: %s", tni_quoted(d->path).s, fault);
    if (fd >= 0) close(fd);
    return -1;
}

bool tni_disk_usable(const tni_disk *d, tni_text *why)
{
    int fd = open_folder(d, true, why);
    if (fd < 0) return false;
    bool ok = faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0;
    if (!ok) *why = tni_text_of("%s: %s", tni_quoted(d->path).s, strerror(errno));
    close(fd);
    return ok;
}

// ---- finding -----------------------------------------------------------------------------------

static bool equal_hashes(hash a, hash b)
{
    return a.a == b.a && a.b == b.b;
}

// Reads and verifies the payload; NULL if anything is wrong. The checksum is computed after
// reading, so that a change of the file in between counts as damage.
static void *read_payload(int fd, tni_disk_hash t, size_t *bytes)
{
    struct stat st;
    header      h;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) return NULL;
    if (st.st_mode & MODE_OTHERS || !tni_fd_read(fd, &h, sizeof h)) return NULL;
    if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 ||
        !equal_hashes(h.key, (hash){ t.key[0], t.key[1] }))
        return NULL;
    if (h.bytes != (uint64_t)st.st_size - sizeof h || h.bytes > MAX_BYTES) return NULL;
    void *data = malloc(h.bytes ? h.bytes : 1);
    if (data && tni_fd_read(fd, data, h.bytes) &&
        equal_hashes(h.sum, header_of(t, data, h.bytes).sum)) {
        *bytes = h.bytes;
        return data;
    }
    free(data);
    return NULL;
}

// Gives a file that is used a new time: sweeps remove by age.
static void mark_used(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && time(NULL) - st.st_mtime > DAY) futimens(fd, NULL);
}

void *tni_disk_find(const tni_disk *d, const tni_disk_key *key, size_t *bytes)
{
    return *d->path ? tni_disk_find_hash(d, tni_disk_hash_of(key), key->kind, bytes) : NULL;
}

// O_NOFOLLOW and O_NONBLOCK: a link or a pipe under that name is not followed and does not block.
void *tni_disk_find_hash(const tni_disk *d, tni_disk_hash t, const char *kind, size_t *bytes)
{
    char     name[NAME];
    tni_text why;
    int      folder = open_folder(d, false, &why);
    if (folder < 0) return NULL;
    cache_name(t, kind, name);
    int   fd   = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    void *data = fd < 0 ? NULL : read_payload(fd, t, bytes);
    if (data) mark_used(fd);
    if (fd >= 0) close(fd);
    close(folder);
    return data;
}

// ---- keeping -----------------------------------------------------------------------------------

typedef struct {
    char    name[NAME];
    int64_t bytes, time;
} cache_file;

// Lists the files of the cache, to be freed; removes temporary ones whose writer is gone. Returns
// fewer files when out of memory.
static cache_file *list_files(int folder, DIR *dir, size_t *count)
{
    cache_file *all = NULL;
    size_t      cap = 0;
    *count          = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!is_cache_name(e->d_name) || strlen(e->d_name) >= NAME) continue;
        if (fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (is_temporary(e->d_name)) {
            if (time(NULL) - st.st_mtime > HOUR) unlinkat(folder, e->d_name, 0);
            continue;
        }
        if (*count == cap) {
            cap              = cap ? 2 * cap : 256;
            cache_file *more = realloc(all, cap * sizeof *all);
            if (!more) break;
            all = more;
        }
        cache_file *it = &all[(*count)++];
        memcpy(it->name, e->d_name, strlen(e->d_name) + 1);
        it->bytes = st.st_size;
        it->time  = st.st_mtime;
    }
    return all;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const cache_file *)a)->time, y = ((const cache_file *)b)->time;
    return (x > y) - (x < y);
}

// Removes the oldest files if the sum passes the limit. Two processes that sweep at once remove the
// same ones.
static void sweep_folder(int folder)
{
    int     fd    = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR    *dir   = fd < 0 ? NULL : fdopendir(fd);
    size_t  count = 0;
    int64_t sum   = 0;
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    cache_file *all = list_files(folder, dir, &count);
    closedir(dir);
    for (size_t i = 0; i < count; i++) sum += all[i].bytes;
    if (sum > MAX_BYTES) {
        qsort(all, count, sizeof *all, by_time);
        for (size_t i = 0; i < count && sum > MAX_BYTES / 4 * 3; i++) {
            unlinkat(folder, all[i].name, 0);
            sum -= all[i].bytes;
        }
    }
    free(all);
}

// Opens a new file in the folder under a name that no other process has; -1 on failure. Processes
// of several machines may share the folder, so the process number alone is not unique: time and an
// address are mixed in.
static int open_temporary(int folder, const char *base, char name[NAME])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    hash h = { (uint64_t)now.tv_nsec, (uint64_t)now.tv_sec };
    h      = mix_hash(mix_hash(h, (uint64_t)getpid()), (uint64_t)(uintptr_t)name);
    for (int i = 0; i < 16; i++) {
        h = mix_hash(h, (uint64_t)i);
        snprintf(name, NAME, "%.*s.%08x.tmp", HEX, base, (unsigned)h.a);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

// Writes a file under a temporary name and renames it, so that readers see all of it or nothing. It
// is not synced: what a power cut leaves half-written does not pass its checksum.
static bool write_cache_file(int folder, const tni_disk_key *key, const void *payload, size_t bytes)
{
    char          name[NAME], temp[NAME];
    tni_disk_hash t = tni_disk_hash_of(key);
    header        h = header_of(t, payload, bytes);
    cache_name(t, key->kind, name);
    int fd = open_temporary(folder, name, temp);
    if (fd < 0) return false;
    bool ok = tni_fd_write(fd, &h, sizeof h) && tni_fd_write(fd, payload, bytes);
    ok      = close(fd) == 0 && ok;
    ok      = ok && renameat(folder, temp, folder, name) == 0;
    if (!ok) unlinkat(folder, temp, 0);
    return ok;
}

// A payload of more than a quarter of the limit is not kept: it would push out most others.
bool tni_disk_keep(tni_disk *d, const tni_disk_key *key, const void *payload, size_t bytes)
{
    tni_text why;
    int      folder = bytes > MAX_BYTES / 4 ? -1 : open_folder(d, true, &why);
    if (folder < 0) return false;
    bool ok = write_cache_file(folder, key, payload, bytes);
    if (d->kept++ % SWEEP_EVERY == 0) sweep_folder(folder);
    close(folder);
    return ok;
}

// ---- locks -------------------------------------------------------------------------------------

// A file of its own is locked: payloads are replaced, and a lock on one would stay with the old
// file. Its name is none of the cache's, so that no sweep removes it. Waiting has an end, since a
// process may be stopped while it holds the lock.
int tni_disk_lock(const tni_disk *d, const char *kind, double seconds)
{
    enum { TRIES = 100 };  // in a second
    const struct timespec pause = { .tv_nsec = 1000000000 / TRIES };

    char     name[NAME];
    tni_text why;
    int      folder = open_folder(d, true, &why);
    if (folder < 0) return -1;
    snprintf(name, sizeof name, "%.16s.lock", kind);
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    close(folder);
    for (int i = 0; fd >= 0 && i <= seconds * TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        nanosleep(&pause, NULL);
    }
    if (fd >= 0) close(fd);
    return -1;
}

// Unlocked before it is closed: a program that was started meanwhile may have inherited the file.
void tni_disk_unlock(int lock)
{
    if (lock < 0) return;
    flock(lock, LOCK_UN);
    close(lock);
}
