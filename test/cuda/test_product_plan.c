// test_product_plan.c: choosing and running products, with a cuBLASLt and a driver that work in host
// memory: what is described to the library, what is timed and when, and what is kept.
#include "check.h"
#include "fake_clock.h"
#include "product_kit.h"
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

enum { WORKSPACE = 4096, FIRST = 1, FASTEST = 7 };

// The libraries that `begin` and `begin_pruned` loaded.
static fake_state    *fake;
static fake_lt_state *fake_lt;

// ---- a place -----------------------------------------------------------------------------------

static _Alignas(64) char workspace[WORKSPACE];
static tni_product_env place;

static void *compile_fake(const char *source, const char *soname, char *out, size_t size)
{
    char command[1200];
    snprintf(command, sizeof command,
             TN_CC " -std=c11 -O1 -shared -fPIC -D_GNU_SOURCE -Wl,-soname,%s -Iinclude "
                   "-Isrc -Itest/kits -o '%s' test/cuda/fake/%s test/kits/host.c -lm",
             soname, scratch_path(soname), source);
    if (tree_run(command, out, size) != 0) return NULL;
    return dlopen(scratch_path(soname), RTLD_NOW | RTLD_LOCAL);
}

// Loads the fake before anyone looks for the real one: it is taken since it is in the process. The
// cache is a folder that is empty.
static bool begin(void)
{
    static void *library;
    char         out[1000] = "";
    if (!CHECK(scratch_open())) return false;
    if (!library) library = compile_fake("fake_blaslt.c", "libcublasLt.so.13", out, sizeof out);
    if (!test_that(library != NULL, "the fake library: %s", out)) return false;
    fake_state *(*get)(void);
    *(void **)&get = dlsym(library, "fake_get");
    fake           = get();
    fake->algos    = 12;
    fake->fastest  = FASTEST;
    fake->broken   = 0;
    fake->fails    = false;
    fake->cost     = 0;
    fake->stream   = fake_clock_open(&fake->milliseconds);
    place          = (tni_product_env){ .cu        = &fake_clock_driver,
                                        .gpu       = "fake",
                                        .stream    = fake->stream,
                                        .workspace = (tni_cuptr)(uintptr_t)workspace,
                                        .bytes     = WORKSPACE,
                                        .timing    = true };
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_product_forget();
    return true;
}

static void end(void)
{
    tni_product_forget();
    if (fake) CHECK_INT(fake->alive + fake_clock_left(), 0);
    unsetenv("TN_CACHE_DIR");
    scratch_close();
}

static int64_t timed_now(void)
{
    int64_t timed, found;
    tni_product_counts(&timed, &found);
    return timed;
}

static int64_t found_now(void)
{
    int64_t timed, found;
    tni_product_counts(&timed, &found);
    return found;
}

// ---- what is described -------------------------------------------------------------------------

// Whether a case with something that follows is right in every element and changes nothing else, run by
// the library. done: it can be; it need not be where gelu's input lies at an odd address.
static bool gives(product_case *c, const product_after *after, bool prepared, bool *done,
                  tni_text *why)
{
    tni_product p;
    tn_dtype    out   = c->call.out.dtype;
    int         asked = fake->asked;
    *done             = tni_product_of(&c->call, &p) && product_follow(c, after, c->mem, &p);
    if (!*done) return true;
    p.tf32         = prepared;
    double   *want = product_want(c, after);
    tn_status s    = prepared ? tni_product_prepare(&p, &place, why) : TN_OK;
    if (s == TN_OK) s = tni_product_run(&p, &place, why);
    bool ok = want && s == TN_OK && product_misses(c, want, out == TN_F64 ? 1e-12 : 1e-2) == 0;
    ok      = ok && (fake->asked == asked || fake->reductions == (tni_is_rounded(out) ? 2u : 6u));
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
    if (!begin()) return;
    for (int i = 0; i < MANY; i++) {
        product_case  c;
        product_after after = product_after_of(i / 5 % PRODUCT_AFTERS);
        tni_text      why   = { "" };
        bool          done  = false;
        place.timing        = i % 3 == 0;
        bool ok             = product_draw(&c, (uint64_t)i, types[i % 5][0], types[i % 5][1], 9) &&
                  gives(&c, &after, i % 2, &done, &why);
        test_case_result(ok, "seed %d: %s", i, why.s);
        run += done;
        product_free(&c);
    }
    CHECK(run > MANY / 4);
    CHECK_INT(fake->handles, 1);
    end();
}

// Prepared and not, timed and not, of one row too. Everything is taken but what f64 has not.
static void all_that_can_follow_a_product_is_the_librarys(void)
{
    static const int64_t size[][3] = { { 3, 4, 8 }, { 1, 5, 9 }, { 6, 2, 16 } };
    enum { CASES = PRODUCT_AFTERS * 5 * 3 * 3 };
    if (!begin()) return;
    for (int i = 0; i < CASES; i++) {
        const tn_dtype *t     = types[i / PRODUCT_AFTERS % 5];
        product_after   after = product_after_of(i % PRODUCT_AFTERS);
        const int64_t  *n     = size[i / PRODUCT_AFTERS / 5 % 3];
        int             how   = i / PRODUCT_AFTERS / 15;
        bool            wide = t[1] == TN_F64, done = false;
        bool            takes = !wide || (after.end.activation == TNI_leaf && !after.end.bias);
        product_case    c;
        tni_text        why = { "" };
        place.timing        = how == 1;
        bool ok             = product_make(&c, n, false, true, t[0], t[1]);
        if (ok) product_fill(&c, (uint64_t)i);
        ok = ok && gives(&c, &after, how > 0, &done, &why) && done == takes;
        test_case_result(ok, "case %d: %s", i, why.s);
        product_free(&c);
    }
    end();
}

// ---- what is chosen ----------------------------------------------------------------------------

// A product of 3 x 4 by 4 x 5 in memory of its own.
typedef struct {
    tni_product p;
    tni_call    call;
    tni_arg     in[2];
    _Alignas(64) char a[64];
    _Alignas(64) char b[128];
    _Alignas(64) char out[64];
} small;

static tni_arg matrix(char *mem, int64_t rows, int64_t cols)
{
    return (tni_arg){ TN_F32, 2, { rows, cols }, { cols, 1 }, mem };
}

static void make(small *s)
{
    s->in[0] = matrix(s->a, 3, 4);
    s->in[1] = matrix(s->b, 4, 5);
    s->call  = (tni_call){ .op = TNI_matmul, .nin = 2, .in = s->in, .out = matrix(s->out, 3, 5) };
    for (int i = 0; i < 12; i++) ((float *)s->a)[i] = 1;
    for (int i = 0; i < 20; i++) ((float *)s->b)[i] = 1;
    for (int i = 0; i < 15; i++) ((float *)s->out)[i] = 8;
    CHECK(tni_product_of(&s->call, &s->p));
}

static void an_input_that_is_not_aligned_is_refused(void)
{
    _Alignas(64) char z[128];
    small             s;
    tni_text          why = { "" };
    if (!begin()) return;
    make(&s);
    s.in[0].size[0] = s.call.out.size[0] = 1;  // of one row, whose length is no multiple of 8
    CHECK(tni_product_of(&s.call, &s.p));
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_gelu_tanh,
                                                                  .input      = true }));
    s.p.input = z + 8;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_EARG);
    s.p.input = z + 16;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_OK);
    end();
}

static int prepare_and_run(small *s)
{
    tni_text why = { "" };
    CHECK_STATUS(tni_product_prepare(&s->p, &place, &why), TN_OK);
    CHECK_STATUS(tni_product_run(&s->p, &place, &why), TN_OK);
    CHECK_STR(why.s, "");
    return fake->last;
}

static void the_fastest_is_timed_once_and_found_by_the_next_process(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    int64_t timed = timed_now(), found = found_now();
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_INT(timed_now() - timed, 1);
    CHECK_INT(found_now() - found, 0);
    int runs = fake->runs;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_INT(fake->runs - runs, 1);
    tni_product_forget();
    fake->fastest = 9;  // timing again would show
    runs          = fake->runs;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_INT(fake->runs - runs, 2);  // one loads its code
    CHECK_INT(timed_now() - timed, 1);
    CHECK_INT(found_now() - found, 1);
    end();
}

static void other_gpus_alignments_and_workspaces_are_chosen_for_anew(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    int64_t timed = timed_now();
    prepare_and_run(&s);
    place.bytes /= 2;
    prepare_and_run(&s);
    CHECK_INT(timed_now() - timed, 2);
    s.in[1].data += 4;
    CHECK(tni_product_of(&s.call, &s.p));
    prepare_and_run(&s);
    CHECK_INT(timed_now() - timed, 3);
    tni_product_forget();
    place.gpu = "another";
    prepare_and_run(&s);
    CHECK_INT(timed_now() - timed, 4);
    end();
}

// A product that is kept and gets other addresses: it follows them to the plan of their alignment, and to
// what the library is told of those that stand in a description, also behind another of the same form.
static void a_kept_product_follows_its_addresses(void)
{
    static const tni_product_epilogue with_bias = { .bias = true };
    small                             s, other;
    float                             first[8], second[8];
    if (!begin()) return;
    for (int i = 0; i < 8; i++) first[i] = 1, second[i] = 2;
    make(&s);
    make(&other);
    CHECK(tni_product_add_epilogue(&s.p, &with_bias) &&
          tni_product_add_epilogue(&other.p, &with_bias));
    s.p.bias                = (char *)first;
    other.p.bias            = (char *)second;
    struct tni_ltplan *plan = NULL;
    for (int i = 0; i < 3; i++) {
        prepare_and_run(&s);
        prepare_and_run(&other);
        CHECK_NEAR(((float *)s.out)[14], 4 + 1 + i % 2, 0);
        CHECK_NEAR(((float *)other.out)[14], 4 + 2, 0);
        CHECK(s.p.plan == other.p.plan && (!plan || s.p.plan == plan));
        plan     = s.p.plan;
        s.p.bias = (char *)(i % 2 ? first : second);
    }
    int64_t timed = timed_now();
    s.p.at[1] += 4;  // the fake refuses an algorithm of another alignment
    prepare_and_run(&s);
    CHECK(s.p.plan != plan);
    CHECK_INT(timed_now() - timed, 1);
    s.p.at[1] -= 4;
    prepare_and_run(&s);
    CHECK(s.p.plan == plan);
    end();
}

// And to that of another end, place or generation of plans.
static void a_kept_product_leaves_a_plan_that_is_not_its_own(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    prepare_and_run(&s);
    struct tni_ltplan *plan = s.p.plan;
    CHECK_INT(tni_product_method_of(&s.p, &place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == plan);
    place.bytes /= 2;
    CHECK_INT(tni_product_method_of(&s.p, &place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == NULL);
    place.bytes *= 2;
    CHECK_INT(tni_product_method_of(&s.p, &place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == plan);
    s.p.tf32 = true;
    prepare_and_run(&s);
    CHECK(s.p.plan != plan);
    s.p.tf32 = false;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_relu }));
    prepare_and_run(&s);
    CHECK(s.p.plan && s.p.plan != plan);
    tni_product_forget();
    CHECK_INT(tni_product_method_of(&s.p, &place), TNI_BY_LIBRARY);
    CHECK(s.p.plan == NULL);
    end();
}

static void nothing_is_timed_while_a_stream_is_captured(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    int64_t timed   = timed_now();
    int     runs    = fake->runs;
    place.capturing = true;
    CHECK_INT(prepare_and_run(&s), FIRST);
    CHECK_INT(fake->runs - runs, 1);
    CHECK_INT(timed_now(), timed);
    place.capturing = false;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    place.capturing = true;
    tni_product_forget();
    CHECK_INT(prepare_and_run(&s), FASTEST);  // remembered
    CHECK_INT(timed_now() - timed, 1);
    end();
}

static void without_timing_the_first_is_taken_whatever_is_on_disk(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    CHECK_INT(prepare_and_run(&s), FASTEST);
    int64_t timed = timed_now(), found = found_now();
    place.timing = false;
    CHECK_INT(prepare_and_run(&s), FIRST);
    place.timing = true;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_INT(timed_now(), timed);
    CHECK_INT(found_now(), found);
    end();
}

static void choosing_does_not_disturb_what_is_added_to(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_NEAR(((float *)s.out)[14], 8 + 4, 0);
    // Without memory for a result to time on, the first is taken and nothing is remembered.
    tni_product_forget();
    place.gpu                   = "without memory";
    fake_clock_driver.mem_alloc = fake_clock_no_memory;
    int64_t timed               = timed_now();
    CHECK_INT(prepare_and_run(&s), FIRST);
    CHECK_INT(timed_now(), timed);
    fake_clock_open(&fake->milliseconds);
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_NEAR(((float *)s.out)[14], 8 + 3 * 4, 0);
    end();
}

// A residual that lies elsewhere is only read: then D is written, and nothing else is needed.
static void choosing_with_a_residual_elsewhere_takes_no_memory(void)
{
    small s;
    float more[16];
    if (!begin()) return;
    make(&s);
    for (int i = 0; i < 15; i++) more[i] = 2;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual                = (const char *)more;
    fake_clock_driver.mem_alloc = fake_clock_no_memory;
    CHECK_INT(prepare_and_run(&s), FASTEST);
    fake_clock_open(&fake->milliseconds);
    CHECK_NEAR(((float *)s.out)[14], 2 + 4, 0);
    CHECK_NEAR(more[14], 2, 0);
    end();
}

// Neither warmed up by a choice of the disk nor timed where D is what is added.
static void a_kept_choice_does_not_disturb_what_is_added_to(void)
{
    small    s;
    tni_text why = { "" };
    if (!begin()) return;
    make(&s);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_OK);
    tni_product_forget();
    int64_t found = found_now();
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_OK);
    CHECK_INT(found_now() - found, 1);
    CHECK_NEAR(((float *)s.out)[14], 8, 0);
    end();
}

static void big_products_are_timed_less(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    int runs   = fake->runs;
    fake->cost = 0.001;
    prepare_and_run(&s);
    int often  = fake->runs - runs;
    fake->cost = 5;
    tni_product_forget();
    place.gpu = "slower";
    runs      = fake->runs;
    prepare_and_run(&s);
    test_that(often > 60 && fake->runs - runs < 20, "%d and %d runs", often, fake->runs - runs);
    end();
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
    fake->milliseconds += own.cost;
    own.runs++;
    for (int64_t i = 0; i < p->rows * p->cols; i++) ((float *)out)[i] = 4;
    return TNI_CU_OK;
}

// Begins with a kernel of our own that takes so long; the library's fastest takes 0.5.
static bool begin_own(small *s, double cost)
{
    if (!begin()) return false;
    own.cost           = cost;
    own.broken         = false;
    own.coming         = false;
    own.runs           = 0;
    place.launch_small = run_own;
    place.small_ready  = own_is_there;
    place.session      = &own;
    make(s);
    return true;
}

// How the product is done once it is prepared.
static int way_of(small *s)
{
    tni_text why = { "" };
    CHECK_STATUS(tni_product_prepare(&s->p, &place, &why), TN_OK);
    CHECK_STR(why.s, "");
    return tni_product_method_of(&s->p, &place);
}

static void our_own_kernel_is_taken_where_it_is_faster_and_so_by_the_next_process(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = timed_now(), found = found_now();
    CHECK_INT(tni_product_method_of(&s.p, &place), TNI_BY_LIBRARY);
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    tni_product_forget();
    own.cost = 5;  // timing again would show
    own.runs = 0;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(own.runs, 1);  // its code is loaded
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(own.runs, 1);
    CHECK_INT(timed_now() - timed, 1);
    CHECK_INT(found_now() - found, 1);
    CHECK_INT(prepare_and_run(&s), FASTEST);  // the library's is known all the same
    end();
}

static void our_own_kernel_is_not_taken_where_it_is_no_faster(void)
{
    small s;
    if (!begin_own(&s, 0.495)) return;  // within the clock's noise
    int64_t timed = timed_now();
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK(own.runs > 0);
    tni_product_forget();
    own.cost = 0.1;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(timed_now() - timed, 1);
    CHECK_INT(prepare_and_run(&s), FASTEST);
    end();
}

static void a_choice_that_was_made_without_our_own_kernel_is_made_anew(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = timed_now(), found = found_now();
    place.launch_small = NULL;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    place.launch_small = run_own;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(timed_now() - timed, 2);
    tni_product_forget();
    place.launch_small = NULL;
    fake->fastest      = 9;
    own.runs           = 0;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);  // of the same record
    CHECK_INT(prepare_and_run(&s), FASTEST);
    CHECK_INT(own.runs, 0);
    CHECK_INT(timed_now() - timed, 2);
    CHECK_INT(found_now() - found, 1);
    end();
}

static void our_own_kernel_is_not_chosen_without_timing_nor_in_a_capture(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    place.timing = false;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    place.timing    = true;
    place.capturing = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    place.capturing = false;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    place.timing = false;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    place.timing    = true;
    place.capturing = true;
    tni_product_forget();
    CHECK_INT(way_of(&s), TNI_BY_SMALL);  // remembered
    end();
}

static void our_own_kernel_that_does_not_run_is_not_chosen(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    own.broken = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    own.broken = false;  // what could not be timed is timed by the next process
    tni_product_forget();
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    tni_product_forget();
    own.broken = true;  // here, though it ran where it was chosen
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(prepare_and_run(&s), FASTEST);
    end();
}

static void until_our_own_kernel_is_compiled_the_library_serves_and_nothing_is_settled(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    int64_t timed = timed_now();
    own.coming    = true;
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY_FOR_NOW);
    CHECK_INT(own.runs, 0);
    own.coming = false;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(timed_now() - timed, 1);
    tni_product_forget();
    own.coming = true;  // chosen by another process, and not compiled for this one yet
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY_FOR_NOW);
    s.p.waits = true;
    CHECK_INT(way_of(&s), TNI_BY_SMALL);
    CHECK_INT(timed_now() - timed, 1);
    end();
}

static void our_own_kernel_is_not_timed_for_what_it_cannot_do(void)
{
    small s;
    if (!begin_own(&s, 0.3)) return;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .scaled = true }));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_gelu_tanh }));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_BF16;
    CHECK(tni_product_of(&s.call, &s.p));
    CHECK_INT(way_of(&s), TNI_BY_LIBRARY);
    CHECK_INT(own.runs, 0);
    end();
}

// ---- what goes wrong ---------------------------------------------------------------------------

static void what_does_not_run_is_not_chosen(void)
{
    small    s;
    tni_text why = { "" };
    if (!begin()) return;
    make(&s);
    fake->broken = FASTEST;
    CHECK_INT(prepare_and_run(&s), FIRST);
    tni_product_forget();
    place.gpu   = "of nothing";
    fake->fails = true;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_EARG);
    CHECK(strstr(why.s, "no algorithm"));
    place.timing = false;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_EARG);
    CHECK_STATUS(tni_product_run(&s.p, &place, &why), TN_EARG);
    end();
}

static void a_form_without_an_algorithm_is_refused_and_not_asked_for_again(void)
{
    small    s;
    tni_text why = { "" };
    if (!begin()) return;
    make(&s);
    fake->algos = 0;
    CHECK_STATUS(tni_product_prepare(&s.p, &place, &why), TN_EARG);
    int asked = fake->asked;
    CHECK_STATUS(tni_product_run(&s.p, &place, &why), TN_EARG);
    CHECK_INT(fake->asked, asked);
    end();
}

static void a_launch_that_fails_is_told(void)
{
    small    s;
    tni_text why = { "" };
    if (!begin()) return;
    make(&s);
    prepare_and_run(&s);
    fake->fails = true;
    CHECK_STATUS(tni_product_run(&s.p, &place, &why), TN_EDEVICE);
    CHECK_STR(why.s, "cuda: multiplying: cuBLASLt: fake: not supported");
    why          = (tni_text){ "" };
    place.device = 1000;
    CHECK_STATUS(tni_product_run(&s.p, &place, &why), TN_EDEVICE);
    CHECK(strstr(why.s, "1000"));
    end();
}

static void a_kept_choice_that_the_library_refuses_is_made_anew(void)
{
    small s;
    if (!begin()) return;
    make(&s);
    CHECK_INT(prepare_and_run(&s), FASTEST);
    int64_t timed = timed_now(), found = found_now();
    tni_product_forget();
    fake->algos   = FASTEST - 1;
    fake->fastest = 2;
    CHECK_INT(prepare_and_run(&s), 2);
    CHECK_INT(timed_now() - timed, 1);
    CHECK_INT(found_now(), found);
    end();
}

// ---- pruned matrices ---------------------------------------------------------------------------

enum { PRUNED_FASTEST = 3, PRUNED_WIDE = 1 };

// Loads the fake cuSPARSELt, too. Its fastest algorithm takes half of `cost` milliseconds, cuBLASLt's half of one.
static bool begin_pruned(double cost)
{
    static void *library;
    char         out[1000] = "";
    if (!begin()) return false;
    if (!library)
        library = compile_fake("fake_cusparselt.c", "libcusparseLt.so.0", out, sizeof out);
    if (!test_that(library != NULL, "the fake library: %s", out)) return false;
    fake_lt_state *(*get)(void);
    *(void **)&get = dlsym(library, "fake_lt_get");
    fake_lt        = get();
    *fake_lt       = (fake_lt_state){ .algos        = 5,
                                      .fastest      = PRUNED_FASTEST,
                                      .wide         = PRUNED_WIDE,
                                      .cost         = cost,
                                      .stream       = fake->stream,
                                      .milliseconds = &fake->milliseconds };
    tni_pruned_forget();
    return true;
}

static void end_pruned(void)
{
    tni_pruned_forget();
    if (fake_lt) CHECK_INT(fake_lt->matrices + fake_lt->plans, 0);
    end();
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
    tni_pruned_method method = tni_pruned_method_of(p, &place);
    tn_status         s      = method == TNI_PRUNED ? tni_pruned_run(p, &place, &why)
                                                    : tni_product_run(p, &place, &why);
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
        CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED_NOT_TIMED);
        CHECK_STR(tni_pruned_words(&p, &place), "cuSPARSELt or cuBLASLt");
        tni_pruned_choose(&p, &place);
        CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED);
        test_case_result(run_pruned(&c, &p, &after), "case %d", i);
        CHECK_INT(fake_lt->last, PRUNED_FASTEST);
        tni_pruned_forget();
        int runs = fake_lt->runs;
        tni_pruned_choose(&p, &place);
        CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED);
        CHECK_STR(tni_pruned_words(&p, &place), "cuSPARSELt");
        CHECK_INT(fake_lt->runs, runs);
        tni_pruned_forget();
        setenv("TN_CACHE_DIR", scratch_path(tni_text_of("cache%d", i).s), 1);
        tni_product_forget();
        product_free(&c);
    }
    end_pruned();
}

// So do those that the library does not take, what is added behind them, and all if nothing may be timed.
static void plain_products_stay_where_they_are_faster(void)
{
    product_case  c;
    tni_product   p;
    product_after after = times(1);
    if (!begin_pruned(2) || !open_pruned(&c, &p, &after, TN_BF16)) return;
    tni_pruned_choose(&p, &place);
    CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED_NOT);
    CHECK(!tni_pruned_words(&p, &place));
    CHECK(run_pruned(&c, &p, &after));
    place.pruned = true;  // asked for by name
    tni_pruned_choose(&p, &place);
    CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED);
    CHECK(run_pruned(&c, &p, &after));
    place.timing = false;
    CHECK_INT(tni_pruned_method_of(&p, &place), TNI_PRUNED_NOT);
    place.timing = true;
    for (int i = 0; i < 7; i++) {
        tni_product q = p;
        if (i == 0) q.packed = NULL;
        if (i == 1) q.batch = 2;
        if (i == 2) q.out = TN_F32;
        if (i == 3) q.epilogue.activation = TNI_relu;
        if (i == 4) q.at[1] += 2;
        if (i == 5) q.x[0].transposed = false;
        if (i == 6) q.epilogue.residual = true;
        tni_pruned_choose(&q, &place);
        CHECK_INT(tni_pruned_method_of(&q, &place), TNI_PRUNED_NOT);
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
        tni_pruned_choose(&p, &place);
        if (at == 1) calls = 12;
        test_case_result(run_pruned(&c, &p, &after), "call %d", at);
        CHECK(tni_pruned_method_of(&p, &place) != TNI_PRUNED_NOT_TIMED);
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
