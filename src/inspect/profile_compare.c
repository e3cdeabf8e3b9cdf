// tn_profile_compare: two profiles beside each other, read from the traces that tn_profile_write
// made of them. Kernels are the same if their names are, which have their sizes: lines move when a
// program is changed, and what it computes is what is compared.
//
//   a: old.json on cpu: 180 kernels, 10.512 ms, at most 4.1 MiB
//   b: new.json on cpu: 160 kernels, 9.411 ms, at most 4.1 MiB
//   b takes 0.895 of the time of a
//
//         a ms       b ms     b/a  a count  b count  a mean us  b mean us  kernel
//        4.211      3.110   0.739       20       20     210.55     155.50  matmul + POINT (64, 128)
#include "base/hash.h"
#include "base/json.h"
#include "base/page.h"
#include "base/slots.h"
#include "inspect/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const char tni_profile_compare_js[];

static const char no_memory[] = "there is no memory for it";  // told apart by its address

// What one profile says of a kernel.
typedef struct {
    int64_t count, ns, bytes, flops;
} share;

// A kernel of either profile, with the first line of the program that it comes from.
typedef struct {
    uint64_t hash;
    tni_text name, line;
    share    of[2];
} row;

// One of the two profiles. host: by the names of its work; peak: the most memory at one time.
typedef struct {
    const char *path;
    tni_text    device;
    int64_t     kernels, ns, host_ns, peak;
    int64_t     all;  // kernels that ran, of which a trace has the first; 0 if it does not say
} side;

// Both of them. slot is a hash table of rows: a row's number plus 1, or 0 if free; at most half
// full.
typedef struct {
    tn_ctx   *cx;
    side      side[2];
    row      *row;
    size_t    rows, rows_cap, slots;
    uint32_t *slot;
} pair;

// ---- reading -----------------------------------------------------------------------------------

// An event of a trace. kind: the first letter of its category, or its phase if it has none. sum: of
// the numbers in its arguments, which are bytes by owner if it is a counter.
typedef struct {
    tni_text name, line;
    char     kind;
    double   us, bytes, flops, kernels, sum;
    tni_text argument;  // the name that a metadata event gives
} event;

// Copies a string of the trace. One that does not fit is cut, one that is not Unicode is left out:
// it names a kernel that no profile of Tenon has.
static void read_string(const tni_json *j, tni_text *to)
{
    if (j->kind == TNI_JSON_STRING && tni_json_string(j, to->s, sizeof to->s) < 0) to->s[0] = 0;
    to->s[sizeof to->s - 1] = 0;
}

// Reads one member of an event or of its arguments: the numbers and names that are compared, and of
// a list its first string, which is the first line of a kernel. All else is passed over, since
// traces of later versions may have more.
static bool read_member(tni_json *j, const char *key, bool argument, event *e)
{
    double v = 0;
    if (j->kind == TNI_JSON_NUMBER && tni_json_double(j, &v)) {
        if (argument) e->sum += v;
        if (!strcmp(key, "dur")) e->us = v;
        if (!strcmp(key, "bytes")) e->bytes = v;
        if (!strcmp(key, "flops")) e->flops = v;
        if (!strcmp(key, "kernels")) e->kernels = v;
    } else if (!strcmp(key, "name")) {
        read_string(j, argument ? &e->argument : &e->name);
    } else if (j->kind == TNI_JSON_STRING &&
               (!strcmp(key, "cat") || (!e->kind && !strcmp(key, "ph")))) {
        e->kind = j->text[0];
    } else if (j->kind == TNI_JSON_ARRAY) {
        while (tni_json_next(j) == TNI_JSON_STRING)
            if (!e->line.s[0]) read_string(j, &e->line);
        return j->kind == TNI_JSON_ARRAY_END;
    } else if (j->kind == TNI_JSON_OBJECT) {
        return tni_json_skip(j);
    }
    return j->kind != TNI_JSON_ERROR;
}

// Reads the members of an event, and of its arguments one level deeper. False where it is not JSON.
static bool read_event(tni_json *j, bool argument, event *e)
{
    while (tni_json_next(j) == TNI_JSON_KEY) {
        char key[32] = "";
        tni_json_string(j, key, sizeof key);
        key[sizeof key - 1] = 0;
        tni_json_next(j);
        bool ok = !argument && !strcmp(key, "args") && j->kind == TNI_JSON_OBJECT
                      ? read_event(j, true, e)
                      : read_member(j, key, argument, e);
        if (!ok) return false;
    }
    return j->kind == TNI_JSON_OBJECT_END;
}

// ---- rows --------------------------------------------------------------------------------------

// Enters a row in the hash table, at the first free place from its hash on.
static void put_slot(pair *p, size_t i)
{
    tni_slots_put(p->slot, p->slots, p->row[i].hash, i);
}

// Makes space for one more row. False when memory is out.
static bool grow(pair *p)
{
    tni_heap *h = &p->cx->heap;
    if (!tni_grow(h, (void **)&p->row, &p->rows_cap, p->rows + 1, sizeof *p->row)) return false;
    if (2 * (p->rows + 1) <= p->slots) return true;
    if (!tni_slots_double(h, &p->slot, &p->slots)) return false;
    for (size_t i = 0; i < p->rows; i++) put_slot(p, i);
    return true;
}

// Returns the row of a kernel, found or added; NULL when memory is out.
static row *row_of(pair *p, const event *e)
{
    uint64_t hash = tni_hash(e->name.s, strlen(e->name.s));
    for (size_t at = hash & (p->slots - 1); p->slots && p->slot[at];
         at        = (at + 1) & (p->slots - 1)) {
        row *r = &p->row[p->slot[at] - 1];
        if (r->hash == hash && !strcmp(r->name.s, e->name.s)) return r;
    }
    if (!grow(p)) return NULL;
    p->row[p->rows] = (row){ .hash = hash, .name = e->name, .line = e->line };
    put_slot(p, p->rows);
    return &p->row[p->rows++];
}

// Adds an event to its kernel, or to what its profile has besides. False when memory is out.
static bool add_event(pair *p, int which, const event *e)
{
    side   *s  = &p->side[which];
    int64_t ns = (int64_t)(1e3 * e->us + 0.5);
    if (e->kind == 'C' && e->sum > (double)s->peak) s->peak = (int64_t)e->sum;
    if (e->kind == 'M' && !strcmp(e->name.s, "process_name")) s->device = e->argument;
    if (e->kind == 'h') s->host_ns += ns;
    if (e->kind != 'k') return true;
    row *r = row_of(p, e);
    if (!r) return false;
    s->kernels++;
    s->ns += ns;
    r->of[which].count++;
    r->of[which].ns += ns;
    r->of[which].bytes = (int64_t)e->bytes;
    r->of[which].flops = (int64_t)e->flops;
    return true;
}

// Moves to the list of events; what comes before it may say how many kernels ran. False if there is
// none: the file is no trace.
static bool find_events(tni_json *j, int64_t *all)
{
    if (tni_json_next(j) != TNI_JSON_OBJECT) return false;
    while (tni_json_next(j) == TNI_JSON_KEY) {
        bool  here = tni_json_is(j, "traceEvents"), other = tni_json_is(j, "otherData");
        event e = { .kind = 0 };
        tni_json_next(j);
        if (here) return j->kind == TNI_JSON_ARRAY;
        if (other && j->kind == TNI_JSON_OBJECT) {
            if (!read_event(j, true, &e)) return false;
            *all = (int64_t)e.kernels;
            continue;
        }
        if (!tni_json_skip(j)) return false;
    }
    return false;
}

// Adds all events of a trace, one after the other, without a tree of them: a trace can have a
// million. Why it cannot be read, in words; NULL if it was.
static const char *add_trace(pair *p, int which, const char *text, size_t bytes)
{
    tni_json j;
    tni_json_open(&j, text, bytes);
    if (!find_events(&j, &p->side[which].all))
        return j.kind == TNI_JSON_ERROR ? j.why : "it has no traceEvents";
    while (tni_json_next(&j) == TNI_JSON_OBJECT) {
        event e = { .kind = 0 };
        if (!read_event(&j, false, &e)) return j.why ? j.why : "an event is not as it should be";
        if (!add_event(p, which, &e)) return no_memory;
    }
    if (j.kind != TNI_JSON_ARRAY_END) return j.why ? j.why : "an event is not as it should be";
    return p->side[which].kernels ? NULL : "no kernel is in it";
}

// Reads a whole file, which is a few hundred bytes for each run of a kernel: NULL, with errno, if
// it cannot be read; its reader frees it.
static char *read_file(tni_heap *h, const char *path, size_t *bytes)
{
    FILE *f    = fopen(path, "rb");
    long  size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *text = size >= 0 ? tni_alloc(h, (size_t)size + 1) : NULL;
    if (text) rewind(f);
    *bytes = text ? fread(text, 1, (size_t)size, f) : 0;
    if (f) fclose(f);
    return text;
}

// Reads one of the two files. What is wrong with it is said with its name, since there are two.
static tn_status read_side(pair *p, int which)
{
    tni_heap   *h = &p->cx->heap;
    size_t      bytes;
    const char *path = p->side[which].path;
    errno            = 0;
    char *text       = read_file(h, path, &bytes);
    if (!text)
        return tni_fail_status(p->cx, errno ? TN_EIO : TN_EMEM,
                               "profile_compare: %s could not be read: %s", tni_quoted(path).s,
                               errno ? strerror(errno) : no_memory);
    const char *why = add_trace(p, which, text, bytes);
    tni_free(h, text);
    if (!why) return TN_OK;
    if (why == no_memory) tni_fail_memory(p->cx, "profile_compare");
    if (why == no_memory) return tni_failed();
    return tni_fail_status(p->cx, TN_EFORMAT, "profile_compare: %s is not a trace of a profile: %s",
                           tni_quoted(path).s, why);
}

// ---- as text -----------------------------------------------------------------------------------

// What differs most comes first: that is what one looks for.
static int by_difference(const void *a, const void *b)
{
    const row *x = a, *y = b;
    int64_t    dx = llabs(x->of[1].ns - x->of[0].ns), dy = llabs(y->of[1].ns - y->of[0].ns);
    if (dx != dy) return dx < dy ? 1 : -1;
    return strcmp(x->name.s, y->name.s);
}

// A kernel that one of the profiles does not have has no mean there.
static void print_mean(const share *s, FILE *f)
{
    if (s->count) fprintf(f, " %10.2f", 1e-3 * (double)s->ns / (double)s->count);
    else fprintf(f, " %10s", "-");
}

// Prints a line of the table: times in all, their ratio, how often it ran, and the mean of a run.
static void print_row(const row *r, FILE *f)
{
    const share *a = &r->of[0], *b = &r->of[1];
    fprintf(f, "%10.3f %10.3f ", 1e-6 * (double)a->ns, 1e-6 * (double)b->ns);
    if (a->ns && b->ns) fprintf(f, "%7.3f ", (double)b->ns / (double)a->ns);
    else fprintf(f, "%7s ", a->ns ? "gone" : "new");
    fprintf(f, "%8lld %8lld", (long long)a->count, (long long)b->count);
    print_mean(a, f);
    print_mean(b, f);
    fprintf(f, "  %s\n", r->name.s);
}

// Prints both heads, how the times compare, and the kernels.
static void print_pair(const pair *p, FILE *f)
{
    for (int i = 0; i < 2; i++) {
        const side *s = &p->side[i];
        fprintf(f, "%c: %s on %s: %lld kernel%s, %.3f ms, at most %s", "ab"[i],
                tni_escaped(s->path).s, tni_escaped(s->device.s).s, (long long)s->kernels,
                s->kernels == 1 ? "" : "s", 1e-6 * (double)s->ns, tni_size_text(s->peak).s);
        if (s->all > s->kernels) fprintf(f, "; %lld ran, it has the first", (long long)s->all);
        fputc('\n', f);
    }
    if (p->side[0].ns)
        fprintf(f, "b takes %.3f of the time of a\n",
                (double)p->side[1].ns / (double)p->side[0].ns);
    fprintf(f, "\n%10s %10s %7s %8s %8s %10s %10s  %s\n", "a ms", "b ms", "b/a", "a count",
            "b count", "a mean us", "b mean us", "kernel");
    for (size_t i = 0; i < p->rows; i++) print_row(&p->row[i], f);
}

// ---- as a page ---------------------------------------------------------------------------------

// [count, time, bytes, flops]
static void put_share(tni_json_writer *w, const share *s)
{
    const int64_t v[] = { s->count, s->ns, s->bytes, s->flops };
    for (int i = 0; i < 4; i++) {
        tni_json_put(w, i ? "," : "[");
        tni_json_put_int(w, v[i]);
    }
    tni_json_put(w, "]");
}

//   {"path":"old.json","device":"cpu","kernels":180,"time":10512000,"host":11370000,"peak":4300800,"all":180}
static void put_side(tni_json_writer *w, const side *s)
{
    static const char *const name[]  = { ",\"kernels\":", ",\"time\":", ",\"host\":", ",\"peak\":",
                                         ",\"all\":" };
    const int64_t            value[] = { s->kernels, s->ns, s->host_ns, s->peak, s->all };
    tni_json_put(w, "{\"path\":");
    tni_json_quote(w, tni_escaped(s->path).s);
    tni_json_put(w, ",\"device\":");
    tni_json_quote(w, tni_escaped(s->device.s).s);
    for (int i = 0; i < 5; i++) {
        tni_json_put(w, name[i]);
        tni_json_put_int(w, value[i]);
    }
    tni_json_put(w, "}");
}

// Writes {"sides":[a, b],"rows":[{"name":"matmul (64, 10)","line":"train.c:4 forward","a":[count,
// time, bytes, flops], "b":[...]}]}, times in nanoseconds. False when memory is out.
static bool write_page(const pair *p, FILE *f)
{
    tni_json_writer w = { .heap = &p->cx->heap };
    tni_json_put(&w, "{\"sides\":[");
    put_side(&w, &p->side[0]);
    tni_json_put(&w, ",");
    put_side(&w, &p->side[1]);
    tni_json_put(&w, "],\n\"rows\":[");
    for (size_t i = 0; i < p->rows; i++) {
        tni_json_put(&w, i ? ",\n{\"name\":" : "{\"name\":");
        tni_json_quote(&w, tni_escaped(p->row[i].name.s).s);
        tni_json_put(&w, ",\"line\":");
        tni_json_quote(&w, tni_escaped(p->row[i].line.s).s);
        tni_json_put(&w, ",\"a\":");
        put_share(&w, &p->row[i].of[0]);
        tni_json_put(&w, ",\"b\":");
        put_share(&w, &p->row[i].of[1]);
        tni_json_put(&w, "}");
    }
    tni_json_put(&w, "]}");
    tni_page page = { .title = "two profiles", .data = w.text, .script = tni_profile_compare_js };
    if (!w.full) tni_page_write(f, &page);
    tni_free(w.heap, w.text);
    return !w.full;
}

// ---- the call ----------------------------------------------------------------------------------

// The form follows from the path, as that of tn_profile_write does.
static tn_status write_pair(const pair *p, const char *path)
{
    size_t n    = path ? strlen(path) : 0;
    bool   page = n >= 5 && !strcmp(path + n - 5, ".html"), kept = true;
    FILE  *f = path ? fopen(path, "w") : stdout;
    if (f && page) kept = write_page(p, f);
    else if (f) print_pair(p, f);
    bool ok = f && fflush(f) == 0 && !ferror(f);
    int  no = errno;
    if (f && f != stdout && fclose(f)) ok = false;
    if (!kept) tni_fail_memory(p->cx, "profile_compare");
    if (!kept) return tni_failed();
    return ok ? TN_OK
              : tni_fail_status(p->cx, TN_EIO, "profile_compare: %s could not be written: %s",
                                path ? tni_quoted(path).s : "it", strerror(no));
}

// Both files are read before anything is written, so that a file that is none leaves an older
// result as it was.
tn_status tn_profile_compare(tn_ctx *cx, const char *a, const char *b, const char *path)
{
    if (!tni_ctx_ok(cx, "profile_compare")) return tni_failed();
    if (!a || !b) return tni_fail_status(cx, TN_EARG, "profile_compare: a file is NULL");
    pair      p = { .cx = cx, .side = { { .path = a }, { .path = b } } };
    tn_status s = read_side(&p, 0);
    if (s == TN_OK) s = read_side(&p, 1);
    if (p.rows) qsort(p.row, p.rows, sizeof *p.row, by_difference);
    if (s == TN_OK) s = write_pair(&p, path);
    tni_free(&cx->heap, p.row);
    tni_free(&cx->heap, p.slot);
    return s;
}
