// Reading a model: names become numbers, functions are inlined, graphs in attributes are listed.
//
//   graph                          node            use           value
//   x, w: initializer              MatMul x w  y   0 1 2         0 x   1 w (a weight)   2 y   3 z
//   y = MatMul(x, w)               Relu y      z   2 3
//   z = Relu(y)
//
// A model has at most TNI_ONNX_NODES nodes, and a node takes 32 bytes here and a name 40, so that
// reading takes little memory whatever the file says.
#include "onnx/model.h"
#include "base/hash.h"
#include "onnx/onnx_rows.h"

#include <stdarg.h>
#include <string.h>

// The text is cut to fit; names in it have been escaped by the caller.
bool tni_onnx_wrong(tni_onnx_model *m, const char *fmt, ...)
{
    char    why[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    tni_fail(m->cx, TN_EFORMAT, "%s: %s: %s", m->op, tni_escaped(m->path).s, why);
    return false;
}

// Reports that memory is out; false.
static bool no_memory(tni_onnx_model *m)
{
    tni_fail_memory(m->cx, m->op);
    return false;
}

// Reports that bytes of the file are no message; false.
static bool malformed(tni_onnx_model *m, tni_wire w, const char *what)
{
    return tni_onnx_wrong(m, "it is no ONNX file: %s at byte %zu is malformed", what,
                          (size_t)(w.at - m->map->data));
}

// At most 100 bytes are shown, and a mark where more were cut.
tni_text tni_onnx_quoted(tni_wire text)
{
    tni_text t = { "\"" };
    size_t   n = tni_wire_size(text), used = tni_escape(t.s + 1, 100, (const char *)text.at, n);
    tni_text_add(&t, used < n ? "...\"" : "\"");
    return t;
}

// An empty run of bytes stands at the message's end, so that it can be looked at like any other.
tni_wire tni_onnx_bytes(tni_wire message, uint32_t number)
{
    tni_wire_field f;
    bool           found = tni_wire_find(message, number, &f) && f.type == TNI_WIRE_BYTES;
    return found ? f.bytes : (tni_wire){ message.end, message.end };
}

// Of a field of another type the fallback, as for one that is not there.
int64_t tni_onnx_int(tni_wire message, uint32_t number, int64_t or)
{
    tni_wire_field f;
    return tni_wire_find(message, number, &f) && f.type == TNI_WIRE_VARINT ? (int64_t)f.value : or ;
}

// The name of a node is optional, and exporters leave it out.
tni_text tni_onnx_node_text(const tni_onnx_node *n)
{
    tni_wire op   = tni_onnx_bytes(n->message, TNI_NODE_OP),
             name = tni_onnx_bytes(n->message, TNI_NODE_NAME);
    tni_text t    = { "" };
    tni_escape(t.s, 60, (const char *)op.at, tni_wire_size(op));
    if (tni_wire_size(name)) tni_text_add(&t, " %s", tni_onnx_quoted(name).s);
    return t;
}

// ---- names -------------------------------------------------------------------------------------

enum { FREE = -2 };

// A name in two scopes is two entries: the scope is a part of what is hashed.
static size_t first_slot(const tni_onnx_model *m, tni_wire name, uint32_t scope)
{
    return tni_hash_mix(tni_hash(name.at, tni_wire_size(name)), scope) & (m->name_slots - 1);
}

// Returns the entry of a name in one scope, or the free entry where it would be.
static tni_onnx_name *find_entry(const tni_onnx_model *m, tni_wire name, uint32_t scope)
{
    size_t i = first_slot(m, name, scope);
    while (m->name[i].value != FREE &&
           (m->name[i].scope != scope || !tni_wire_same(m->name[i].name, name)))
        i = (i + 1) & (m->name_slots - 1);
    return &m->name[i];
}

// Puts all names into a table of twice the size.
static bool grow_names(tni_onnx_model *m)
{
    tni_onnx_name *old = m->name;
    size_t         n = m->name_slots, want = n ? 2 * n : 256;
    tni_onnx_name *made = tni_alloc(&m->cx->heap, want * sizeof *made);
    if (!made) return no_memory(m);
    for (size_t i = 0; i < want; i++) made[i].value = FREE;
    m->name       = made;
    m->name_slots = want;
    for (size_t i = 0; i < n; i++)
        if (old[i].value != FREE) *find_entry(m, old[i].name, old[i].scope) = old[i];
    tni_free(&m->cx->heap, old);
    return true;
}

// Gives a name its value in a scope, where it must be new.
static bool bind_name(tni_onnx_model *m, tni_wire name, uint32_t scope, int32_t value)
{
    if (4 * (m->names + 1) > 3 * m->name_slots && !grow_names(m)) return false;
    tni_onnx_name *e = find_entry(m, name, scope);
    if (e->value != FREE)
        return tni_onnx_wrong(m, "value %s is defined twice", tni_onnx_quoted(name).s);
    *e = (tni_onnx_name){ name, scope, value };
    m->names++;
    return true;
}

// Messages of a few bytes have structs of hundreds: together they may take twice the file and 16
// MiB, of which 2 are for what does not grow. Lists double, so that an item counts twice, and a
// name up to four times while its table grows.
bool tni_onnx_fits(tni_onnx_model *m, size_t more)
{
    enum { ROOM = 14 << 20 };
    size_t value = 2 * sizeof *m->value + 4 * sizeof *m->name + TNI_ONNX_VALUE_BYTES,
           node  = 2 * sizeof *m->node + 2 * sizeof(void *),
           graph = 2 * (sizeof *m->graph + sizeof *m->scope);
    return m->values * value + m->nodes * node + m->scopes * graph + m->uses * 2 * sizeof *m->use +
                   more <=
               2 * tni_wire_size(m->message) + ROOM ||
           tni_onnx_wrong(m, "it has more nodes and names than fit a file of its size");
}

// A new value, of which nothing is known yet.
static bool add_value(tni_onnx_model *m, int32_t *value)
{
    if (!tni_onnx_fits(m, 0)) return false;
    if (!tni_grow(&m->cx->heap, (void **)&m->value, &m->value_cap, m->values + 1, sizeof *m->value))
        return no_memory(m);
    m->value[m->values] = (tni_onnx_static){ 0 };
    *value              = (int32_t)m->values++;
    return true;
}

// A new value with a name.
static bool define(tni_onnx_model *m, tni_wire name, uint32_t scope, int32_t *value)
{
    return add_value(m, value) && bind_name(m, name, scope, *value);
}

// Returns the value of a name as a scope sees it, TNI_ONNX_NONE, or FREE if there is none.
// A graph within a node sees the names around it; a body of a function has no outer scope.
static int32_t look_up(const tni_onnx_model *m, tni_wire name, int32_t scope)
{
    for (; m->name_slots && scope >= 0; scope = m->scope[scope].outer) {
        const tni_onnx_name *e = find_entry(m, name, (uint32_t)scope);
        if (e->value != FREE) return e->value;
    }
    return FREE;
}

// Scope 0 is that of the model's own graph.
int32_t tni_onnx_named(const tni_onnx_model *m, const char *name)
{
    tni_wire w = { (const unsigned char *)name, (const unsigned char *)name + strlen(name) };
    int32_t  v = look_up(m, w, 0);
    return v < 0 ? TNI_ONNX_NONE : v;
}

// Appends one number to the list that nodes and graphs point into.
static bool add_use(tni_onnx_model *m, int32_t value)
{
    if (!tni_grow(&m->cx->heap, (void **)&m->use, &m->use_cap, m->uses + 1, sizeof *m->use))
        return no_memory(m);
    m->use[m->uses++] = value;
    return true;
}

// Scopes are never removed: nodes and graphs name them by number.
static bool add_scope(tni_onnx_model *m, tni_onnx_scope s, uint32_t *scope)
{
    if (!tni_grow(&m->cx->heap, (void **)&m->scope, &m->scope_cap, m->scopes + 1, sizeof *m->scope))
        return no_memory(m);
    m->scope[m->scopes] = s;
    *scope              = (uint32_t)m->scopes++;
    return true;
}

// ---- attributes --------------------------------------------------------------------------------

// Finds an attribute of that name among the repeated fields of a message.
static bool find_attribute(tni_wire message, uint32_t number, tni_wire name, tni_wire *attribute)
{
    tni_wire_field f;
    bool           found = false;
    while (tni_wire_next(&message, &f) > 0)
        if (f.number == number && f.type == TNI_WIRE_BYTES &&
            tni_wire_same(tni_onnx_bytes(f.bytes, TNI_ATTR_NAME), name)) {
            *attribute = f.bytes;
            found      = true;
        }
    return found;
}

// An attribute with a reference has the value of the caller's attribute of that name, or the
// default of the function. A graph in a body belongs to the call that its function does.
bool tni_onnx_attribute(const tni_onnx_model *m, const tni_onnx_node *n, const char *name,
                        tni_wire *attribute)
{
    tni_wire want    = { (const unsigned char *)name, (const unsigned char *)name + strlen(name) };
    tni_wire message = n->message;
    int32_t  scope   = (int32_t)n->scope;
    for (;;) {
        if (!find_attribute(message, TNI_NODE_ATTRIBUTE, want, attribute)) return false;
        want = tni_onnx_bytes(*attribute, TNI_ATTR_REF);
        if (!tni_wire_size(want)) return true;
        while (scope >= 0 && !tni_wire_size(m->scope[scope].caller)) scope = m->scope[scope].outer;
        if (scope < 0) return false;
        const tni_onnx_scope *s = &m->scope[scope];
        tni_wire              there;
        if (!find_attribute(s->caller, TNI_NODE_ATTRIBUTE, want, &there))
            return find_attribute(s->function, TNI_FUNCTION_DEFAULT, want, attribute);
        message = s->caller;
        scope   = (int32_t)s->from;
    }
}

// There are few graphs, so that they are looked through one by one.
const tni_onnx_graph *tni_onnx_subgraph(const tni_onnx_model *m, const tni_onnx_node *n,
                                        const char *attribute)
{
    tni_wire a;
    if (!tni_onnx_attribute(m, n, attribute, &a)) return NULL;
    tni_wire g = tni_onnx_bytes(a, TNI_ATTR_G);
    for (size_t i = 0; i < m->graphs; i++)
        if (m->graph[i].key == g.at && m->graph[i].scope == n->scope) return &m->graph[i];
    return NULL;
}

// ---- functions ---------------------------------------------------------------------------------

// "" and "ai.onnx" name one domain.
static bool same_domain(tni_wire a, tni_wire b)
{
    bool plain_a = !tni_wire_size(a) || tni_wire_is(a, "ai.onnx"),
         plain_b = !tni_wire_size(b) || tni_wire_is(b, "ai.onnx");
    return plain_a || plain_b ? plain_a && plain_b : tni_wire_same(a, b);
}

// The function that a node calls; empty if it is none of the model's.
// A model's own functions may have the name of an op of the standard, in another domain.
static tni_wire function_of(const tni_onnx_model *m, tni_wire node)
{
    tni_wire op = tni_onnx_bytes(node, TNI_NODE_OP), domain = tni_onnx_bytes(node, TNI_NODE_DOMAIN),
             overload = tni_onnx_bytes(node, TNI_NODE_OVERLOAD), w = m->message;
    tni_wire_field f;
    while (tni_wire_next(&w, &f) > 0)
        if (f.number == TNI_MODEL_FUNCTION && f.type == TNI_WIRE_BYTES &&
            tni_wire_same(tni_onnx_bytes(f.bytes, TNI_FUNCTION_NAME), op) &&
            same_domain(tni_onnx_bytes(f.bytes, TNI_FUNCTION_DOMAIN), domain) &&
            tni_wire_same(tni_onnx_bytes(f.bytes, TNI_FUNCTION_OVERLOAD), overload))
            return f.bytes;
    return (tni_wire){ w.end, w.end };
}

// The version of a domain's ops where a scope's nodes stand: the function's own, or the model's. A
// file that does not say has the newest.
// A model may use several domains, each in a version of its own.
static int opset_of(const tni_onnx_model *m, uint32_t scope, tni_wire domain)
{
    tni_wire function     = m->scope[scope].function,
             w            = tni_wire_size(function) ? function : m->message;
    uint32_t       number = tni_wire_size(function) ? TNI_FUNCTION_OPSET : TNI_MODEL_OPSET;
    tni_wire_field f;
    int64_t        version = 0;
    while (tni_wire_next(&w, &f) > 0)
        if (f.number == number && f.type == TNI_WIRE_BYTES &&
            same_domain(tni_onnx_bytes(f.bytes, TNI_OPSET_DOMAIN), domain))
            version = tni_onnx_int(f.bytes, TNI_OPSET_VERSION, 0);
    return version > 0 && version < 10000 ? (int)version : 10000;
}

// ---- graphs ------------------------------------------------------------------------------------

static bool add_nodes(tni_onnx_model *m, tni_wire message, uint32_t number, uint32_t scope,
                      int depth);

// How many strings or messages of that number a message has.
static int count_fields(tni_wire w, uint32_t number)
{
    tni_wire_field f;
    int            n = 0;
    while (tni_wire_next(&w, &f) > 0) n += f.number == number && f.type == TNI_WIRE_BYTES;
    return n;
}

// Appends the values that a node's inputs are to `use`. An input that no node before it defines is
// wrong, which also refuses cycles.
static bool add_inputs(tni_onnx_model *m, tni_wire node, uint32_t scope, uint16_t *count)
{
    tni_wire       w = node;
    tni_wire_field f;
    while (tni_wire_next(&w, &f) > 0) {
        if (f.number != TNI_NODE_INPUT || f.type != TNI_WIRE_BYTES) continue;
        int32_t v = tni_wire_size(f.bytes) ? look_up(m, f.bytes, (int32_t)scope) : TNI_ONNX_NONE;
        if (v == FREE)
            return tni_onnx_wrong(m, "node %s reads %s, which nothing before it defines",
                                  tni_onnx_node_text(&(tni_onnx_node){ .message = node }).s,
                                  tni_onnx_quoted(f.bytes).s);
        if (!add_use(m, v)) return false;
        if (v >= 0) m->value[v].readers++;
        ++*count;
    }
    return true;
}

// Binds the names of a repeated field to values of `use`, from `use` on; names beyond `n` to
// nothing.
static bool bind_formal(tni_onnx_model *m, tni_wire message, uint32_t number, uint32_t scope,
                        uint32_t use, int n)
{
    tni_wire_field f;
    int            i = 0;
    while (tni_wire_next(&message, &f) > 0) {
        if (f.number != number || f.type != TNI_WIRE_BYTES) continue;
        int32_t v = i < n ? m->use[use + (uint32_t)i] : TNI_ONNX_NONE;
        if (!bind_name(m, f.bytes, scope, v)) return false;
        i++;
    }
    return true;
}

// The outputs of a call are the values that the body has under the names of the function's outputs.
static bool bind_results(tni_onnx_model *m, tni_wire node, tni_wire function, uint32_t scope,
                         uint32_t inside)
{
    tni_wire_field f, g;
    while (tni_wire_next(&node, &f) > 0) {
        if (f.number != TNI_NODE_OUTPUT || f.type != TNI_WIRE_BYTES) continue;
        int r;
        while ((r = tni_wire_next(&function, &g)) > 0 && g.number != TNI_FUNCTION_OUTPUT) {}
        if (r <= 0) return tni_onnx_wrong(m, "a node has more outputs than the function it calls");
        int32_t v = look_up(m, g.bytes, (int32_t)inside);
        if (v == FREE)
            return tni_onnx_wrong(m, "a function does not define its output %s",
                                  tni_onnx_quoted(g.bytes).s);
        if (tni_wire_size(f.bytes) && !bind_name(m, f.bytes, scope, v)) return false;
    }
    return true;
}

// Inlines a call: the body's nodes with names of their own.
// A name that the body gives to a value of its own cannot meet one of the caller: they are in
// different scopes.
static bool add_call(tni_onnx_model *m, tni_wire node, tni_wire function, uint32_t scope, int depth)
{
    uint32_t       use = (uint32_t)m->uses, inside;
    uint16_t       n   = 0;
    tni_onnx_scope s   = { .outer = -1, .caller = node, .from = scope, .function = function };
    return add_inputs(m, node, scope, &n) && add_scope(m, s, &inside) &&
           bind_formal(m, function, TNI_FUNCTION_INPUT, inside, use, n) &&
           add_nodes(m, function, TNI_FUNCTION_NODE, inside, depth + 1) &&
           bind_results(m, node, function, scope, inside);
}

// Appends a node, or what stands for it: a call of a function of the model becomes the nodes of its
// body, unless Tenon has an op of that name itself.
static bool add_node(tni_onnx_model *m, tni_wire message, uint32_t scope, int depth)
{
    tni_onnx_node n  = { .message = message, .scope = scope };
    tni_wire      op = tni_onnx_bytes(message, TNI_NODE_OP), w = message,
             domain = tni_onnx_bytes(message, TNI_NODE_DOMAIN), function = function_of(m, message);
    tni_wire_field f;
    if (!tni_wire_ok(message)) return malformed(m, message, "a node");
    if (!tni_wire_size(op)) return tni_onnx_wrong(m, "node %zu has no op", m->nodes);
    if (depth > TNI_ONNX_DEPTH)
        return tni_onnx_wrong(m, "graphs or functions are more than %d deep", TNI_ONNX_DEPTH);
    n.opset = (int16_t)opset_of(m, scope, domain);
    n.row   = tni_onnx_row(op, domain);
    if (tni_wire_size(function) && n.row < 0) return add_call(m, message, function, scope, depth);
    if (m->nodes >= TNI_ONNX_NODES)
        return tni_onnx_wrong(m, "it has more than %d nodes", TNI_ONNX_NODES);
    if (count_fields(message, TNI_NODE_INPUT) > UINT16_MAX ||
        count_fields(message, TNI_NODE_OUTPUT) > UINT16_MAX)
        return tni_onnx_wrong(m, "node %s has too many inputs or outputs",
                              tni_onnx_node_text(&n).s);
    n.use = (uint32_t)m->uses;
    if (!add_inputs(m, message, scope, &n.nin)) return false;
    while (tni_wire_next(&w, &f) > 0) {
        int32_t v = TNI_ONNX_NONE;
        if (f.number != TNI_NODE_OUTPUT || f.type != TNI_WIRE_BYTES) continue;
        if (tni_wire_size(f.bytes) && !define(m, f.bytes, scope, &v)) return false;
        if (!add_use(m, v)) return false;
        n.nout++;
    }
    if (!tni_onnx_fits(m, 0)) return false;
    if (!tni_grow(&m->cx->heap, (void **)&m->node, &m->node_cap, m->nodes + 1, sizeof n))
        return no_memory(m);
    m->node[m->nodes++] = n;
    return true;
}

static bool add_nodes(tni_onnx_model *m, tni_wire message, uint32_t number, uint32_t scope,
                      int depth)
{
    tni_wire_field f;
    while (tni_wire_next(&message, &f) > 0)
        if (f.number == number && f.type == TNI_WIRE_BYTES && !add_node(m, f.bytes, scope, depth))
            return false;
    return true;
}

// A weight. In old files it is also an input, for which it is the default.
static bool add_initializer(tni_onnx_model *m, tni_wire init, bool sparse, uint32_t scope)
{
    if (!tni_wire_ok(init)) return malformed(m, init, "a weight");
    tni_wire tensor         = sparse ? tni_onnx_bytes(init, TNI_SPARSE_VALUES) : init,
             name           = tni_onnx_bytes(tensor, TNI_TENSOR_NAME);
    tni_onnx_name *e        = m->name_slots ? find_entry(m, name, scope) : NULL;
    bool           is_input = e && e->value >= 0 && !tni_wire_size(m->value[e->value].init);
    int32_t        v        = is_input ? e->value : TNI_ONNX_NONE;
    if (!tni_wire_size(name)) return tni_onnx_wrong(m, "a weight has no name");
    if (!is_input && !define(m, name, scope, &v)) return false;
    m->value[v] = (tni_onnx_static){ init, sparse, is_input && m->ir >= 4, 0 };
    return true;
}

// An input of a graph is a value like any other, which whoever runs the graph gives.
static bool add_input(tni_onnx_model *m, tni_wire info, uint32_t scope)
{
    tni_wire name = tni_onnx_bytes(info, TNI_VALUE_NAME);
    int32_t  v;
    if (!tni_wire_ok(info)) return malformed(m, info, "an input");
    return define(m, name, scope, &v) && add_use(m, v);
}

// Every output must be a value that the graph knows.
static bool add_output(tni_onnx_model *m, tni_wire info, uint32_t scope)
{
    tni_wire name = tni_onnx_bytes(info, TNI_VALUE_NAME);
    if (!tni_wire_ok(info)) return malformed(m, info, "an output");
    int32_t v = look_up(m, name, (int32_t)scope);
    if (v < 0) return tni_onnx_wrong(m, "output %s is defined nowhere", tni_onnx_quoted(name).s);
    m->value[v].readers++;
    return add_use(m, v);
}

// Reads a graph: inputs, weights, nodes, outputs, whatever their order in the file; then the graphs
// in attributes of its nodes, which are listed behind it, so that its own nodes are side by side.
static bool add_graph(tni_onnx_model *m, tni_wire message, int32_t outer, uint32_t of,
                      tni_wire function, int depth)
{
    uint32_t       scope;
    tni_onnx_graph g = { .key = message.at, .scope = of, .first = (uint32_t)m->nodes };
    tni_wire_field f;
    size_t         number = m->graphs;
    if (depth > TNI_ONNX_DEPTH)
        return tni_onnx_wrong(m, "graphs are more than %d deep", TNI_ONNX_DEPTH);
    if (!tni_wire_ok(message)) return malformed(m, message, "a graph");
    if (!add_scope(m, (tni_onnx_scope){ .outer = outer, .function = function }, &scope))
        return false;
    if (!tni_onnx_fits(m, 0)) return false;
    if (!tni_grow(&m->cx->heap, (void **)&m->graph, &m->graph_cap, m->graphs + 1, sizeof g))
        return no_memory(m);
    m->graph[m->graphs++] = g;
    g.in                  = (uint32_t)m->uses;
    for (tni_wire w = message; tni_wire_next(&w, &f) > 0;)
        if (f.number == TNI_GRAPH_INPUT && f.type == TNI_WIRE_BYTES &&
            !add_input(m, f.bytes, scope))
            return false;
    g.nin = (uint32_t)m->uses - g.in;
    for (tni_wire w = message; tni_wire_next(&w, &f) > 0;)
        if ((f.number == TNI_GRAPH_INITIALIZER || f.number == TNI_GRAPH_SPARSE) &&
            f.type == TNI_WIRE_BYTES &&
            !add_initializer(m, f.bytes, f.number == TNI_GRAPH_SPARSE, scope))
            return false;
    if (!add_nodes(m, message, TNI_GRAPH_NODE, scope, depth)) return false;
    g.count = (uint32_t)m->nodes - g.first;
    g.out   = (uint32_t)m->uses;
    for (tni_wire w = message; tni_wire_next(&w, &f) > 0;)
        if (f.number == TNI_GRAPH_OUTPUT && f.type == TNI_WIRE_BYTES &&
            !add_output(m, f.bytes, scope))
            return false;
    g.nout           = (uint32_t)m->uses - g.out;
    m->graph[number] = g;
    for (uint32_t i = g.first; i < g.first + g.count; i++) {
        tni_onnx_node n = m->node[i];
        for (tni_wire w = n.message; tni_wire_next(&w, &f) > 0;) {
            if (f.number != TNI_NODE_ATTRIBUTE || f.type != TNI_WIRE_BYTES) continue;
            tni_wire inner = tni_onnx_bytes(f.bytes, TNI_ATTR_G);
            if (tni_wire_size(inner) && !add_graph(m, inner, (int32_t)n.scope, n.scope,
                                                   m->scope[n.scope].function, depth + 1))
                return false;
        }
    }
    return true;
}

// Nothing has been allocated for a file that is no message at all.
bool tni_onnx_model_read(tni_onnx_model *m)
{
    m->message       = (tni_wire){ m->map->data, m->map->data + m->map->bytes };
    m->graph_message = tni_onnx_bytes(m->message, TNI_MODEL_GRAPH);
    m->ir            = tni_onnx_int(m->message, TNI_MODEL_IR, 0);
    if (!tni_wire_ok(m->message) || !m->map->bytes) return malformed(m, m->message, "the model");
    if (!tni_wire_size(m->graph_message))
        return tni_onnx_wrong(m, "it is no ONNX file: it has no graph");
    return add_graph(m, m->graph_message, -1, 0, (tni_wire){ m->message.end, m->message.end }, 0);
}

// Lists that were never made are NULL, which may be freed.
void tni_onnx_model_close(tni_onnx_model *m)
{
    tni_heap *h = &m->cx->heap;
    tni_free(h, m->node);
    tni_free(h, m->scope);
    tni_free(h, m->graph);
    tni_free(h, m->use);
    tni_free(h, m->value);
    tni_free(h, m->name);
    tni_free(h, m->path);
    if (m->map) tni_mapping_unref(m->map);
}
