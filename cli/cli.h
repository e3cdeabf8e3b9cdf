// The tool's parts. A command takes the whole command line (argv[1] is the command) and returns the
// exit status: 0, 1 for a failure, 2 for a wrong command line.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdarg.h>
#include <tenon.h>

int cli_train(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_sample(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_demo(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_profile(int argc, char **argv);

// ---- terminal ----------------------------------------------------------------------------------

// Text of a network for the terminal: holds the beginning of a character back until the rest of it
// has come. Zeroed at first.
typedef struct {
    int           count, need;
    unsigned char byte[4];
} cli_partial;
// Prints bytes on stdout: as they are, or, to a terminal, as it can print them.
void cli_print_text(cli_partial *p, const char *text, size_t bytes);

double cli_seconds(void);         // of a clock that never goes back
bool   cli_is_terminal(FILE *f);  // and not a dumb one
bool   cli_colours(FILE *f);      // a terminal, and NO_COLOR is unset or empty
bool   cli_utf8(void);            // the locale's characters
int    cli_columns(FILE *f);      // 80 where they are not known
// A braille character of these dots, top row first, in UTF-8; a space for none.
enum { CLI_DOTS_X = 2, CLI_DOTS_Y = 4 };
void cli_print_dots(bool dots[CLI_DOTS_Y][CLI_DOTS_X]);
// A text from outside (an argument, a name in a file) as it can be printed, cut; in a ring of four.
const char *cli_shown(const char *text);
// Whether all of a text is UTF-8.
bool cli_is_utf8(const char *text);
// A word as a shell takes it.
void cli_print_word(FILE *f, const char *word);
// A line on stderr; what is formatted may have such texts in it.
void cli_say(const char *before, const char *format, va_list list, const char *after);
// "tenon: " and the sentence, a line on stderr. Returns 1, the exit status.
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same with the context's first error (cx NULL: the thread's).
int cli_fail_of(const tn_ctx *cx);
// Zeroed memory, to be freed; NULL, with an error in the context, when there is none.
void *cli_alloc(tn_ctx *cx, int64_t count, size_t size);
// What turns a word into its plural, unless there is one of it.
const char *cli_s(int64_t count);
// "12 B", "50.2 KB", "1.5 GB"
void cli_write_bytes(char *to, size_t size, int64_t bytes);

// ---- options -----------------------------------------------------------------------------------

// Commands that share the table of options.
enum { CLI_TRAIN = 1, CLI_EVAL = 2, CLI_SAMPLE = 4, CLI_DEMO = 8, CLI_PREDICT = 16 };

// What a command was asked to do. Each field but the first and last ones is an option of the table in
// options.c, which parses, explains, saves and frees them all. Texts are owned, NULL when not given;
// numbers that were not given are 0.
typedef struct {
    const char *program;  // as it was called, for the commands that are suggested
    const char *command;  // its name
    char       *model, *data, *optim, *schedule, *augment, *hidden, *vocab_dir;
    char       *device, *save, *load, *log, *prompt, *part, *out;
    char       *normalize, *separator, *missing, *missing_words;
    int64_t     epochs, batch, accumulate, warmup, limit, seed;
    int64_t     layers, heads, width, context, depth;
    int64_t     every, eval_every, save_every, threads, tokens, top_k, patience, top;
    double      lr, momentum, weight_decay, clip, dropout, temperature;
    bool        resume, force, quiet, no_header;
    char      **input;   // arguments that are no options, of predict
    int         inputs;  // how many
    uint64_t    given;   // bit i: row i of the table has a value
    uint64_t    asked;   // bit i: it is from the command line
} cli_settings;

// Reads the options of a command. False, with a sentence on stderr, when they are wrong: exit with 2.
bool cli_options_parse(cli_settings *s, unsigned command, int argc, char **argv);
// Gives values to options that have none yet: "epochs=5 batch=64".
void cli_options_default(cli_settings *s, const char *pairs);
bool cli_options_given(const cli_settings *s, const char *name);
// Whether every option of the command line does something beside the others; to be asked when they
// all have their values. False, reported: exit with 2.
bool cli_options_fit(const cli_settings *s);
// Options that belong to a trained network: their names by number, NULL past the last; their values as
// text into room, NULL where they have none; and the way back, for an option that has no value yet.
const char *cli_options_kept(int i);
const char *cli_options_text(const cli_settings *s, const char *name, char *room, size_t size);
bool        cli_options_restore(cli_settings *s, const char *name, const char *text);
// Whether it is one of those that say what the network is, and from the command line.
bool cli_options_of_network(const cli_settings *s, const char *name);
void cli_options_help(unsigned command);
void cli_settings_free(cli_settings *s);

// ---- data --------------------------------------------------------------------------------------

typedef enum { CLI_CLASSES, CLI_NUMBERS, CLI_TOKENS } cli_task;

// What a network has to know of its data: enough to build it again from a file alone.
typedef struct {
    cli_task task;
    int      rank;     // of one item's x
    int64_t  size[3];  // 1 x 28 x 28; columns; tokens of a window
    int64_t  outputs;  // classes, numbers, or tokens of the vocabulary
} cli_facts;

// "10 classes of 1 x 28 x 28", "a number to 5 inputs"
void cli_facts_write(const cli_facts *f, char *to, size_t size);
// Whether a network for data like b can be tested on a: the same shapes, and no other classes.
bool cli_facts_fit(const cli_facts *a, const cli_facts *b);

// Data as a SPEC names it. The datasets belong to the context.
typedef struct {
    tn_data  *train, *test;  // NULL where they were not asked for
    tn_bpe   *bpe;           // NULL: text is bytes
    cli_facts facts;
} cli_source;

typedef enum { CLI_PART_BOTH, CLI_PART_TRAIN, CLI_PART_TEST, CLI_PART_ALL } cli_part;

#define CLI_SPEC_FORM \
    "digits[:count=N], idx:DIR, cifar10:DIR, csv:FILE[:target=COLUMN][:header=no] or text:FILE"
#define CLI_AUGMENT_FORM   "shift=N, crop=N and flip, with commas"
#define CLI_SEPARATOR_FORM "one character, or tab"
bool cli_is_separator(const char *text);
bool cli_is_spec(const char *text);
bool cli_is_augment(const char *text);
// Opens settings.data; schema: of the table that a network was trained on, or NULL. False, reported
// on stderr, on failure.
bool cli_source_open(tn_ctx *cx, const cli_settings *s, cli_part part, const char *schema,
                     cli_source *d);
// Opens a table of rows to predict, for a network that was trained on settings.data.
tn_data *cli_rows_open(tn_ctx *cx, const cli_settings *s, const char *path, const char *schema);
// Reports the context's error in the tool's words. Returns 1, the exit status.
int cli_fail_of_data(tn_ctx *cx);
// Defaults for data of this kind, as cli_options_default takes them.
const char *cli_source_defaults(const char *spec);
// The path of a SPEC, "" where it has none; its kind: "csv".
void        cli_source_path(const char *spec, char *room, size_t size);
const char *cli_source_kind(const char *spec);
// Whether two SPECs name the same file.
bool cli_source_same(const char *a, const char *b);
bool cli_source_has_test(const char *spec);  // a test part of its own
// The tokenizer that settings name; true and NULL when text is bytes.
bool cli_tokenizer(tn_ctx *cx, const cli_settings *s, tn_bpe **bpe);

// ---- files -------------------------------------------------------------------------------------

// Whether two paths lead to one file, or would if it were there.
bool cli_same_file(const char *a, const char *b);
// Whether --save and --log can be written and are no other file of the run. False, reported.
bool cli_files_check(const cli_settings *s);

// A file that appears under its name when it is whole, or stdout.
typedef struct {
    FILE *f;
    char *path, *temp;  // NULL: stdout
} cli_out;

// False, reported, where --out cannot be written, is one of the files that are read, or exists already
// without --force. Until it is closed a signal that ends the tool removes what was written of it.
bool cli_out_open(cli_out *o, const cli_settings *s);
// Gives the file its name if all went well, else removes it. False, reported, if it could not be written.
bool cli_out_close(cli_out *o, bool ok);

// ---- models ------------------------------------------------------------------------------------

// One network that the tool knows.
typedef struct {
    const char *name, *what;
    const char *defaults;  // as cli_options_default takes them
    // Builds it for data like this. NULL, reported on stderr, when they do not fit.
    tn_layer *(*build)(tn_ctx *cx, const cli_settings *s, const cli_facts *f);
} cli_model;

#define CLI_MODEL_FORM  "mlp, lenet, resnet or gpt2"
#define CLI_HIDDEN_FORM "sizes with commas, as in 128,64, or none"
#define CLI_NORMALIZE_FORM \
    "MEAN,STD or MEAN,MEAN,.../STD,STD,..., a number for each channel, as in 0.1307,0.3081"
bool             cli_is_normalize(const char *text);
bool             cli_is_model(const char *text);
bool             cli_is_hidden(const char *text);
const cli_model *cli_model_at(int i);  // NULL past the last
const cli_model *cli_model_find(const char *name);
// Builds a network, around it the normalization of the settings. weights: a file of another program that
// the network inside is loaded from, or NULL. NULL, reported on stderr, on failure.
tn_layer *cli_model_build(tn_ctx *cx, const cli_model *m, const cli_settings *s, const cli_facts *f,
                          const char *weights);
tn_tensor *cli_loss(tn_layer *net, const cli_facts *f, tn_tensor *y, tn_tensor *target);
tn_tensor *cli_hits(tn_tensor *y, tn_tensor *target);  // how many classes are right

// A network for rows of a table: tn_nn_standardize around body, for numbers with the target's units.
tn_layer *cli_tabular(tn_ctx *cx, const cli_facts *f, tn_layer *body);
// Sets means and deviations from the data.
tn_status cli_tabular_fit(tn_layer *net, const cli_facts *f, tn_data *data);

// ---- text --------------------------------------------------------------------------------------

// The newest tokens of a text: the prompt at first, and always what the network looks back on.
typedef struct {
    int64_t *ids;  // to be freed
    int64_t  count, room;
} cli_tokens;

// The tokens of a prompt, "" counting as the end of a line, with room for more. False, with an error in
// the context.
bool cli_tokens_read(tn_ctx *cx, const char *prompt, tn_bpe *bpe, int64_t more, cli_tokens *t);
// What a network makes of the newest `context` of them: a number for each token that may come next.
tn_tensor *cli_tokens_next(tn_layer *net, const cli_tokens *t, int64_t context);
// The bytes of a token, to be freed; NULL, with an error in the context.
char *cli_token_text(tn_ctx *cx, tn_bpe *bpe, int64_t id, int64_t *bytes);

// ---- evaluation --------------------------------------------------------------------------------

typedef struct {
    int64_t items;
    double  loss;
    double  accuracy;       // of classes, 0 .. 1
    double  rmse, r2;       // of numbers
    double  bits_per_byte;  // of text
} cli_score;

// All of the data, in order, in evaluation mode; training mode is on again afterwards.
tn_status cli_evaluate(tn_layer *net, const cli_source *d, int64_t batch, cli_score *score);
// Results on stdout; of classes the last line is the accuracy.
void cli_score_print(cli_task task, const cli_score *score);

// ---- cases to explain and profile --------------------------------------------------------------

// What a case works on; it takes those it has a use for. Everything belongs to the context.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *x, *y, *w, *b, *mean, *var, *target;
    tn_layer  *net;
    tn_optim  *opt;
    int64_t    used;  // elements of y that were handed out
} cli_kit;

// A computation that can be explained: make gives it its values, record records it. steps: how often
// it runs before it is as in the middle of a long run.
typedef struct {
    const char *name, *what;
    void (*make)(cli_kit *k);
    void (*record)(cli_kit *k);
    int steps;
} cli_case;

const cli_case *cli_case_at(int i);  // NULL past the last

// What explain or profile is asked for: a case, the list, or a program with its arguments. profile is
// set beforehand and chooses the options: trace and steps, or source.
typedef struct {
    bool            profile;
    const char     *command, *device, *trace;
    const cli_case *one;
    char          **program;
    int64_t         steps;  // 0: not given
    bool            source, list;
} cli_case_line;

// False, with a sentence on stderr, when it is wrong: exit with 2.
bool cli_case_line_parse(cli_case_line *l, int argc, char **argv);
// Becomes the program, as if it had been called by itself, with a variable set that the library obeys.
// Returns 1, reported, if it cannot be run.
int cli_case_line_program(const cli_case_line *l, const char *variable, const char *value);
int cli_cases_list(void);
// So many steps of a case, until one fails.
void cli_case_steps(cli_kit *k, const cli_case *c, int64_t steps);

// ---- a run of training -------------------------------------------------------------------------

enum { CLI_CURVE = 256 };

// The loss over the steps, in a fixed number of points: when they are used up, pairs are merged.
typedef struct {
    int64_t stride;  // steps to a point
    int64_t points;  // complete
    int64_t steps;   // in the point that is not
    double  sum;     // of their losses
    float   y[CLI_CURVE];
} cli_curve;

void cli_curve_add(cli_curve *c, double loss);
void cli_curve_draw(const cli_curve *c);

// The best evaluation so far, of a run with --patience.
typedef struct {
    int64_t   step;   // 0: there was none
    int64_t   since;  // evaluations after it
    cli_score score;
} cli_best;

// What a run remembers beside weights, optimizer and data; stored in its checkpoint as it is. There is
// no time in it, so that equal runs leave equal files.
typedef struct {
    int64_t   step;                                     // done
    double    loss, accuracy, weight, accuracy_weight;  // smoothed: sums and their weights
    cli_curve curve;
    cli_best  best;
} cli_memory;

// One step as the log and the progress see it. NaN: not measured.
typedef struct {
    int64_t          step, steps, epoch, epochs, epoch_steps;
    double           loss, accuracy, lr, seconds;
    double           rate;       // items a second
    double           mean_loss;  // smoothed
    double           mean_accuracy;
    bool             epoch_ends;
    int64_t          bytes;  // of tensor memory at most
    cli_task         task;
    const cli_score *score;  // NULL: the network was not evaluated after this step
} cli_moment;

// Progress on stderr: a bar on a terminal, else lines now and then.
typedef struct {
    bool    quiet, bar, colours, utf8;
    int64_t every;         // steps between lines, 0: by time
    double  drawn, lined;  // when the newest bar or line was drawn, and the newest line
    double  began;
    int64_t first_step;  // done before this process
} cli_progress;

void cli_progress_begin(cli_progress *p, const cli_settings *s, int64_t first_step);
void cli_progress_step(cli_progress *p, const cli_moment *m);
void cli_progress_end(cli_progress *p);  // takes the bar away

// The log: JSON, one object a line. With `resume`, records after that step are cut off first, and
// seconds is set to the time of the last that stays. NULL, reported on stderr, on failure.
FILE *cli_log_open(const char *path, bool resume, int64_t step, double *seconds);
bool  cli_log_write(FILE *f, const cli_moment *m);  // false, with errno, on failure

// From now on the first SIGINT or SIGTERM only asks, and says so unless quiet; the second ends the process
// at once. Then which one has asked, or 0; and the signals' own actions again. bar: there may be one on
// stderr, which is taken away first.
void cli_signals_begin(bool quiet, bool bar);
int  cli_signals_asked(void);
void cli_signals_end(void);
// From now on a signal that ends the process (SIGINT, SIGTERM, SIGHUP) removes this file first, which is not
// whole yet; the path must stay. NULL: there is none any more.
void cli_signals_remove(const char *path);

// A run from its opening to its end. Datasets, network and optimizer belong to the context; settings
// to the caller; the rest is its own. Only memory outlives the process, in the checkpoint.
typedef struct {
    cli_settings    *s;
    tn_ctx          *cx;
    const cli_model *model;
    cli_source       data;
    tn_layer        *net;
    tn_optim        *opt;
    char            *schema;   // of a table, else NULL
    char            *classes;  // their names, a line each; NULL: they have none, or the schema
    int64_t          epoch_steps, steps;  // of an epoch, of the whole run
    cli_memory       memory;
    cli_progress     progress;
    FILE            *log;
    bool             log_failed;  // and was let go
    char            *notes;       // of the checkpoint: memory and settings, as saved.c writes them
    size_t           notes_bytes;

    double    began, saved;  // the clock when this process began to train, and when it last saved
    double    earlier;       // seconds that the log has of processes before it
    int64_t   first_step;    // done before this process
    int64_t   items;         // that this process has trained on
    bool      is_scored;     // by this process
    cli_score score;
    int       signal;  // that stopped it, or 0
} cli_run;

// Opens the device, the data, the network and (resume) what was saved. Returns the exit status.
int cli_run_open(cli_run *r, cli_settings *s);
// Trains to the end or to a signal; evaluates, and prints the results. Returns the exit status.
int  cli_run_train(cli_run *r);
void cli_run_close(cli_run *r);

// ---- saved networks ----------------------------------------------------------------------------

tn_status cli_run_save(cli_run *r);
// Whether a new run may be saved where settings.save says: not over one that is finished, without --force.
// False, reported on stderr.
bool cli_run_may_save(cli_run *r);
// Weights, optimizer, data and memory, from beside settings.save. Returns the exit status.
int cli_run_resume(cli_run *r);
// Opens a context by the settings; NULL, reported on stderr, on failure.
tn_ctx *cli_open(const cli_settings *s);

// A trained network from a file.
typedef struct {
    const cli_model *model;
    cli_facts        facts;
    char            *schema;   // of a table, else NULL; the texts are owned
    char            *data;     // the SPEC it was trained on
    char            *classes;  // their names, a line each; NULL: they have none, or the schema has
    bool             foreign;  // weights of another program: facts and schema come from the data
} cli_saved;

// Reads a file's settings into s (those that have no value yet), facts and schema. False, reported.
bool cli_saved_open(tn_ctx *cx, cli_settings *s, const char *path, cli_saved *f);
// The same from the state beside settings.save; r keeps its notes.
bool cli_state_open(cli_run *r, cli_saved *f);
void cli_saved_free(cli_saved *f);
// Builds the network and loads its weights. NULL, reported on stderr, on failure.
tn_layer *cli_saved_build(tn_ctx *cx, const cli_settings *s, const char *path, const cli_saved *f);
// A command about the network that --load names: reads its options, opens the file, and runs. What
// `run` returns, and this, is the exit status.
int cli_with_saved(unsigned command, int argc, char **argv,
                   int (*run)(tn_ctx *cx, cli_settings *s, const cli_saved *f));

// ---- pictures ----------------------------------------------------------------------------------

// The first n items of a dataset of grey images (B, 1, H, W), drawn on stdout with what the network
// takes them for.
tn_status cli_pictures(tn_layer *net, tn_data *data, int n);

#endif
