// test_jumps.c: handlers that longjmp out of functions called without their call-site form, where
// the n-th allocation fails. Nothing is left half way: no block leaks, and the context works on.
#define TN_PLAIN
#include "check.h"
#include "faulty.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

// The heap comes first: the context's allocator and its handler get the same pointer.
typedef struct {
    faulty  heap;
    jmp_buf out;
} jumper;

static void jump(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f;
    longjmp(((jumper *)user)->out, 1);
}

// ---- what is left half way

static FILE *nowhere;  // for what is printed

static void build(tn_ctx *cx, const char *path)
{
    (void)path;
    tn_layer *body = tn_nn_linear(cx, 4, 4);
    tn_layer *net  = tn_nn_seq(cx, tn_nn_residual(cx, body), tn_nn_batch_norm(cx, 4),
                               tn_nn_transformer_block(cx, 4, 2), tn_mlp(cx, TN_SHAPE(4, 3)));
    tn_layer_cast(net, TN_F64);
    tn_layer_find(net, "3.1.weight");
    tn_layer_summary(net, tn_ones(cx, TN_F64, TN_SHAPE(1, 4, 4)), nowhere);
    tn_layer_free(net);
}

static tn_data *make_data(tn_ctx *cx)
{
    tn_tensor *const fields[] = { tn_ones(cx, TN_F32, TN_SHAPE(8, 1, 2, 2)),
                                  tn_zeros(cx, TN_I64, TN_SHAPE(8)) };
    return tn_arrays(cx, 2, fields);
}

static void batches(tn_ctx *cx, const char *path)
{
    (void)path;
    tn_data *d = make_data(cx);
    tn_data_augment(d, (tn_augment_opts){ .flip = true });
    tn_data *part = tn_data_split(d, 0.5, 1);
    for (int i = 0; i < 6; i++) {
        tn_drop(tn_next(d, 3).x);
        tn_next(part, 3);
    }
    tn_data_free(d);
}

static void train(tn_ctx *cx, const char *path)
{
    tn_data  *d   = make_data(cx);
    tn_layer *net = tn_mlp(cx, TN_SHAPE(4, 3));
    tn_optim *opt = tn_adam(net, (tn_adam_opts){ .clip_norm = 1 });
    for (int i = 0; i < 3; i++) {
        tn_scope *s = tn_begin(cx);
        tn_batch  b = tn_next(d, 4);
        tn_step(opt, tn_cross_entropy(tn_forward(net, b.x), b.y));
        tn_end(s);
    }
    tn_checkpoint c = { .net = { net }, .opt = { opt }, .data = { d } };
    tn_checkpoint_save(cx, path, &c);
    tn_checkpoint_load(cx, path, &c);
}

static void files(tn_ctx *cx, const char *path)
{
    tn_layer *net = tn_mlp(cx, TN_SHAPE(4, 3));
    tn_save(net, path);
    tn_load(net, path);
    tn_file *f = tn_file_open(cx, path);
    tn_file_tensor(f, "1.weight");
    tn_file_free(f);
}

static void read_text(tn_ctx *cx, const char *path)
{
    static const char rows[] = "size,name,y\n1,red,0\n2,blue,1\n3,red,1\n4,green,0\n";
    if (!scratch_write(path, rows, sizeof rows - 1)) return;
    tn_next(tn_csv(cx, path, (tn_csv_opts){ 0 }), 2);
    tn_next(tn_text(cx, path, (tn_text_opts){ .length = 4 }), 2);
}

// ---- jumping

// False when there was no such allocation.
static bool jump_at(void (*f)(tn_ctx *cx, const char *path), long n)
{
    jumper  j  = { 0 };
    tn_ctx *cx = tn_open_with((tn_open_opts){
        .device = "cpu", .handler = jump, .user = &j, .alloc = faulty_alloc, .threads = 1 });
    char    path[64];
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    if (!CHECK(cx != NULL)) return false;
    tn_scope *s      = tn_begin(cx);
    j.heap.countdown = n;
    if (!setjmp(j.out)) f(cx, path);
    j.heap.countdown = 0;
    tn_error_clear(cx);
    tn_on_error(cx, NULL, &j);
    tn_end(s);
    test_case_result(tn_item(tn_add_s(tn_scalar(cx, 1), 1)) == 2, "allocation %ld: %s", n,
                     tn_error_text(cx));
    tn_close(cx);
    test_case_result(faulty_left(&j.heap) == 0, "allocation %ld: %ld blocks are left", n,
                     faulty_left(&j.heap));
    return j.heap.failed > 0;
}

static void jump_everywhere(void (*f)(tn_ctx *cx, const char *path))
{
    long n  = 1;
    nowhere = fopen("/dev/null", "w");
    if (!CHECK(scratch_open() && nowhere)) return;
    while (jump_at(f, n)) n++;
    CHECK(n > 10);
    scratch_close();
    fclose(nowhere);
}

static void out_of_building_a_network(void)
{
    jump_everywhere(build);
}

static void out_of_datasets(void)
{
    jump_everywhere(batches);
}

static void out_of_training_and_checkpoints(void)
{
    jump_everywhere(train);
}

static void out_of_weights_and_files(void)
{
    jump_everywhere(files);
}

static void out_of_readers_of_text(void)
{
    jump_everywhere(read_text);
}

const test_case tests_jumps[] = {
    TEST(out_of_building_a_network),       TEST(out_of_datasets),
    TEST(out_of_training_and_checkpoints), TEST(out_of_weights_and_files),
    TEST(out_of_readers_of_text),          TEST_END,
};
