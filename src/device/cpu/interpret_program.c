// Builds a program as a whole: places its arrays in memory, makes the steps (interpret_outputs.c),
// and gives registers their slots.
#include "device/cpu/interpret_program.h"

#include "device/device.h"

#include <string.h>

// Most steps, and most registers, that an instruction becomes in one section. A map comes closest:
// for each of three operands a conversion and a broadcast, then the map itself and the wrapping of
// its result.
enum { PER_INS = 10 };

// ---- slots -------------------------------------------------------------------------------------

// Returns whether a register's elements are stored in a slot. A register that is used in place, or
// computed directly in an output, is only a pointer; one that is kept has its own memory.
static bool has_slot(const tni_program *g, const tni_reg *r)
{
    const tni_tile_step *s = r->maker >= 0 ? &g->step[r->maker] : NULL;
    return r->tile && r->keep < 0 && !(s && (s->kind == TNI_S_IN_PLACE || s->dest == TNI_DEST_OUT));
}

// Gives the registers of a section slots, in the order of its steps, and returns how many slots
// that took. A slot is free again after the last step that reads its register: linear-scan
// allocation, which is optimal here because a section has no branches. A worker's memory then stays
// in the caches, however long the kernel.
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

// Divides a worker's memory: pointers of registers, fixed tiles, single elements, kept rows, and
// the slots that registers share. Sections run one after the other, so they share the same slots.
// 64 bytes between slots keep tiles of equal lanes from mapping to the same cache sets.
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

// Upper bound of a program's steps and registers: every instruction in every loop, in the row
// sections and in the finish stage.
static int most_steps(const tni_kernel *k)
{
    return PER_INS * k->nins * (k->phases + 2) + 8;
}

static int section_count(const tni_kernel *k)
{
    return 2 + 2 * k->phases + 3;
}

// Takes bytes of mem, rounded up to 64; if mem is NULL, only counts them.
static void *take_program_bytes(char *mem, size_t *used, size_t bytes)
{
    void *p = mem ? mem + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

// Places a program's arrays in mem, or, if mem is NULL, counts their bytes. Both uses run the same
// lines, so that the count cannot differ from the use.
static size_t place_arrays(const tni_kernel *k, char *mem, tni_program *g, int32_t **free_list)
{
    size_t used = 0, most = (size_t)most_steps(k), nins = (size_t)k->nins;
    take_program_bytes(mem, &used, sizeof *g);
    g->step     = take_program_bytes(mem, &used, most * sizeof *g->step);
    g->reg      = take_program_bytes(mem, &used, most * sizeof *g->reg);
    g->section  = take_program_bytes(mem, &used, (size_t)section_count(k) * sizeof *g->section);
    g->loop_reg = take_program_bytes(mem, &used, nins * k->phases * sizeof *g->loop_reg);
    g->row_reg  = take_program_bytes(mem, &used, nins * sizeof *g->row_reg);
    g->fin_reg  = take_program_bytes(mem, &used, nins * sizeof *g->fin_reg);
    g->cost     = take_program_bytes(mem, &used, nins * sizeof *g->cost);
    g->needed   = take_program_bytes(mem, &used, nins * sizeof *g->needed);
    g->delta    = take_program_bytes(mem, &used, (size_t)k->naccess * TNI_AXES * sizeof *g->delta);
    *free_list  = take_program_bytes(mem, &used, most * sizeof **free_list);
    return used;
}

size_t tni_program_bytes(const tni_kernel *k)
{
    tni_program g;
    int32_t    *free_list;
    return place_arrays(k, NULL, &g, &free_list);
}

// Finds how far each access moves when axis i advances by one and the axes after it, up to `last`,
// return to 0: advance_axes then adds one number per access.
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

// Returns the bytes of the register pointers, which begin a worker's memory.
static int64_t pointer_bytes(const tni_program *g)
{
    return tni_align64(g->nreg * (int64_t)sizeof(char *));
}

// Finds the buffers that may not be read in place: those that share memory with a written buffer,
// or are loaded and stored by this kernel. A tile of them is copied when it is loaded, so that a
// store cannot change what a later step still reads.
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

// Finds the lane axes of the two stages, and the lanes of the largest tile: the size of a slot.
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

// An upper bound that needs no program: a slot of 8-byte elements for every possible step, kept
// rows, and the accumulators of tails.
int64_t tni_program_worker_bytes(const tni_launch *l, const tni_work_split *cut)
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

// The order matters: lanes and shared buffers decide which steps a load becomes; the steps decide
// which registers are alive when; only then can slots be assigned. TAIL_ROWS steps count their
// accumulators from 0 while steps are made, and are moved behind the pointers when the number of
// registers is known.
tni_program *tni_program_build(tni_launch *l, char *mem)
{
    const tni_kernel *k = l->kernel;
    tni_program      *g = (tni_program *)mem;
    int32_t          *free_list;
    place_arrays(k, mem, g, &free_list);
    g->tiles    = tni_tiles_get();
    g->l        = l;
    g->cut      = tni_kernel_split(l);
    g->phases   = k->phases;
    g->nsection = section_count(k);
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
    tni_program_build_steps(g);
    for (int i = 0; i < g->nstep; i++)
        if (g->step[i].kind == TNI_S_TAIL_ROWS) g->step[i].mem += pointer_bytes(g);
    g->state_bytes += pointer_bytes(g);
    assign_slots(g, free_list);
    return g;
}
