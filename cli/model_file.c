// model_file.c: a model of a file, and inputs for it.
#define TN_PLAIN  // lines of this program would say nothing in a profile of the model
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcasecmp(path + n - k, end);
}

void cli_write_shape(char *to, size_t size, tn_onnx_port p)
{
    size_t n = (size_t)snprintf(to, size, "%s (", tn_dtype_name(p.dtype));
    for (int i = 0; i < p.rank && n < size; i++) {
        if (p.size[i] >= 0)
            n += (size_t)snprintf(to + n, size - n, i ? ", %lld" : "%lld", (long long)p.size[i]);
        else
            n += (size_t)snprintf(to + n, size - n, i ? ", %s" : "%s",
                                  p.symbol[i] ? cli_shown(p.symbol[i]) : "?");
    }
    if (n < size) snprintf(to + n, size - n, p.rank < 0 ? "...)" : p.rank == 1 ? ",)" : ")");
}

// A network of the tool: one input, of the facts that were saved with it.
static bool open_saved(cli_net *n, const char *path, tn_dtype precision)
{
    if (!cli_saved_open(n->cx, &n->settings, path, &n->saved)) return false;
    n->layer = cli_saved_build(n->cx, &n->settings, path, &n->saved);
    if (!n->layer) return false;
    tn_layer_train(n->layer, false);
    if (precision != TN_F32 && tn_layer_cast(n->layer, precision) != TN_OK)
        return cli_fail_of(n->cx) == 0;
    const cli_facts *f = &n->saved.facts;
    n->ins = n->outs = 1;
    n->port          = (tn_onnx_port){ .name   = "x",
                                       .dtype  = f->task == CLI_TOKENS ? TN_I64 : precision,
                                       .rank   = 1 + f->rank,
                                       .size   = { -1, f->size[0], f->size[1], f->size[2] },
                                       .symbol = { "N" } };
    return true;
}

bool cli_net_open(cli_net *n, tn_ctx *cx, const cli_model_line *l, const char *path)
{
    double began = cli_seconds();
    *n           = (cli_net){ .cx = cx };
    if (!cx)
        n->cx = cli_open(&(cli_settings){ .device = (char *)l->device, .threads = l->threads });
    if (!n->cx) return false;
    began   = cli_seconds();
    bool ok = true;
    if (ends_in(path, ".onnx")) {
        n->onnx = tn_onnx_open(n->cx, path);
        n->ins  = tn_onnx_inputs(n->onnx);
        n->outs = tn_onnx_outputs(n->onnx);
        ok      = n->onnx && tn_onnx_cast(n->onnx, l->precision) == TN_OK;
        if (!ok) cli_fail_of(n->cx);
    } else ok = open_saved(n, path, l->precision);
    if (ok && (n->ins > CLI_MOST_PORTS || n->outs > CLI_MOST_PORTS))
        ok = cli_fail("%s: it has more than %d inputs or outputs", path, CLI_MOST_PORTS) == 0;
    n->seconds = cli_seconds() - began;
    if (!ok) cli_net_close(n, !cx);
    return ok;
}

void cli_net_close(cli_net *n, bool with_context)
{
    cli_saved_free(&n->saved);
    cli_settings_free(&n->settings);
    if (with_context) tn_close(n->cx);
}

tn_onnx_port cli_net_input(const cli_net *n, int i)
{
    return n->onnx ? tn_onnx_input(n->onnx, i) : n->port;
}

const char *cli_net_output(const cli_net *n, int i)
{
    return n->onnx ? tn_onnx_output(n->onnx, i).name : "y";
}

// Sizes that the file leaves open: by --dim, else 1. False, reported, if a number is none.
static bool fill_sizes(const cli_model_line *l, tn_onnx_port *p)
{
    if (p->rank < 0)
        return cli_fail("input %s has no shape in the file: give --input %s=FILE.npy",
                        cli_shown(p->name), cli_shown(p->name)) == 0;
    for (int i = 0; i < p->rank; i++) {
        const cli_pair *d = p->symbol[i] ? cli_pair_find(l->dim, l->dims, p->symbol[i]) : NULL;
        char           *end;
        if (p->size[i] < 0 && !d) p->size[i] = 1;
        if (!d) continue;
        errno      = 0;
        p->size[i] = strtoll(d->value, &end, 10);
        if (*end || end == d->value || errno || p->size[i] < 0)
            return cli_line_wrong(l->command, "--dim %s is a size, not \"%s\"", p->symbol[i],
                                  d->value);
    }
    return true;
}

// Numbers for an input that none were given for. Integers are small, so that they are ids of any
// embedding; masks of ones.
static tn_tensor *invent(tn_ctx *cx, const tn_onnx_port *p, const char *how)
{
    bool mask = strstr(p->name, "mask") != NULL;
    if (how && !strcmp(how, "zeros")) return tn_zeros(cx, p->dtype, p->rank, p->size);
    if ((how && !strcmp(how, "ones")) || (mask && !how))
        return tn_ones(cx, p->dtype, p->rank, p->size);
    switch (p->dtype) {
    case TN_F32:
    case TN_F64:
    case TN_F16:
    case TN_BF16: return tn_randn(cx, p->dtype, p->rank, p->size);
    case TN_BOOL: return tn_ones(cx, p->dtype, p->rank, p->size);
    default: return tn_cast(tn_randint(cx, TN_I64, 0, 100, p->rank, p->size), p->dtype);
    }
}

// A picture for an input (N, C, H, W): the middle, resized; for networks of ONNX files with
// ImageNet's means and deviations, which those of the tool have inside.
static tn_tensor *read_picture(const cli_net *n, const tn_onnx_port *p, const char *path)
{
    static const float mean[] = { 0.485f, 0.456f, 0.406f }, std[] = { 0.229f, 0.224f, 0.225f };
    if (p->rank != 4 || (p->size[1] != 1 && p->size[1] != 3) || p->size[2] != p->size[3]) {
        cli_fail("%s: input %s takes no pictures", path, cli_shown(p->name));
        return NULL;
    }
    tn_tensor *x = tn_image_read_with(
        n->cx, path, (tn_image_opts){ .size = p->size[2], .channels = (int)p->size[1] });
    if (x && n->onnx && p->size[1] == 3)
        x = tn_div(tn_sub(x, tn_from(n->cx, TN_F32, TN_SHAPE(3, 1, 1), mean)),
                   tn_from(n->cx, TN_F32, TN_SHAPE(3, 1, 1), std));
    return x ? tn_unsqueeze(x, 0) : NULL;
}

// The tokens of a text for a network that was trained on text, by its own tokenizer.
static tn_tensor *read_text(cli_net *n, const char *text)
{
    tn_tokenizer *tokenizer = NULL;
    cli_tokens    t         = { 0 };
    tn_tensor    *x         = NULL;
    if (n->onnx || n->saved.facts.task != CLI_TOKENS) {
        cli_fail("a text is for networks that were trained on text by tenon train");
        return NULL;
    }
    if (cli_tokenizer(n->cx, &n->settings, &tokenizer) &&
        cli_tokens_read(n->cx, text, tokenizer, true, 0, &t))
        x = tn_from(n->cx, TN_I64, TN_SHAPE(1, t.count), t.ids);
    free(t.ids);
    return x;
}

static bool is_picture(const char *path)
{
    static const char *const ends[] = { ".jpg", ".jpeg", ".png", ".ppm", ".pgm" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(path, ends[i])) return true;
    return false;
}

// One input: of a file, or invented.
static tn_tensor *make_input(cli_net *n, const cli_model_line *l, tn_onnx_port p)
{
    const cli_pair *given = cli_pair_find(l->input, l->inputs, p.name);
    const char     *how   = given ? given->value : NULL;
    if (how && ends_in(how, ".npy")) return tn_npy_read(n->cx, how);
    if (!fill_sizes(l, &p)) return NULL;
    if (how && is_picture(how)) return read_picture(n, &p, how);
    if (how && !strncmp(how, "text:", 5)) return read_text(n, how + 5);
    if (how && strcmp(how, "random") && strcmp(how, "zeros") && strcmp(how, "ones")) {
        cli_fail(
            "--input %s is a file .npy, .jpg or .png, text:TEXT, random, zeros or ones, not \"%s\"",
            p.name, how);
        return NULL;
    }
    return invent(n->cx, &p, how);
}

// Whether a size that --dim gives has its name in an input.
static bool has_symbol(const cli_net *n, const cli_pair *dim)
{
    for (int i = 0; i < n->ins; i++) {
        tn_onnx_port p = cli_net_input(n, i);
        for (int k = 0; k < p.rank; k++)
            if (p.symbol[k] && cli_pair_find(dim, 1, p.symbol[k])) return true;
    }
    return false;
}

bool cli_net_inputs(cli_net *n, const cli_model_line *l, tn_tensor **x)
{
    for (int i = 0; i < l->dims; i++)
        if (!has_symbol(n, &l->dim[i]))
            return cli_fail("no input of the model has a size \"%.*s\"", (int)l->dim[i].length,
                            l->dim[i].name) == 0;
    for (int i = 0; i < l->inputs; i++) {
        bool known = false;
        for (int k = 0; k < n->ins; k++)
            known = known || cli_pair_find(&l->input[i], 1, cli_net_input(n, k).name);
        if (!known)
            return cli_fail("the model has no input \"%.*s\"", (int)l->input[i].length,
                            l->input[i].name) == 0;
    }
    for (int i = 0; i < n->ins; i++) {
        x[i] = make_input(n, l, cli_net_input(n, i));
        if (!x[i] && tn_error(n->cx) != TN_OK) cli_fail_of(n->cx);
        if (!x[i]) return false;
        tn_retain(x[i]);
    }
    return tn_eval(n->cx) == TN_OK || cli_fail_of(n->cx) == 0;
}

tn_status cli_net_run(cli_net *n, tn_tensor *const *x, int ny, const char *const *names,
                      tn_tensor **y)
{
    if (n->onnx) return tn_onnx_run(n->onnx, n->ins, NULL, x, ny, names, y);
    y[0] = tn_forward(n->layer, x[0]);
    return y[0] ? TN_OK : tn_error(n->cx);
}
