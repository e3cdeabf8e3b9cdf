// saved.c: files of trained networks. FILE contains the weights, and in its metadata the settings
// to build the network again. FILE.state is a checkpoint with everything that resuming needs,
// including weights and settings. So each of the two files is complete without the other.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PAIRS = 64, ROOM = 64, PATH_ROOM = 4096 };

static const char *const task_names[] = { "classes", "numbers", "tokens" };

// Prints a warning as errors are printed, without a line of this program.
static void print_warning(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)user;
    fprintf(stderr, "tenon: warning: %s\n", f->text);
}

// cli_fail_of prints errors.
tn_ctx *cli_open(const cli_settings *s)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){
        .device = s->device, .seed = (uint64_t)s->seed, .threads = (int)s->threads });
    if (!cx) cli_fail_of(NULL);
    if (!cx) return NULL;
    tn_on_error(cx, NULL, NULL);
    tn_on_warning(cx, print_warning, NULL);
    return cx;
}

// ---- writing

// Pairs of key and value for the metadata, and buffers for values that are formatted.
typedef struct {
    int         count;
    const char *text[2 * MOST_PAIRS];
    char        room[MOST_PAIRS][ROOM];
} pairs;

static void add_pair(pairs *p, const char *key, const char *value)
{
    if (!value || p->count == MOST_PAIRS) return;
    p->text[2 * p->count]       = key;
    p->text[2 * p->count++ + 1] = value;
}

static void write_sizes(const cli_facts *f, char *room)
{
    for (int i = 0, n = 0; i < f->rank; i++)
        n += snprintf(room + n, (size_t)(ROOM - n), i ? "x%lld" : "%lld", (long long)f->size[i]);
}

// Fills p with the settings and facts of a run. The texts belong to r and to p.
static void describe(const cli_run *r, pairs *p)
{
    const cli_facts *f = &r->data.facts;
    const char      *name;
    p->count = 0;
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++)
        add_pair(p, name, cli_options_text(r->s, name, p->room[p->count], ROOM));
    add_pair(p, "task", task_names[f->task]);
    write_sizes(f, p->room[p->count]);
    add_pair(p, "input", p->room[p->count]);
    snprintf(p->room[p->count], ROOM, "%lld", (long long)f->outputs);
    add_pair(p, "outputs", p->room[p->count]);
    add_pair(p, "schema", r->schema);
    add_pair(p, "classes", r->classes);
    snprintf(p->room[p->count], ROOM, "%lld", (long long)r->memory.step);
    add_pair(p, "step", p->room[p->count]);
    bool over = r->s->patience > 0 && r->memory.best.since >= r->s->patience;  // the run ends here
    snprintf(p->room[p->count], ROOM, "%lld", (long long)(over ? r->memory.step : r->steps));
    add_pair(p, "steps", p->room[p->count]);
}

// Sets r->notes, the tool's own bytes in a checkpoint: the memory, then the pairs as texts with a
// final 0.
static bool note(cli_run *r, const pairs *p)
{
    size_t bytes = sizeof r->memory;
    for (int i = 0; i < 2 * p->count; i++) bytes += strlen(p->text[i]) + 1;
    free(r->notes);
    r->notes       = cli_alloc(r->cx, (int64_t)bytes, 1);
    r->notes_bytes = r->notes ? bytes : 0;
    if (!r->notes) return false;
    char *to = r->notes + sizeof r->memory;
    memcpy(r->notes, &r->memory, sizeof r->memory);
    for (int i = 0; i < 2 * p->count; to += strlen(to) + 1, i++)
        memcpy(to, p->text[i], strlen(p->text[i]) + 1);
    return true;
}

static tn_checkpoint checkpoint_of(cli_run *r)
{
    return (tn_checkpoint){ .net        = { r->net },
                            .opt        = { r->opt },
                            .data       = { r->data.train },
                            .step       = r->memory.step,
                            .user       = r->notes,
                            .user_bytes = r->notes_bytes,
                            .dist       = r->dist };
}

static bool state_path(const cli_settings *s, char *path)
{
    return snprintf(path, PATH_ROOM, "%s.state", s->save) < PATH_ROOM;
}

static tn_status save_weights(const cli_run *r, const pairs *p)
{
    if (tn_dist_rank(r->dist) > 0) return TN_OK;
    return tn_save_with(r->net, r->s->save, (tn_save_opts){ .nmeta = p->count, .meta = p->text });
}

// Compares the file's time with that of the launch: a state that was there before is of another
// run.
bool cli_is_restart(const cli_settings *s)
{
    struct stat st;
    char        path[PATH_ROOM];
    const char *restart = getenv("TN_RESTART"), *launched = getenv("TN_LAUNCHED");
    if (!s->save || s->resume || !restart || !strcmp(restart, "0") || !launched) return false;
    if (!state_path(s, path) || stat(path, &st) != 0) return false;
    return (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec >= strtod(launched, NULL);
}

// Whether FILE should get the current weights: with --patience it keeps the best ones, while the
// state has the newest.
static bool are_to_be_saved(const cli_run *r)
{
    return r->memory.best.step == 0 || r->memory.best.step == r->memory.step;
}

// Writes the state first, then the weights; each file is replaced atomically. A failure before both
// leaves the old run. A failure between them leaves the old weights with the new state, which
// resumes the new run. The other order could leave new weights whose state is lost.
tn_status cli_run_save(cli_run *r)
{
    char  path[PATH_ROOM];
    pairs p;
    if (!r->s->save) return TN_OK;
    describe(r, &p);
    if (!state_path(r->s, path) || !note(r, &p)) return TN_EARG;
    tn_checkpoint c      = checkpoint_of(r);
    tn_status     status = tn_checkpoint_save(r->cx, path, &c);
    if (status == TN_OK && are_to_be_saved(r)) status = save_weights(r, &p);
    r->saved = cli_seconds();
    return status;
}

// ---- reading

// Reads "1x28x28" into the facts.
static bool read_sizes(const char *text, cli_facts *f)
{
    for (f->rank = 0; f->rank < 3; f->rank++) {
        char *end;
        f->size[f->rank] = strtoll(text, &end, 10);
        if (end == text || f->size[f->rank] < 1) return false;
        if (!*end) return ++f->rank > 0;
        if (*end != 'x') return false;
        text = end + 1;
    }
    return false;
}

// The origin of pairs: the metadata of a file, or the notes of a checkpoint. Invariant: the byte
// before `end` is 0.
typedef struct {
    tn_file    *file;
    const char *text, *end;
} origin;

static const char *value_of(const origin *from, const char *key)
{
    if (from->file) return tn_file_meta(from->file, key);
    for (const char *at = from->text; at < from->end;) {
        const char *value = at + strlen(at) + 1;
        if (value >= from->end) return NULL;
        if (!strcmp(at, key)) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

static bool read_facts(const origin *from, cli_facts *f)
{
    const char *task = value_of(from, "task"), *input = value_of(from, "input");
    const char *outputs = value_of(from, "outputs");
    if (!task || !input || !outputs || !read_sizes(input, f)) return false;
    for (int i = 0; i <= CLI_TOKENS; i++)
        if (!strcmp(task, task_names[i])) f->task = (cli_task)i;
    f->outputs = strtoll(outputs, NULL, 10);
    return f->outputs > 0;
}

static char *copy_value(const origin *from, const char *key)
{
    const char *text = value_of(from, key);
    return text ? strdup(text) : NULL;
}

// Checks an option against the saved value. A resumed run may be longer, and its data may have
// moved; otherwise it must be the same run. Returns the reason if they conflict, otherwise NULL.
static const char *why_not(const cli_settings *s, const char *name, const char *text)
{
    char        room[ROOM];
    const char *mine = cli_options_text(s, name, room, ROOM);
    if (!mine || (text && !strcmp(mine, text))) return NULL;
    if (!s->resume) return cli_options_of_network(s, name) ? "cannot be another" : NULL;
    if (!strcmp(name, "data") || !strcmp(name, "tokenizer") || !strcmp(name, "patience"))
        return NULL;
    if (strcmp(name, "epochs")) return "cannot change";
    return text && s->epochs < strtoll(text, NULL, 10) ? "may be raised, not lowered," : NULL;
}

static bool read_settings(const origin *from, cli_settings *s, const char *path)
{
    const char *name;
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++) {
        const char *text = value_of(from, name), *why = why_not(s, name, text);
        if (why)
            return cli_fail("--%s %s %s; %s has %s", name, why,
                            s->resume ? "when a run is resumed" : "for a network that is trained",
                            path, text ? text : "none"),
                   false;
        if (text && !cli_options_restore(s, name, text))
            return cli_fail("%s: its %s, \"%s\", is none", path, name, text), false;
    }
    return true;
}

// Reads settings and facts. A file without them is of another program: then the command line must
// name model and data.
static bool read_all(const origin *from, cli_settings *s, const char *path, cli_saved *f)
{
    *f = (cli_saved){ 0 };
    if (!value_of(from, "model") || !value_of(from, "data") || !read_facts(from, &f->facts)) {
        bool names = from->file && s->model && s->data;  // the command line describes it
        f->foreign = names;
        f->model   = names ? cli_model_find(s->model) : NULL;
        return names || (cli_fail("%s does not say how it was trained; tenon train --save writes "
                                  "files that do, tenon eval takes others with --model and "
                                  "--data, and of Hugging Face's the folder is given",
                                  path),
                         false);
    }
    if (!read_settings(from, s, path)) return false;
    f->schema  = copy_value(from, "schema");
    f->data    = copy_value(from, "data");
    f->classes = copy_value(from, "classes");
    f->model   = cli_model_find(s->model);
    return f->model && f->data;
}

bool cli_saved_open(tn_ctx *cx, cli_settings *s, const char *path, cli_saved *f)
{
    *f = (cli_saved){ 0 };
    if (cli_is_folder(path)) return cli_folder_open(cx, s, path, f);
    origin from = { .file = tn_file_open(cx, path) };
    if (!from.file) return cli_fail_of(cx), false;
    bool ok = read_all(&from, s, path, f);
    tn_file_free(from.file);
    return ok;
}

// Reads the notes of a checkpoint into r.
static bool read_notes(cli_run *r, tn_file *file)
{
    tn_tensor *user = NULL;
    for (int i = 0; i < tn_file_count(file); i++)
        if (!strcmp(tn_file_name(file, i), "user")) user = tn_file_tensor(file, "user");
    int64_t bytes = user ? tn_count(user) : 0;
    if (bytes <= (int64_t)sizeof r->memory) return false;
    r->notes       = cli_alloc(r->cx, bytes, 1);
    r->notes_bytes = (size_t)bytes;
    return r->notes && tn_read(user, TN_U8, r->notes, bytes) == TN_OK && !r->notes[bytes - 1];
}

bool cli_state_open(cli_run *r, cli_saved *f)
{
    char path[PATH_ROOM];
    *f = (cli_saved){ 0 };
    if (!state_path(r->s, path)) return cli_fail("--save is too long"), false;
    if (access(path, R_OK) != 0)
        return cli_fail("there is nothing to resume: %s: %s", path, strerror(errno)), false;
    tn_scope *scope = tn_begin(r->cx);
    tn_file  *file  = tn_file_open(r->cx, path);
    bool      ok    = file && read_notes(r, file);
    tn_file_free(file);
    tn_end(scope);
    if (tn_error(r->cx) != TN_OK) return cli_fail_of(r->cx), false;
    if (!ok) return cli_fail("%s: it is not a state of this tool", path), false;
    origin from = { .text = r->notes + sizeof r->memory, .end = r->notes + r->notes_bytes };
    return read_all(&from, r->s, r->s->save, f);
}

void cli_saved_free(cli_saved *f)
{
    free(f->schema);
    free(f->data);
    free(f->classes);
    *f = (cli_saved){ 0 };
}

// Whether a file has the weights of the inner network alone, as another program saved them, though
// its settings have a normalization around it, whose values they say.
static bool is_bare(tn_ctx *cx, const cli_settings *s, const char *path)
{
    if (!s->normalize) return false;
    tn_file *file = tn_file_open(cx, path);
    bool     bare = file != NULL;
    for (int i = 0; i < tn_file_count(file); i++)
        if (!strcmp(tn_file_name(file, i), "mean")) bare = false;
    tn_file_free(file);
    return bare;
}

tn_layer *cli_saved_build(tn_ctx *cx, const cli_settings *s, const char *path, const cli_saved *f)
{
    if (f->folder) return cli_folder_build(cx, s, path);
    bool      inner = f->foreign || is_bare(cx, s, path);
    tn_layer *net   = cli_model_build(cx, f->model, s, &f->facts, inner ? path : NULL);
    if (!net || inner || tn_load(net, path) == TN_OK) return net;
    cli_fail_of(cx);
    return NULL;
}

// Parses the command line, opens context and network file, and calls run. Returns the exit status.
int cli_with_saved(unsigned command, int argc, char **argv,
                   int (*run)(tn_ctx *cx, cli_settings *s, const cli_saved *f))
{
    cli_settings s;
    cli_saved    f = { 0 };
    if (!cli_options_parse(&s, command, argc, argv)) return 2;
    int status = 2;
    if (!s.load)
        fprintf(stderr, "tenon %s: --load FILE is needed; see tenon help %s\n", argv[1], argv[1]);
    else {
        tn_ctx *cx = cli_open(&s);
        status     = cx && cli_saved_open(cx, &s, s.load, &f) ? run(cx, &s, &f) : 1;
        tn_close(cx);
    }
    cli_saved_free(&f);
    cli_settings_free(&s);
    return status;
}

// Loads the checkpoint into the run. Returns the exit status.
int cli_run_resume(cli_run *r)
{
    char path[PATH_ROOM];
    if (!state_path(r->s, path)) return cli_fail("--save is too long");
    tn_checkpoint c = checkpoint_of(r);
    if (tn_checkpoint_load(r->cx, path, &c) != TN_OK) return cli_fail_of(r->cx);
    memcpy(&r->memory, r->notes, sizeof r->memory);
    if (r->memory.step != c.step) return cli_fail("%s: it is not a state of this tool", path);
    // The process may have died between the two files, before FILE got the best weights, or the
    // last.
    bool last = r->memory.step >= r->steps;
    if ((r->memory.best.step == 0 && !last) || !are_to_be_saved(r)) return 0;
    pairs p;
    describe(r, &p);
    return save_weights(r, &p) == TN_OK ? 0 : cli_fail_of(r->cx);
}

// ---- existing runs

// Returns the number of steps of a finished run; 0 if it is not finished or has no count.
static int64_t finished_steps(const origin *from)
{
    const char *step = value_of(from, "step"), *steps = value_of(from, "steps");
    int64_t     done = step ? strtoll(step, NULL, 10) : 0;
    return steps && done >= strtoll(steps, NULL, 10) ? done : 0;
}

// The same for a path. A file that this tool did not write counts as no run.
static int64_t finished_steps_at(cli_run *r, const char *path, bool is_state)
{
    if (access(path, R_OK) != 0) return 0;
    tn_scope *scope = tn_begin(r->cx);
    tn_file  *file  = tn_file_open(r->cx, path);
    origin    from  = { .file = file };
    bool      ok    = file && (!is_state || read_notes(r, file));
    if (ok && is_state)
        from = (origin){ .text = r->notes + sizeof r->memory, .end = r->notes + r->notes_bytes };
    int64_t steps = ok ? finished_steps(&from) : 0;
    tn_file_free(file);
    tn_end(scope);
    tn_error_clear(r->cx);
    free(r->notes);
    r->notes = NULL;
    return steps;
}

bool cli_run_may_save(cli_run *r)
{
    const cli_settings *s = r->s;
    char                path[PATH_ROOM];
    if (!s->save || s->resume || s->force || !state_path(s, path)) return true;
    int64_t steps = finished_steps_at(r, s->save, false);
    if (!steps) steps = finished_steps_at(r, path, true);
    if (!steps) return true;
    cli_fail("--save %s has a finished run of %lld step%s; %s--force overwrites it", s->save,
             (long long)steps, cli_s(steps),
             strcmp(s->command, "train") ? "" : "--resume with more --epochs continues it, ");
    return false;
}
