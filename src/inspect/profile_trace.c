// A profile as a trace that Perfetto and Chrome show: the Trace Event Format, JSON. Tracks are
// threads of one process: kernels on the device, what the host did, copies between the two; and
// counters of memory by owner.
//
//   {"name":"POINT (128)","cat":"kernel","ph":"X","ts":1361.821,"dur":2.765,"pid":0,"tid":1,
//    "args":{"bytes":512,"flops":2816,"percent":1.0,"lines":["train.c:3 nn_linear"]}}
//   {"name":"memory","ph":"C","ts":1361.821,"pid":0,"args":{"parameters":4096,"activations":512}}
//
// Events of one track do not overlap: each kernel is timed after the one before it, and the host
// does one piece of work at a time.
#include "inspect/profile.h"

#include "base/json.h"

#include <stdio.h>

enum { KERNELS = 1, HOST, COPIES };  // the numbers of the tracks

// Numbers are written digit by digit: JSON has a point, whatever the locale uses.
static void put_micros(tni_json_writer *w, int64_t ns)
{
    char digits[] = { '.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                      (char)('0' + ns % 10), '\0' };
    tni_json_put_int(w, ns / 1000);
    tni_json_put(w, digits);
}

// As put_micros, for percentages.
static void put_tenths(tni_json_writer *w, int64_t v)
{
    char digits[] = { '.', (char)('0' + v % 10), '\0' };
    tni_json_put_int(w, v / 10);
    tni_json_put(w, digits);
}

static void put_lines(tni_json_writer *w, const tni_profile_row *r)
{
    tni_json_put(w, "[");
    for (int i = 0; i < r->sites; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, tni_profile_line(&r->site[i]).s);
    }
    tni_json_put(w, "]");
}

// Writes what all events of a row share, as the end of each.
static void put_args(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_row *r)
{
    int64_t part = tni_profile_per_mille(cx, p, r);
    tni_json_put(w, "\"args\":{\"bytes\":");
    tni_json_put_int(w, r->bytes);
    tni_json_put(w, ",\"flops\":");
    tni_json_put_int(w, (int64_t)r->effort.flops);
    if (part >= 0) {
        tni_json_put(w, ",\"percent\":");
        put_tenths(w, part);
    }
    if (r->registers.used) {
        tni_json_put(w, ",\"registers\":");
        tni_json_put_int(w, r->registers.used);
        tni_json_put(w, ",\"spilled\":");
        tni_json_put_int(w, r->registers.spilled);
    }
    tni_json_put(w, ",\"lines\":");
    put_lines(w, r);
    tni_json_put(w, "}}");
}

// Writes to the file and empties the writer, so that memory stays small.
static void flush_writer(tni_json_writer *w, FILE *f)
{
    if (w->text && !w->full) fwrite(w->text, 1, w->bytes, f);
    w->bytes = 0;
}

// Writes a metadata event, which names a track in the viewer or places it.
static void put_track(tni_json_writer *w, int tid, const char *name)
{
    tni_json_put(w, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":");
    tni_json_put_int(w, tid);
    tni_json_put(w, ",\"args\":{\"name\":");
    tni_json_quote(w, name);
    tni_json_put(w, "}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":");
    tni_json_put_int(w, tid);
    tni_json_put(w, ",\"args\":{\"sort_index\":");
    tni_json_put_int(w, tid);
    tni_json_put(w, "}}");
}

// Writes a complete event ("ph": "X") of the Chrome trace format, whose times are in microseconds.
static void put_event(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_event *e)
{
    const tni_profile_row *r = &p->row[e->row];
    tni_json_put(w, ",\n{\"name\":");
    tni_json_quote(w, r->name.s);
    tni_json_put(w, ",\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":");
    put_micros(w, e->from);
    tni_json_put(w, ",\"dur\":");
    put_micros(w, e->ns);
    tni_json_put(w, ",\"pid\":0,\"tid\":1,");
    put_args(cx, p, w, r);
}

// Writes work of the host; copies have a track of their own.
static void put_host(tni_json_writer *w, const tni_profile_host_event *e)
{
    bool copy = e->what == TNI_HOST_UPLOAD || e->what == TNI_HOST_DOWNLOAD;
    tni_json_put(w, ",\n{\"name\":");
    tni_json_quote(w, tni_host_name[e->what]);
    tni_json_put(w, copy ? ",\"cat\":\"copy\",\"ph\":\"X\",\"ts\":"
                         : ",\"cat\":\"host\",\"ph\":\"X\",\"ts\":");
    put_micros(w, e->from);
    tni_json_put(w, ",\"dur\":");
    put_micros(w, e->ns);
    tni_json_put(w, ",\"pid\":0,\"tid\":");
    tni_json_put_int(w, copy ? COPIES : HOST);
    tni_json_put(w, ",\"args\":{");
    if (copy) {
        tni_json_put(w, "\"bytes\":");
        tni_json_put_int(w, e->bytes);
    }
    tni_json_put(w, "}}");
}

// A trace on its way into a file. The whole of it is never in memory.
typedef struct {
    tni_json_writer w;
    FILE           *f;
} trace;

// A counter event has all owners at once: viewers draw one line for each.
static void put_memory(void *to, int64_t ns, const int64_t *bytes)
{
    trace *t = to;
    tni_json_put(&t->w, ",\n{\"name\":\"memory\",\"ph\":\"C\",\"ts\":");
    put_micros(&t->w, ns);
    tni_json_put(&t->w, ",\"pid\":0,\"args\":{");
    for (int i = 0; i < TNI_OWNERS; i++) {
        if (i) tni_json_put(&t->w, ",");
        tni_json_quote(&t->w, tni_owner_name[i]);
        tni_json_put(&t->w, ":");
        tni_json_put_int(&t->w, bytes[i]);
    }
    tni_json_put(&t->w, "}}");
    flush_writer(&t->w, t->f);
}

// The first event names the process, so that all others begin with a comma. otherData says how many
// kernels ran, which may be more than are remembered.
static void put_head(tn_ctx *cx, const tni_profile *p, tni_json_writer *w)
{
    tni_json_put(w, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernels\":");
    tni_json_put_int(w, p->launches);
    tni_json_put(w,
                 "},\"traceEvents\":[\n"
                 "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":");
    tni_json_quote(w, cx->engine->device->name);
    tni_json_put(w, "}}");
    put_track(w, KERNELS, "kernels");
    put_track(w, HOST, "host");
    put_track(w, COPIES, "copies");
}

bool tni_profile_trace(tn_ctx *cx, tni_profile *p, FILE *f)
{
    trace t = { .w = { .heap = &cx->heap }, .f = f };
    put_head(cx, p, &t.w);
    for (size_t i = 0; i < p->events && !t.w.full; i++) {
        flush_writer(&t.w, f);
        put_event(cx, p, &t.w, &p->event[i]);
    }
    for (size_t i = 0; i < p->hosts && !t.w.full; i++) {
        flush_writer(&t.w, f);
        put_host(&t.w, &p->host[i]);
    }
    tni_profile_memory(p, &t, put_memory);
    tni_json_put(&t.w, "\n]}\n");
    flush_writer(&t.w, f);
    tni_free(t.w.heap, t.w.text);
    return !t.w.full;
}
