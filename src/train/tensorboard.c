// Event files of TensorBoard: records of one protocol buffer each, an Event with a Summary of one
// value.
//
//   record   length u64, masked CRC-32C of it u32, the event, masked CRC-32C of that u32
//   Event    1 wall_time double, 2 step, 3 file_version (first record), 5 summary, 7 session_log { 1 status }
//   Summary  1 value { 1 tag, 2 simple_value float, 4 image, 5 histo }
//   Image    1 height, 2 width, 3 channels, 4 PNG file
//   Histo    1 min, 2 max, 3 num, 4 sum, 5 sum of squares, 6 upper limits, 7 counts: doubles, the lists packed
//
// The number 0.125 of "loss" at step 7, without its frame:
//
//   09 .. 8 bytes         1 wall_time
//   10 07                 2 step
//   2a 0f                 5 summary, 15 bytes
//     0a 0d               1 value, 13 bytes
//       0a 04 6c 6f 73 73   1 tag, "loss"
//       15 00 00 00 3e      2 simple_value
//
// A record goes to the file in one write, so that a reader sees all of it or, at the end of the
// file, a part, for whose rest it waits.
#include "base/crc.h"
#include "base/fd.h"
#include "base/folder.h"
#include "base/message.h"
#include "data/image_show.h"
#include "io/file.h"
#include "tensor/context.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 64, FRAME = 12, TAIL = 4, MOST_FILES = 1000 };
enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { VALUE_TAG = 1, VALUE_NUMBER, VALUE_IMAGE = 4, VALUE_HISTOGRAM };
enum { SESSION_START = 1 };  // of status: what follows replaces later steps of other files

struct tn_tensorboard {
    tni_owned owned;  // first
    int       fd;
    char     *path;
};

// ---- records -----------------------------------------------------------------------------------

// The sum of bytes that may hold sums themselves: turned and moved, as the format says.
static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t c = tni_crc(TNI_CRC_CASTAGNOLI, data, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

// The system says why: a full disk, a folder without rights.
static tn_status fail_file(const tn_tensorboard *b, const char *op)
{
    return tni_fail_status(b->owned.cx, TN_EIO, "%s: %s: %s", op, b->path, strerror(errno));
}

// Frames an event and writes it; frees it. The frame is around it in one block, for one write.
static tn_status write_event(tn_tensorboard *b, const char *op, tni_message *event)
{
    tni_heap      *h      = &b->owned.cx->heap;
    uint64_t       length = event->bytes;
    unsigned char *record = event->full ? NULL : tni_alloc(h, FRAME + length + TAIL);
    tn_status      status = TN_OK;
    if (record) {
        uint32_t sum = masked_crc(&length, sizeof length);
        memcpy(record, &length, sizeof length);
        memcpy(record + sizeof length, &sum, sizeof sum);
        memcpy(record + FRAME, event->data, length);
        sum = masked_crc(event->data, length);
        memcpy(record + FRAME + length, &sum, sizeof sum);
        if (!tni_fd_write(b->fd, record, FRAME + length + TAIL)) status = fail_file(b, op);
        tni_free(h, record);
    } else {
        tni_fail_memory(b->owned.cx, op);
        status = TN_EMEM;
    }
    tni_message_free(event);
    return status;
}

// An event of now; of a step, unless it is 0.
static tni_message new_event(tn_tensorboard *b, int64_t step)
{
    tni_message     event = { .heap = &b->owned.cx->heap };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tni_message_double(&event, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    if (step) tni_message_int(&event, EVENT_STEP, step);
    return event;
}

// Completes a value, whose tag is written already, to an event; frees it.
static tn_status write_value(tn_tensorboard *b, const char *op, int64_t step, tni_message *value)
{
    tni_message event = new_event(b, step), summary = { .heap = value->heap };
    tni_message_nest(&summary, 1, value);
    tni_message_nest(&event, EVENT_SUMMARY, &summary);
    return write_event(b, op, &event);
}

// ---- opening -----------------------------------------------------------------------------------

// What was written is in the file already; nothing waits to be flushed.
static void free_board(tni_owned *t)
{
    tn_tensorboard *b = (tn_tensorboard *)t;
    if (b->fd >= 0) close(b->fd);
    tni_free(&t->cx->heap, b->path);
    tni_free(&t->cx->heap, b);
}

// Makes a file whose name says when and where it was made, as TensorBoard expects it, and that no
// other has.
static bool make_file(tn_tensorboard *b, const char *folder)
{
    char host[64] = "host", name[TNI_FOLDER_PATH];
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    for (int n = 0; n < MOST_FILES && b->fd < 0; n++) {
        int length = snprintf(name, sizeof name, "%s/events.out.tfevents.%lld.%s.%ld.%d", folder,
                              (long long)time(NULL), host, (long)getpid(), n);
        if (length < 0 || (size_t)length >= sizeof name) errno = ENAMETOOLONG;
        else b->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (b->fd < 0 && errno != EEXIST) break;
    }
    b->path = tni_strdup(&b->owned.cx->heap, b->fd < 0 ? folder : name);
    if (!b->path) return tni_no_memory(b->owned.cx, "tensorboard_open");
    return b->fd >= 0 || (fail_file(b, "tensorboard_open"), false);
}

// The first event says which version of the format follows; a run that continues says from which
// step on.
static bool write_start(tn_tensorboard *b, tn_tensorboard_opts o)
{
    tni_message event = new_event(b, 0);
    tni_message_text(&event, EVENT_VERSION, "brain.Event:2");
    if (write_event(b, "tensorboard_open", &event) != TN_OK) return false;
    if (!o.continues) return true;
    tni_message session = { .heap = event.heap };
    event               = new_event(b, o.purge_step);
    tni_message_int(&session, 1, SESSION_START);
    tni_message_nest(&event, EVENT_SESSION, &session);
    return write_event(b, "tensorboard_open", &event) == TN_OK;
}

// It is one of the context's objects before anything is written, so that each failure is undone in
// one way.
tn_tensorboard *tn_tensorboard_open(tn_ctx *cx, const char *folder, tn_tensorboard_opts o)
{
    if (!tni_ctx_ok(cx, "tensorboard_open")) return NULL;
    if (!folder || !*folder) return tni_fail(cx, TN_EARG, "tensorboard_open: there is no folder");
    if (o.continues && o.purge_step < 0)
        return tni_fail(cx, TN_EARG, "tensorboard_open: %lld is no step", (long long)o.purge_step);
    tn_tensorboard *b = tni_zalloc(&cx->heap, sizeof *b);
    if (!b) return tni_fail_memory(cx, "tensorboard_open");
    b->fd = -1;
    tni_owned_add(cx, &b->owned, TNI_TENSORBOARD, free_board);
    tni_make_folder(folder, 0777);
    if (make_file(b, folder) && write_start(b, o)) return b;
    tni_owned_remove(&b->owned);
    free_board(&b->owned);
    return NULL;
}

void tn_tensorboard_close(tn_tensorboard *b)
{
    if (!b || !tni_owned_ok("tensorboard_close", b, TNI_TENSORBOARD)) return;
    tni_owned_remove(&b->owned);
    free_board(&b->owned);
}

// ---- values ------------------------------------------------------------------------------------

// Begins a value by its tag, after checking the arguments that all have; false, reported, if they
// are wrong.
static bool begin_value(const char *op, tn_tensorboard *b, const char *tag, int64_t step,
                        tni_message *value)
{
    tn_ctx *cx = tni_owned_ok(op, b, TNI_TENSORBOARD);
    if (!cx) return false;
    if (!tag || !*tag || !tni_utf8_ok(tag, strlen(tag)))
        return tni_refuse(cx, TN_EARG, "%s: the tag is %s", op,
                          !tag   ? "NULL"
                          : *tag ? "not UTF-8"
                                 : "empty");
    if (step < 0) return tni_refuse(cx, TN_EARG, "%s: step %lld is negative", op, (long long)step);
    *value = (tni_message){ .heap = &cx->heap };
    return true;
}

// TensorBoard shows NaN and infinities as marks of their own, so they are written as they are.
tn_status tn_tensorboard_scalar(tn_tensorboard *b, const char *tag, int64_t step, double v)
{
    tni_message value;
    if (!begin_value("tensorboard_scalar", b, tag, step, &value)) return tni_failed();
    tni_message_text(&value, VALUE_TAG, tag);
    tni_message_float(&value, VALUE_NUMBER, (float)v);
    return write_value(b, "tensorboard_scalar", step, &value);
}

// The finite elements of a tensor, counted.
typedef struct {
    double low, high, num, sum, squares;
    double limit[BUCKETS], count[BUCKETS];
    int    buckets;  // 0: nothing is finite
} histogram;

// Sums are of doubles: a million floats that are added as floats would lose digits.
static void find_range(histogram *g, const float *x, int64_t n)
{
    *g = (histogram){ .low = INFINITY, .high = -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        double v = x[i];
        if (!isfinite(v)) continue;
        if (v < g->low) g->low = v;
        if (v > g->high) g->high = v;
        g->num++;
        g->sum += v;
        g->squares += v * v;
    }
    g->buckets = g->num == 0 ? 0 : g->high > g->low ? BUCKETS : 1;
    if (!g->buckets) g->low = g->high = 0;
}

// Equal elements have one interval, which ends at them.
static void count_elements(histogram *g, const float *x, int64_t n)
{
    find_range(g, x, n);
    double width = (g->high - g->low) / BUCKETS;
    for (int i = 0; i < g->buckets; i++)
        g->limit[i] = i + 1 < g->buckets ? g->low + width * (i + 1) : g->high;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        int at = g->buckets > 1 ? (int)(((double)x[i] - g->low) / width) : 0;
        g->count[at < g->buckets ? at : g->buckets - 1]++;  // the largest belongs to the last
    }
}

// The lists are packed: one key, then all their bytes, which are those in memory.
static void put_histogram(tni_message *value, const histogram *g)
{
    tni_message h     = { .heap = value->heap };
    size_t      bytes = (size_t)g->buckets * sizeof *g->limit;
    tni_message_double(&h, 1, g->low);
    tni_message_double(&h, 2, g->high);
    tni_message_double(&h, 3, g->num);
    tni_message_double(&h, 4, g->sum);
    tni_message_double(&h, 5, g->squares);
    tni_message_bytes(&h, 6, g->limit, bytes);
    tni_message_bytes(&h, 7, g->count, bytes);
    tni_message_nest(value, VALUE_HISTOGRAM, &h);
}

// Elements are read as f32, which is what histograms are looked at for.
tn_status tn_tensorboard_histogram(tn_tensorboard *b, const char *tag, int64_t step, tn_tensor *x)
{
    tni_message value;
    histogram   g;
    tn_ctx     *cx = tni_arg1("tensorboard_histogram", x, "x");
    if (!cx || !begin_value("tensorboard_histogram", b, tag, step, &value)) return tni_failed();
    int64_t n = tn_count(x);
    float  *v = tni_alloc(&cx->heap, (size_t)n * sizeof *v);
    if (!v) return tni_fail_memory(cx, "tensorboard_histogram"), TN_EMEM;
    tn_status status = tn_read(x, TN_F32, v, n);
    if (status == TN_OK) count_elements(&g, v, n);
    tni_free(&cx->heap, v);
    if (status != TN_OK) return status;
    tni_message_text(&value, VALUE_TAG, tag);
    put_histogram(&value, &g);
    return write_value(b, "tensorboard_histogram", step, &value);
}

// The file is the one that tn_image_write would write.
tn_status tn_tensorboard_image(tn_tensorboard *b, const char *tag, int64_t step, tn_tensor *x,
                               tn_image_show_opts o)
{
    static const char op[] = "tensorboard_image";

    tni_message value, image;
    tni_shown   s;
    size_t      bytes = 0;
    tn_ctx     *cx    = tni_arg1(op, x, "x");
    if (!cx || !begin_value(op, b, tag, step, &value) || !tni_shown_read(op, x, o, &s))
        return tni_failed();
    unsigned char *png = tni_png_of(cx, op, &s, &bytes);
    tni_free(&cx->heap, s.pixels);
    if (!png) return TN_EMEM;
    image = (tni_message){ .heap = &cx->heap };
    tni_message_int(&image, 1, s.H);
    tni_message_int(&image, 2, s.W);
    tni_message_int(&image, 3, s.C);
    tni_message_bytes(&image, 4, png, bytes);
    tni_free(&cx->heap, png);
    tni_message_text(&value, VALUE_TAG, tag);
    tni_message_nest(&value, VALUE_IMAGE, &image);
    return write_value(b, op, step, &value);
}
