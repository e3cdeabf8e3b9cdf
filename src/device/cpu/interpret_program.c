// A program as a whole: its arrays, and the slots of its registers.
#include "device/cpu/interpret_program.h"

#include "device/device.h"

#include <string.h>

enum { PER_INS = 10 };  // most steps, and registers, that an instruction becomes in one section

// ---- slots -------------------------------------------------------------------------------------

// Whether a register's elements lie in a slot. What is used in place, or goes out, has a pointer.
static bool has_slot(const tni_program *g, const tni_reg *r)
{
    const tni_tile_step *s = r->maker >= 0 ? &g->step[r->maker] : NULL;
    return r->tile && r->keep < 0 && !(s && (s->kind == TNI_S_HERE || s->lead == TNI_LEAD_OUT));
}

// Gives slots that no living register has to the registers of a section, in the order of its steps.
// The number of slots wanted.
static int share_slots(tni_program *g, int section, int32_t *free_list, int64_t base)
{
    int slots = 0, nfree = 0;
    for (int i = g->section[section].head; i >= 0; i = g->step[i].next) {
        const tni_tile_step *s       = &g->step[i];
        int32_t              read[3] = { s->a, s->b, s->c };
        if (s->dst >= 0 && g->reg[s->dst].maker == i && !g->reg[s->dst].fixed &&
            has_slot(g, &g->reg[s->dst])) {
            int slot              = nfree > 0 ? free_list[--nfree] : slots++;
            g->reg[s->dst].offset = base + slot * g->slot_bytes;
        }
        for (int j = 0; j < 3; j++) {
            tni_reg *r = read[j] >= 0 ? &g->reg[read[j]] : NULL;
            if (!r || r->fixed || r->section != section || r->last != i || !has_slot(g, r))
                continue;
            free_list[nfree++] = (int32_t)((r->offset - base) / g->slot_bytes);
            r->last            = -1;  // read twice by one step
        }
    }
    return slots;
}

// Worker memory: pointers of registers, single elements, fixed values, kept rows, shared slots.
static void assign_slots(tni_program *g, int32_t *free_list)
{
    bool wide = false;
    int  most = 0;
    for (int i = 0; i < g->nreg; i++)
        wide |= g->reg[i].tile && tni_dtype_size((tn_dtype)g->reg[i].rep) == 8;
    g->slot_bytes = tni_align64(g->lanes * (wide ? 8 : 4)) + 64;
    for (int i = 0; i < g->nreg; i++) {
        tni_reg *r = &g->reg[i];
        if (!(r->tile && r->fixed && has_slot(g, r))) continue;
        r->offset = g->state_bytes;
        g->state_bytes += g->slot_bytes;
    }
    for (int i = 0; i < g->nreg; i++) {
        if (g->reg[i].tile) continue;
        g->reg[i].offset = g->state_bytes;
        g->state_bytes += 8;
    }
    int64_t keep = tni_align64(g->state_bytes), base = keep + g->keep_bytes;
    for (int i = 0; i < g->nreg; i++)
        if (g->reg[i].keep >= 0) g->reg[i].keep += keep;
    for (int i = 0; i < g->nsection; i++) {
        int slots = share_slots(g, i, free_list, base);
        if (slots > most) most = slots;
    }
    g->worker_bytes = tni_align64(base + most * g->slot_bytes);
}

// ---- the whole ---------------------------------------------------------------------------------

static int most_steps(const tni_kernel *k)
{
    return PER_INS * k->nins * (k->phases + 2) + 8;
}

static int sections(const tni_kernel *k)
{
    return 2 + 2 * k->phases + 3;
}

// Takes bytes of mem; where mem is NULL, only counts them.
static void *take(char *mem, size_t *used, size_t bytes)
{
    void *p = mem ? mem + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

// Lays a program's arrays out in mem, or counts its bytes.
static size_t lay_out(const tni_kernel *k, char *mem, tni_program *g, int32_t **free_list)
{
    size_t used = 0, most = (size_t)most_steps(k), nins = (size_t)k->nins;
    take(mem, &used, sizeof *g);
    g->step     = take(mem, &used, most * sizeof *g->step);
    g->reg      = take(mem, &used, most * sizeof *g->reg);
    g->section  = take(mem, &used, (size_t)sections(k) * sizeof *g->section);
    g->loop_reg = take(mem, &used, nins * k->phases * sizeof *g->loop_reg);
    g->row_reg  = take(mem, &used, nins * sizeof *g->row_reg);
    g->fin_reg  = take(mem, &used, nins * sizeof *g->fin_reg);
    g->cost     = take(mem, &used, nins * sizeof *g->cost);
    g->needed   = take(mem, &used, nins * sizeof *g->needed);
    g->delta    = take(mem, &used, (size_t)k->naccess * TNI_AXES * sizeof *g->delta);
    *free_list  = take(mem, &used, most * sizeof **free_list);
    return used;
}

size_t tni_program_bytes(const tni_kernel *k)
{
    tni_program g;
    int32_t    *free_list;
    return lay_out(k, NULL, &g, &free_list);
}

// Axis i goes on by one, and the axes after it up to `last` go back to their beginning.
static void find_deltas(tni_program *g, const tni_launch *l, int first, int last)
{
    int naccess = l->kernel->naccess;
    for (int a = 0; a < naccess; a++) {
        int64_t back = 0;
        for (int i = last; i >= first; i--) {
            g->delta[i * naccess + a] = l->stride[a][i] - back;
            back += (l->size[i] - 1) * l->stride[a][i];
        }
    }
}

// The pointers of registers begin the memory of a worker.
static int64_t pointer_bytes(const tni_program *g)
{
    return tni_align64(g->nreg * (int64_t)sizeof(char *));
}

static void find_shared(tni_program *g, const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nbuffer; i++) {
        g->shared[i] = false;
        for (int j = 0; j < k->nbuffer; j++)
            if (i != j && (k->buffer[i].written || k->buffer[j].written))
                g->shared[i] |= l->buffer[i] == l->buffer[j];
    }
    // A buffer that is loaded and stored.
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD) {
            int b = k->access[k->ins[i].access].buffer;
            g->shared[b] |= k->buffer[b].written;
        }
}

static void find_lanes(tni_program *g, const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    g->lane             = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    g->finish_lane      = k->nr > 0 ? k->np + k->nr - 1 : -1;
    g->lanes            = l->size[g->lane];
    if (k->tails && g->finish_lane >= 0 && l->size[g->finish_lane] > g->lanes)
        g->lanes = l->size[g->finish_lane];
    if (g->lanes > TNI_STRIP) g->lanes = TNI_STRIP;
}

int64_t tni_program_most(const tni_launch *l, const tni_work_split *cut)
{
    const tni_kernel *k = l->kernel;
    tni_program       g;
    find_lanes(&g, l);
    int64_t slot = tni_align64(g.lanes * 8) + 64 + (int64_t)sizeof(char *);
    int64_t most = most_steps(k) * slot + 64;
    if (k->phases > 1) most += 2 * TNI_KEEP_MOST;
    if (k->tails) most += k->nins * tni_align64(cut->cols * 8);
    return most;
}

tni_program *tni_program_build(tni_launch *l, char *mem)
{
    const tni_kernel *k = l->kernel;
    tni_program      *g = (tni_program *)mem;
    int32_t          *free_list;
    lay_out(k, mem, g, &free_list);
    g->tiles    = tni_tiles_get();
    g->l        = l;
    g->cut      = tni_kernel_split(l);
    g->phases   = k->phases;
    g->nsection = sections(k);
    g->nstep = g->nreg = 0;
    g->keep_bytes = g->state_bytes = 0;
    find_lanes(g, l);
    find_shared(g, l);
    memset(g->section, -1, (size_t)g->nsection * sizeof *g->section);
    memset(g->loop_reg, -1, (size_t)(k->nins * k->phases) * sizeof *g->loop_reg);
    memset(g->row_reg, -1, (size_t)k->nins * sizeof *g->row_reg);
    memset(g->fin_reg, -1, (size_t)k->nins * sizeof *g->fin_reg);
    memset(g->needed, 0, (size_t)k->nins * sizeof *g->needed);
    int outer_p = k->lane_in_r ? k->np - 1 : k->np - 2;
    int last_r  = k->np + k->nr - 1 - k->lane_in_r;
    find_deltas(g, l, 0, outer_p);
    find_deltas(g, l, k->np, last_r);
    tni_program_steps(g);
    for (int i = 0; i < g->nstep; i++)
        if (g->step[i].kind == TNI_S_TAIL_ROWS) g->step[i].mem += pointer_bytes(g);
    g->state_bytes += pointer_bytes(g);
    assign_slots(g, free_list);
    return g;
}
