// The disk cache: the folder and its rules, the files and their hashes, and keeping the sum bounded.
#include "kernel/disk.h"

#include "base/fd.h"
#include "tenon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_BYTES ((int64_t)512 << 20)  // bytes of all files; a sweep goes down to three quarters

enum {
    NAME        = 64,         // a file's name, with its end
    HEX         = 32,         // digits of the hash in it
    SWEEP_EVERY = 64,         // files kept between two looks at the sum
    HOUR        = 3600,       // a temporary file this old has lost its writer
    DAY         = 24 * HOUR,  // a file found is marked as used once a day
    MODE_OTHERS = 022         // writable by group or others
};

// ---- hashes ------------------------------------------------------------------------------------

// 128 bits over bytes, for files: it must never change without MAGIC. Two words that stir each
// other with every eight bytes.
typedef struct {
    uint64_t a, b;
} hash;

static uint64_t rotate(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static hash mix(hash h, uint64_t v)
{
    h.a = rotate((h.a ^ v) * 0x9e3779b97f4a7c15u, 29) + h.b;
    h.b = rotate((h.b + v) * 0xc2b2ae3d27d4eb4fu, 31) ^ h.a;
    return h;
}

// The number of bytes goes in too, so that texts one after the other cannot run together.
static hash add_bytes(hash h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t             v = 0;
    h                      = mix(h, n);
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = mix(h, v);
    }
    v = 0;
    if (n) memcpy(&v, p, n);
    return mix(h, v);
}

static hash add_text(hash h, const char *s)
{
    return add_bytes(h, s, strlen(s));
}

static hash finish_hash(hash h)
{
    for (int i = 0; i < 4; i++) h = mix(h, 0x165667b19e3779f9u);
    return h;
}

static hash hash_key(uint64_t seed, const tni_disk_key *key)
{
    hash h = { seed, ~seed };
    h      = mix(h, TN_VERSION_MAJOR << 20 | TN_VERSION_MINOR << 10 | TN_VERSION_PATCH);
    h      = add_text(add_text(h, key->kind), key->source);
    h      = add_text(add_text(h, key->options), key->compiler);
    return finish_hash(add_text(h, key->chip));
}

// ---- files -------------------------------------------------------------------------------------

#define MAGIC "tenon-1"

// How a file begins; the payload is the rest.
typedef struct {
    char     magic[8];
    hash     key;  // another one than the name's
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
    h.sum    = finish_hash(add_bytes((hash){ 3, 5 }, payload, bytes));
    return h;
}

static void name_of(tni_disk_hash t, const char *kind, char name[NAME])
{
    snprintf(name, NAME, "%016" PRIx64 "%016" PRIx64 ".%.16s", t.name[0], t.name[1], kind);
}

// Whether a name in the folder is one of ours, so that a sweep touches nothing else.
static bool is_ours(const char *name)
{
    return strspn(name, "0123456789abcdef") == HEX && name[HEX] == '.';
}

static bool is_temporary(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".tmp");
}

// ---- the folder --------------------------------------------------------------------------------

static void set_path(tni_disk *d, const char *folder, const char *rest)
{
    int n = snprintf(d->path, sizeof d->path, "%s%s", folder, rest);
    if (n < 0 || n >= (int)sizeof d->path - NAME) {
        d->path[0] = 0;
        d->why     = tni_text_of("the path of the cache folder is too long");
    }
}

void tni_disk_open(tni_disk *d)
{
    const char *own = getenv("TN_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    *d               = (tni_disk){ .kept = 0 };
    // The environment of a program with rights of its own is somebody else's.
    if (geteuid() != getuid() || getegid() != getgid())
        d->why = tni_text_of("this program runs with the rights of another user");
    else if (own && (!*own || !strcmp(own, "none"))) d->why = tni_text_of("TN_CACHE_DIR is none");
    else if (own) set_path(d, own, "");
    else if (xdg && *xdg == '/') set_path(d, xdg, "/tenon");
    else if (home && *home == '/') set_path(d, home, "/.cache/tenon");
    else d->why = tni_text_of("neither TN_CACHE_DIR nor HOME names a folder");
}

// Makes the folder and those above it that are missing. What went wrong shows when it is opened.
static void make_folder(const char *path)
{
    char part[TNI_DISK_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(part, 0700);
        *p = '/';
    }
    mkdir(part, 0700);
}

static const char *folder_fault(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return strerror(errno);
    if (!S_ISDIR(st.st_mode)) return "it is not a folder";
    if (st.st_uid != geteuid()) return "it belongs to another user";
    return st.st_mode & MODE_OTHERS ? "others can write to it" : NULL;
}

// The folder, or -1 with the reason. The rules are held by what was opened, not by its name.
static int open_folder(const tni_disk *d, bool make, tni_text *why)
{
    if (!*d->path) {
        *why = d->why;
        return -1;
    }
    int fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        make_folder(d->path);
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

// The bytes are verified after they are read, so that what happens to the file meanwhile is the
// same to us as damage.
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

// Files are removed by their time; one that is used gets a new one, at most once a day.
static void mark_used(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && time(NULL) - st.st_mtime > DAY) futimens(fd, NULL);
}

void *tni_disk_find(const tni_disk *d, const tni_disk_key *key, size_t *bytes)
{
    return *d->path ? tni_disk_find_hash(d, tni_disk_hash_of(key), key->kind, bytes) : NULL;
}

void *tni_disk_find_hash(const tni_disk *d, tni_disk_hash t, const char *kind, size_t *bytes)
{
    char     name[NAME];
    tni_text why;
    int      folder = open_folder(d, false, &why);
    if (folder < 0) return NULL;
    name_of(t, kind, name);
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

// The files of the cache, to be freed. Temporary ones whose writer is gone are removed.
static cache_file *list_files(int folder, DIR *dir, size_t *count)
{
    cache_file *all = NULL;
    size_t      cap = 0;
    *count          = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!is_ours(e->d_name) || strlen(e->d_name) >= NAME) continue;
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

// Removes the oldest files where the sum is past the limit. Two processes that sweep at once remove
// the same ones.
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

// A new file in the folder under a name that nobody else has: its fd, or -1. Processes of several
// machines may share the folder, so that a process number alone is not enough.
static int open_temporary(int folder, const char *base, char name[NAME])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    hash h = { (uint64_t)now.tv_nsec, (uint64_t)now.tv_sec };
    h      = mix(mix(h, (uint64_t)getpid()), (uint64_t)(uintptr_t)name);
    for (int i = 0; i < 16; i++) {
        h = mix(h, (uint64_t)i);
        snprintf(name, NAME, "%.*s.%08x.tmp", HEX, base, (unsigned)h.a);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

// Not synced: a file that a power cut left half-written does not pass its checksum.
static void write_file(int folder, const tni_disk_key *key, const void *payload, size_t bytes)
{
    char          name[NAME], temp[NAME];
    tni_disk_hash t = tni_disk_hash_of(key);
    header        h = header_of(t, payload, bytes);
    name_of(t, key->kind, name);
    int fd = open_temporary(folder, name, temp);
    if (fd < 0) return;
    bool ok = tni_fd_write(fd, &h, sizeof h) && tni_fd_write(fd, payload, bytes);
    ok      = close(fd) == 0 && ok;
    if (!ok || renameat(folder, temp, folder, name) != 0) unlinkat(folder, temp, 0);
}

void tni_disk_keep(tni_disk *d, const tni_disk_key *key, const void *payload, size_t bytes)
{
    tni_text why;
    int      folder = bytes > MAX_BYTES / 4 ? -1 : open_folder(d, true, &why);
    if (folder < 0) return;
    write_file(folder, key, payload, bytes);
    if (d->kept++ % SWEEP_EVERY == 0) sweep_folder(folder);
    close(folder);
}
