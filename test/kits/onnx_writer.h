// onnx_writer.h: writes ONNX files byte by byte, good ones and bad ones. A message is written into
// a buffer of its own and then put into another:
//
//   onnx_bytes node = { 0 };
//   onnx_text(&node, 4, "Relu");            // NodeProto.op_type
//   onnx_message(&graph, 1, &node);         // GraphProto.node
#ifndef TEST_ONNX_WRITER_H
#define TEST_ONNX_WRITER_H

#include <stdint.h>
#include <string.h>

typedef struct {
    unsigned char data[8192];
    size_t        n;
} onnx_bytes;

static inline void onnx_varint(onnx_bytes *b, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        if (b->n < sizeof b->data) b->data[b->n++] = (unsigned char)(v | 128);
    if (b->n < sizeof b->data) b->data[b->n++] = (unsigned char)v;
}

static inline void onnx_raw(onnx_bytes *b, uint32_t field, const void *data, size_t n)
{
    onnx_varint(b, field << 3 | 2);
    onnx_varint(b, n);
    if (b->n + n > sizeof b->data) n = sizeof b->data - b->n;
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void onnx_int(onnx_bytes *b, uint32_t field, int64_t v)
{
    onnx_varint(b, field << 3);
    onnx_varint(b, (uint64_t)v);
}

static inline void onnx_text(onnx_bytes *b, uint32_t field, const char *s)
{
    onnx_raw(b, field, s, strlen(s));
}

static inline void onnx_message(onnx_bytes *b, uint32_t field, const onnx_bytes *m)
{
    onnx_raw(b, field, m->data, m->n);
}

// A NodeProto without attributes; names with spaces between them.
static inline onnx_bytes onnx_node(const char *op, const char *in, const char *out)
{
    onnx_bytes  b       = { .n = 0 };
    const char *list[2] = { in, out };
    for (int i = 0; i < 2; i++)
        for (const char *s = list[i]; *s;) {
            size_t n = strcspn(s, " ");
            onnx_raw(&b, (uint32_t)(1 + i), s, n);
            s += n + (s[n] == ' ');
        }
    onnx_text(&b, 4, op);
    return b;
}

// Appends an attribute of integers, unpacked as PyTorch writes them, or packed.
static inline void onnx_ints(onnx_bytes *node, const char *name, int n, const int64_t *v,
                             int packed)
{
    onnx_bytes a = { .n = 0 }, list = { .n = 0 };
    onnx_text(&a, 1, name);
    for (int i = 0; i < n; i++) {
        if (packed) onnx_varint(&list, (uint64_t)v[i]);
        else onnx_int(&a, 8, v[i]);
    }
    if (packed) onnx_message(&a, 8, &list);
    onnx_int(&a, 20, 7);
    onnx_message(node, 5, &a);
}

static inline void onnx_attr_int(onnx_bytes *node, const char *name, int64_t v)
{
    onnx_bytes a = { .n = 0 };
    onnx_text(&a, 1, name);
    onnx_int(&a, 3, v);
    onnx_int(&a, 20, 2);
    onnx_message(node, 5, &a);
}

// A TensorProto of f32 (type 1), u8 (2), i8 (3), i32 (6) or i64 (7), with its elements as raw
// bytes.
static inline onnx_bytes onnx_tensor(const char *name, int type, int rank, const int64_t *size,
                                     const void *data)
{
    onnx_bytes t = { .n = 0 };
    size_t     n = type == 7 ? 8 : type == 2 || type == 3 ? 1 : 4;
    for (int i = 0; i < rank; i++) {
        onnx_int(&t, 1, size[i]);
        n *= (size_t)size[i];
    }
    onnx_int(&t, 2, type);
    onnx_text(&t, 8, name);
    onnx_raw(&t, 9, data, n);
    return t;
}

// A ValueInfoProto of f32 without a shape.
static inline onnx_bytes onnx_port(const char *name)
{
    onnx_bytes info = { .n = 0 }, type = { .n = 0 }, tensor = { .n = 0 };
    onnx_text(&info, 1, name);
    onnx_int(&tensor, 1, 1);
    onnx_message(&type, 1, &tensor);
    onnx_message(&info, 2, &type);
    return info;
}

static inline void onnx_ports(onnx_bytes *graph, const char *in, const char *out)
{
    onnx_bytes a = onnx_port(in), b = onnx_port(out);
    onnx_message(graph, 11, &a);
    onnx_message(graph, 12, &b);
}

static inline onnx_bytes onnx_model(const onnx_bytes *graph, int opset)
{
    onnx_bytes m = { .n = 0 }, set = { .n = 0 };
    onnx_int(&m, 1, 8);
    onnx_int(&set, 2, opset);
    onnx_message(&m, 8, &set);
    onnx_message(&m, 7, graph);
    return m;
}

// A model of these nodes and weights, from x to y.
static inline onnx_bytes onnx_model_of(int nodes, const onnx_bytes *node, int weights,
                                       const onnx_bytes *weight)
{
    onnx_bytes g = { .n = 0 };
    onnx_ports(&g, "x", "y");
    for (int i = 0; i < weights; i++) onnx_message(&g, 5, &weight[i]);
    for (int i = 0; i < nodes; i++) onnx_message(&g, 1, &node[i]);
    return onnx_model(&g, 17);
}

#endif
