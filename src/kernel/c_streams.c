// Stores by strips, on chips where they may pay: the lanes of a loop in pieces of a strip. Where
// the launch asks for it, a piece is written to an array, which stays in the cache of the core, and
// copied from there to memory, through the caches or past them. Otherwise all lanes are one piece,
// which is written to memory itself. What it prints, of add(mul_s(relu(x), 0.5), y) on x86:
//
//     for (m_long from = 0, to; from < n; from = to) {
//         to = stores && n - from > 1024 ? from + 1024 : n;
//         float k6[1024], *const u6 = stores ? k6 : p6 + from;
//         M_LANES for (m_long j = from; j < to; j++) {
//             ...
//             u6[j - from] = v5;
//         }
//         if (stores) m_stream(p6 + from, k6, (to - from) * sizeof *k6, stores);
//     }
//
// device/cpu/streams.c says which launches ask for it.
#include "kernel/c_emitter.h"

// Of neighbours, to memory that the kernel does not read: what is read is in the caches already.
// Staged stores are copies from arrays themselves.
static bool could_stream(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (x->code != TNI_I_STORE || x->finish || lane_class(w, x) != TNI_STRIDE_1) return false;
    if (w->windows || is_staged(w, i)) return false;
    for (int j = 0; j < w->k->nins; j++)
        if (ins_at(w, j)->code == TNI_I_LOAD &&
            w->k->access[ins_at(w, j)->access].buffer == w->k->access[x->access].buffer)
            return false;
    return true;
}

// MOST: strips of 8 KiB on the stack of a thread.
void tni_c_open_streams(tni_c_emitter *w)
{
    enum { MOST = 4 };
    int n = 0;
    for (int i = 0; i < w->k->nins; i++) n += could_stream(w, i);
    w->streams = w->s.dialect->streams && n && n <= MOST;
}

static bool is_streamed(const tni_c_emitter *w, int i)
{
    return w->streams && !w->finish && in_lanes(w, i) && could_stream(w, i);
}

bool tni_c_in_piece(const tni_c_emitter *w, int i)
{
    return w->piece && is_streamed(w, i);
}

// Returns the type of what store i writes, as memory holds it.
static const char *stored_type(const tni_c_emitter *w, int i)
{
    return tni_storage_type(
        (tn_dtype)w->k->buffer[w->k->access[ins_at(w, i)->access].buffer].dtype);
}

void tni_c_begin_piece(tni_c_emitter *w, const char **from, const char **to)
{
    for (int i = 0; i < w->k->nins; i++) w->piece |= is_streamed(w, i);
    if (!w->piece) return;
    tni_out_line(w->o, "for (m_long from = %s, to; from < %s; from = to) {", *from, *to);
    tni_out_line(w->o, "to = stores && %s - from > %d ? from + %d : %s;", *to, TNI_STRIP, TNI_STRIP,
                 *to);
    for (int i = 0; i < w->k->nins; i++)
        if (is_streamed(w, i))
            tni_out_line(w->o, "%s k%d[%d], *const u%d = stores ? k%d : p%d + from;",
                         stored_type(w, i), i, TNI_STRIP, i, i, i);
    *from = "from";
    *to   = "to";
}

void tni_c_end_piece(tni_c_emitter *w)
{
    if (!w->piece) return;
    w->piece = false;
    for (int i = 0; i < w->k->nins; i++)
        if (is_streamed(w, i))
            tni_out_line(
                w->o, "if (stores) m_stream(p%d + from, k%d, (to - from) * sizeof *k%d, stores);",
                i, i, i);
    tni_out_line(w->o, "}");
}

void tni_c_begin_streams(const tni_c_emitter *w)
{
    if (w->streams)
        tni_out_line(w->o, "const m_int stores = (m_int)arg[%d];",
                     tni_c_arg_index(w, w->k->naccess));
}

void tni_c_end_streams(const tni_c_emitter *w)
{
    if (w->streams) tni_out_line(w->o, "if (stores == 2) M_STREAMED();");
}
