// model_show.c: `tenon show MODEL`: its graph, sizes and flops, where its time goes, and all that
// as a page.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { TIMED = 3, MOST_OPS = 512 };  // runs that are profiled; kinds of ops that are counted

static int64_t count_of(tn_onnx_port p)
{
    int64_t n = 1;
    for (int i = 0; i < p.rank; i++) n *= p.size[i] < 0 ? 1 : p.size[i];
    return p.rank < 0 ? 0 : n;
}

static int64_t bytes_of(tn_onnx_port p)
{
    int64_t each = p.dtype == TN_F64 || p.dtype == TN_I64                       ? 8
                   : p.dtype == TN_F16 || p.dtype == TN_BF16                    ? 2
                   : p.dtype == TN_BOOL || p.dtype == TN_U8 || p.dtype == TN_I8 ? 1
                                                                                : 4;
    return count_of(p) * each;
}

// Multiplications and additions of products and convolutions; of other nodes one for each element
// of the result.
static double flops_of(const tn_onnx *m, int node)
{
    tn_onnx_node n = tn_onnx_node_at(m, node);
    tn_onnx_port a = tn_onnx_node_value(m, node, 0), w = tn_onnx_node_value(m, node, 1),
                 y = tn_onnx_node_value(m, node, n.ins);
    double out     = (double)count_of(y);
    if (strstr(n.op, "Conv") && w.rank > 1 && w.size[0] > 0)
        return 2 * out * (double)(count_of(w) / w.size[0]);
    if ((strstr(n.op, "MatMul") || !strcmp(n.op, "Gemm")) && a.rank > 0)
        return 2 * out * (double)a.size[a.rank - 1];
    return out;
}

// ---- as text -----------------------------------------------------------------------------------

typedef struct {
    const char *op;
    int         count;
    bool        known;
} op_count;

static int by_count(const void *a, const void *b)
{
    const op_count *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : strcmp(x->op, y->op);
}

// Prints how often each op occurs, those that cannot run marked. Returns how many nodes cannot.
static int print_ops(const tn_onnx *m, int nodes)
{
    op_count list[MOST_OPS];
    int      ops = 0, missing = 0;
    for (int i = 0; i < nodes; i++) {
        tn_onnx_node n = tn_onnx_node_at(m, i);
        int          k = 0;
        while (k < ops && strcmp(list[k].op, n.op)) k++;
        if (k == MOST_OPS) continue;
        if (k == ops) list[ops++] = (op_count){ n.op, 0, n.known };
        list[k].count++;
        missing += !n.known;
    }
    qsort(list, (size_t)ops, sizeof *list, by_count);
    printf("%d node%s of %d kinds:", nodes, cli_s(nodes), ops);
    for (int k = 0; k < ops; k++)
        printf("%s %d %s%s", k ? "," : "", list[k].count, cli_shown(list[k].op),
               list[k].known ? "" : " (which Tenon does not have)");
    puts("");
    return missing;
}

static void print_port(const char *what, tn_onnx_port p)
{
    char shape[256];
    cli_write_shape(shape, sizeof shape, p);
    printf("%-7s %s  %s\n", what, cli_shown(p.name), shape);
}

// A line for each node: what it gives, its flops and bytes.
static void print_nodes(const tn_onnx *m, int nodes)
{
    char shape[256];
    for (int i = 0; i < nodes; i++) {
        tn_onnx_node n = tn_onnx_node_at(m, i);
        tn_onnx_port y = tn_onnx_node_value(m, i, n.ins);
        cli_write_shape(shape, sizeof shape, y);
        printf("%5d  %-22s %-34s %8.2f MFLOP  %s\n", i, cli_shown(n.op), shape,
               flops_of(m, i) * 1e-6, cli_shown(n.name));
    }
}

// Weights and their bytes, each once: a node that reads one may not be the only one.
static void print_sizes(const tn_onnx *m, int nodes)
{
    char        text[32];
    const char *seen[4096];
    int         names   = 0;
    double      flops   = 0;
    int64_t     weights = 0, bytes = 0;
    for (int i = 0; i < nodes; i++) {
        tn_onnx_node n = tn_onnx_node_at(m, i);
        flops += flops_of(m, i);
        for (int k = 0; k < n.ins; k++) {
            tn_onnx_port p = tn_onnx_node_value(m, i, k);
            int          s = 0;
            while (s < names && strcmp(seen[s], n.in[k])) s++;
            if (!p.optional || s < names) continue;
            if (names < 4096) seen[names++] = n.in[k];
            weights += count_of(p);
            bytes += bytes_of(p);
        }
    }
    cli_write_bytes(text, sizeof text, bytes);
    printf("%lld numbers in weights, %s; %.3f GFLOP a run\n", (long long)weights, text,
           flops * 1e-9);
}

// ---- as a page ---------------------------------------------------------------------------------

// A text as a JSON string.
static void put_text(FILE *f, const char *s)
{
    bool utf8 = cli_is_utf8(s);
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
        else if (c < 32) fprintf(f, "\\u%04x", c);
        else fputc(c >= 128 && !utf8 ? '?' : c, f);
    }
    fputc('"', f);
}

static void put_names(FILE *f, const char *const *name, int n)
{
    fputc('[', f);
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        put_text(f, name[i]);
    }
    fputc(']', f);
}

// {"op":"Conv","name":"conv1","in":["x","w"],"out":["y"],"shape":"f32 (1, 64, 112,
// 112)","bytes":N,"flops":N,"weights":N}
static void put_nodes(FILE *f, const tn_onnx *m, int nodes)
{
    char shape[256];
    for (int i = 0; i < nodes; i++) {
        tn_onnx_node n = tn_onnx_node_at(m, i);
        tn_onnx_port y = tn_onnx_node_value(m, i, n.ins);
        int64_t      w = 0;
        for (int k = 0; k < n.ins; k++) {
            tn_onnx_port p = tn_onnx_node_value(m, i, k);
            if (p.optional) w += bytes_of(p);
        }
        cli_write_shape(shape, sizeof shape, y);
        fprintf(f, "%s{\"op\":", i ? ",\n" : "");
        put_text(f, n.op);
        fputs(",\"name\":", f);
        put_text(f, *n.name ? n.name : n.op);
        fputs(",\"in\":", f);
        put_names(f, n.in, n.ins);
        fputs(",\"out\":", f);
        put_names(f, n.out, n.outs);
        fputs(",\"shape\":", f);
        put_text(f, y.rank < 0 ? "" : shape);
        fprintf(f, ",\"bytes\":%lld,\"flops\":%.0f,\"weights\":%lld}",
                (long long)(y.rank < 0 ? 0 : bytes_of(y)), flops_of(m, i), (long long)w);
    }
}

// Copies the trace of the profile, which is JSON.
static void put_trace(tn_ctx *cx, FILE *f, const char *path)
{
    char temp[4096];
    int  c;
    snprintf(temp, sizeof temp, "%s.trace.json", path);
    FILE *t = tn_profile_write(cx, temp) == TN_OK ? fopen(temp, "r") : NULL;
    if (!t) fputs("null", f);
    while (t && (c = fgetc(t)) != EOF) fputc(c, f);
    if (t) fclose(t);
    remove(temp);
}

// What the page shows (model_page.js).
static void put_data(cli_net *n, FILE *f, const char *path, int nodes)
{
    fprintf(f, "{\"runs\":%d,\"nodes\":[\n", TIMED);
    put_nodes(f, n->onnx, nodes);
    fputs("],\n\"trace\":", f);
    put_trace(n->cx, f, path);
    fputs("}", f);
}

static bool write_page(cli_net *n, const cli_model_line *l, int nodes)
{
    char  *data = NULL;
    size_t size;
    FILE  *f = open_memstream(&data, &size);
    if (f) put_data(n, f, l->html, nodes);
    if (!f || fclose(f)) return cli_fail("%s: there is no memory for it", l->html) == 0;
    tn_page_write(n->cx, l->html,
                  (tn_page){ .title = l->model[0], .data = data, .script = cli_model_page_js });
    free(data);
    if (tn_error(n->cx)) return cli_fail_of(n->cx) == 0;
    fprintf(stderr, "%s\n", cli_shown(l->html));
    return true;
}

// ---- the command -------------------------------------------------------------------------------

// Runs the model a few times, the last of them profiled.
static bool profile(cli_net *n, tn_tensor *const *x)
{
    tn_tensor *y[CLI_MOST_PORTS];
    for (int i = 0; i < 2 * TIMED; i++) {
        tn_scope *s = tn_begin(n->cx);
        if (i == TIMED) tn_profile_begin(n->cx);
        bool ok = cli_net_run(n, x, n->outs, NULL, y) == TN_OK;
        for (int k = 0; ok && k < n->outs; k++) tn_want(y[k]);
        ok = ok && tn_eval(n->cx) == TN_OK && tn_sync(n->cx) == TN_OK;
        tn_end(s);
        if (!ok) return false;
    }
    return tn_profile_end(n->cx) == TN_OK;
}

static int show_onnx(cli_net *n, const cli_model_line *l)
{
    tn_tensor *x[CLI_MOST_PORTS];
    int        nodes = tn_onnx_nodes(n->onnx);
    if (nodes < 0) return cli_fail_of(n->cx);
    for (int i = 0; i < n->ins; i++) print_port("input", tn_onnx_input(n->onnx, i));
    for (int i = 0; i < n->outs; i++) print_port("output", tn_onnx_output(n->onnx, i));
    int missing = print_ops(n->onnx, nodes);
    if (missing) {
        fflush(stdout);
        return cli_fail("%d node%s cannot run", missing, cli_s(missing));
    }
    if (!cli_net_inputs(n, l, x)) return 1;
    if (!profile(n, x)) return cli_fail_of(n->cx);
    print_sizes(n->onnx, nodes);
    if (l->nodes) print_nodes(n->onnx, nodes);
    if (l->html) return write_page(n, l, nodes) ? 0 : 1;
    puts("");
    return tn_profile_write(n->cx, NULL) == TN_OK ? 0 : cli_fail_of(n->cx);
}

// A network of the tool has layers instead of nodes.
static int show_layer(cli_net *n, const cli_model_line *l)
{
    tn_tensor *x[CLI_MOST_PORTS];
    if (l->html || l->nodes)
        return cli_fail("--html and --nodes are for ONNX files; %s has layers", l->model[0]);
    if (!cli_net_inputs(n, l, x)) return 1;
    if (tn_layer_summary(n->layer, x[0], stdout) != TN_OK || !profile(n, x))
        return cli_fail_of(n->cx);
    puts("");
    return tn_profile_write(n->cx, NULL) == TN_OK ? 0 : cli_fail_of(n->cx);
}

int cli_show_model(int argc, char **argv)
{
    cli_model_line l = { .uses = CLI_SHOWS };
    cli_net        n;
    if (!cli_model_line_parse(&l, argc, argv)) return 2;
    setenv("TN_COMPILE", "wait", 0);
    if (!cli_net_open(&n, NULL, &l, l.model[0])) return 1;
    int status = n.onnx ? show_onnx(&n, &l) : show_layer(&n, &l);
    cli_net_close(&n, true);
    return status;
}
