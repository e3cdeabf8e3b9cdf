// train.c: `tenon train`, a training run from its first step to its results. The demo is the same
// run with other settings. Under a launcher all ranks run it: each trains on its part of every
// batch, and rank 0 alone prints, logs and writes files. What decides how the run goes on (a
// signal, the time to save) is agreed upon in each step.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

// The training accuracy is measured for every tenth batch: often enough for a smooth curve, and the
// other steps need not compute it.
enum { MEASURED = 10 };

// Weights of the past in the running means: about 50 steps of loss, 5 measured accuracies, and 20
// steps of the rate, which forgets those that waited for compilers. Epochs that are shorter than
// SAVE_SECONDS are not all saved, so that writing files never dominates.
static const double SMOOTH = 0.98, ACCURACY_SMOOTH = 0.8, RATE_SMOOTH = 0.95, SAVE_SECONDS = 1;

static const char general_defaults[] =
    "batch=64 lr=1e-3 optim=adam schedule=cosine seed=0 accumulate=1";

// ---- setup

static int64_t updates_of(const cli_run *r)
{
    return (r->steps + r->s->accumulate - 1) / r->s->accumulate;
}

// Returns the schedule over the whole run; that of kind step has three equal parts.
static tn_schedule schedule_of(const cli_run *r)
{
    static const struct {
        const char *name;
        tn_lr_kind  kind;
    } kinds[] = { { "constant", TN_LR_CONSTANT },
                  { "step", TN_LR_STEP },
                  { "cosine", TN_LR_COSINE },
                  { "linear", TN_LR_LINEAR },
                  { "one-cycle", TN_LR_ONE_CYCLE } };

    int64_t     updates  = updates_of(r);
    tn_schedule schedule = { .warmup = r->s->warmup, .total = updates, .every = (updates + 2) / 3 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, r->s->schedule)) schedule.kind = kinds[i].kind;
    return schedule;
}

// ---- precision

static bool has_precision(const cli_settings *s, const char *name)
{
    return s->precision && !strcmp(s->precision, name);
}

// TF32 belongs to the device, which reads the setting when it is opened. A resumed run, which knows
// its precision only from its file, is opened again. Returns false on failure, reported.
static bool open_context(cli_run *r)
{
    const char *env = getenv("TN_TF32");
    bool        was = env && *env == '1';
    bool        is  = has_precision(r->s, "tf32") || (was && !has_precision(r->s, "f32"));
    if (r->cx && is == was) return true;
    if (is != was) setenv("TN_TF32", is ? "1" : "0", 1);
    if (r->cx) tn_close(r->cx);
    r->dist = NULL;
    if (!(r->cx = cli_open(r->s))) return false;
    if (!(r->dist = tn_dist_open(r->cx, (tn_dist_opts){ 0 }))) return cli_fail_of(r->cx), false;
    if (tn_dist_rank(r->dist) > 0) r->s->quiet = true;
    return true;
}

// Autocast for the whole run, its evaluations too. Parameters and files stay f32.
static void set_autocast(const cli_run *r)
{
    if (has_precision(r->s, "bf16")) tn_autocast(r->cx, TN_BF16);
    if (has_precision(r->s, "f16")) tn_autocast(r->cx, TN_F16);
}

// ---- opening

// Makes the optimizer that --optim names. A weight decay of 0 that was given is a real zero; one
// that was not given means the default of the optimizer.
static tn_optim *make_optimizer(const cli_run *r)
{
    const cli_settings *s        = r->s;
    tn_schedule         schedule = schedule_of(r);
    bool   sgd = !strcmp(s->optim, "sgd"), decays = cli_options_given(s, "weight-decay");
    double lr = s->lr, clip = s->clip;
    int    accumulate = (int)s->accumulate;
    double momentum   = cli_options_given(s, "momentum") || !sgd ? s->momentum : 0.9;
    double decay      = decays && !(s->weight_decay > 0) ? TN_ZERO : s->weight_decay;
    double scale      = has_precision(s, "f16") ? 65536 : 0;

#define OPTIONS                                                                   \
    .lr = lr, .weight_decay = decay, .clip_norm = clip, .accumulate = accumulate, \
    .schedule = schedule, .loss_scale = scale
    const char *name = s->optim;
    if (sgd) return tn_sgd(r->net, (tn_sgd_opts){ OPTIONS, .momentum = momentum });
    if (!strcmp(name, "adam")) return tn_adam(r->net, (tn_adam_opts){ OPTIONS });
    if (!strcmp(name, "adamw")) return tn_adamw(r->net, (tn_adamw_opts){ OPTIONS });
    if (!strcmp(name, "rmsprop"))
        return tn_rmsprop(r->net, (tn_rmsprop_opts){ OPTIONS, .momentum = momentum });
    if (!strcmp(name, "adagrad")) return tn_adagrad(r->net, (tn_adagrad_opts){ OPTIONS });
    if (!strcmp(name, "adadelta")) return tn_adadelta(r->net, (tn_adadelta_opts){ OPTIONS });
    if (!strcmp(name, "nadam")) return tn_nadam(r->net, (tn_nadam_opts){ OPTIONS });
    if (!strcmp(name, "lamb")) return tn_lamb(r->net, (tn_lamb_opts){ OPTIONS });
    if (!strcmp(name, "lion")) return tn_lion(r->net, (tn_lion_opts){ OPTIONS });
    return tn_muon(r->net, (tn_muon_opts){ OPTIONS, .match_rms = true, .momentum = momentum,
                                           .adamw = "*wte*,*wpe*,*embed*,*lm_head*" });
#undef OPTIONS
}

// Completes the settings: from the file of a resumed run, then the defaults of the data, of the
// model and of the tool. Checks that the files can be written. Returns the exit status.
static int settle(cli_run *r)
{
    cli_settings *s  = r->s;
    cli_saved     f  = { 0 };
    bool          ok = !s->resume || cli_state_open(r, &f);
    r->schema        = f.schema;
    f.schema         = NULL;
    cli_saved_free(&f);
    if (!ok) return 1;
    r->model = cli_model_find(s->model);
    cli_options_default(s, cli_source_defaults(s->data));
    cli_options_default(s, r->model->defaults);
    cli_options_default(s, general_defaults);
    if (!cli_options_fit(s)) return 2;
    return cli_files_check(s) && cli_run_may_save(r) ? 0 : 1;
}

// Keeps the schema of a table, which is saved with the network.
static bool keep_schema(cli_run *r)
{
    const char *schema = tn_data_schema(r->data.train);
    if (r->schema || !schema || !*schema) return true;
    r->schema = strdup(schema);
    return r->schema || (cli_fail("out of memory"), false);
}

// Keeps the names of the classes, one line each, if there is no schema. `tenon predict` prints
// them.
static bool keep_classes(cli_run *r)
{
    tn_data *d = r->data.train;
    size_t   n = 1;
    if (r->schema || !tn_data_class_name(d, 0)) return true;
    for (int64_t i = 0; tn_data_class_name(d, i); i++) n += strlen(tn_data_class_name(d, i)) + 1;
    char *to = r->classes = cli_alloc(r->cx, (int64_t)n, 1);
    for (int64_t i = 0; to && tn_data_class_name(d, i); i++)
        to += sprintf(to, "%s\n", tn_data_class_name(d, i));
    return to || (cli_fail_of(r->cx), false);
}

// Prints the network, the data and the length of the run.
static void say_what_runs(const cli_run *r)
{
    int64_t skipped = tn_data_info(r->data.train).skipped;
    if (skipped > 0 && r->schema && tn_dist_rank(r->dist) == 0)
        fprintf(stderr, "tenon: %lld row%s with missing cells %s skipped\n", (long long)skipped,
                cli_s(skipped), skipped == 1 ? "was" : "were");
    if (r->s->quiet) return;
    int64_t parameters = tn_layer_count(r->net), items = tn_data_count(r->data.train);
    fprintf(stderr, "%s with %lld parameter%s; %lld item%s of %s; %lld epoch%s of %lld step%s\n",
            r->model->name, (long long)parameters, cli_s(parameters), (long long)items,
            cli_s(items), cli_shown(r->s->data), (long long)r->s->epochs, cli_s(r->s->epochs),
            (long long)r->epoch_steps, cli_s(r->epoch_steps));
    if (tn_dist_size(r->dist) > 1)
        fprintf(stderr, "%d ranks by %s\n", tn_dist_size(r->dist), tn_dist_engine(r->dist));
    if (r->memory.step > 0)
        fprintf(stderr, "continuing after step %lld\n", (long long)r->memory.step);
}

// Finds out what the progress of a text is measured by: the tokens of an item, the flops of a token
// (6 for each parameter; in attention, 12 for each number of a token and token of the context,
// layer by layer) and what the device reaches.
static void find_rates(cli_run *r)
{
    const cli_settings *s = r->s;
    r->item_tokens        = r->data.facts.task == CLI_TOKENS ? s->context : 1;
    if (r->data.facts.task != CLI_TOKENS || s->quiet) return;
    r->token_flops = 6 * (double)tn_layer_count(r->net) +
                     12 * (double)s->layers * (double)s->width * (double)s->context;
    tn_dtype dt = has_precision(s, "bf16") ? TN_BF16 : has_precision(s, "f16") ? TN_F16 : TN_F32;
    r->peak     = tn_ctx_peak(r->cx, dt);
}

// Checks that the run is long enough for --accumulate and --warmup. Returns the exit status.
static int check_length(const cli_run *r)
{
    const cli_settings *s       = r->s;
    int64_t             updates = updates_of(r);
    if (s->accumulate > r->steps)
        return cli_fail("--accumulate %lld is more than the %lld step%s of the run",
                        (long long)s->accumulate, (long long)r->steps, cli_s(r->steps));
    if (s->warmup > 0 && s->warmup >= updates)
        return cli_fail("--warmup %lld is not below the %lld update%s of the run",
                        (long long)s->warmup, (long long)updates, cli_s(updates));
    return 0;
}

// Opens everything that a run needs, in order of dependence: context, settings, data, network,
// optimizer, state of a resumed run, log. Returns the exit status.
static int open_run(cli_run *r)
{
    cli_settings *s = r->s;
    int           status;
    if (!open_context(r)) return 1;
    if ((status = settle(r)) != 0) return status;
    if (!open_context(r)) return 1;
    tn_seed(r->cx, (uint64_t)s->seed);
    set_autocast(r);
    if (!cli_source_open(r->cx, s, CLI_PART_BOTH, r->schema, &r->data) || !keep_schema(r) ||
        !keep_classes(r))
        return 1;
    r->net = cli_model_build(r->cx, r->model, s, &r->data.facts, NULL);
    if (!r->net) return 1;
    if (s->recompute) cli_model_recompute(r->model, r->net, s);
    if (tn_layer_sync_batch_norm(r->net, r->dist) != TN_OK) return cli_fail_of(r->cx);
    find_rates(r);
    if (r->schema && !s->resume && cli_tabular_fit(r->net, &r->data.facts, r->data.train) != TN_OK)
        return cli_fail_of(r->cx);
    if (tn_data_shard(r->data.train, tn_dist_rank(r->dist), tn_dist_size(r->dist)) != TN_OK)
        return cli_fail_of(r->cx);
    r->epoch_steps = tn_data_batches(r->data.train, s->batch);
    r->steps       = r->epoch_steps * s->epochs;
    if ((status = check_length(r)) != 0) return status;
    r->opt = make_optimizer(r);
    if (!r->opt || tn_optim_distribute(r->opt, r->dist, (tn_distribute_opts){ 0 }) != TN_OK ||
        tn_error(r->cx) != TN_OK)
        return cli_fail_of(r->cx);
    if (s->resume && (status = cli_run_resume(r)) != 0) return status;
    if (s->resume && tn_optim_set_schedule(r->opt, schedule_of(r)) != TN_OK)  // --epochs may be new
        return cli_fail_of(r->cx);
    r->first_step = r->memory.step;
    if (!cli_sinks_open(r)) return 1;
    if (cli_sinks_want(r) && !tn_optim_grad_norm(r->opt)) return cli_fail_of(r->cx);
    say_what_runs(r);
    return 0;
}

int cli_run_open(cli_run *r, cli_settings *s)
{
    *r = (cli_run){ .s = s };
    return open_run(r);
}

void cli_run_close(cli_run *r)
{
    cli_sinks_close(r);
    tn_close(r->cx);
    free(r->schema);
    free(r->classes);
    free(r->notes);
}

// ---- a step

// What all ranks have to know of a step, added up: the loss, of which each has its share, the hits,
// whether one got a signal, and whether rank 0 has not saved for a while.
enum { LOSS, HITS, STOP, LATE, FACTS };

static bool is_late(const cli_run *r)
{
    return cli_seconds() - r->saved >= SAVE_SECONDS;
}

// Records the sum over ranks of this rank's facts; NULL, with the error in the context, on failure.
static tn_tensor *sum_facts(const cli_run *r, tn_tensor *loss, tn_tensor *hits)
{
    tn_ctx    *cx     = r->cx;
    double     of[2]  = { cli_signals_asked() != 0, tn_dist_rank(r->dist) == 0 && is_late(r) };
    tn_tensor *one    = tn_reshape(tn_cast(loss, TN_F64), TN_SHAPE(1));
    tn_tensor *part[] = { tn_div_s(one, tn_dist_size(r->dist)),
                          hits ? tn_reshape(tn_cast(hits, TN_F64), TN_SHAPE(1))
                               : tn_zeros(cx, TN_F64, TN_SHAPE(1)),
                          tn_from(cx, TN_F64, TN_SHAPE(2), of) };
    return tn_dist_all_reduce(r->dist, tn_concat(3, part, 0), TN_REDUCE_SUM);
}

// Reads what sum_facts recorded. All ranks stop after the same step, whichever got the signal.
static void take_facts(cli_run *r, tn_tensor *facts, double fact[FACTS])
{
    if (tn_read(facts, TN_F64, fact, FACTS) != TN_OK) return;
    r->late = fact[LATE] > 0;
    if (fact[STOP] > 0) r->signal = cli_signals_asked() ? cli_signals_asked() : SIGTERM;
}

// Trains on one batch and measures it. Returns false on failure, with the error in the context.
static bool learn(cli_run *r, cli_moment *m)
{
    const cli_facts *f     = &r->data.facts;
    int              ranks = tn_dist_size(r->dist);
    tn_scope        *scope = tn_begin(r->cx);
    double           began = cli_seconds(), fact[FACTS] = { NAN };
    tn_batch         b    = tn_next(r->data.train, r->s->batch);
    tn_tensor       *y    = tn_forward(r->net, b.x);
    tn_tensor       *loss = cli_loss(r->net, f, y, b.y);
    bool             look = f->task == CLI_CLASSES && m->step % MEASURED == 0;
    tn_tensor       *hits = look ? cli_hits(y, b.y, 1) : NULL, *facts = NULL;
    cli_trained      shown = { 0 };
    if (ranks > 1) {
        loss  = tn_mul_s(loss, b.weight);
        facts = sum_facts(r, loss, hits);
    }
    double items = ranks > 1 ? round((double)b.count * ranks / b.weight) : (double)b.count;

    m->lr = tn_optim_lr(r->opt);
    if (cli_board_wants(r, m->step)) cli_board_record(r, loss, &shown);
    tn_step(r->opt, loss);
    if (ranks > 1) take_facts(r, facts, fact);
    else fact[LOSS] = tn_item(loss);
    if (ranks == 1 && hits) fact[HITS] = tn_item(hits);
    m->loss      = fact[LOSS];
    m->accuracy  = hits ? fact[HITS] / items : NAN;
    m->grad_norm = cli_sinks_want(r) ? tn_item(tn_optim_grad_norm(r->opt)) : NAN;
    if (shown.count) cli_board_histograms(r, m->step, &shown);
    bool ok  = tn_end(scope) == TN_OK && tn_error(r->cx) == TN_OK;
    r->items = RATE_SMOOTH * r->items + items;
    r->busy  = RATE_SMOOTH * r->busy + cli_seconds() - began;
    return ok;
}

// Adds the measurements of a step to the running means, and fills in the rest of m.
static void remember(cli_run *r, cli_moment *m)
{
    cli_memory *k   = &r->memory;
    double      now = cli_seconds() - r->began;
    k->step         = m->step;
    k->loss         = SMOOTH * k->loss + (1 - SMOOTH) * m->loss;
    k->weight       = SMOOTH * k->weight + (1 - SMOOTH);
    if (!isnan(m->accuracy)) {
        k->accuracy        = ACCURACY_SMOOTH * k->accuracy + (1 - ACCURACY_SMOOTH) * m->accuracy;
        k->accuracy_weight = ACCURACY_SMOOTH * k->accuracy_weight + (1 - ACCURACY_SMOOTH);
    }
    m->seconds       = r->earlier + now;
    m->rate          = r->items * (double)r->item_tokens / r->busy;
    m->share         = r->peak > 0 ? m->rate * r->token_flops / r->peak : NAN;
    m->held_out      = r->is_scored ? r->score.loss : NAN;
    m->mean_loss     = k->loss / k->weight;
    m->mean_accuracy = k->accuracy_weight > 0 ? k->accuracy / k->accuracy_weight : NAN;
    m->bytes         = tn_ctx_stats(r->cx).peak;
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

// Evaluates the network. With --patience, keeps the best result and counts the evaluations since.
static bool score(cli_run *r)
{
    cli_best      *best      = &r->memory.best;
    cli_confusion *confusion = r->s->report ? &r->confusion : NULL;
    if (cli_evaluate(r->dist, r->net, &r->data, r->s->batch, &r->score, confusion) != TN_OK)
        return false;
    r->is_scored = true;
    if (r->s->patience == 0) return true;
    best->since++;
    if (best->step == 0 || r->score.loss < best->score.loss)
        *best = (cli_best){ .step = r->memory.step, .score = r->score };
    return true;
}

bool cli_is_out_of_patience(const cli_run *r)
{
    return r->s->patience > 0 && r->memory.best.since >= r->s->patience;
}

// Whether to evaluate after this step: at the end, by --eval-every, or after each epoch, with
// --patience and of text.
static bool wants_score(const cli_run *r, const cli_moment *m)
{
    if (m->step == m->steps || is_due(m->step, r->s->eval_every)) return true;
    bool epochs = r->s->patience > 0 || r->data.facts.task == CLI_TOKENS;
    return epochs && r->s->eval_every == 0 && m->epoch_ends;
}

// Saves at the end, by --save-every, after an epoch, when patience is out, and after the best
// evaluation.
static bool save_if_due(cli_run *r, const cli_moment *m)
{
    bool due = m->step == m->steps || is_due(m->step, r->s->save_every) ||
               cli_is_out_of_patience(r) || r->memory.best.step == m->step;
    if (m->epoch_ends && (tn_dist_size(r->dist) > 1 ? r->late : is_late(r))) due = true;
    return !due || cli_run_save(r) == TN_OK;
}

// Runs the next step: trains, evaluates, shows what was measured, saves. Returns the exit status.
static int advance(cli_run *r)
{
    int64_t    step = r->memory.step + 1;
    cli_moment m    = { .step        = step,
                        .steps       = r->steps,
                        .epoch       = (step - 1) / r->epoch_steps + 1,
                        .epochs      = r->s->epochs,
                        .epoch_steps = r->epoch_steps,
                        .epoch_ends  = step % r->epoch_steps == 0,
                        .task        = r->data.facts.task };
    if (!learn(r, &m)) return cli_fail_of(r->cx);
    if (!isfinite(m.loss))
        return cli_fail("the loss is %s after step %lld; try a smaller --lr, or --clip 1",
                        isnan(m.loss) ? "not a number" : "infinite", (long long)step);
    remember(r, &m);
    if (wants_score(r, &m)) {
        if (!score(r)) return cli_fail_of(r->cx);
        m.score    = &r->score;
        m.held_out = r->score.loss;
    }
    cli_sinks_step(r, &m);
    return save_if_due(r, &m) ? 0 : cli_fail_of(r->cx);
}

// ---- the end

// Ends a run that a signal has stopped: saves it and prints the command that resumes it.
static int stop(cli_run *r)
{
    const cli_settings *s = r->s;
    if (cli_run_save(r) != TN_OK) return cli_fail_of(r->cx);
    cli_sinks_end(r);
    if (tn_dist_rank(r->dist) > 0) return 128 + r->signal;
    fprintf(stderr, "stopped after step %lld of %lld", (long long)r->memory.step,
            (long long)r->steps);
    if (!s->save) {
        fprintf(stderr, "; nothing is saved, since --save was not given\n");
        return 128 + r->signal;
    }
    fprintf(stderr, "; saved\nresume with: ");
    cli_print_word(stderr, s->program);
    fputs(" train --resume --save ", stderr);
    cli_print_word(stderr, s->save);
    if (s->log) {
        fputs(" --log ", stderr);
        cli_print_word(stderr, s->log);
    }
    if (s->tensorboard) {
        fputs(" --tensorboard ", stderr);
        cli_print_word(stderr, s->tensorboard);
    }
    if (s->report) {
        fputs(" --report ", stderr);
        cli_print_word(stderr, s->report);
    }
    fputc('\n', stderr);
    return 128 + r->signal;
}

double cli_run_seconds(const cli_run *r)
{
    return (r->ended > 0 ? r->ended : cli_seconds()) - r->began;
}

static void print_steps(const cli_run *r)
{
    int64_t steps = r->memory.step, mine = steps - r->first_step;
    printf("%lld step%s", (long long)steps, cli_s(steps));
    if (mine < steps) printf(", %lld of them now,", (long long)mine);
    printf(" in %.1f s\n", cli_run_seconds(r));
}

// Prints the results of a complete run.
static int finish(cli_run *r)
{
    // With --patience the file has the best weights, so their score is the result.
    const cli_best *best = &r->memory.best;
    if (best->step > 0) r->score = best->score;
    else if (!r->is_scored && !score(r)) return cli_fail_of(r->cx);
    r->ended = cli_seconds();
    cli_sinks_end(r);
    if (tn_dist_rank(r->dist) > 0) return 0;
    if (!r->s->quiet) cli_curve_draw(&r->memory.curve);
    print_steps(r);
    if (cli_is_out_of_patience(r))
        printf("stopped early: %lld evaluation%s after step %lld %s no better\n",
               (long long)best->since, cli_s(best->since), (long long)best->step,
               best->since == 1 ? "was" : "were");
    if (r->s->save && best->step > 0)
        printf("saved as %s: the network of step %lld, the best on the test\n",
               cli_shown(r->s->save), (long long)best->step);
    else if (r->s->save) printf("saved as %s\n", cli_shown(r->s->save));
    if (r->report) printf("report in %s\n", cli_shown(r->s->report));
    cli_report_skipped(r->data.train);
    cli_score_print(&r->data.facts, &r->score);
    return r->sinks_failed ? 1 : 0;
}

// Whether a signal has asked to stop. With several ranks the step has found out.
static bool is_stopped(cli_run *r)
{
    if (tn_dist_size(r->dist) == 1) r->signal = cli_signals_asked();
    return r->signal != 0;
}

// Runs steps until the last one, a failure, or a signal. Returns the exit status.
static int train(cli_run *r)
{
    int status = 0;
    while (status == 0 && r->memory.step < r->steps && !cli_is_out_of_patience(r) && !is_stopped(r))
        status = advance(r);
    cli_progress_end(&r->progress);
    if (status != 0) {
        if (tn_error(r->cx) == TN_OK) cli_sinks_end(r);  // what led to it is worth a look
        return status;
    }
    return r->signal ? stop(r) : finish(r);
}

int cli_run_train(cli_run *r)
{
    cli_progress_begin(&r->progress, r->s, r->memory.step);
    r->began = cli_seconds();
    r->saved = r->began;
    cli_signals_begin(r->s->quiet, r->progress.bar);
    int status = train(r);
    cli_signals_end();
    return status;
}

static bool is_complete(const cli_settings *s)
{
    const char *missing = NULL;
    if (s->resume && s->force)
        missing = "--resume continues a run, --force overwrites it: give one of them";
    else if (s->resume && !s->save) missing = "--resume needs --save FILE, the run to continue";
    else if (!s->resume && !s->model) missing = "--model NAME is needed";
    else if (!s->resume && !s->data) missing = "--data SPEC is needed";
    if (missing) fprintf(stderr, "tenon train: %s; see tenon help train\n", missing);
    return !missing;
}

int cli_train(int argc, char **argv)
{
    cli_settings s;
    cli_run      r;
    if (!cli_options_parse(&s, CLI_TRAIN, argc, argv)) return 2;
    int status = 2;
    if (cli_is_restart(&s)) {
        s.resume = true;
        s.force  = false;
    }
    if (is_complete(&s)) {
        status = cli_run_open(&r, &s);
        if (status == 0) status = cli_run_train(&r);
        cli_run_close(&r);
    }
    cli_settings_free(&s);
    return status;
}
