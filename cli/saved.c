// saved.c: trained networks as files. The weights lie in a safetensors file whose metadata says how to
// build the network again; what only resuming needs lies beside it, in FILE.state.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PAIRS = 64, ROOM = 64, PATH_ROOM = 4096 };

static const char *const task_names[] = { "classes", "numbers", "tokens" };

tn_ctx *cli_open(const cli_settings *s)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){
        .device = s->device, .seed = (uint64_t)s->seed, .threads = (int)s->threads });
    if (!cx) cli_fail_of(NULL);
    else tn_on_error(cx, NULL, NULL);  // said once, by cli_fail_of, without a line of this program
    return cx;
}

// ---- writing

// Pairs of key and value for the metadata, and room for the values that have to be spelled.
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

static tn_status save_weights(cli_run *r)
{
    pairs            p = { 0 };
    const cli_facts *f = &r->data.facts;
    const char      *name;
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++)
        add_pair(&p, name, cli_options_text(r->s, name, p.room[p.count], ROOM));
    add_pair(&p, "task", task_names[f->task]);
    write_sizes(f, p.room[p.count]);
    add_pair(&p, "input", p.room[p.count]);
    snprintf(p.room[p.count], ROOM, "%lld", (long long)f->outputs);
    add_pair(&p, "outputs", p.room[p.count]);
    add_pair(&p, "schema", r->schema);
    return tn_save_with(r->net, r->s->save, (tn_save_opts){ .nmeta = p.count, .meta = p.text });
}

static tn_checkpoint checkpoint_of(cli_run *r)
{
    return (tn_checkpoint){ .net        = { r->net },
                            .opt        = { r->opt },
                            .data       = { r->data.train },
                            .step       = r->memory.step,
                            .user       = &r->memory,
                            .user_bytes = sizeof r->memory };
}

static bool state_path(const cli_settings *s, char *path)
{
    return snprintf(path, PATH_ROOM, "%s.state", s->save) < PATH_ROOM;
}

tn_status cli_run_save(cli_run *r)
{
    char path[PATH_ROOM];
    if (!r->s->save) return TN_OK;
    if (!state_path(r->s, path)) return TN_EARG;
    // The state of another run must not be taken for this one's.
    if (!r->is_saved && !r->s->resume) unlink(path);
    tn_status status = save_weights(r);
    if (status != TN_OK) return status;
    tn_checkpoint c = checkpoint_of(r);
    status          = tn_checkpoint_save(r->cx, path, &c);
    r->saved        = cli_seconds();
    r->is_saved     = status == TN_OK;
    return status;
}

// ---- reading

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

static bool read_facts(tn_file *file, cli_facts *f)
{
    const char *task = tn_file_meta(file, "task"), *input = tn_file_meta(file, "input");
    const char *outputs = tn_file_meta(file, "outputs");
    if (!task || !input || !outputs || !read_sizes(input, f)) return false;
    for (int i = 0; i <= CLI_TOKENS; i++)
        if (!strcmp(task, task_names[i])) f->task = (cli_task)i;
    f->outputs = strtoll(outputs, NULL, 10);
    return f->outputs > 0;
}

static char *copy_meta(tn_file *file, const char *key)
{
    const char *text = tn_file_meta(file, key);
    return text ? strdup(text) : NULL;
}

// A resumed run is the same run: it may be longer, and its data may have moved.
static bool may_change(const cli_settings *s, const char *name, const char *text)
{
    char        room[ROOM];
    const char *mine = cli_options_text(s, name, room, ROOM);
    if (!s->resume || !mine || (text && !strcmp(mine, text))) return true;
    return !strcmp(name, "epochs") || !strcmp(name, "data") || !strcmp(name, "vocab-dir");
}

static bool read_settings(tn_file *file, cli_settings *s, const char *path)
{
    const char *name;
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++) {
        const char *text = tn_file_meta(file, name);
        if (!may_change(s, name, text))
            return cli_fail("--%s cannot change when a run is resumed; %s has %s", name, path,
                            text ? text : "none"),
                   false;
        if (text && !cli_options_restore(s, name, text))
            return cli_fail("%s: its %s, \"%s\", is none", path, name, text), false;
    }
    return true;
}

bool cli_saved_open(tn_ctx *cx, cli_settings *s, const char *path, cli_saved *f)
{
    tn_file *file = tn_file_open(cx, path);
    *f            = (cli_saved){ 0 };
    if (!file) return cli_fail_of(cx), false;
    bool ok = tn_file_meta(file, "model") && tn_file_meta(file, "data") &&
              read_facts(file, &f->facts);
    if (!ok)
        cli_fail("%s does not say how it was trained; tenon train --save writes files that do",
                 path);
    else ok = read_settings(file, s, path);
    if (ok) {
        f->schema = copy_meta(file, "schema");
        f->data   = copy_meta(file, "data");
        f->model  = cli_model_find(s->model);
        ok        = f->model && f->data;
    }
    tn_file_free(file);
    return ok;
}

void cli_saved_free(cli_saved *f)
{
    free(f->schema);
    free(f->data);
    *f = (cli_saved){ 0 };
}

tn_layer *cli_saved_build(tn_ctx *cx, const cli_settings *s, const char *path, const cli_saved *f)
{
    tn_layer *net = f->model->build(cx, s, &f->facts);
    if (net && tn_load(net, path) == TN_OK) return net;
    if (tn_error(cx) != TN_OK) cli_fail_of(cx);
    return NULL;
}

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

int cli_run_resume(cli_run *r)
{
    char path[PATH_ROOM];
    if (!state_path(r->s, path)) return cli_fail("--save is too long");
    if (access(path, R_OK) != 0)
        return cli_fail("there is nothing to resume: %s: %s", path, strerror(errno));
    tn_checkpoint c = checkpoint_of(r);
    if (tn_checkpoint_load(r->cx, path, &c) != TN_OK) return cli_fail_of(r->cx);
    if (r->memory.step != c.step) return cli_fail("%s: it is not a state of this tool", path);
    return 0;
}
