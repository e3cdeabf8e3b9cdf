// The programs of attention: tiles for each width of heads, and the text around the kernels, which
// begins, behind the prelude, with constants such as
//
//     #define GIVEN const __grid_constant__
//     enum { HEAD_D = 64, HEAD_E = 64, IS_F16 = 0, WGMMA = 1, ALIGNED = 1, CAUSAL = 1, ... };
#include "device/cuda/flash.h"

#include "device/cuda/cores_text.h"
#include "device/cuda/flash_text.h"
#include "kernel/emit.h"

// ---- tiles -------------------------------------------------------------------------------------

// Tiles by kernel, kind of product and widest head, in the order in which they are looked up. Timed
// on an H200 (D 64: 32 batches of 12 heads, T 1024; D 128: 4 of 16, T 4096); those of mma.sync also
// have to fit into the 100 KB that a block has on smaller chips.
static const struct {
    tni_flash_part part;
    bool           wgmma;
    int            widest;
    tni_flash_tile tile;
} tiles[] = {
    // clang-format off
    { TNI_FLASH_FORWARD, true,  64,  { 4, 1,  64, 64, false, 3 } },
    { TNI_FLASH_FORWARD, true,  128, { 4, 1,  64, 64, false, 2 } },
    { TNI_FLASH_FORWARD, true,  256, { 8, 1,  64, 64, false, 1 } },
    { TNI_FLASH_FORWARD, false, 64,  { 4, 2,  64, 64, false, 2 } },
    { TNI_FLASH_FORWARD, false, 128, { 4, 1,  64, 64, false, 2 } },
    { TNI_FLASH_FORWARD, false, 256, { 4, 1,  32, 32, false, 1 } },
    { TNI_FLASH_QUERIES, true,  64,  { 4, 1,  64, 64, false, 3 } },
    { TNI_FLASH_QUERIES, true,  128, { 4, 1,  64, 64, false, 2 } },
    { TNI_FLASH_QUERIES, true,  256, { 4, 1,  64, 64, false, 1 } },
    { TNI_FLASH_QUERIES, false, 64,  { 4, 1,  64, 64, false, 2 } },
    { TNI_FLASH_QUERIES, false, 128, { 4, 1,  64, 64, false, 2 } },
    { TNI_FLASH_QUERIES, false, 256, { 4, 1,  32, 16, false, 1 } },
    { TNI_FLASH_KEYS,    true,  64,  { 4, 1,  64, 64, false, 3 } },
    { TNI_FLASH_KEYS,    true,  128, { 8, 1,  64, 64, false, 1 } },
    { TNI_FLASH_KEYS,    true,  256, { 4, 1,  64, 64, false, 1 } },
    { TNI_FLASH_KEYS,    false, 64,  { 4, 1,  64, 64, true,  2 } },
    { TNI_FLASH_KEYS,    false, 128, { 4, 1,  64, 16, false, 2 } },
    { TNI_FLASH_KEYS,    false, 256, { 4, 1,  32, 16, false, 1 } },
    { TNI_FLASH_DECODE,  false, 256, { 8, 1,   0,  0, false, 1 } },
    // clang-format on
};

static int widest_of(const tni_flash_case *x)
{
    return x->D > x->E ? x->D : x->E;
}

// Masks, dropout and changes of scores need registers: then a warp has a single tile of rows, and
// fewer scores at a time or fewer blocks beside it.
tni_flash_tile tni_flash_tile_of(const tni_flash_case *x)
{
    size_t i = 0, last = sizeof tiles / sizeof *tiles - 1;
    while (i < last && (tiles[i].part != x->part || widest_of(x) > tiles[i].widest ||
                        tiles[i].wgmma != x->wgmma))
        i++;
    tni_flash_tile t = tiles[i].tile;
    if (x->ranks > 1) t.warps = 4;
    if (!x->dropout && !x->program) return t;
    t.tiles = 1;
    t.held  = false;
    if (!x->wgmma && t.sub > 32) t.sub = 32;
    if (x->wgmma && t.blocks > 2 && (x->dropout || x->heavy)) t.blocks = 2;
    return t;
}

int tni_flash_rows(const tni_flash_case *x)
{
    tni_flash_tile t = tni_flash_tile_of(x);
    return t.warps * t.tiles * 16;
}

// The tiles of a block, as the kernels lay them out: a row of 64 columns is 128 bytes. A block
// begins at a multiple of 1,024 bytes, which it finds by itself.
int tni_flash_shared(const tni_flash_case *x)
{
    tni_flash_tile t = tni_flash_tile_of(x);
    int            D = (x->D + 63) / 64, E = (x->E + 63) / 64;
    int            own = x->part != TNI_FLASH_FORWARD ? D + E : D > E ? D : E;
    if (x->part == TNI_FLASH_DECODE) return 0;
    return 1024 + 128 * (own * tni_flash_rows(x) + 2 * (D + E) * t.columns);
}

// ---- texts -------------------------------------------------------------------------------------

const char *tni_flash_kernel(tni_flash_part part)
{
    static const char *const name[] = { "flash_forward", "flash_queries", "flash_keys",
                                        "flash_decode" };
    return name[part];
}

// The constants by which a text is one case. ACROSS: rows of scores are keys and columns queries.
static void put_constants(tni_out *o, const tni_dialect *d, const tni_flash_case *x)
{
    tni_flash_tile t = tni_flash_tile_of(x);
    tni_out_print(o, "#define GIVEN %s\n#define CLUSTER ", d->struct_qualifier);
    if (x->ranks > 1) tni_out_print(o, "__cluster_dims__(%d, 1, 1)", x->ranks);
    tni_out_print(o, "\n");
    tni_out_print(
        o,
        "typedef m_ushort elem;\nenum { HEAD_D = %d, HEAD_E = %d, IS_F16 = %d, IS_TF32 = 0, WGMMA = %d, ALIGNED = %d,\n",
        x->D, x->E, x->f16, x->wgmma, x->aligned);
    tni_out_print(
        o,
        "       CAUSAL = %d, WINDOW = %d, LENGTHS = %d, DROPOUT = %d, QUADS = %d, PROGRAM = %d,\n",
        x->causal, x->window, x->lengths, x->dropout, x->quads, x->program != NULL);
    tni_out_print(o,
                  "       GRADS = %u, ROW_GRADS = %u, HEAD_GRADS = %u, ACROSS = %d, SPLIT = %d,\n",
                  x->grads, x->row_grads, x->head_grads, x->part == TNI_FLASH_KEYS,
                  tni_flash_splits(x));
    tni_out_print(o, "       ROWS = %d, RANKS = %d,\n", x->rows, x->ranks > 1 ? x->ranks : 1);
    tni_out_print(
        o, "       WARPS = %d, MTILES = %d, COLS = %d, SUB = %d, HELD = %d, BLOCKS = %d };\n",
        t.warps, t.tiles, t.columns, t.sub, t.held, t.blocks);
}

// Scores that are not changed still need the functions' names, which templates look up.
static void put_unchanged(tni_out *o)
{
    tni_out_print(
        o,
        "struct score_head {};\nstruct score_query {};\nstruct score_key {};\n"
        "struct score_base {};\nenum { SLOPED = 0, GUARDED = 0, STEADY = 0, VARYING = 0 };\n%s",
        tni_text_score_place);
    tni_put_text(o, tni_text_flash_unchanged);
    tni_out_print(o, "%s", tni_text_hides_nothing);
}

// Called by tni_emit_program behind the prelude.
static void write_flash(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    static const char *const *const kernel[] = { tni_text_flash_forward, tni_text_flash_queries,
                                                 tni_text_flash_keys, tni_text_flash_decode };
    const tni_flash_case           *x        = item->opts;
    put_constants(o, d, x);
    tni_put_text(o, tni_text_cores);
    tni_put_text(o, tni_text_flash);
    tni_put_text(o, x->wgmma ? tni_text_cores_wgmma : tni_text_cores_mma);
    if (x->program) tni_out_print(o, "%s", x->program);
    else put_unchanged(o);
    tni_put_text(o, tni_text_flash_scores);
    if (x->part == TNI_FLASH_QUERIES || x->part == TNI_FLASH_KEYS)
        tni_put_text(o, tni_text_flash_gradient);
    tni_put_text(o, kernel[x->part]);
}

char *tni_flash_source(tni_heap *h, const tni_flash_case *x)
{
    tni_emit_item item = { .opts = x };
    return tni_emit_program(h, &tni_dialect_cuda, write_flash, 1, &item, false);
}
