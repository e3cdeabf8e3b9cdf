// Fuzzes the reader of checkpoints. Damage hardly ever comes past the checksum, so an input whose
// first byte is 'c' gets the right one where its metadata has a place for it. The same files are
// read as weights too.
#include "fuzz.h"
#include "train/checksum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A training and what a checkpoint keeps of it.
typedef struct {
    tn_layer     *net;
    tn_checkpoint c;
    char          user[3];
} training;

static void start(tn_ctx *cx, training *t)
{
    tn_tensor *x = tn_zeros(cx, TN_F32, TN_SHAPE(4, 2));
    t->net       = tn_nn_seq(cx, tn_nn_linear(cx, 2, 2), tn_nn_batch_norm(cx, 2));
    t->c         = (tn_checkpoint){ .net        = { t->net },
                                    .opt        = { tn_sgd(t->net, (tn_sgd_opts){ .momentum = 0.5f }) },
                                    .data       = { tn_arrays(cx, 1, &x) },
                                    .user       = t->user,
                                    .user_bytes = sizeof t->user };
    memcpy(t->user, "abc", 3);
}

static void train(tn_ctx *cx, training *t)
{
    tn_scope *s = tn_begin(cx);
    tn_step(t->c.opt[0], tn_sum_all(tn_forward(t->net, tn_next(t->c.data[0], 3).x)));
    tn_end(s);
}

static void seed_file(const char *path, char kind)
{
    static char input[FUZZ_ROOM];
    FILE       *f = fopen(path, "rb");
    FUZZ_CHECK(f != NULL);
    input[0] = kind;
    fuzz_seed(input, 1 + fread(input + 1, 1, sizeof input - 1, f));
    fclose(f);
}

static void seeds(void)
{
    training    t;
    tn_ctx     *cx   = fuzz_open();
    const char *path = fuzz_path("seed");
    start(cx, &t);
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(tn_checkpoint_save(cx, path, &t.c) == TN_OK);
        seed_file(path, 'c');
        train(cx, &t);
    }
    tn_backward(tn_sum_all(tn_forward(t.net, tn_next(t.c.data[0], 3).x)), NULL);
    FUZZ_CHECK(tn_checkpoint_save(cx, path, &t.c) == TN_OK);
    seed_file(path, 'c');
    seed_file(path, 'r');
    tn_close(cx);
}

// What the checksum of a file would be; false if it cannot be told.
static bool right_sum(tn_ctx *cx, const char *path, char text[TNI_SUM_TEXT])
{
    uint64_t sum = 0;
    tn_file *f   = tn_file_open(cx, path);
    bool     ok  = f && tni_sum_file("fuzz", f, &sum);
    tn_file_free(f);
    tn_error_clear(cx);
    tni_sum_text(sum, text);
    return ok;
}

static const char *put_file(tn_ctx *cx, const unsigned char *data, size_t n, bool correct)
{
    static const char    key[] = "\"checksum\":\"";
    static unsigned char copy[FUZZ_ROOM];
    char                 text[TNI_SUM_TEXT];
    const char          *path = fuzz_file("state", data, n);
    unsigned char       *at;
    memcpy(copy, data, n);
    at = memmem(copy, n, key, sizeof key - 1);
    if (!correct || !at || !right_sum(cx, path, text)) return path;
    at += sizeof key - 1;
    if ((size_t)(copy + n - at) < sizeof text) return path;
    memcpy(at, text, sizeof text - 1);
    return fuzz_file("state", copy, n);
}

static double sum_of(tn_layer *net)
{
    return tn_item(tn_sum_all(tn_layer_find(net, "0.weight"))) +
           tn_item(tn_sum_all(tn_layer_find(net, "1.num_batches_tracked")));
}

static uint64_t run(const unsigned char *data, size_t n)
{
    if (n == 0) return 0;
    training    t;
    tn_ctx     *cx   = fuzz_open();
    const char *path = put_file(cx, data + 1, n - 1, data[0] == 'c');
    start(cx, &t);
    double    before = sum_of(t.net);
    tn_status s      = tn_checkpoint_load(cx, path, &t.c);
    FUZZ_CHECK(s == tn_error(cx));
    if (s != TN_OK) FUZZ_CHECK(sum_of(t.net) == before && !memcmp(t.user, "abc", 3));
    uint64_t outcome = fuzz_outcome(s, tn_error_text(cx));
    if (s == TN_OK) train(cx, &t);  // which may fail: a batch of one item has no statistics
    tn_error_clear(cx);
    tn_load_with(t.net, path, (tn_load_opts){ .prefix = "net.0.", .partial = true });
    return fuzz_join(outcome, fuzz_close(cx, n));
}

static const char *const tokens[] = {
    "\"format\"",
    "\"version\"",
    "\"step\"",
    "\"seed\"",
    "\"opt.0\"",
    "\"sgd\"",
    "\"net.0.0.weight\"",
    "\"opt.0.counts\"",
    "\"opt.0.settings\"",
    "\"opt.0.momentum_buffer.0.weight\"",
    "\"data.0\"",
    "\"user\"",
    "\"I64\"",
    "\"F64\"",
    "\"F16\"",
    "\"U16\"",
    "[2,2]",
    "[]",
    "[10]",
    "18446744073709551615",
    NULL,
};

const fuzz_target fuzz_checkpoint = {
    .name = "checkpoint", .seeds = seeds, .run = run, .tokens = tokens
};
