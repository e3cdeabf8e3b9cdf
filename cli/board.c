// board.c: a run for TensorBoard: its measurements as numbers, weights and gradients as histograms,
// and the first images.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

// Histograms cost a second backward pass and a copy of all weights, so a run has about this many of
// them.
enum { HISTOGRAMS = 20, IMAGES = 16, TAG = 256 };

// Shows the first images of the test, if the data are images.
static bool add_images(cli_run *r)
{
    const cli_facts *f = &r->data.facts;
    if (f->rank != 3 || !r->data.test || (f->size[0] != 1 && f->size[0] != 3)) return true;
    tn_scope *scope = tn_begin(r->cx);
    tn_data_shuffle(r->data.test, false, 0);
    tn_data_rewind(r->data.test);
    tn_tensorboard_image(r->board, "test/images", r->first_step, tn_next(r->data.test, IMAGES).x,
                         (tn_image_show_opts){ 0 });
    return tn_end(scope) == TN_OK && tn_error(r->cx) == TN_OK;
}

bool cli_board_open(cli_run *r)
{
    tn_tensorboard_opts o = { .continues = r->first_step > 0, .purge_step = r->first_step + 1 };
    r->board              = tn_tensorboard_open(r->cx, r->s->tensorboard, o);
    return (r->board && add_images(r)) || (cli_fail_of(r->cx), false);
}

void cli_board_close(cli_run *r)
{
    tn_tensorboard_close(r->board);
    r->board = NULL;
}

// ---- histograms

static void count_one(const char *name, tn_tensor *t, void *user)
{
    (void)name;
    *(int *)user += tn_needs_grad(t);
}

static void add_one(const char *name, tn_tensor *t, void *user)
{
    cli_trained *p = user;
    if (!tn_needs_grad(t) || p->count == p->room) return;
    p->x[p->count]      = t;
    p->name[p->count++] = strdup(name);
}

bool cli_board_wants(const cli_run *r, int64_t step)
{
    int64_t every = r->steps / HISTOGRAMS;
    return r->board && (step == 1 || step == r->steps || step % (every > 0 ? every : 1) == 0);
}

// Gradients are those of this batch, before accumulation and clipping, and are computed beside
// those of the step. Several ranks have none: all of them would have to take part.
void cli_board_record(cli_run *r, tn_tensor *loss, cli_trained *p)
{
    tn_layer_each(r->net, count_one, &p->room);
    p->x    = cli_alloc(r->cx, 2 * p->room, sizeof *p->x);
    p->name = p->x ? cli_alloc(r->cx, p->room, sizeof *p->name) : NULL;
    if (!p->name) return;
    tn_layer_each(r->net, add_one, p);
    if (tn_dist_size(r->dist) > 1) return;
    p->gx = p->x + p->room;
    tn_grad(1, &loss, p->count, p->x, NULL, p->gx);
}

static bool add_histogram(cli_run *r, const char *group, const char *name, int64_t step,
                          tn_tensor *t)
{
    char tag[TAG];
    snprintf(tag, sizeof tag, "%s/%s", group, name ? name : "");
    return tn_tensorboard_histogram(r->board, tag, step, t) == TN_OK;
}

// Weights are those after the step. A file that cannot be written is closed here, and
// cli_board_step says so.
void cli_board_histograms(cli_run *r, int64_t step, cli_trained *p)
{
    bool ok = true;
    for (int i = 0; ok && i < p->count; i++)
        ok = add_histogram(r, "weights", p->name[i], step, p->x[i]) &&
             (!p->gx || add_histogram(r, "gradients", p->name[i], step, p->gx[i]));
    for (int i = 0; i < p->count; i++) free(p->name[i]);
    free(p->x);
    free(p->name);
    if (ok) return;
    cli_sink_error(r);
    cli_board_close(r);
}

// ---- numbers

// "test_loss" becomes "test/loss", others "train/loss". The time is that of each event.
const char *cli_board_step(cli_run *r, const cli_moment *m)
{
    cli_measure list[CLI_MEASURES];
    char        tag[TAG];
    int         n = cli_measures(m, list);
    if (!r->board) return r->sink_error;
    for (int i = 0; i < n; i++) {
        bool test = !strncmp(list[i].name, "test_", 5);
        snprintf(tag, sizeof tag, "%s/%s", test ? "test" : "train", list[i].name + (test ? 5 : 0));
        if (strcmp(list[i].name, "time") != 0 &&
            tn_tensorboard_scalar(r->board, tag, m->step, list[i].v) != TN_OK)
            return cli_sink_error(r);
    }
    return NULL;
}
