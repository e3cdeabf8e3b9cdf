// Stores past the caches, on chips that have them: the lanes of a loop in turns of a strip. Where the launch asks for it, a turn
// writes to an array, which stays in the cache of the core, and whole vectors are copied from there to memory. Otherwise all lanes are
// one turn, which writes to memory itself. What it prints, of add(mul_s(relu(x), 0.5), y) on x86:
//
//     for (m_long from = 0, to; from < n; from = to) {
//         float k6[1024], *const u6 = M_TO(p6, k6);
//         to = M_TURN(n, 1024);
//         M_LANES for (m_long j = from; j < to; j++) {
//             ...
//             u6[j] = v5;
//         }
//         M_STREAM(p6, k6);
//     }
//
// device/cpu/streams.c says which launches ask for it.
#include "kernel/c_emitter.h"

// What is read is in the caches already when it is written. Staged stores are copies from arrays themselves.
bool tni_c_is_streamed(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (!w->s.dialect->streams || w->finish || x->code != TNI_I_STORE) return false;
    if (lane_class(w, x) != TNI_STRIDE_1 || w->windows || is_staged(w, i)) return false;
    for (int j = 0; j < w->k->nins; j++)
        if (ins_at(w, j)->code == TNI_I_LOAD &&
            w->k->access[ins_at(w, j)->access].buffer == w->k->access[x->access].buffer)
            return false;
    return true;
}

char tni_c_store_name(const tni_c_emitter *w, int i)
{
    return w->turn && tni_c_is_streamed(w, i) ? 'u' : 'p';
}

// Returns the type of what store i writes, as memory holds it.
static const char *stored_type(const tni_c_emitter *w, int i)
{
    return tni_storage_type(
        (tn_dtype)w->k->buffer[w->k->access[ins_at(w, i)->access].buffer].dtype);
}

static bool is_in_turn(const tni_c_emitter *w, int i)
{
    return in_lanes(w, i) && tni_c_is_streamed(w, i);
}

const char *tni_c_begin_turn(tni_c_emitter *w, const char *from, const char *to)
{
    w->turn = false;
    for (int i = 0; i < w->k->nins; i++) w->turn |= is_in_turn(w, i);
    if (!w->turn) return to;
    tni_out_line(w->o, "for (m_long from = %s, to; from < %s; from = to) {", from, to);
    for (int i = 0; i < w->k->nins; i++)
        if (is_in_turn(w, i))
            tni_out_line(w->o, "%s k%d[%d], *const u%d = M_TO(p%d, k%d);", stored_type(w, i), i,
                         TNI_STRIP, i, i, i);
    tni_out_line(w->o, "to = M_TURN(%s, %d);", to, TNI_STRIP);
    return "to";
}

void tni_c_end_turn(tni_c_emitter *w)
{
    if (!w->turn) return;
    w->turn = false;
    for (int i = 0; i < w->k->nins; i++)
        if (is_in_turn(w, i)) tni_out_line(w->o, "M_STREAM(p%d, k%d);", i, i);
    tni_out_line(w->o, "}");
}

// Whether any block of the kernel could have such a store.
static bool any_streamed(const tni_c_emitter *w)
{
    bool any = false;
    for (int i = 0; i < w->k->nins; i++) any |= tni_c_is_streamed(w, i);
    return any;
}

void tni_c_begin_streams(const tni_c_emitter *w)
{
    if (any_streamed(w))
        tni_out_line(w->o, "const m_int stream = arg[%d] != 0;", tni_c_arg_index(w, w->k->naccess));
}

void tni_c_end_streams(const tni_c_emitter *w)
{
    if (any_streamed(w)) tni_out_line(w->o, "M_STREAMED(stream);");
}
