// What opening a model takes of the heap: at most twice the file and 16 MiB, whatever the file
// says.
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 16, EXTRA = 16 << 20 };

// Bytes that the open context has, and had at most.
typedef struct {
    size_t live, most;
} counter;

static void *counting(void *user, void *old, size_t n)
{
    counter *c   = user;
    char    *p   = old ? (char *)old - HEAD : NULL;
    size_t   had = 0;
    if (p) memcpy(&had, p, sizeof had);
    if (n == 0) {
        c->live -= had;
        free(p);
        return NULL;
    }
    if (!(p = realloc(p, n + HEAD))) return NULL;
    memcpy(p, &n, sizeof n);
    c->live += n - had;
    if (c->live > c->most) c->most = c->live;
    return p + HEAD;
}

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

// A file that grows: onnx_bytes has room for small models alone.
typedef struct {
    unsigned char *data;
    size_t         n, room;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        b->room             = 2 * (b->n + n);
        unsigned char *more = realloc(b->data, b->room);
        if (!more) free(b->data);
        b->data = more;
    }
    if (b->data) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_varint(bytes *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) put(b, &(unsigned char){ (unsigned char)(v | 0x80) }, 1);
    put(b, &(unsigned char){ (unsigned char)v }, 1);
}

static void put_message(bytes *b, uint32_t field, const void *data, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    put(b, data, n);
}

// Opens a model of a graph, and checks how much that took.
static void open_graph(const char *what, const bytes *graph)
{
    bytes       file = { 0 };
    counter     c    = { 0 };
    onnx_bytes  set  = { .n = 0 };
    const char *path = scratch_path("m.onnx");
    onnx_int(&set, 2, 17);
    put(&file, (unsigned char[]){ 8, 8 }, 2);
    put_message(&file, 8, set.data, set.n);
    put_message(&file, 7, graph->data, graph->n);
    CHECK(file.data && scratch_write(path, file.data, file.n));
    tn_ctx *cx     = tn_open_with((tn_open_opts){
            .device = "cpu", .handler = silent, .threads = 1, .alloc = counting, .user = &c });
    size_t  before = c.live;
    c.most         = before;
    tn_onnx *m     = tn_onnx_open(cx, path);
    size_t   took  = c.most - before;
    test_case_result(took <= 2 * file.n + EXTRA, "%s: %zu bytes for a file of %zu, %s", what, took,
                     file.n, m ? "which opens" : tn_error_text(cx));
    tn_onnx_close(m);
    tn_close(cx);
    free(file.data);
}

// Messages of two bytes, each of which the reader has a struct for, and names that are long or
// many.
static void opening_takes_no_more_than_the_file_allows(void)
{
    static const struct {
        const char *what;
        uint32_t    field;
        size_t      count, length;  // how many messages, of how many bytes of zeros
    } rows[] = {
        { "empty nodes", 1, 1 << 21, 0 },        { "empty weights", 5, 1 << 21, 0 },
        { "empty inputs", 11, 1 << 21, 0 },      { "empty outputs", 12, 1 << 21, 0 },
        { "empty value infos", 13, 1 << 21, 0 }, { "one large weight", 5, 1, 1 << 23 },
        { "one large input", 11, 1, 1 << 23 },
    };
    tn_ctx *cx = rules_open_scratch();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bytes g     = { 0 };
        void *zeros = calloc(rows[i].length + 1, 1);
        for (size_t k = 0; zeros && k < rows[i].count; k++)
            put_message(&g, rows[i].field, zeros, rows[i].length);
        open_graph(rows[i].what, &g);
        free(zeros);
        free(g.data);
    }
    rules_close_scratch(cx);
}

// Messages with a name of their own, as short as they can be: field 11 inputs, 5 weights, 1 nodes
// without inputs.
static void many_names_take_no_more_than_the_file_allows(void)
{
    static const uint32_t    fields[] = { 11, 5, 1 };
    static const char *const what[]   = { "many inputs", "many weights", "many nodes" };
    tn_ctx                  *cx       = rules_open_scratch();
    for (int i = 0; i < 3; i++) {
        bytes g = { 0 }, item = { 0 };
        for (unsigned k = 0; k < 1 << 20; k++) {
            char name[8] = { (char)(33 + k % 90), (char)(33 + k / 90 % 90),
                             (char)(33 + k / 8100 % 90), (char)(33 + k / 729000 % 90) };
            item.n       = 0;
            put_message(&item, fields[i] == 5 ? 8 : fields[i] == 1 ? 2 : 1, name, 4);
            if (fields[i] == 1) put_message(&item, 4, "Abs", 3);
            put_message(&g, fields[i], item.data, item.n);
        }
        open_graph(what[i], &g);
        free(g.data);
        free(item.data);
    }
    rules_close_scratch(cx);
}

// Nodes that read and give nothing.
static void bare_nodes_take_no_more_than_the_file_allows(void)
{
    tn_ctx *cx = rules_open_scratch();
    bytes   g  = { 0 };
    for (int i = 0; i < 1 << 20; i++) put_message(&g, 1, "\x22\x03\x41\x62\x73", 5);
    open_graph("bare nodes", &g);
    free(g.data);
    rules_close_scratch(cx);
}

// An input of a long name that is the output, too, and a node of more inputs than one may have.
static void long_names_take_no_more_than_the_file_allows(void)
{
    enum { LONG = 3 << 20, USES = 1 << 20 };
    tn_ctx *cx   = rules_open_scratch();
    char   *name = malloc(LONG);
    bytes   g = { 0 }, port = { 0 }, node = { 0 };
    if (name) memset(name, 'x', LONG);
    if (name) put_message(&port, 1, name, LONG);
    put_message(&g, 11, port.data, port.n);
    put_message(&g, 12, port.data, port.n);
    open_graph("long names", &g);
    g.n = 0;
    for (int i = 0; i < USES; i++) put_message(&node, 1, "a", 1);
    put_message(&node, 4, "Concat", 6);
    put_message(&g, 1, node.data, node.n);
    open_graph("a node of many inputs", &g);
    free(name);
    free(g.data);
    free(port.data);
    free(node.data);
    rules_close_scratch(cx);
}

// A network as it is written: a linear layer of 4 MiB.
static void a_real_model_is_not_copied(void)
{
    tn_ctx     *cx   = rules_open_scratch();
    tn_layer   *net  = tn_nn_seq(cx, tn_nn_linear(cx, 1024, 1024), tn_nn_act(cx, tn_relu));
    tn_tensor  *x    = tn_zeros(cx, TN_F32, TN_SHAPE(1, 1024));
    counter     c    = { 0 };
    const char *path = scratch_path("net.onnx");
    CHECK_STATUS(tn_onnx_save(net, path, 1, &x, (tn_onnx_save_opts){ 0 }), TN_OK);
    tn_ctx *other = tn_open_with(
        (tn_open_opts){ .device = "cpu", .threads = 1, .alloc = counting, .user = &c });
    size_t before = c.live;
    c.most        = before;
    CHECK(tn_onnx_open(other, path) != NULL);
    CHECK(c.most - before < 2 << 20);  // weights stay in the file until a node asks for them
    tn_close(other);
    rules_close_scratch(cx);
}

// clang-format off
const test_case tests_onnx_memory[] = {
    TEST(opening_takes_no_more_than_the_file_allows),
    TEST(many_names_take_no_more_than_the_file_allows),
    TEST(bare_nodes_take_no_more_than_the_file_allows),
    TEST(long_names_take_no_more_than_the_file_allows),
    TEST(a_real_model_is_not_copied),
    TEST_END
};
// clang-format on
