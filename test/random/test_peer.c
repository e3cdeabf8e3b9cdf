// test_peer.c: what `make test-peer` rests on, without PyTorch: the generator, the texts, the
// shrinker.
#include "check.h"
#include "peer/peer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1000, PROGRAMS = 200 };

static tn_ctx *open_on(const char *device)
{
    tn_ctx *cx = tn_open(device);
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}

static char *text_of(const peer_program *p, void (*print)(const peer_program *p, FILE *f))
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);
    if (!f) return NULL;
    print(p, f);
    fclose(f);
    return text;
}

// ---- the generator

static void equal_seeds_make_equal_programs(void)
{
    tn_ctx             *ref = open_on("ref");
    static peer_program a, b;
    char                why[PEER_TEXT];
    if (!CHECK(ref != NULL)) return;
    for (uint64_t i = 0; i < 20; i++) {
        CHECK(peer_generate(&a, SEED + i, ref, why) == peer_generate(&b, SEED + i, ref, why));
        char *one = text_of(&a, peer_print_c), *two = text_of(&b, peer_print_c);
        if (CHECK(one && two)) CHECK_STR(one, two);
        free(one);
        free(two);
    }
    tn_close(ref);
}

static void every_op_of_the_table_is_drawn(void)
{
    tn_ctx             *ref = open_on("ref");
    static peer_program p;
    int                 missing   = 0;
    bool                seen[200] = { false }, gradient = false, second = false;
    char                why[PEER_TEXT];
    if (!CHECK(ref != NULL)) return;
    for (uint64_t i = 0; i < 1500; i++) {
        int gradients = 0;
        peer_generate(&p, SEED + i, ref, why);
        for (int k = 0; k < p.count; k++) {
            const peer_row *row = p.step[k].row;
            for (int r = 0; r < 200 && peer_rows[r].name; r++) seen[r] |= row == &peer_rows[r];
            gradients += row == &peer_grad_row;
        }
        gradient |= gradients == 1;
        second |= gradients == 2;
    }
    for (int i = 0; peer_rows[i].name; i++)
        if (!test_that(seen[i], "no program has %s", peer_rows[i].name)) missing++;
    CHECK_INT(missing, 0);
    CHECK(gradient && second);
    tn_close(ref);
}

// The digits of the coarsest float that a program has.
static int digits_of(const peer_program *p)
{
    int least = peer_digits(TN_F64);
    for (int i = 0; i < p->count; i++)
        if (peer_is_float(p->step[i].dtype) && peer_digits(p->step[i].dtype) < least)
            least = peer_digits(p->step[i].dtype);
    return least < peer_digits(TN_F32) ? least : peer_digits(TN_F32);
}

// The largest difference of two results' floats, in parts of what a third of the digits are; what
// is no float must be equal.
static double distance(const peer_result *a, const peer_result *b, int digits)
{
    double most = a->count == b->count ? 0 : INFINITY;
    for (int i = 0; i < a->count && i < b->count; i++) {
        const peer_array *x = &a->out[i], *y = &b->out[i];
        if (x->dtype != y->dtype || x->rank != y->rank || x->count != y->count) return INFINITY;
        double range = 1;
        for (int64_t k = 0; x->x && k < x->count; k++)
            if (isfinite(y->x[k])) range = fmax(range, fabs(y->x[k]));
        for (int64_t k = 0; k < x->count; k++) {
            if (!x->x && x->i[k] != y->i[k]) return INFINITY;
            if (!x->x || !isfinite(y->x[k])) continue;
            most = fmax(most, fabs(x->x[k] - y->x[k]) / ldexp(range, -digits / 3));
        }
    }
    return most;
}

// Programs are made so that rounding stays small: a third of the digits is sure.
static void programs_on_cpu_agree_with_ref_in_a_third_of_their_digits(void)
{
    tn_ctx             *ref = open_on("ref"), *cpu = open_on("cpu");
    static peer_program p;
    char                why[PEER_TEXT];
    if (!CHECK(ref && cpu)) return;
    for (uint64_t i = 0; i < (uint64_t)test_draws(PROGRAMS); i++) {
        static peer_result want, have;
        if (!peer_generate(&p, SEED + i, ref, why)) continue;
        bool   ok = peer_run(&p, ref, &want), same = peer_run(&p, cpu, &have);
        double far = ok && same ? distance(&have, &want, digits_of(&p)) : INFINITY;
        test_case_result(far <= 1, "SEED=%d: %.3g of what is allowed; %s", (int)(SEED + i), far,
                         have.error);
        peer_free(&want);
        peer_free(&have);
    }
    tn_close(cpu);
    tn_close(ref);
}

// A small factor is refused only beside infinities, which it may turn to NaN by way of a 0.
static void a_product_is_admitted_only_where_its_order_cannot_show(void)
{
    static const struct {
        tn_dtype dtype;
        peer_law law;
        int64_t  count;
        bool     admitted;
    } cases[] = {
        { TN_F32, LAW_DISTINCT, 120, false }, { TN_F32, LAW_DISTINCT, 20, true },
        { TN_F32, LAW_GRID, 200, false },     { TN_F64, LAW_GRID, 200, true },
        { TN_F16, LAW_GRID, 40, false },      { TN_F16, LAW_GRID, 12, true },
        { TN_F32, LAW_ODD, 80, false },       { TN_F32, LAW_ODD, 50, true },
        { TN_I32, LAW_GRID, 120, true },
    };
    static const char *const names[] = { "prod", "cumprod" };
    tn_ctx                  *ref     = open_on("ref");
    if (!CHECK(ref != NULL)) return;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        static peer_program p;
        char                why[PEER_TEXT] = "";
        memset(&p, 0, sizeof p);
        p.odd     = cases[i / 2].law == LAW_ODD;
        p.count   = 2;
        p.step[0] = (peer_step){ .row   = &peer_data_row,
                                 .outs  = 1,
                                 .n     = 1,
                                 .list  = { cases[i / 2].count },
                                 .dtype = cases[i / 2].dtype,
                                 .law   = cases[i / 2].law,
                                 .seed  = SEED };
        p.step[1] = (peer_step){ .row = peer_find_row(names[i % 2]), .nin = 1, .outs = 1, .n = 1 };
        bool ok   = peer_admit_all(ref, &p, why);
        test_case_result(ok == cases[i / 2].admitted, "%s, case %d: %s", names[i % 2], (int)i / 2,
                         why);
    }
    tn_close(ref);
}

// Of 120,000 elements within 2, a few are below the least normal number of f16.
static void data_lies_in_memory_as_its_text_says(void)
{
    static double x[PEER_MOST], y[PEER_MOST];
    tn_ctx       *ref     = open_on("ref");
    int           smaller = 0;
    if (!CHECK(ref != NULL)) return;
    for (uint64_t i = 0; i < 20; i++) {
        peer_step s = { .row   = &peer_data_row,
                        .n     = 1,
                        .list  = { PEER_MOST },
                        .dtype = TN_F16,
                        .law   = LAW_SMOOTH,
                        .seed  = SEED + i };
        peer_elements(&s, x);
        if (!CHECK(tn_read(peer_tensor(&s, ref), TN_F64, y, PEER_MOST) == TN_OK)) break;
        int differ = 0;
        for (int k = 0; k < PEER_MOST; k++) {
            differ += x[k] != y[k];
            smaller += x[k] != 0 && fabs(x[k]) < 0x1p-14;
        }
        CHECK_INT(differ, 0);
    }
    CHECK(smaller > 0);
    tn_close(ref);
}

// ---- texts

static void texts_leave_no_place_unfilled(void)
{
    tn_ctx             *ref = open_on("ref");
    static peer_program p;
    char                why[PEER_TEXT];
    if (!CHECK(ref != NULL)) return;
    for (uint64_t i = 0; i < PROGRAMS; i++) {
        if (!peer_generate(&p, SEED + i, ref, why)) continue;
        char *c = text_of(&p, peer_print_c), *python = text_of(&p, peer_print_python);
        test_case_result(c && !strpbrk(c, "$#@"), "SEED=%d: %s", (int)(SEED + i), c ? c : "");
        test_case_result(python && !strpbrk(python, "$#@"), "SEED=%d: %s", (int)(SEED + i),
                         python ? python : "");
        free(c);
        free(python);
    }
    tn_close(ref);
}

// ---- the shrinker

// A fault that a program has if it sums up rows of more than two floats.
static bool has_fault(const peer_program *p, void *user)
{
    static peer_state s;
    tn_ctx           *ref   = user;
    tn_scope         *scope = tn_begin(ref);
    bool              found = false, ok = peer_open_state(&s, ref);
    for (int i = 0; ok && i < p->count; i++) {
        ok = peer_admit(&s, p, i);
        if (!ok || p->step[i].row != peer_find_row("cumsum")) continue;
        const peer_value *x    = &s.value[p->step[i].in[0].step][p->step[i].in[0].out];
        int               axis = p->step[i].axis < 0 ? p->step[i].axis + x->rank : p->step[i].axis;
        found |= peer_is_float(x->dtype) && x->size[axis] > 2;
    }
    tn_end(scope);
    return found;
}

static void the_shrinker_finds_the_smallest_program_of_a_fault(void)
{
    tn_ctx             *ref = open_on("ref");
    static peer_program p;
    char                why[PEER_TEXT];
    int                 found = 0;
    if (!CHECK(ref != NULL)) return;
    for (uint64_t i = 0; i < 1000 && found < 5; i++) {
        if (!peer_generate(&p, SEED + i, ref, why) || !has_fault(&p, ref)) continue;
        found++;
        peer_shrink(&p, ref, has_fault, ref);
        CHECK_INT(p.count, 2);
        CHECK(p.step[0].row == &peer_data_row && p.step[1].row == peer_find_row("cumsum"));
        CHECK_INT(peer_count(p.step[0].n, p.step[0].list), 3);
        CHECK_INT(p.step[0].dtype, TN_F32);
        CHECK(!p.step[0].leaf);
    }
    CHECK_INT(found, 5);
    tn_close(ref);
}

const test_case tests_peer[] = {
    TEST(equal_seeds_make_equal_programs),
    TEST(every_op_of_the_table_is_drawn),
    TEST(programs_on_cpu_agree_with_ref_in_a_third_of_their_digits),
    TEST(a_product_is_admitted_only_where_its_order_cannot_show),
    TEST(data_lies_in_memory_as_its_text_says),
    TEST(texts_leave_no_place_unfilled),
    TEST(the_shrinker_finds_the_smallest_program_of_a_fault),
    TEST_END,
};
