// Gzip by a zlib that is found at run time, so that nothing needs it to build. What is used of its
// interface, which has been the same since 1.2, is declared here.
#include "data/content.h"

#include <dlfcn.h>
#include <string.h>

// z_stream of zlib.h.
typedef struct {
    const unsigned char *next_in;
    unsigned             avail_in;
    unsigned long        total_in;
    unsigned char       *next_out;
    unsigned             avail_out;
    unsigned long        total_out;
    const char          *msg;
    void                *state;
    void *(*zalloc)(void *opaque, unsigned items, unsigned size);
    void (*zfree)(void *opaque, void *p);
    void         *opaque;
    int           data_type;
    unsigned long adler, reserved;
} z_stream;

enum { Z_OK = 0, Z_STREAM_END = 1, Z_MEM_ERROR = -4, Z_BUF_ERROR = -5, Z_NO_FLUSH = 0 };
enum { GZIP_WINDOW = 15 + 16 };  // window bits; 16 more: with a gzip header

// Deflate cannot make more of a byte than this, so a file that says so lies.
enum { MOST_RATIO = 1032, SLACK = 64, SMALLEST = 18 };
enum { COMMON_RATIO = 8, FIRST_ROOM = 1 << 20 };
enum { PIECE = 1 << 30 };  // bytes handed to zlib at once: its counts are 32 bits
enum { MOST_GIB = 4 };

typedef struct {
    void *handle;
    const char *(*version)(void);
    int (*init)(z_stream *z, int window, const char *version, int stream_size);
    int (*inflate)(z_stream *z, int flush);
    int (*reset)(z_stream *z);
    int (*end)(z_stream *z);
} zlib;

// What is being expanded, and how far. Invariant: out has room for cap bytes, the first size of which
// are expanded; at bytes of the mapping are used up or in the hands of zlib.
typedef struct {
    tn_ctx            *cx;
    const char        *op, *path;
    const tni_mapping *from;
    zlib               lib;
    z_stream           z;
    size_t             at;
    unsigned char     *out;
    size_t             size, cap;
} job;

// ---- the library -------------------------------------------------------------------------------

static void *open_library(const char *name)
{
    static const char *const usual[] = { "libz.so.1", "libz.so", "libz.1.dylib" };
    void                    *handle  = NULL;
    if (name) return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !handle; i++)
        handle = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

// dlsym's data pointer as a function's, by its bytes: C has no cast for it.
static bool find(void *handle, const char *name, void *function)
{
    void *p = dlsym(handle, name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static bool find_all(zlib *l)
{
    void *h = l->handle;
    return find(h, "zlibVersion", &l->version) && find(h, "inflateInit2_", &l->init) &&
           find(h, "inflate", &l->inflate) && find(h, "inflateReset", &l->reset) &&
           find(h, "inflateEnd", &l->end);
}

static bool load(job *j, const char *name)
{
    zlib *l   = &j->lib;
    l->handle = open_library(name);
    if (l->handle && find_all(l) && strncmp(l->version(), "1.", 2) == 0) return true;
    if (l->handle) dlclose(l->handle);
    return tni_refuse(j->cx, TN_EIO,
                      "%s: %s: it is gzip, and no zlib is found here to expand it: gunzip it",
                      j->op, j->path);
}

static void *zlib_alloc(void *heap, unsigned items, unsigned size)
{
    return size && items > SIZE_MAX / size ? NULL : tni_alloc(heap, (size_t)items * size);
}

static void zlib_free(void *heap, void *p)
{
    tni_free(heap, p);
}

// ---- expanding ---------------------------------------------------------------------------------

static bool refuse(const job *j, const char *why)
{
    return tni_refuse(j->cx, TN_EFORMAT, "%s: %s: %s", j->op, j->path, why);
}

static bool no_memory(const job *j)
{
    return tni_no_memory(j->cx, j->op);
}

static uint64_t most_of(const job *j)
{
    uint64_t most = (uint64_t)j->from->bytes * MOST_RATIO + SLACK;
    return most < (uint64_t)MOST_GIB << 30 ? most : (uint64_t)MOST_GIB << 30;
}

// A gzip file ends with its expanded size, which is believed as far as data commonly expands; one more
// byte lets zlib see the end without asking for room.
static size_t first_room(const job *j)
{
    const unsigned char *end  = j->from->data + j->from->bytes;
    size_t               size = (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 |
                  (size_t)end[-1] << 24;
    size_t common = j->from->bytes * COMMON_RATIO + FIRST_ROOM;
    return (size < common ? size : common) + 1;
}

static bool make_room(job *j)
{
    if (j->size < j->cap) return true;
    if (j->size > most_of(j))
        return refuse(j, tni_text_of("it expands to more than %d GiB", MOST_GIB).s);
    void *out = j->out;
    bool  ok  = tni_grow(&j->cx->heap, &out, &j->cap, j->cap + 1, 1);
    j->out    = out;
    return ok || no_memory(j);
}

// After the end of a member: there is another one, or nothing.
static bool next_member(job *j, bool *done)
{
    const unsigned char *data = j->from->data;
    size_t               left = j->from->bytes - j->at;
    *done                     = left == 0;
    if (!left) return true;
    if (left < SMALLEST || data[j->at] != 0x1f || data[j->at + 1] != 0x8b)
        return refuse(j, "something follows the end of its gzip data");
    if (j->lib.reset(&j->z) == Z_OK) return true;
    return refuse(j, "zlib cannot go on with the next member");
}

// One call of zlib, on what is left of the input and of the room.
static bool step(job *j, bool *done)
{
    if (!make_room(j)) return false;
    size_t in = j->from->bytes - j->at, room = j->cap - j->size;
    j->z.next_in   = j->from->data + j->at;
    j->z.avail_in  = in < PIECE ? (unsigned)in : PIECE;
    j->z.next_out  = j->out + j->size;
    j->z.avail_out = room < PIECE ? (unsigned)room : PIECE;
    int r          = j->lib.inflate(&j->z, Z_NO_FLUSH);
    j->at          = (size_t)(j->z.next_in - j->from->data);
    j->size        = (size_t)(j->z.next_out - j->out);
    if (r == Z_STREAM_END) return next_member(j, done);
    if (r == Z_MEM_ERROR) return no_memory(j);
    if (r != Z_OK && r != Z_BUF_ERROR)
        return refuse(j, j->z.msg ? j->z.msg : "its gzip data is damaged");
    if (j->at == j->from->bytes && j->z.avail_out) return refuse(j, "its gzip data is cut short");
    return true;
}

static bool expand(job *j)
{
    if (j->from->bytes < SMALLEST) return refuse(j, "its gzip data is cut short");
    j->z   = (z_stream){ .zalloc = zlib_alloc, .zfree = zlib_free, .opaque = &j->cx->heap };
    j->cap = first_room(j);
    j->out = tni_alloc(&j->cx->heap, j->cap);
    if (!j->out) return no_memory(j);
    if (j->lib.init(&j->z, GZIP_WINDOW, j->lib.version(), (int)sizeof j->z) != Z_OK)
        return no_memory(j);
    bool done = false, ok = true;
    while (ok && !done) ok = step(j, &done);
    j->lib.end(&j->z);
    return ok;
}

unsigned char *tni_gunzip(tn_ctx *cx, const char *op, const char *path, const char *library,
                          const tni_mapping *from, size_t *bytes)
{
    job j = { .cx = cx, .op = op, .path = path, .from = from };
    if (!load(&j, library)) return NULL;
    bool ok = expand(&j);
    dlclose(j.lib.handle);
    *bytes = j.size;
    if (ok) return j.out;
    tni_free(&cx->heap, j.out);
    return NULL;
}
