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

// Deflate expands a byte to at most MOST_RATIO bytes; the shortest gzip member has SMALLEST bytes.
enum { MOST_RATIO = 1032, SLACK = 64, SMALLEST = 18 };
enum { PIECE = 1 << 30 };  // bytes handed to zlib at once: its counts are 32 bits

typedef struct {
    void *handle;
    const char *(*version)(void);
    int (*init)(z_stream *z, int window, const char *version, int stream_size);
    int (*inflate)(z_stream *z, int flush);
    int (*reset)(z_stream *z);
    int (*end)(z_stream *z);
} zlib;

// A gzip stream. at: bytes of the mapping that are consumed. ended: the last member is complete and
// its checksum was right.
struct tni_gunzip {
    tn_ctx            *cx;
    const char        *op, *path;
    const tni_mapping *from;
    zlib               lib;
    z_stream           z;
    bool               begun, ended;
    size_t             at;
};

// ---- the library -------------------------------------------------------------------------------

// Tries zlib's usual names, or only the one given.
static void *open_library(const char *name)
{
    static const char *const usual[] = { "libz.so.1", "libz.so", "libz.1.dylib" };
    void                    *handle  = NULL;
    if (name) return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !handle; i++)
        handle = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

// Stores dlsym's data pointer as a function pointer by its bytes: ISO C has no cast for it.
static bool find_symbol(void *handle, const char *name, void *function)
{
    void *p = dlsym(handle, name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static bool find_symbols(zlib *l)
{
    void *h = l->handle;
    return find_symbol(h, "zlibVersion", &l->version) &&
           find_symbol(h, "inflateInit2_", &l->init) && find_symbol(h, "inflate", &l->inflate) &&
           find_symbol(h, "inflateReset", &l->reset) && find_symbol(h, "inflateEnd", &l->end);
}

// All functions must be present, and the version 1.x, whose interface is the one declared here.
static bool load_zlib(tni_gunzip *g, const char *name)
{
    zlib *l   = &g->lib;
    l->handle = open_library(name);
    if (l->handle && find_symbols(l) && strncmp(l->version(), "1.", 2) == 0) return true;
    return tni_refuse(g->cx, TN_EIO,
                      "%s: %s: it is gzip, and no zlib was found to expand it: gunzip it", g->op,
                      g->path);
}

// zlib's memory comes from the context's heap, where it is counted and can be made to fail by
// tests.
static void *zlib_alloc(void *heap, unsigned items, unsigned size)
{
    return size && items > SIZE_MAX / size ? NULL : tni_alloc(heap, (size_t)items * size);
}

static void zlib_free(void *heap, void *p)
{
    tni_free(heap, p);
}

// ---- expanding ---------------------------------------------------------------------------------

uint64_t tni_gunzip_most(size_t bytes)
{
    return (uint64_t)bytes * MOST_RATIO + SLACK;
}

static bool refuse_gzip(const tni_gunzip *g, const char *why)
{
    return tni_refuse(g->cx, TN_EFORMAT, "%s: %s: %s", g->op, g->path, why);
}

// Called at the end of a member: another one follows, or nothing.
static bool next_member(tni_gunzip *g)
{
    const unsigned char *data = g->from->data;
    size_t               left = g->from->bytes - g->at;
    g->ended                  = left == 0;
    if (!left) return true;
    if (left < SMALLEST || data[g->at] != 0x1f || data[g->at + 1] != 0x8b)
        return refuse_gzip(g, "something follows the end of its gzip data");
    if (g->lib.reset(&g->z) == Z_OK) return true;
    return refuse_gzip(g, "zlib cannot go on with the next member");
}

// Calls zlib once, on what is left of input and output. No error and no progress at the end of the
// input means that the file is cut short.
static bool inflate_piece(tni_gunzip *g, unsigned char *to, size_t capacity, size_t *got)
{
    size_t in      = g->from->bytes - g->at;
    g->z.next_in   = g->from->data + g->at;
    g->z.avail_in  = in < PIECE ? (unsigned)in : PIECE;
    g->z.next_out  = to;
    g->z.avail_out = capacity < PIECE ? (unsigned)capacity : PIECE;
    int r          = g->lib.inflate(&g->z, Z_NO_FLUSH);
    g->at          = (size_t)(g->z.next_in - g->from->data);
    *got           = (size_t)(g->z.next_out - to);
    if (r == Z_STREAM_END) return next_member(g);
    if (r == Z_MEM_ERROR) return tni_no_memory(g->cx, g->op);
    if (r != Z_OK && r != Z_BUF_ERROR)
        return refuse_gzip(g, g->z.msg ? g->z.msg : "its gzip data is damaged");
    if (g->at == g->from->bytes && g->z.avail_out)
        return refuse_gzip(g, "its gzip data is cut short");
    return true;
}

// Returns fewer bytes only at the end.
bool tni_gunzip_read(tni_gunzip *g, void *to, size_t n, size_t *got)
{
    size_t more;
    for (*got = 0; *got < n && !g->ended; *got += more)
        if (!inflate_piece(g, (unsigned char *)to + *got, n - *got, &more)) return false;
    return true;
}

// Loads zlib and starts its stream. The library is loaded for each file: a program that never reads
// gzip never needs it.
static bool begin_stream(tni_gunzip *g, const char *library)
{
    if (!load_zlib(g, library)) return false;
    if (g->from->bytes < SMALLEST) return refuse_gzip(g, "its gzip data is cut short");
    g->z     = (z_stream){ .zalloc = zlib_alloc, .zfree = zlib_free, .opaque = &g->cx->heap };
    g->begun = g->lib.init(&g->z, GZIP_WINDOW, g->lib.version(), (int)sizeof g->z) == Z_OK;
    return g->begun || tni_no_memory(g->cx, g->op);
}

tni_gunzip *tni_gunzip_open(tn_ctx *cx, const char *op, const char *path, const char *library,
                            const tni_mapping *from)
{
    tni_gunzip *g = tni_zalloc(&cx->heap, sizeof *g);
    if (!g) return tni_fail_memory(cx, op);
    *g = (tni_gunzip){ .cx = cx, .op = op, .path = path, .from = from };
    if (begin_stream(g, library)) return g;
    tni_gunzip_close(g);
    return NULL;
}

void tni_gunzip_close(tni_gunzip *g)
{
    if (!g) return;
    if (g->begun) g->lib.end(&g->z);
    if (g->lib.handle) dlclose(g->lib.handle);
    tni_free(&g->cx->heap, g);
}
