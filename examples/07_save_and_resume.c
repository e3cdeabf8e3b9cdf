// 07_save_and_resume.c: stop a training run at any step and resume it later, with equal bits.
//
// A checkpoint is one file: weights, optimizer, position of the dataset, random counter, and a few
// bytes of the program's own. It is replaced atomically, so a crash while saving loses nothing.
#include <stdio.h>
#include <string.h>
#include <tenon.h>

typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
    double    best;  // the program's own state: the lowest loss so far
    int64_t   step;
} training;

static training start(void)
{
    training t = { .cx = tn_open_with((tn_open_opts){ .seed = 7 }), .best = 1e9 };
    t.data     = tn_digits(t.cx, (tn_digits_opts){ .count = 2000 });
    t.net      = tn_nn_seq(t.cx, tn_nn_flatten(t.cx), tn_nn_linear(t.cx, 784, 32),
                           tn_nn_act(t.cx, tn_gelu), tn_nn_dropout(t.cx, 0.1),
                           tn_nn_linear(t.cx, 32, 10));
    t.opt      = tn_adam(t.net, (tn_adam_opts){ .accumulate = 2, .clip_norm = 1 });
    return t;
}

static void train(training *t, int64_t until)
{
    for (; t->step < until && tn_error(t->cx) == TN_OK; t->step++) {
        tn_scope  *s    = tn_begin(t->cx);
        tn_batch   b    = tn_next(t->data, 32);
        tn_tensor *loss = tn_cross_entropy(tn_forward(t->net, b.x), b.y);
        tn_step(t->opt, loss);
        double v = tn_item(loss);
        if (v < t->best) t->best = v;
        tn_end(s);
    }
}

// The parts of the checkpoint: read when it is saved, written when it is loaded.
static tn_checkpoint contents(training *t)
{
    return (tn_checkpoint){ .net        = { t->net },
                            .opt        = { t->opt },
                            .data       = { t->data },
                            .step       = t->step,
                            .user       = &t->best,
                            .user_bytes = sizeof t->best };
}

static bool same_weights(training *a, training *b)
{
    float x[320], y[320];
    tn_read(tn_layer_find(a->net, "4.weight"), TN_F32, x, 320);
    tn_read(tn_layer_find(b->net, "4.weight"), TN_F32, y, 320);
    return !memcmp(x, y, sizeof x) && a->best == b->best;
}

int main(void)
{
    const char *path = "resume.checkpoint";

    training whole = start();  // 60 steps without a break
    train(&whole, 60);

    training first = start();  // 25 steps, then this program might end
    train(&first, 25);
    tn_checkpoint c = contents(&first);
    tn_checkpoint_save(first.cx, path, &c);
    printf("saved after step %lld, best loss %.4f\n", (long long)first.step, first.best);
    tn_close(first.cx);

    training second = start();  // another run: everything is made again, then loaded
    c               = contents(&second);
    int failed      = tn_checkpoint_load(second.cx, path, &c) != TN_OK;
    second.step     = c.step;
    printf("resumed at step %lld, update %lld\n", (long long)second.step,
           (long long)tn_optim_updates(second.opt));
    train(&second, 60);

    printf("weights after 60 steps: %s\n", same_weights(&whole, &second) ? "equal" : "different");
    failed |= tn_error(second.cx) != TN_OK || tn_error(whole.cx) != TN_OK;
    tn_close(second.cx);
    tn_close(whole.cx);
    remove(path);
    return failed;
}
