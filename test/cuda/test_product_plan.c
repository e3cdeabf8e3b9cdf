// test_product_plan.c: choosing and running products, with a cuBLASLt and a driver that work in
// host memory: what is described to the library, what is timed and when, and what is kept.
#include "check.h"
#include "fake_clock.h"
#include "product_place.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/product_pruned.h"
#include "device/cuda/product_small.h"
#include "fake/fake_blaslt.h"
#include "fake/fake_cusparselt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The library that `begin_pruned` loaded.
static fake_lt_state *fake_lt;

// ---- what is described -------------------------------------------------------------------------

// Whether a case with something that follows is right in every element and changes nothing else,
// run by the library. done: it can be; it need not be where gelu's input lies at an odd address.
static bool gives(product_case *c, const product_after *after, bool prepared, bool *done,
                  tni_text *why)
{
    tni_product p;
    tn_dtype    out   = c->call.out.dtype;
    int         asked = product_fake->asked;
    *done             = tni_product_of(&c->call, &p) && product_follow(c, after, c->mem, &p);
    if (!*done) return true;
    p.tf32         = prepared;
    double   *want = product_want(c, after);
    tn_status s    = prepared ? tni_product_prepare(&p, &product_place, why) : TN_OK;
    if (s == TN_OK) s = tni_product_run(&p, &product_place, why);
    bool ok = want && s == TN_OK && product_misses(c, want, out == TN_F64 ? 1e-12 : 1e-2) == 0;
    ok      = ok && (product_fake->asked == asked ||
                product_fake->reductions == (tni_is_rounded(out) ? 2u : 6u));
    if (after->end.input && (uintptr_t)p.input % 16) ok = s == TN_EARG;
    free(want);
    return ok;
}

static const tn_dtype types[][2] = { { TN_F32, TN_F32 },
                                     { TN_F16, TN_F16 },
                                     { TN_BF16, TN_BF16 },
                                     { TN_F64, TN_F64 },
                                     { TN_BF16, TN_F32 } };

static void the_library_is_told_every_layout(void)
{
    enum { MANY = 1500 };
    int run = 0;
    if (!product_begin()) return;
    for (int i = 0; i < MANY; i++) {
        product_case  c;
        product_after after  = product_after_of(i / 5 % PRODUCT_AFTERS);
        tni_text      why    = { "" };
        bool          done   = false;
        product_place.timing = i % 3 == 0;
        bool ok              = product_draw(&c, (uint64_t)i, types[i % 5][0], types[i % 5][1], 9) &&
                  gives(&c, &after, i % 2, &done, &why);
        test_case_result(ok, "seed %d: %s", i, why.s);
        run += done;
        product_free(&c);
    }
    CHECK(run > MANY / 4);
    CHECK_INT(product_fake->handles, 1);
    product_end();
}

// Prepared and not, timed and not, of one row too. Everything is taken but what f64 has not.
static void all_that_can_follow_a_product_is_the_librarys(void)
{
    static const int64_t size[][3] = { { 3, 4, 8 }, { 1, 5, 9 }, { 6, 2, 16 } };
    enum { CASES = PRODUCT_AFTERS * 5 * 3 * 3 };
    if (!product_begin()) return;
    for (int i = 0; i < CASES; i++) {
        const tn_dtype *t     = types[i / PRODUCT_AFTERS % 5];
        product_after   after = product_after_of(i % PRODUCT_AFTERS);
        const int64_t  *n     = size[i / PRODUCT_AFTERS / 5 % 3];
        int             how   = i / PRODUCT_AFTERS / 15;
        bool            wide = t[1] == TN_F64, done = false;
        bool            takes = !wide || (after.end.activation == TNI_leaf && !after.end.bias);
        product_case    c;
        tni_text        why  = { "" };
        product_place.timing = how == 1;
        bool ok              = product_make(&c, n, false, true, t[0], t[1]);
        if (ok) product_fill(&c, (uint64_t)i);
        ok = ok && gives(&c, &after, how > 0, &done, &why) && done == takes;
        test_case_result(ok, "case %d: %s", i, why.s);
        product_free(&c);
    }
    product_end();
}

// ---- what is chosen ----------------------------------------------------------------------------

static void an_input_that_is_not_aligned_is_refused(void)
{
    _Alignas(64) char z[128];
    product_small     s;
    tni_text          why = { "" };
    if (!product_begin()) return;
    product_make_small(&s);
    s.in[0].size[0] = s.call.out.size[0] = 1;  // of one row, whose length is no multiple of 8
    CHECK(tni_product_of(&s.call, &s.p));
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_gelu_tanh,
                                                                  .input      = true }));
    s.p.input = z + 8;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_EARG);
    s.p.input = z + 16;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_OK);
    product_end();
}

static void the_fastest_is_timed_once_and_found_by_the_next_process(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    int64_t timed = product_timed(), found = product_found();
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_timed() - timed, 1);
    CHECK_INT(product_found() - found, 0);
    int runs = product_fake->runs;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->runs - runs, 1);
    tni_product_forget();
    product_fake->fastest = 9;  // timing again would show
    runs                  = product_fake->runs;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->runs - runs, 2);  // one loads its code
    CHECK_INT(product_timed() - timed, 1);
    CHECK_INT(product_found() - found, 1);
    product_end();
}

static void other_gpus_alignments_and_workspaces_are_chosen_for_anew(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    int64_t timed = product_timed();
    product_prepare_and_run(&s);
    product_place.bytes /= 2;
    product_prepare_and_run(&s);
    CHECK_INT(product_timed() - timed, 2);
    s.in[1].data += 4;
    CHECK(tni_product_of(&s.call, &s.p));
    product_prepare_and_run(&s);
    CHECK_INT(product_timed() - timed, 3);
    tni_product_forget();
    product_place.gpu = "another";
    product_prepare_and_run(&s);
    CHECK_INT(product_timed() - timed, 4);
    product_end();
}

// A product that is kept and gets other addresses: it follows them to the plan of their alignment,
// and to what the library is told of those that stand in a description, also behind another of the
// same form.
static void a_kept_product_follows_its_addresses(void)
{
    static const tni_product_epilogue with_bias = { .bias = true };
    product_small                     s, other;
    float                             first[8], second[8];
    if (!product_begin()) return;
    for (int i = 0; i < 8; i++) first[i] = 1, second[i] = 2;
    product_make_small(&s);
    product_make_small(&other);
    CHECK(tni_product_add_epilogue(&s.p, &with_bias) &&
          tni_product_add_epilogue(&other.p, &with_bias));
    s.p.bias                = (char *)first;
    other.p.bias            = (char *)second;
    struct tni_ltplan *plan = NULL;
    for (int i = 0; i < 3; i++) {
        product_prepare_and_run(&s);
        product_prepare_and_run(&other);
        CHECK_NEAR(((float *)s.out)[14], 4 + 1 + i % 2, 0);
        CHECK_NEAR(((float *)other.out)[14], 4 + 2, 0);
        CHECK(s.p.plan == other.p.plan && (!plan || s.p.plan == plan));
        plan     = s.p.plan;
        s.p.bias = (char *)(i % 2 ? first : second);
    }
    int64_t timed = product_timed();
    s.p.at[1] += 4;  // the fake refuses an algorithm of another alignment
    product_prepare_and_run(&s);
    CHECK(s.p.plan != plan);
    CHECK_INT(product_timed() - timed, 1);
    s.p.at[1] -= 4;
    product_prepare_and_run(&s);
    CHECK(s.p.plan == plan);
    product_end();
}

// And to that of another end, place or generation of plans.
static void a_kept_product_leaves_a_plan_that_is_not_its_own(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    product_prepare_and_run(&s);
    struct tni_ltplan *plan = s.p.plan;
    CHECK_INT(tni_product_method_of(&s.p, &product_place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == plan);
    product_place.bytes /= 2;
    CHECK_INT(tni_product_method_of(&s.p, &product_place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == NULL);
    product_place.bytes *= 2;
    CHECK_INT(tni_product_method_of(&s.p, &product_place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == plan);
    s.p.tf32 = true;
    product_prepare_and_run(&s);
    CHECK(s.p.plan != plan);
    s.p.tf32 = false;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_relu }));
    product_prepare_and_run(&s);
    CHECK(s.p.plan && s.p.plan != plan);
    tni_product_forget();
    CHECK_INT(tni_product_method_of(&s.p, &product_place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == NULL);
    product_end();
}

static void nothing_is_timed_while_a_stream_is_captured(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    int64_t timed           = product_timed();
    int     runs            = product_fake->runs;
    product_place.capturing = true;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FIRST);
    CHECK_INT(product_fake->runs - runs, 1);
    CHECK_INT(product_timed(), timed);
    product_place.capturing = false;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    product_place.capturing = true;
    tni_product_forget();
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);  // remembered
    CHECK_INT(product_timed() - timed, 1);
    product_end();
}

static void without_timing_the_first_is_taken_whatever_is_on_disk(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    int64_t timed = product_timed(), found = product_found();
    product_place.timing = false;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FIRST);
    product_place.timing = true;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_timed(), timed);
    CHECK_INT(product_found(), found);
    product_end();
}

static void choosing_does_not_disturb_what_is_added_to(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_NEAR(((float *)s.out)[14], 8 + 4, 0);
    // Without memory for a result to time on, the first is taken and nothing is remembered.
    tni_product_forget();
    product_place.gpu           = "without memory";
    fake_clock_driver.mem_alloc = fake_clock_no_memory;
    int64_t timed               = product_timed();
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FIRST);
    CHECK_INT(product_timed(), timed);
    fake_clock_open(&product_fake->milliseconds);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_NEAR(((float *)s.out)[14], 8 + 3 * 4, 0);
    product_end();
}

// A residual that lies elsewhere is only read: then D is written, and nothing else is needed.
static void choosing_with_a_residual_elsewhere_takes_no_memory(void)
{
    product_small s;
    float         more[16];
    if (!product_begin()) return;
    product_make_small(&s);
    for (int i = 0; i < 15; i++) more[i] = 2;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual                = (const char *)more;
    fake_clock_driver.mem_alloc = fake_clock_no_memory;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    fake_clock_open(&product_fake->milliseconds);
    CHECK_NEAR(((float *)s.out)[14], 2 + 4, 0);
    CHECK_NEAR(more[14], 2, 0);
    product_end();
}

// Neither warmed up by a choice of the disk nor timed where D is what is added.
static void a_kept_choice_does_not_disturb_what_is_added_to(void)
{
    product_small s;
    tni_text      why = { "" };
    if (!product_begin()) return;
    product_make_small(&s);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_OK);
    tni_product_forget();
    int64_t found = product_found();
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_OK);
    CHECK_INT(product_found() - found, 1);
    CHECK_NEAR(((float *)s.out)[14], 8, 0);
    product_end();
}

static void big_products_are_timed_less(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    int runs           = product_fake->runs;
    product_fake->cost = 0.001;
    product_prepare_and_run(&s);
    int often          = product_fake->runs - runs;
    product_fake->cost = 5;
    tni_product_forget();
    product_place.gpu = "slower";
    runs              = product_fake->runs;
    product_prepare_and_run(&s);
    test_that(often > 60 && product_fake->runs - runs < 20, "%d and %d runs", often,
              product_fake->runs - runs);
    product_end();
}

// ---- our own kernel ----------------------------------------------------------------------------

// What stands for it: how long it takes, and how often it ran.
static struct {
    double cost;
    bool   broken, coming;
    int    runs;
} own;

static bool own_is_there(void *session)
{
    return session == &own && !own.coming;
}

static int run_own(void *session, const tni_product *p, char *out)
{
    if (session != &own || !tni_small_takes(p) || own.broken) return TNI_CU_NOT_FOUND;
    product_fake->milliseconds += own.cost;
    own.runs++;
    for (int64_t i = 0; i < p->rows * p->cols; i++) ((float *)out)[i] = 4;
    return TNI_CU_OK;
}

// Begins with a kernel of our own that takes so long; the library's fastest takes 0.5.
static bool begin_own(product_small *s, double cost)
{
    if (!product_begin()) return false;
    own.cost                   = cost;
    own.broken                 = false;
    own.coming                 = false;
    own.runs                   = 0;
    product_place.launch_small = run_own;
    product_place.small_ready  = own_is_there;
    product_place.session      = &own;
    product_make_small(s);
    return true;
}

// How the product is done once it is prepared.
static int way_of(product_small *s)
{
    tni_text why = { "" };
    CHECK_STATUS(tni_product_prepare(&s->p, &product_place, &why), TN_OK);
    CHECK_STR(why.s, "");
    return tni_product_method_of(&s->p, &product_place);
}

static void our_own_kernel_is_taken_where_it_is_faster_and_so_by_the_next_process(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = product_timed(), found = product_found();
    CHECK_INT(tni_product_method_of(&s.p, &product_place), TNI_BY_LIBRARY);
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    tni_product_forget();
    own.cost = 5;  // timing again would show
    own.runs = 0;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(own.runs, 1);  // its code is loaded
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(own.runs, 1);
    CHECK_INT(product_timed() - timed, 1);
    CHECK_INT(product_found() - found, 1);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);  // the library's is known all the same
    product_end();
}

static void our_own_kernel_is_not_taken_where_it_is_no_faster(void)
{
    product_small s;
    if (!begin_own(&s, 0.495)) return;  // within the clock's noise
    int64_t timed = product_timed();
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK(own.runs > 0);
    tni_product_forget();
    own.cost = 0.1;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(product_timed() - timed, 1);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    product_end();
}

static void a_choice_that_was_made_without_our_own_kernel_is_made_anew(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = product_timed(), found = product_found();
    product_place.launch_small = NULL;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    product_place.launch_small = run_own;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(product_timed() - timed, 2);
    tni_product_forget();
    product_place.launch_small = NULL;
    product_fake->fastest      = 9;
    own.runs                   = 0;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);  // of the same record
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(own.runs, 0);
    CHECK_INT(product_timed() - timed, 2);
    CHECK_INT(product_found() - found, 1);
    product_end();
}

static void our_own_kernel_is_not_chosen_without_timing_nor_in_a_capture(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    product_place.timing = false;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    product_place.timing    = true;
    product_place.capturing = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    product_place.capturing = false;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    product_place.timing = false;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    product_place.timing    = true;
    product_place.capturing = true;
    tni_product_forget();
    CHECK_INT(way_of(&s), TNI_BY_SMALL);  // remembered
    product_end();
}

static void our_own_kernel_that_does_not_run_is_not_chosen(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    own.broken = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    own.broken = false;  // what could not be timed is timed by the next process
    tni_product_forget();
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    tni_product_forget();
    own.broken = true;  // here, though it ran where it was chosen
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    product_end();
}

static void until_our_own_kernel_is_compiled_the_library_serves_and_nothing_is_settled(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = product_timed();
    own.coming    = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY_FOR_NOW);
    CHECK_INT(own.runs, 0);
    own.coming = false;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(product_timed() - timed, 1);
    tni_product_forget();
    own.coming = true;  // chosen by another process, and not compiled for this one yet
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY_FOR_NOW);
    s.p.waits = true;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(product_timed() - timed, 1);
    product_end();
}

static void our_own_kernel_is_not_timed_for_what_it_cannot_do(void)
{
    product_small s;
    if (!begin_own(&s, 0.3)) return;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .scaled = true }));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_gelu_tanh }));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_BF16;
    CHECK(tni_product_of(&s.call, &s.p));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    product_end();
}

// ---- what goes wrong ---------------------------------------------------------------------------

static void what_does_not_run_is_not_chosen(void)
{
    product_small s;
    tni_text      why = { "" };
    if (!product_begin()) return;
    product_make_small(&s);
    product_fake->broken = PRODUCT_FASTEST;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FIRST);
    tni_product_forget();
    product_place.gpu   = "of nothing";
    product_fake->fails = true;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_EARG);
    CHECK(strstr(why.s, "no algorithm"));
    product_place.timing = false;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_EARG);
    CHECK_STATUS(tni_product_run(&s.p, &product_place, &why), TN_EARG);
    product_end();
}

static void a_form_without_an_algorithm_is_refused_and_not_asked_for_again(void)
{
    product_small s;
    tni_text      why = { "" };
    if (!product_begin()) return;
    product_make_small(&s);
    product_fake->algos = 0;
    CHECK_STATUS(tni_product_prepare(&s.p, &product_place, &why), TN_EARG);
    int asked = product_fake->asked;
    CHECK_STATUS(tni_product_run(&s.p, &product_place, &why), TN_EARG);
    CHECK_INT(product_fake->asked, asked);
    product_end();
}

static void a_launch_that_fails_is_told(void)
{
    product_small s;
    tni_text      why = { "" };
    if (!product_begin()) return;
    product_make_small(&s);
    product_prepare_and_run(&s);
    product_fake->fails = true;
    CHECK_STATUS(tni_product_run(&s.p, &product_place, &why), TN_EDEVICE);
    CHECK_STR(why.s, "cuda: multiplying: cuBLASLt: fake: not supported");
    why                  = (tni_text){ "" };
    product_place.device = 1000;
    CHECK_STATUS(tni_product_run(&s.p, &product_place, &why), TN_EDEVICE);
    CHECK(strstr(why.s, "1000"));
    product_end();
}

static void a_kept_choice_that_the_library_refuses_is_made_anew(void)
{
    product_small s;
    if (!product_begin()) return;
    product_make_small(&s);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    int64_t timed = product_timed(), found = product_found();
    tni_product_forget();
    product_fake->algos   = PRODUCT_FASTEST - 1;
    product_fake->fastest = 2;
    CHECK_INT(product_prepare_and_run(&s), 2);
    CHECK_INT(product_timed() - timed, 1);
    CHECK_INT(product_found(), found);
    product_end();
}

// ---- pruned matrices ---------------------------------------------------------------------------

enum { PRUNED_FASTEST = 3, PRUNED_WIDE = 1 };

// Loads the fake cuSPARSELt, too. Its fastest algorithm takes half of `cost` milliseconds,
// cuBLASLt's half of one.
static bool begin_pruned(double cost)
{
    static void *library;
    char         out[1000] = "";
    if (!product_begin()) return false;
    if (!library)
        library = product_compile_fake("fake_cusparselt.c", "libcusparseLt.so.0", out, sizeof out);
    if (!test_that(library != NULL, "the fake library: %s", out)) return false;
    fake_lt_state *(*get)(void);
    *(void **)&get = dlsym(library, "fake_lt_get");
    fake_lt        = get();
    *fake_lt       = (fake_lt_state){ .algos        = 5,
                                      .fastest      = PRUNED_FASTEST,
                                      .wide         = PRUNED_WIDE,
                                      .cost         = cost,
                                      .stream       = product_fake->stream,
                                      .milliseconds = &product_fake->milliseconds };
    tni_pruned_forget();
    return true;
}

static void end_pruned(void)
{
    tni_pruned_forget();
    if (fake_lt) CHECK_INT(fake_lt->matrices + fake_lt->plans, 0);
    product_end();
}

// x (16, 32) times a packed w (48, 32), and what follows.
static bool open_pruned(product_case *c, tni_product *p, const product_after *after, tn_dtype dt)
{
    static const int64_t size[] = { 16, 32, 48 };
    bool                 ok     = CHECK(product_make(c, size, false, true, dt, dt)) &&
              CHECK(tni_product_of(&c->call, p)) && CHECK(product_follow(c, after, c->mem, p));
    if (ok) p->packed = c->mem[PRODUCT_B];
    return ok;
}

static product_after times(double scale)
{
    return (product_after){ .end   = { .activation = TNI_leaf, .scaled = scale != 1 },
                            .scale = scale };
}

// Runs it by the method that is chosen; whether its result is right.
static bool run_pruned(product_case *c, tni_product *p, const product_after *after)
{
    tni_text          why    = { "" };
    double           *want   = product_want(c, after);
    tni_pruned_method method = tni_pruned_method_of(p, &product_place);
    tn_status         s      = method == TNI_PRUNED ? tni_pruned_run(p, &product_place, &why)
                                                    : tni_product_run(p, &product_place, &why);
    bool              ok     = CHECK_STATUS(s, TN_OK) && product_misses(c, want, 1e-2) == 0;
    free(want);
    return ok;
}

// It is timed once, kept on disk, and used with a scale, too.
static void pruned_products_are_chosen_where_they_are_faster(void)
{
    if (!begin_pruned(0.5)) return;
    for (int i = 0; i < 4; i++) {
        product_case  c;
        tni_product   p;
        product_after after = times(i & 1 ? 2 : 1);
        if (!open_pruned(&c, &p, &after, i & 2 ? TN_F16 : TN_BF16)) break;
        CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED_NOT_TIMED);
        CHECK_STR(tni_pruned_words(&p, &product_place), "cuSPARSELt or cuBLASLt");
        tni_pruned_choose(&p, &product_place);
        CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED);
        test_case_result(run_pruned(&c, &p, &after), "case %d", i);
        CHECK_INT(fake_lt->last, PRUNED_FASTEST);
        tni_pruned_forget();
        int runs = fake_lt->runs;
        tni_pruned_choose(&p, &product_place);
        CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED);
        CHECK_STR(tni_pruned_words(&p, &product_place), "cuSPARSELt");
        CHECK_INT(fake_lt->runs, runs);
        tni_pruned_forget();
        setenv("TN_CACHE_DIR", scratch_path(tni_text_of("cache%d", i).s), 1);
        tni_product_forget();
        product_free(&c);
    }
    end_pruned();
}

// So do those that the library does not take, what is added behind them, and all if nothing may be
// timed.
static void plain_products_stay_where_they_are_faster(void)
{
    product_case  c;
    tni_product   p;
    product_after after = times(1);
    if (!begin_pruned(2) || !open_pruned(&c, &p, &after, TN_BF16)) return;
    tni_pruned_choose(&p, &product_place);
    CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED_NOT);
    CHECK(!tni_pruned_words(&p, &product_place));
    CHECK(run_pruned(&c, &p, &after));
    product_place.pruned = true;  // asked for by name
    tni_pruned_choose(&p, &product_place);
    CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED);
    CHECK(run_pruned(&c, &p, &after));
    product_place.timing = false;
    CHECK_INT(tni_pruned_method_of(&p, &product_place), TNI_PRUNED_NOT);
    product_place.timing = true;
    for (int i = 0; i < 7; i++) {
        tni_product q = p;
        if (i == 0) q.packed = NULL;
        if (i == 1) q.batch = 2;
        if (i == 2) q.out = TN_F32;
        if (i == 3) q.epilogue.activation = TNI_relu;
        if (i == 4) q.at[1] += 2;
        if (i == 5) q.x[0].transposed = false;
        if (i == 6) q.epilogue.residual = true;
        tni_pruned_choose(&q, &product_place);
        CHECK_INT(tni_pruned_method_of(&q, &product_place), TNI_PRUNED_NOT);
    }
    product_free(&c);
    end_pruned();
}

// Whatever call fails, the result is right, and nothing is left behind.
static void failures_leave_the_plain_product(void)
{
    int calls = 1;
    for (int at = 1; at <= calls; at++) {
        product_case  c;
        tni_product   p;
        product_after after = times(1);
        if (!begin_pruned(0.5) || !open_pruned(&c, &p, &after, TN_BF16)) return;
        fake_lt->fail_at = at;
        tni_pruned_choose(&p, &product_place);
        if (at == 1) calls = 12;
        test_case_result(run_pruned(&c, &p, &after), "call %d", at);
        CHECK(tni_pruned_method_of(&p, &product_place) != TNI_PRUNED_NOT_TIMED);
        product_free(&c);
        end_pruned();
    }
}

const test_case tests_product_plan[] = {
    TEST(the_library_is_told_every_layout),
    TEST(all_that_can_follow_a_product_is_the_librarys),
    TEST(an_input_that_is_not_aligned_is_refused),
    TEST(the_fastest_is_timed_once_and_found_by_the_next_process),
    TEST(other_gpus_alignments_and_workspaces_are_chosen_for_anew),
    TEST(a_kept_product_follows_its_addresses),
    TEST(a_kept_product_leaves_a_plan_that_is_not_its_own),
    TEST(nothing_is_timed_while_a_stream_is_captured),
    TEST(without_timing_the_first_is_taken_whatever_is_on_disk),
    TEST(choosing_does_not_disturb_what_is_added_to),
    TEST(choosing_with_a_residual_elsewhere_takes_no_memory),
    TEST(a_kept_choice_does_not_disturb_what_is_added_to),
    TEST(big_products_are_timed_less),
    TEST(our_own_kernel_is_taken_where_it_is_faster_and_so_by_the_next_process),
    TEST(our_own_kernel_is_not_taken_where_it_is_no_faster),
    TEST(a_choice_that_was_made_without_our_own_kernel_is_made_anew),
    TEST(our_own_kernel_is_not_chosen_without_timing_nor_in_a_capture),
    TEST(our_own_kernel_that_does_not_run_is_not_chosen),
    TEST(until_our_own_kernel_is_compiled_the_library_serves_and_nothing_is_settled),
    TEST(our_own_kernel_is_not_timed_for_what_it_cannot_do),
    TEST(what_does_not_run_is_not_chosen),
    TEST(a_form_without_an_algorithm_is_refused_and_not_asked_for_again),
    TEST(a_launch_that_fails_is_told),
    TEST(a_kept_choice_that_the_library_refuses_is_made_anew),
    TEST(pruned_products_are_chosen_where_they_are_faster),
    TEST(plain_products_stay_where_they_are_faster),
    TEST(failures_leave_the_plain_product),
    TEST_END,
};
