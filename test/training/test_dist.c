// test_dist.c: worlds of several ranks. What launchers set needs no MPI; the rest runs this program
// as the ranks, `tenon-tests --rank NAME`, by `tenon launch`: with the mpiexec in PATH, and with a
// stand-in for NCCL, in host memory (test/standin/nccl_standin.c).
#include "cli_kit.h"
#include "dist/place.h"
#include "engine/engine.h"
#include "tensor/context.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <time.h>
#include <unistd.h>

// ---- launchers

// Variables that a launcher would set, and the place that they say.
typedef struct {
    const char *set;  // "NAME=value" with spaces between
    const char *says;
} launched;

static const launched cases[] = {
    { "", "rank 0 of 1" },
    { "RANK=2 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "torchrun rank 2 of 4, 1 of 2" },
    { "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=1",
      "Open MPI rank 1 of 3, 0 of 1, mpi" },
    { "PMI_RANK=7 PMI_SIZE=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4",
      "MPICH rank 7 of 8, 3 of 4, mpi" },
    { "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0",
      "Slurm rank 1 of 2, 0 of -1" },
    { "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMIX_RANK=1",
      "Slurm rank 1 of 2, -1 of -1, mpi" },
    { "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0", "rank 0 of 1" },  // a batch script
    { "RANK=1 PMI_RANK=0 PMI_SIZE=2",
      "MPICH rank 0 of 2, -1 of -1, mpi" },  // the first complete set
    { "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
      "RANK 0 of WORLD_SIZE 1 is not OMPI_COMM_WORLD_RANK 1 of 2: unset those of another run" },
    { "RANK=1 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2", "torchrun rank 1 of 2, -1 of -1" },
    { "RANK=5 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=x PMI_RANK=1 PMI_SIZE=2",  // it was started by mpiexec
      "torchrun rank 5 of 8, -1 of -1" },
    { "RANK=4 WORLD_SIZE=4", "RANK is \"4\" and WORLD_SIZE is \"4\", which is no rank of a world" },
    { "RANK=-1 WORLD_SIZE=4",
      "RANK is \"-1\" and WORLD_SIZE is \"4\", which is no rank of a world" },
    { "PMI_RANK=1x PMI_SIZE=4",
      "PMI_RANK is \"1x\" and PMI_SIZE is \"4\", which is no rank of a world" },
};

static void forget_launchers(void)
{
    for (int i = 0; tn_dist_variable(i); i++) unsetenv(tn_dist_variable(i));
}

static void set_variables(const char *list)
{
    char text[256], *rest = text, *one;
    snprintf(text, sizeof text, "%s", list);
    forget_launchers();
    while ((one = strtok_r(rest, " ", &rest)) != NULL) {
        char *equal = strchr(one, '=');
        *equal      = 0;
        setenv(one, equal + 1, 1);
    }
}

static void launchers_say_rank_and_size(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tni_world_place p;
        tni_text        says;
        set_variables(cases[i].set);
        int  rank, size;
        bool by_one = tn_dist_launched(&rank, &size);
        if (tni_world_place_find(&p, &says)) {
            CHECK_INT(by_one, p.launcher != NULL);
            CHECK(rank == p.rank && size == p.size);
            says = tni_text_of("%s%srank %d of %d", p.launcher ? p.launcher : "",
                               p.launcher ? " " : "", p.rank, p.size);
            if (p.launcher)
                tni_text_add(&says, ", %d of %d%s", p.local_rank, p.local_size,
                             p.mpi ? ", mpi" : "");
        }
        test_case_result(!strcmp(says.s, cases[i].says), "%s: %s", cases[i].set, says.s);
    }
    forget_launchers();
}

static const launched meetings[] = {
    { "MASTER_ADDR=a.b MASTER_PORT=29500", "a.b 29500" },
    { "MASTER_ADDR=a.b MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True", "a.b 29501" },
    { "MASTER_ADDR=a.b MASTER_PORT=29500 TN_PORT=7", "a.b 7" },
    { "SLURM_JOB_ID=70001 SLURM_JOB_NODELIST=node[003-007,9],x", "node003 30001" },
    { "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=a1,a2 SLURM_STEP_NODELIST=b7", "b7 20005" },
    { "MASTER_ADDR=a.b", "rank 0 is nowhere to be met: MASTER_ADDR and MASTER_PORT are not set" },
    { "MASTER_ADDR=a.b MASTER_PORT=x", "port -1 is none: MASTER_PORT is \"x\", TN_PORT is \"\"" },
};

static void launchers_say_where_to_meet(void)
{
    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++) {
        tni_world_place   p = { .size = 2 };
        tni_meeting_place m;
        tni_text          says;
        set_variables(meetings[i].set);
        if (tni_meeting_place_find(&p, &m, &says)) says = tni_text_of("%s %d", m.host, m.port);
        test_case_result(!strcmp(says.s, meetings[i].says), "%s: %s", meetings[i].set, says.s);
    }
    forget_launchers();
}

static void one_rank_needs_no_engine(void)
{
    forget_launchers();
    tn_ctx  *cx = tn_open("cpu");
    tn_dist *d  = tn_dist_open(cx, (tn_dist_opts){ 0 });
    CHECK(d != NULL);
    CHECK_INT(tn_dist_rank(d), 0);
    CHECK_INT(tn_dist_size(d), 1);
    CHECK_STR(tn_dist_engine(d), "none");
    CHECK_STATUS(tn_dist_barrier(d), TN_OK);
    tn_dist_close(d);
    CHECK_INT(tn_dist_rank(NULL), 0);
    CHECK_INT(tn_dist_size(NULL), 1);
    CHECK_STATUS(tn_dist_barrier(NULL), TN_OK);
    CHECK_STATUS(tn_error(cx), TN_OK);
    tn_close(cx);
}

static void refused(tn_dist_opts o, const char *set, const char *text)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu" });
    tn_on_error(cx, NULL, NULL);
    set_variables(set);
    CHECK(tn_dist_open(cx, o) == NULL);
    CHECK_STR(tn_error_text(cx), text);
    forget_launchers();
    // The world NULL is one rank, but not for a program that has not noticed.
    tn_optim *opt = tn_sgd(tn_nn_linear(cx, 2, 2), (tn_sgd_opts){ .lr = 0.1f });
    CHECK_STATUS(tn_optim_distribute(opt, NULL, (tn_distribute_opts){ 0 }), TN_EARG);
    tn_error_clear(cx);
    CHECK_STATUS(tn_optim_distribute(opt, NULL, (tn_distribute_opts){ 0 }), TN_OK);
    tn_close(cx);
}

static void a_world_that_nothing_connects_is_refused_with_the_command(void)
{
    refused(
        (tn_dist_opts){ 0 }, "RANK=1 WORLD_SIZE=4",
        "dist_open: 4 ranks on cpu need MPI, and torchrun started no MPI processes: tenon launch -n 4 "
        "PROGRAM, or mpiexec -n 4 PROGRAM");
    refused((tn_dist_opts){ 0 }, "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0",
            "dist_open: 2 ranks on cpu need MPI, for which srun has to open a connection: srun "
            "--mpi=pmix -n 2 PROGRAM");
    refused(
        (tn_dist_opts){ .size = 3 }, "",
        "dist_open: 3 ranks on cpu need MPI, and the program's arguments started no MPI processes: "
        "tenon launch -n 3 PROGRAM, or mpiexec -n 3 PROGRAM");
    refused((tn_dist_opts){ .rank = 3, .size = 3 }, "", "dist_open: rank 3 of a world of 3");
    refused((tn_dist_opts){ .engine = "pigeons" }, "",
            "dist_open: there is no engine \"pigeons\"; mpi and nccl are");
    refused((tn_dist_opts){ .timeout = -1 }, "", "dist_open: timeout -1 is no number of seconds");
    refused((tn_dist_opts){ 0 }, "RANK=9 WORLD_SIZE=2",
            "dist_open: RANK is \"9\" and WORLD_SIZE is \"2\", which is no rank of a world");
}

// ---- random numbers

enum { ROWS = 9, COLUMNS = 7, HEADS = 2, TIME = 6 };

// Draws for items first .. first + n - 1 of ROWS, by every op that takes a tensor, into a list of
// f64; *each: of an item.
static void draw_items(int64_t first, int64_t n, double *to, int64_t *each)
{
    tn_ctx *cx = tn_open("cpu");
    tn_random_shard(cx, first, n, ROWS);
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(n, COLUMNS));
    tn_tensor *a   = tn_ones(cx, TN_F32, TN_SHAPE(n, HEADS, TIME, 4));
    tn_tensor *y[] = {
        tn_dropout(x, 0.5, true),
        tn_rand_like(x),
        tn_randn_like(tn_cast(x, TN_F64)),
        tn_bernoulli(tn_mul_s(x, 0.5)),
        tn_dropout(tn_ones(cx, TN_F32, TN_SHAPE(2 * n, 3)), 0.5, true),  // a multiple of the items
        tn_cast(tn_multinomial(x, 1), TN_F32),
        tn_sum(tn_sum(tn_attention(a, a, a, (tn_attention_opts){ .dropout = 0.5 }), -1), 1),
    };
    *each = 0;
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        y[i] = tn_reshape(tn_cast(y[i], TN_F64), TN_SHAPE(n, -1));
        *each += tn_size(y[i], 1);
    }
    tn_tensor *all = tn_concat(sizeof y / sizeof *y, y, 1);
    CHECK_STATUS(tn_read(all, TN_F64, to, n * *each), TN_OK);
    tn_close(cx);
}

// Ranks with parts of a batch draw for each item what one process with all of them would draw, also
// where a part begins in the middle of a counter's numbers.
static void items_have_their_random_numbers_on_any_rank(void)
{
    static const int cuts[] = { 1, 3, 4, 8 };
    double           whole[ROWS * 64], part[ROWS * 64];
    int64_t          each;
    draw_items(0, ROWS, whole, &each);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        draw_items(0, cuts[i], part, &each);
        draw_items(cuts[i], ROWS - cuts[i], part + cuts[i] * each, &each);
        test_case_result(!memcmp(whole, part, (size_t)(ROWS * each) * sizeof *part),
                         "cut at item %d", cuts[i]);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- ranks by tenon launch

static bool has_mpi(void)
{
    return begin() && system("mpiexec --version >/dev/null 2>&1") == 0;
}

// Each launch has a folder of its own for what Open MPI keeps of it: the one that all share is
// removed by the last to end, which one that begins may not notice (session_dir.c).
#define LAUNCH "OMPI_MCA_orte_tmpdir_base=$(mktemp -d \"$PWD/mXXXXXX\") tenon launch -n "
#define STANDIN                                                                         \
    "env TN_NCCL='" TN_BUILD_DIR "/libnccl_standin.so' RANK_ENGINE=nccl TN_DEVICE=cpu " \
    "'" TN_BUILD_DIR "/tenon' launch --engine nccl -n "
#define RANK " '" TN_BUILD_DIR "/tenon-tests' --rank "
#define HERE "here:1: "
#define NEED_MPI() \
    if (!has_mpi()) SKIP("there is no mpiexec in PATH")

// The ways to start ranks that there are here: NULL after the last.
static const char *const *launches(void)
{
    static const char *const both[] = { STANDIN, LAUNCH, NULL };
    static const char *const one[]  = { STANDIN, NULL };
    return has_mpi() ? both : one;
}

static void ranks_meet_and_their_lines_are_numbered(void)
{
    if (!begin()) return;
    runs(0, STANDIN "3" RANK "meet 2>&1");
    prints("[0] rank 0 of 3 by nccl\n");
    prints("[2] rank 2 of 3 by nccl\n");
    runs(0, STANDIN "2" RANK "reopen 2>&1");
    prints("[1] opened twice\n");
    // As torchrun and srun start them, without a launcher of ours.
    runs(0, "export TN_NCCL='" TN_BUILD_DIR "/libnccl_standin.so' RANK_ENGINE=nccl; "
            "for r in 1 0; do RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 "
            "MASTER_PORT=$((20000 + $$ %% 20000))" RANK "meet & done; wait");
    prints("rank 1 of 2 by nccl\n");
    runs(0, "export TN_NCCL='" TN_BUILD_DIR "/libnccl_standin.so' RANK_ENGINE=nccl; "
            "for r in 1 0; do SLURM_PROCID=$r SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=$$ "
            "SLURM_JOB_NODELIST=127.0.0.1" RANK "meet & done; wait");
    prints("rank 1 of 2 by nccl\n");
    NEED_MPI();
    runs(0, LAUNCH "3" RANK "meet 2>&1");
    prints("[0] rank 0 of 3 by mpi\n");
    prints("[2] rank 2 of 3 by mpi\n");
    runs(0, LAUNCH "2" RANK "reopen 2>&1");
    prints("[1] opened twice\n");
}

// Runs that fail wait a while, so they run side by side.
static void a_failure_is_named_by_the_others_and_started_again(void)
{
    NEED_MPI();
    double before = seconds();
    runs(
        0,
        "(" LAUNCH "3" RANK "killed; echo ends with $?) >a 2>&1 & "
        "(" LAUNCH "3" RANK "fail; echo ends with $?) >b 2>&1 & "
        "(" LAUNCH "2" RANK "early >e 2>&1) & "
        "(RANK=0 WORLD_SIZE=1 " LAUNCH "2 --restarts 2" RANK "second; echo ends with $?) >c 2>&1 & "
        "(" LAUNCH
        "2 sh -c 'printf \"%%b\" \"a\\\\0000b\"; sleep 30 & exit 3'; echo ends with $?) >d 2>&1; wait");
    test_that(seconds() - before < 20, "%g seconds", seconds() - before);
    runs(1, "cat a; grep -q 'ends with 0' a");
    prints("[0] " HERE "dist_barrier: rank 1 (process ");
    prints("[2] " HERE "dist_barrier: rank 1 (process ");
    prints(" has died\n");
    prints("[1] tenon launch: ended by signal 9, Killed\n");
    runs(1, "cat b; grep -q 'ends with 0' b");
    prints("[0] " HERE "dist_barrier: rank 1 (process ");
    prints(" failed: add: a is NULL (");
    runs(0, "cat e");
    prints("[0] " HERE "dist_barrier: rank 1 (process ");
    prints(" left after 0 collectives\n");
    runs(0, "tr '\\0' 0 <d");  // a process that the rank started has its output, and does not end
    prints("[0] a0b\n");
    prints("ends with 3\n");
    runs(0, "cat c");
    prints("restart 1 of 2\n");
    prints("ends with 0\n");
    CHECK(strstr(out, "restart 2 of 2") == NULL);
}

static void a_wrong_command_line_of_launch_is_refused(void)
{
    if (!begin()) return;
    runs(2, LAUNCH "2 2>&1");
    prints("tenon launch: a program is needed");
    runs(2, "tenon launch true 2>&1");
    prints("tenon launch: the number of ranks is needed, -n N");
    runs(2, "tenon launch -n 0 true 2>&1");
    prints("tenon launch: -n needs a number of ranks, not: 0");
    runs(1, "PATH= tenon launch -n 2 true 2>&1");
    prints("there is no mpiexec in PATH");
}

// What `launched` prints are lines "step 3 loss 1.25" of each rank, in order: reads those of one
// rank. Returns how many; *bits: what it says of its parameters at the end.
enum { STEPS = 50 };

static int read_losses(const char *rank, double loss[STEPS], char bits[32])
{
    int    n    = 0;
    size_t skip = strlen(rank);
    *bits       = 0;
    for (const char *line = out; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        if (strncmp(line, rank, skip) != 0) continue;
        if (n < STEPS && sscanf(line + skip, "loss %lf", &loss[n]) == 1) n++;
        sscanf(line + skip, "bits %31s", bits);
    }
    return n;
}

// Ranks with a part of each batch train as one process with all of it, and have the same bits.
static void ranks_train_as_one(void)
{
    static const struct {
        const char *name;
        double      within;
    } runs_of[] = { { "train", 1e-5 }, { "train64", 1e-12 } };
    if (!begin()) return;
    for (int k = 0; k < 2; k++) {
        double one[STEPS], some[STEPS];
        char   bits[32], first[32], rank[8];
        runs(0, "'" TN_BUILD_DIR "/tenon-tests' --rank %s", runs_of[k].name);
        CHECK_INT(read_losses("", one, bits), STEPS);
        CHECK(one[STEPS - 1] < 0.9 * one[0]);
        for (int way = 0; launches()[way / 2]; way++) {
            int n = way % 2 ? 4 : 2;
            runs(0, "%s%d" RANK "%s 2>&1", launches()[way / 2], n, runs_of[k].name);
            for (int r = 0; r < n; r++) {
                snprintf(rank, sizeof rank, "[%d] ", r);
                CHECK_INT(read_losses(rank, some, r ? bits : first), r ? 0 : STEPS);
                if (r) CHECK_STR(bits, first);
            }
            read_losses("[0] ", some, first);
            for (int i = 0; i < STEPS; i++)
                test_case_result(fabs(some[i] - one[i]) <= runs_of[k].within * fabs(one[i]),
                                 "%s: %d ranks, step %d: %.15g, not %.15g", runs_of[k].name, n, i,
                                 some[i], one[i]);
        }
    }
}

// Buckets and sharded state change nothing but the order of sums; without clipping not even that,
// at two ranks. Buckets are sent while the backward pass goes on: the plan has steps between one
// and whoever waits for it.
static void buckets_and_sharded_state_train_as_one(void)
{
    static const struct {
        const char *set;   // the number of ranks, and variables
        bool        bits;  // that of the first with bits
        double      within;
    } way[] = {
        { "3 RANK_BUCKET=64", false, 1e-5 },
        { "2 RANK_SHARD=1", false, 1e-5 },
        { "4 RANK_SHARD=1 RANK_BUCKET=64", false, 1e-5 },
        { "2 RANK_CLIP=0", true, 1e-5 },
        { "2 RANK_CLIP=0 RANK_BUCKET=64", true, 1e-5 },
        { "2 RANK_CLIP=0 RANK_SHARD=1", true, 1e-5 },
        { "2 RANK_CLIP=0 RANK_SHARD=1 RANK_BUCKET=64", true, 1e-5 },
    };
    double one[STEPS], some[STEPS];
    char   bits[32], first[32] = "";
    if (!begin()) return;
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        if (i == 0 || (way[i].bits && !*first)) {
            runs(0, "env %s '" TN_BUILD_DIR "/tenon-tests' --rank train", way[i].set + 1);
            CHECK_INT(read_losses("", one, bits), STEPS);
        }
        runs(0, "env %s " STANDIN "%c" RANK "train 2>&1", way[i].set + 1, *way[i].set);
        CHECK_INT(read_losses("[0] ", some, bits), STEPS);
        for (int k = 0; k < STEPS; k++)
            test_case_result(fabs(some[k] - one[k]) <= way[i].within * fabs(one[k]),
                             "%s: step %d: %.15g, not %.15g", way[i].set, k, some[k], one[k]);
        if (way[i].bits && !*first) snprintf(first, sizeof first, "%s", bits);
        if (way[i].bits) test_case_result(!strcmp(bits, first), "%s: other bits", way[i].set);
        const char *n = strstr(out, "steps beside a collective: ");
        if (strstr(way[i].set, "BUCKET"))
            test_case_result(n && atoi(n + 27) > 8, "%s: no overlap: %.40s", way[i].set,
                             n ? n : out);
    }
}

// What is sharded is whole in a file: it is read by any number of ranks.
static void sharded_state_is_saved_whole(void)
{
    static const char *const loads[] = { "RANK_SHARD=1 " STANDIN "2" RANK "load",
                                         "RANK_SHARD=1 " STANDIN "4" RANK "load_whole",
                                         STANDIN "3" RANK "load" };
    double                   want[STEPS], got[STEPS];
    char                     bits[32], again[32];
    if (!begin()) return;
    runs(0, "RANK_SHARD=1 " STANDIN "2" RANK "save 2>&1 && ls ck*");
    CHECK_INT(read_losses("[0] ", want, bits), 5);
    for (int k = 0; k < 4; k++) {
        if (k < 3) runs(0, "%s 2>&1", loads[k]);
        else runs(0, "'" TN_BUILD_DIR "/tenon-tests' --rank load_whole 2>&1");
        CHECK_INT(read_losses(k < 3 ? "[0] " : "", got, again), 5);
        if (k == 0) CHECK_STR(again, bits);
        for (int i = 0; i < 5; i++) CHECK_NEAR(got[i], want[i], 1e-6 * want[i]);
    }
}

static void collectives_compute_and_have_gradients(void)
{
    if (!begin()) return;
    for (const char *const *l = launches(); *l; l++) {
        runs(0, "%s3" RANK "collect 2>&1", *l);
        prints("[2] all is right\n");
    }
}

// Of ranks that differ each says what it does and what another one does: in a first run (differ),
// between steps that all of them have done before (swap), and with optimizers that differ
// (settings).
static void ranks_that_differ_fail_with_both_lines(void)
{
    static const char *const files[] = { "nccl.txt", "mpi.txt" };
    bool                     mpi     = has_mpi();
    if (!begin()) return;
    runs(0,
         "(" STANDIN "2" RANK "settings >settings.txt 2>&1) & %s"
         "(" STANDIN "2" RANK "differ >nccl.txt 2>&1); wait",
         mpi ? "(" LAUNCH "2" RANK "swap >swap.txt 2>&1) & (" LAUNCH "2" RANK
               "differ >mpi.txt 2>&1) & "
             : "(" STANDIN "2" RANK "swap >swap.txt 2>&1) & ");
    for (int i = 0; i <= mpi; i++) {
        runs(0, "cat %s; ! grep -q 'all is right' *.txt", files[i]);
        prints("collective 1 differs: all_reduce sum f32 (3,) (here:2) here, "
               "all_gather f32 (3,) (here:3) on rank 1");
        prints("collective 1 differs: all_gather f32 (3,) (here:3) here, "
               "all_reduce sum f32 (3,) (here:2) on rank 0");
    }
    runs(0, "cat settings.txt");
    prints(
        "[0] here:4: optim_distribute: collective 1 differs: optim_distribute sgd lr 0.1 of 2, ");
    prints(" here, optim_distribute sgd lr 0.2 of 2, ");
    prints(
        "[1] here:4: optim_distribute: collective 1 differs: optim_distribute sgd lr 0.2 of 2, ");
    runs(0, "cat swap.txt");
    prints("collective 3 differs: all_reduce sum f32 (3,) (here:2) here, "
           "all_gather f32 (3,) (here:3) on rank 1");
    prints("collective 3 differs: all_gather f32 (3,) (here:3) here, ");
}

// Whatever the planner does with a graph: the stand-in writes the calls of each rank to a file.
static void random_graphs_have_one_order_on_all_ranks(void)
{
    if (!begin()) return;
    runs(0, "NCCL_STANDIN_LOG=\"$PWD/log\" " STANDIN "3" RANK
            "random 2>&1 && cmp log0 log1 && cmp log0 log2 && wc -l <log0");
    prints("[0] all is right\n");
    prints("[2] all is right\n");
    CHECK(strstr(out, "\n0\n") == NULL);
}

// An engine that fails, and one that waits for a rank that is gone.
static void an_engine_that_fails_is_reported(void)
{
    if (!begin()) return;
    runs(0, "(NCCL_STANDIN_FAIL=1 " STANDIN "2" RANK "collect1 >a 2>&1) & "
            "(" STANDIN "3" RANK "lost >b 2>&1); wait; cat a b");
    prints("all_reduce: NCCL: internal error");
    prints("[0] ");
    prints("rank 1 (process ");
    prints(" has died");
    runs(0, "(env TN_NCCL=/nowhere.so RANK_ENGINE=nccl '" TN_BUILD_DIR
            "/tenon-tests' --rank meet 2>&1); true");
    prints("dist_open: NCCL: TN_NCCL=/nowhere.so cannot be loaded");
    runs(0, "env TN_NCCL='" TN_BUILD_DIR "/libnccl_standin.so' RANK_ENGINE=nccl '" TN_BUILD_DIR
            "/tenon-tests' --rank collect1");
    prints("all is right\n");
}

static void one_rank_gets_what_it_gives(void)
{
    forget_launchers();
    tn_ctx    *cx = tn_open("cpu");
    tn_dist   *d  = tn_dist_open(cx, (tn_dist_opts){ 0 });
    tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 1, 2, 3, 4 });
    for (int i = 0; i < 2; i++, d = NULL) {
        tn_tensor *y = tn_dist_all_reduce(d, x, TN_REDUCE_MEAN);
        y            = tn_dist_broadcast(d, tn_dist_reduce_scatter(d, y, 0, TN_REDUCE_MAX), 0);
        y            = tn_dist_all_gather(d, y, -1);
        CHECK_NEAR(tn_item(tn_sum_all(tn_mul(y, x))), 30, 0);
    }
    CHECK_STATUS(tn_error(cx), TN_OK);
    tn_on_error(cx, NULL, NULL);
    CHECK(tn_dist_broadcast(d, x, 1) == NULL);
    CHECK_STR(tn_error_text(cx), "dist_broadcast: there is no rank 1 in a world of 1");
    tn_close(cx);
}

// The tool itself: a run on two ranks is that of one.
static void tenon_train_runs_on_several_ranks(void)
{
    static const char run[] = TN_BUILD_DIR
        "/tenon train --model mlp --data digits:count=3000 --epochs 1 --batch 63 --seed 3 --every 1 "
        "--quiet";
    NEED_MPI();
    runs(0, "%s --save one --log one.log", run);
    runs(0, LAUNCH "2 %s --save two --log two.log 2>&1", run);
    prints("[0] saved as two\n[0] test loss ");
    CHECK(strstr(out, "[1]") == NULL);
    runs(0, "for i in one two; do cut -d, -f1-3 $i.log | head -20 >$i.losses; done; "
            "paste -d ' ' one.losses two.losses");
    int same = 0;
    for (const char *line = strchr(out, '{'); line;
         line             = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        double      a, b;
        const char *one = strstr(line, "loss\": "), *two = one ? strstr(one + 1, "loss\": ") : NULL;
        if (!two || sscanf(one, "loss\": %lf", &a) != 1 || sscanf(two, "loss\": %lf", &b) != 1)
            break;
        same += fabs(a - b) <= 1e-5 * a;
    }
    CHECK_INT(same, 20);
}

// kill_ranks.py checks the others' messages, their time, and the bits of the restarted run; a
// hundred times by `make test-long`.
static void a_rank_that_is_killed_at_any_time_costs_time_alone(void)
{
    NEED_MPI();
    if (system("python3 -c '' 2>/dev/null") != 0) SKIP("there is no python3");
    runs(0, "python3 '%s/test/kill_ranks.py' '%s' %d %d", TN_SOURCE_DIR, TN_BUILD_DIR,
         test_long() ? 100 : 1, (int)getpid());
    prints(" 0 wrong\n");
}

// Checkpoints of two ranks, whole and in shards, go on with 1, 2 and 4: on two to the same bits.
// One that a rank cannot write is none, on all.
static void checkpoints_are_of_all_ranks_and_load_on_any_number(void)
{
    double want[STEPS], got[STEPS];
    char   bits[32], again[32];
    NEED_MPI();
    runs(0, LAUNCH "2" RANK "save 2>&1 && ls ck*");
    CHECK_INT(read_losses("[0] ", want, bits), 5);
    prints("\nck\nck.b.rank0of2\nck.b.rank1of2\nck_whole\n");  // the second replaced the first
    for (int n = 1; n <= 4; n *= 2)
        for (int whole = n == 4; whole < (n == 1 ? 1 : 2); whole++) {
            runs(0, LAUNCH "%d" RANK "%s 2>&1", n, whole ? "load_whole" : "load");
            CHECK_INT(read_losses("[0] ", got, again), 5);
            if (n == 2) CHECK_STR(again, bits);
            for (int i = 0; i < 5; i++) CHECK_NEAR(got[i], want[i], 1e-6 * want[i]);
        }
    runs(0, "(" LAUNCH "2" RANK "load_apart >b 2>&1) & mkdir -p bad/ck.a.rank1of2 two/apart; "
            "(cd two && " LAUNCH "2" RANK "save_apart >../c 2>&1) & "
            "(cd bad && " LAUNCH "2" RANK "save >../a 2>&1); wait; cat a; "
            "test ! -e bad/ck && test ! -e bad/ck.a.rank0of2");
    prints(": checkpoint_save: ck: rank 1 (process ");
    prints(" failed: file_write: ");
    runs(0, "cat b c; test ! -e two/ck && test ! -e two/apart/ck.a.rank1of2");
    prints(": checkpoint_load: ck: collective ");
    prints("differs: checkpoint_load of step 5, checksum ");
    prints(
        " failed: checkpoint_save: there is no ck.a.rank1of2, which rank 1 wrote: all ranks need ");
}

// A step that fails on rank 1, when it is recorded, in the middle, since there is no memory, or
// after a collective whose result was read, fails on all ranks, with its text and line, and changes
// nothing on any of them.
static void a_step_that_fails_on_one_rank_fails_on_all(void)
{
    static const struct {
        const char *how, *says;
    } cases_of[] = {
        { "shape", "mul: shapes (3,) and (4,) do not broadcast (here:7)" },
        { "index", "index 99 is out of range" },
        { "memory", "out of memory" },
        { "read", "index 99 is out of range" },
    };
    NEED_MPI();
    runs(0,
         "for i in shape index memory read; do " LAUNCH "3" RANK "step_$i >$i 2>&1 & done; wait");
    for (size_t i = 0; i < sizeof cases_of / sizeof *cases_of; i++) {
        runs(0, "cat %s", cases_of[i].how);
        int same = 0, named = 0;
        for (const char *at = out; (at = strstr(at, "kept its parameters")) != NULL; at++) same++;
        for (const char *at = out; (at = strstr(at, ": rank 1 (process ")) != NULL; at++) {
            char line[512];
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            named += strstr(line, " failed: ") && strstr(line, cases_of[i].says);
        }
        test_case_result(same == 3 && named == 2, "%s: %d kept, %d named: %s", cases_of[i].how,
                         same, named, out);
    }
}

// ---- what a rank does

int test_rank_run(const char *name);

// Numbers that are the same everywhere.
static double drawn(int i)
{
    return (double)((uint32_t)(i + 1) * 2654435761u >> 8) / (1 << 24) - 0.5;
}

enum { ITEMS = 32, INPUTS = 10, CLASSES = 3 };

// The most steps of a plan that are submitted between a collective and the first step that waits
// for it.
static int steps_beside(const tn_ctx *cx)
{
    size_t most = 0;
    for (int i = 0; i < cx->engine->plans.count; i++) {
        const tni_plan *p = cx->engine->plans.plan[i];
        for (size_t k = 0; k < p->collectives; k++) {
            size_t from = 0, to = 0;
            while (p->step[from] != p->collective[k]) from++;
            while (p->arrive[to] < k + 1) to++;
            if (to - from - 1 > most) most = to - from - 1;
        }
    }
    return (int)most;
}

// Trains with this rank's parts of batches, of which none can be divided equally, with random
// numbers, statistics of the batch, and targets that do not count. Its weights, its optimizer's
// state and count are its own until rank 0's take their place, and so are its random numbers until
// then.
static void train_rank(tn_ctx *cx, tn_dist *d, tn_dtype dt)
{
    float   x[ITEMS * INPUTS];
    int64_t y[ITEMS], rank = tn_dist_rank(d);
    tn_seed(cx, 7 + (uint64_t)rank);
    for (int i = 0; i < ITEMS * INPUTS; i++) x[i] = (float)drawn(i);
    for (int i = 0; i < ITEMS; i++) y[i] = i % 5 ? (int64_t)(3 * (drawn(5000 + i) + 0.5)) : -100;
    tn_tensor *const field[] = { tn_from(cx, TN_F32, TN_SHAPE(ITEMS, INPUTS), x),
                                 tn_from(cx, TN_I64, TN_SHAPE(ITEMS), y) };
    tn_data         *data    = tn_arrays(cx, 2, field);
    tn_data_shuffle(data, true, 5);
    tn_data_shard(data, (int)rank, tn_dist_size(d));
    tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, INPUTS, 17), tn_nn_batch_norm(cx, 17),
                              tn_nn_act(cx, tn_tanh), tn_nn_dropout(cx, 0.2),
                              tn_nn_linear(cx, 17, CLASSES));
    tn_layer_cast(net, dt);
    tn_layer_sync_batch_norm(net, d);
    // The tests run this with buckets of one parameter or two, with sharded state, and without
    // clipping.
    const char *clip = getenv("RANK_CLIP"), *bucket = getenv("RANK_BUCKET");
    tn_optim   *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 0.02, .clip_norm = clip ? 0 : 0.5 });
    for (int i = 0; i < 3 - rank; i++)
        tn_step(opt, tn_sum_all(tn_square(tn_layer_find(net, i ? "0.weight" : "4.bias"))));
    tn_optim_distribute(opt, d,
                        (tn_distribute_opts){ .bucket_bytes = bucket ? atoi(bucket) : 0,
                                              .shard_state  = getenv("RANK_SHARD") != NULL });
    tn_seed(cx, 11);
    for (int i = 0; i < STEPS; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 21);
        tn_tensor *sum  = tn_cross_entropy_with(tn_forward(net, tn_cast(b.x, dt)), b.y,
                                                (tn_class_opts){ .reduce = TN_REDUCTION_SUM });
        tn_tensor *loss = tn_dist_mean(d, sum, tn_sum_all(tn_ge_s(b.y, 0)));
        tn_tensor *mean = tn_dist_all_reduce(d, tn_detach(loss), TN_REDUCE_MEAN);
        tn_step(opt, loss);
        if (rank == 0) printf("loss %.17g\n", tn_item(mean));
        tn_end(s);
    }
    if (rank == 0) printf("steps beside a collective: %d\n", steps_beside(cx));
    double  w[17 * INPUTS + 17];
    int64_t bits = 0, at;
    tn_read(tn_cast(tn_layer_find(net, "0.weight"), TN_F64), TN_F64, w, 17 * INPUTS);
    tn_read(tn_cast(tn_layer_find(net, "1.running_var"), TN_F64), TN_F64, w + 17 * INPUTS, 17);
    for (int i = 0; i < 17 * INPUTS + 17; i++, bits = bits * 31 + at) memcpy(&at, &w[i], 8);
    printf("bits %llx\n", (unsigned long long)bits);
}

// Saves after five steps, in shards twice and whole, and takes five more; or loads, and takes
// these. With "_apart" the ranks have paths of their own.
static void checkpoint_rank(tn_ctx *cx, tn_dist *d, const char *name)
{
    enum { IN = 40, MIDDLE = 600, N = 24 };
    bool  saves = !strncmp(name, "save", 4), apart = strstr(name, "_apart") && tn_dist_rank(d) == 1;
    bool  whole = !strcmp(name, "load_whole") || apart;
    float x[N * IN], y[N];
    tn_seed(cx, saves ? 3 : 4);
    for (int i = 0; i < N * IN; i++) x[i] = (float)drawn(i);
    for (int i = 0; i < N; i++) y[i] = (float)drawn(9000 + i);
    tn_tensor *const field[] = { tn_from(cx, TN_F32, TN_SHAPE(N, IN), x),
                                 tn_from(cx, TN_F32, TN_SHAPE(N, 1), y) };
    tn_data         *data    = tn_arrays(cx, 2, field);
    tn_data_shuffle(data, true, 5);
    tn_data_shard(data, tn_dist_rank(d), tn_dist_size(d));
    tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, IN, MIDDLE), tn_nn_act(cx, tn_tanh),
                              tn_nn_linear(cx, MIDDLE, 1));
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 0.01 });
    tn_optim_distribute(opt, d, (tn_distribute_opts){ .shard_state = getenv("RANK_SHARD") });
    tn_checkpoint c = { .net = { net }, .opt = { opt }, .data = { data }, .step = 5, .dist = d };
    if (!saves && tn_checkpoint_load(cx, whole ? "ck_whole" : "ck", &c) != TN_OK) return;
    for (int i = saves ? 0 : 5; i < 10; i++) {
        if (i == 5 && saves) {
            c.sharded = true;
            for (int k = 0; k < 2; k++)
                if (tn_checkpoint_save(cx, apart ? "apart/ck" : "ck", &c) != TN_OK) return;
            c.sharded = false;
            tn_checkpoint_save(cx, "ck_whole", &c);
        }
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 10);
        tn_tensor *loss = tn_mul_s(tn_mse(tn_forward(net, b.x), b.y), b.weight);
        tn_tensor *mean = tn_dist_all_reduce(d, tn_detach(loss), TN_REDUCE_MEAN);
        tn_step(opt, loss);
        if (i >= 5) printf("loss %.9g\n", tn_item(mean));
        tn_end(s);
    }
    printf("bits %.17g\n", tn_item(tn_cast(tn_sum_all(tn_layer_find(net, "0.weight")), TN_F64)));
}

// Has step 3 fail on rank 1. There are two blocks of parameters.
static void failing_rank(tn_ctx *cx, tn_dist *d, const char *how)
{
    enum { N = 4 };
    float      before[12], after[12];
    tn_layer  *net = tn_nn_seq(cx, tn_nn_linear(cx, 3, 4), tn_nn_linear(cx, 4, 3));
    tn_optim  *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 0.1 });
    tn_tensor *w   = tn_layer_find(net, "0.weight");
    tn_tensor *x   = tn_want(tn_rand(cx, TN_F32, TN_SHAPE(N, 3)));
    tn_optim_add_group(opt, "1.*", 0.5, 0.5);
    tn_optim_distribute(opt, d, (tn_distribute_opts){ 0 });
    for (int i = 0; i < 4 && tn_error(cx) == TN_OK; i++) {
        bool       bad       = i == 3 && tn_dist_rank(d) == 1;
        int64_t    target[N] = { 0, 1, 2, bad && !strcmp(how, "index") ? 99 : 0 };
        tn_scope  *s         = tn_begin(cx);
        tn_tensor *y         = tn_from(cx, TN_I64, TN_SHAPE(N), target);
        tn_tensor *loss      = tn_cross_entropy(tn_forward(net, x), y);
        if (bad && !strcmp(how, "shape"))
            loss = tn_mul_at("here", 7, tn_zeros(cx, TN_F32, TN_SHAPE(3)),
                             tn_zeros(cx, TN_F32, TN_SHAPE(4)));
        if (bad && !strcmp(how, "memory")) {
            tn_tensor *many = tn_cumsum(tn_rand(cx, TN_F32, TN_SHAPE(4000000)), 0);
            loss            = tn_add(loss, tn_mul_s(tn_sum_all(many), 1e-9));
        }
        tn_read(w, TN_F32, before, 12);
        if (i == 3 && !strcmp(how, "read")) {
            target[3]      = bad ? 99 : 0;
            tn_tensor *at  = tn_from(cx, TN_I64, TN_SHAPE(N), target);
            tn_tensor *sum = tn_dist_all_reduce(d, tn_gather(tn_flatten(w, 0, -1), 0, at),
                                                TN_REDUCE_SUM);
            tn_item(tn_sum_all(sum));
        }
        tn_step(opt, loss);
        tn_end(s);
    }
    bool failed = tn_error(cx) != TN_OK;
    tn_read(w, TN_F32, after, 12);
    if (failed && !memcmp(before, after, sizeof before)) puts("kept its parameters");
    // Rank 1 ends last, so that the others learn of its failure, and not of its end.
    char done[2][32];
    snprintf(done[0], sizeof done[0], "%s_done%d", how, tn_dist_rank(d));
    FILE *f = tn_dist_rank(d) == 1 ? NULL : fopen(done[0], "w");
    if (f) fclose(f);
    for (int i = 0; i < 2; i++) snprintf(done[i], sizeof done[i], "%s_done%d", how, 2 * i);
    for (int i = 0; i < 3000 && tn_dist_rank(d) == 1; i++, usleep(10000))
        if (!access(done[0], F_OK) && !access(done[1], F_OK)) break;
}

static double item_of(tn_tensor *x, int64_t i)
{
    return tn_item(tn_cast(tn_slice(tn_flatten(x, 0, -1), 0, i, i + 1, 1), TN_F64));
}

// With x of rank r as (r, r + 1): values, gradients, and dtypes of each collective, in a world of
// three.
static void collect_rank(tn_ctx *cx, tn_dist *d)
{
    int        r   = tn_dist_rank(d);
    tn_tensor *x   = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ (float)r, (float)r + 1 });
    tn_tensor *odd = tn_from(cx, TN_F32, TN_SHAPE(3, 1), (float[]){ (float)r, 1, 2 });
    tn_requires_grad(x, true);
    tn_tensor *sum = tn_dist_all_reduce(d, x, TN_REDUCE_SUM), *all = tn_dist_all_gather(d, x, 0);
    tn_tensor *max  = tn_dist_all_reduce(d, x, TN_REDUCE_MAX);
    tn_tensor *from = tn_dist_broadcast(d, x, 1);
    tn_tensor *part = tn_dist_reduce_scatter(d, odd, 0, TN_REDUCE_MEAN);
    tn_tensor *half = tn_dist_all_reduce(d, tn_cast(x, TN_BF16), TN_REDUCE_MIN);
    tn_tensor *wide = tn_dist_all_gather(d, tn_cast(odd, TN_F16), 1);
    // Of which rank 0 reads nothing: it takes part all the same.
    tn_tensor *loss = tn_add(tn_sum_all(tn_square(sum)), tn_sum_all(tn_square(all)));
    loss            = tn_add(loss, tn_add(tn_sum_all(tn_square(max)), tn_sum_all(tn_square(from))));
    tn_backward(loss, NULL);
    tn_eval(cx);
    // Read by rank 1 alone, before a barrier of all. NaN wins.
    tn_tensor *nan  = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ r ? 1 : NAN, r ? NAN : 1, 2 });
    tn_tensor *bad  = tn_dist_all_reduce(d, nan, TN_REDUCE_MAX);
    tn_tensor *bad1 = tn_dist_reduce_scatter(d, nan, 0, TN_REDUCE_MIN);
    if (r == 1 && !isnan(item_of(bad, 0))) return;
    tn_dist_barrier(d);
    if (r == 0) return;
    if (!isnan(item_of(bad, 1)) || item_of(bad, 2) != 2 || isnan(item_of(bad1, 0)) != (r == 1))
        return;
    bool ok = item_of(sum, 0) == 3 && item_of(sum, 1) == 6 && item_of(all, 3) == 2;
    ok &= item_of(from, 1) == 2 && item_of(max, 0) == 2 && item_of(half, 1) == 1;
    ok &= item_of(part, 0) == (r == 1 ? 1 : 2) && item_of(wide, 1) == 1 && item_of(wide, 2) == 2;
    // 3 ranks send 2 sum, 2 x; to rank 1 what was broadcast, to rank 2 the maximum.
    double slope = 3 * 2 * 3 + 3 * 2 * r + (r == 1 ? 3 * 2 * 1 : 3 * 2 * 2);
    ok &= item_of(tn_grad_of(x), 0) == slope;
    if (ok && tn_error(cx) == TN_OK) puts("all is right");
}

// One collective, computed. Which one is the rank's own business.
static bool collect_one(tn_ctx *cx, tn_dist *d, tn_tensor *x, bool reduce)
{
    tn_tensor *y = reduce ? tn_dist_all_reduce_at("here", 2, d, x, TN_REDUCE_SUM)
                          : tn_dist_all_gather_at("here", 3, d, x, 0);
    return y && tn_eval(cx) == TN_OK;
}

// Graphs of ops and collectives that are drawn from the same numbers on all ranks; of the values
// some ranks read more than others.
static void random_rank(tn_ctx *cx, tn_dist *d)
{
    enum { GRAPHS = 6, NODES = 40, SIDE = 6 };
    int  draw = 0, rank = tn_dist_rank(d);
    bool ok = true;
    for (int g = 0; g < GRAPHS; g++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *t[NODES + 2];
        for (int i = 0; i < 2; i++)
            t[i] = tn_full(cx, TN_F32, TN_SHAPE(SIDE, SIDE), 0.1 * (rank + i + 1));
        for (int i = 2; i < NODES + 2; i++) {
            double     r = drawn(draw++) + 0.5;
            tn_tensor *a = t[(int)((drawn(draw++) + 0.5) * i)],
                      *b = t[(int)((drawn(draw++) + 0.5) * i)];
            if (r < 0.2) t[i] = tn_add(a, b);
            else if (r < 0.35) t[i] = tn_tanh(tn_matmul(a, b));
            else if (r < 0.5) t[i] = tn_softmax(a, 1);
            else if (r < 0.65) t[i] = tn_mul(tn_mean_keep(a, 0), b);
            else if (r < 0.8)
                t[i] = tn_dist_all_reduce(d, a, r < 0.72 ? TN_REDUCE_MEAN : TN_REDUCE_MAX);
            else if (r < 0.9) t[i] = tn_dist_broadcast(d, b, draw % 3);
            else t[i] = tn_slice(tn_dist_all_gather(d, a, 0), 0, 0, SIDE, 1);
        }
        if (g % 3 == rank) ok &= isfinite(tn_item(tn_mean_all(t[NODES / 2])));
        tn_end(s);
    }
    if (ok && tn_error(cx) == TN_OK) puts("all is right");
}

int test_rank_run(const char *name)
{
    const char *restart = getenv("TN_RESTART");
    if (!strcmp(name, "second") && restart && !strcmp(restart, "0")) return 3;
    const char *device = getenv("TN_DEVICE"), *engine = getenv("RANK_ENGINE");
    const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK"), *mpich = getenv("PMI_RANK");
    double      limit  = getenv("RANK_LIMIT") ? atof(getenv("RANK_LIMIT")) : 60;
    bool        second = open_mpi ? !strcmp(open_mpi, "1") : mpich && !strcmp(mpich, "1");
    if (second && !strcmp(name, "step_memory")) setenv("TN_MEM_LIMIT", "8000000", 1);
    tn_ctx  *cx = tn_open(device ? device : "cpu");
    tn_dist *d  = tn_dist_open(cx, (tn_dist_opts){ .timeout = limit, .engine = engine });
    if (!d) return 1;
    tn_tensor *three = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 1, 2, 3 });
    if (!strncmp(name, "train", 5)) train_rank(cx, d, strcmp(name, "train") ? TN_F64 : TN_F32);
    if (!strncmp(name, "step_", 5)) failing_rank(cx, d, name + 5);
    if (!strcmp(name, "collect")) collect_rank(cx, d);
    if (!strncmp(name, "save", 4) || !strncmp(name, "load", 4)) checkpoint_rank(cx, d, name);
    if (!strcmp(name, "differ") && collect_one(cx, d, three, tn_dist_rank(d) == 0))
        puts("all is right");
    if (!strcmp(name, "swap") && collect_one(cx, d, three, true) &&
        collect_one(cx, d, three, false) && collect_one(cx, d, three, tn_dist_rank(d) == 0))
        puts("all is right");
    if (!strcmp(name, "settings")) {
        float lr = tn_dist_rank(d) ? 0.2f : 0.1f;
        tn_optim_distribute_at("here", 4, tn_sgd(tn_nn_linear(cx, 2, 2), (tn_sgd_opts){ .lr = lr }),
                               d, (tn_distribute_opts){ 0 });
    }
    if (!strcmp(name, "collect1") && collect_one(cx, d, three, true)) puts("all is right");
    if (!strcmp(name, "lost")) {
        if (tn_dist_rank(d) == 1) raise(SIGKILL);
        collect_one(cx, d, three, true);
        collect_one(cx, d, three, true);
    }
    if (!strcmp(name, "random")) random_rank(cx, d);
    if (!strcmp(name, "meet"))
        printf("rank %d of %d by %s\n", tn_dist_rank(d), tn_dist_size(d), tn_dist_engine(d));
    bool early = !strcmp(name, "early") && tn_dist_rank(d) == 1;
    for (int i = early ? 6 : 0; i < 6; i++) {
        if (i == 3 && tn_dist_rank(d) == 1) {
            if (!strcmp(name, "killed")) raise(SIGKILL);
            if (!strcmp(name, "fail")) tn_add(NULL, tn_ones(cx, TN_F32, TN_SHAPE(2)));
        }
        if (tn_error(cx) != TN_OK || tn_dist_barrier_at("here", 1, d) != TN_OK) break;
    }
    int status = tn_error(cx) != TN_OK;
    if (!strcmp(name, "reopen")) {
        tn_dist_close(d);
        d = tn_dist_open(cx, (tn_dist_opts){ .timeout = limit, .engine = engine });
        if (tn_dist_barrier(d) == TN_OK && d) puts("opened twice");
    }
    tn_close(cx);
    return status;
}

const test_case tests_dist[] = {
    TEST(launchers_say_rank_and_size),
    TEST(launchers_say_where_to_meet),
    TEST(one_rank_needs_no_engine),
    TEST(a_world_that_nothing_connects_is_refused_with_the_command),
    TEST(items_have_their_random_numbers_on_any_rank),
    TEST(ranks_meet_and_their_lines_are_numbered),
    TEST(one_rank_gets_what_it_gives),
    TEST(collectives_compute_and_have_gradients),
    TEST(ranks_that_differ_fail_with_both_lines),
    TEST(random_graphs_have_one_order_on_all_ranks),
    TEST(an_engine_that_fails_is_reported),
    TEST(ranks_train_as_one),
    TEST(buckets_and_sharded_state_train_as_one),
    TEST(sharded_state_is_saved_whole),
    TEST(tenon_train_runs_on_several_ranks),
    TEST(a_rank_that_is_killed_at_any_time_costs_time_alone),
    TEST(checkpoints_are_of_all_ranks_and_load_on_any_number),
    TEST(a_step_that_fails_on_one_rank_fails_on_all),
    TEST(a_failure_is_named_by_the_others_and_started_again),
    TEST(a_wrong_command_line_of_launch_is_refused),
    TEST_END,
};
