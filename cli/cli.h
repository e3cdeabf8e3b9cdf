// The functions that the files of the tool share. A command takes the whole command line (argv[1]
// is the command) and returns the exit status: 0, 1 for a failure, 2 for a wrong command line.
// "Reported" means that a message was printed on stderr.
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
int cli_tune(int argc, char **argv);
int cli_launch(int argc, char **argv);
int cli_run_model(int argc, char **argv);
int cli_bench_model(int argc, char **argv);
int cli_show_model(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_compare_models(int argc, char **argv);
int cli_compare_profiles(int argc, char **argv);
int cli_compare_runs(int argc, char **argv);

// ---- terminal ----------------------------------------------------------------------------------

// The state of printing generated text on a terminal: the bytes of a character whose rest has not
// come yet. Starts zeroed.
typedef struct {
    int           count, need;
    unsigned char byte[4];
} cli_partial;
// Prints bytes on stdout: unchanged, or on a terminal in printable form.
void cli_print_text(cli_partial *p, const char *text, size_t bytes);

double cli_seconds(void);         // of a monotonic clock
bool   cli_is_terminal(FILE *f);  // and not a dumb one
bool   cli_colours(FILE *f);      // a terminal, and NO_COLOR is unset or empty
bool   cli_utf8(void);            // whether the locale's characters are UTF-8
int    cli_columns(FILE *f);      // 80 if unknown
// Prints the braille character with these dots, top row first, in UTF-8; a space if there are none.
enum { CLI_DOTS_X = 2, CLI_DOTS_Y = 4 };
void cli_print_dots(bool dots[CLI_DOTS_Y][CLI_DOTS_X]);
// Returns an untrusted text (an argument, a name in a file) in printable form, cut if it is long,
// in one of four buffers that are used in turn.
const char *cli_shown(const char *text);
// Whether a text is valid UTF-8.
bool cli_is_utf8(const char *text);
// Prints a word quoted for a shell.
void cli_print_word(FILE *f, const char *word);
// Prints a line on stderr: before, the formatted text in printable form, after.
void cli_say(const char *before, const char *format, va_list list, const char *after);
// Prints "tenon: " and a message on stderr. Returns 1, the exit status.
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same for the first error of a context (cx NULL: of the thread).
int cli_fail_of(const tn_ctx *cx);
// Allocates zeroed memory, which the caller frees. Returns NULL on failure, with the error in the
// context.
void *cli_alloc(tn_ctx *cx, int64_t count, size_t size);
// Returns the ending of a word for this count: "" for 1, otherwise "s".
const char *cli_s(int64_t count);
// Writes "12 B", "50.2 KB", "1.5 GB".
void cli_write_bytes(char *to, size_t size, int64_t bytes);

// ---- options -----------------------------------------------------------------------------------

// Commands that share the table of options.
enum { CLI_TRAIN = 1, CLI_EVAL = 2, CLI_SAMPLE = 4, CLI_DEMO = 8, CLI_PREDICT = 16 };

// The settings of a command. Each field but the first and last ones is an option of the table in
// options.c, which parses, explains, saves and frees them all. Texts are owned, and NULL if not
// given; numbers that were not given are 0.
typedef struct {
    const char *program;  // as it was called, for suggested commands
    const char *command;  // its name
    char       *model, *data, *optim, *schedule, *precision, *augment, *hidden, *tokenizer;
    char       *device, *save, *load, *log, *tensorboard, *report, *prompt, *part, *out, *stop;
    char       *normalize, *separator, *missing, *missing_words;
    int64_t     epochs, batch, accumulate, warmup, limit, seed;
    int64_t     layers, heads, kv_heads, width, context, depth;
    int64_t     every, eval_every, save_every, threads, tokens, top_k, patience, top;
    double      lr, momentum, weight_decay, clip, dropout, temperature, top_p, repetition_penalty;
    bool        resume, force, quiet, no_header, tied, recompute;
    char      **input;   // predict: arguments that are not options
    int         inputs;  // how many
    uint64_t    given;   // bit i: row i of the table has a value
    uint64_t    asked;   // bit i: the value is from the command line
} cli_settings;

// Reports what is wrong with a command line, and where help is. Returns false.
bool cli_line_wrong(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Parses the options of a command. Returns false, reported, if they are wrong: exit with 2.
bool cli_options_parse(cli_settings *s, unsigned command, int argc, char **argv);
// Sets options that have no value yet: "epochs=5 batch=64".
void cli_options_default(cli_settings *s, const char *pairs);
bool cli_options_given(const cli_settings *s, const char *name);
// Whether every option of the command line has an effect together with the others. Call it when all
// have their values. Returns false, reported, otherwise: exit with 2.
bool cli_options_fit(const cli_settings *s);
// Options that are saved with a trained network: the name of the i-th one, NULL after the last; its
// value as text, in room or owned by s, NULL if it has none; and setting it from text if it has no
// value yet.
const char *cli_options_kept(int i);
const char *cli_options_text(const cli_settings *s, const char *name, char *room, size_t size);
bool        cli_options_restore(cli_settings *s, const char *name, const char *text);
// Whether an option describes the network and was given on the command line.
bool cli_options_of_network(const cli_settings *s, const char *name);
// Reads "128,64" into v: whole numbers from least to most. Returns how many, 0 if it is no such
// list or longer than room.
int  cli_whole_numbers(const char *text, int64_t least, int64_t most, int64_t *v, int room);
void cli_options_help(unsigned command);
void cli_settings_free(cli_settings *s);

// ---- data --------------------------------------------------------------------------------------

typedef enum { CLI_CLASSES, CLI_NUMBERS, CLI_TOKENS } cli_task;

// The facts of the data that a network needs; enough to build it again from a file alone.
typedef struct {
    cli_task task;
    int      rank;     // of one item's x
    int64_t  size[3];  // 1 x 28 x 28; columns; tokens of a window
    int64_t  outputs;  // classes, numbers, or tokens of the vocabulary
} cli_facts;

// Writes "10 classes of 1 x 28 x 28", "a number to 5 inputs".
void cli_facts_write(const cli_facts *f, char *to, size_t size);
// Whether a network for data like b can be tested on a: equal shapes, and no more classes.
bool cli_facts_fit(const cli_facts *a, const cli_facts *b);

// The data of a SPEC. The datasets belong to the context.
typedef struct {
    tn_data      *train, *test;  // NULL if not opened
    tn_tokenizer *tokenizer;     // NULL: text is bytes
    cli_facts     facts;
} cli_source;

typedef enum { CLI_PART_BOTH, CLI_PART_TRAIN, CLI_PART_TEST, CLI_PART_ALL } cli_part;

#define CLI_SPEC_FORM                                                          \
    "digits[:count=N], idx:DIR, cifar10:DIR, images:DIR[:size=N][:resize=N], " \
    "csv:FILE[:target=COLUMN][:header=no] or text:FILE"
#define CLI_AUGMENT_FORM \
    "shift=N, crop=N, flip, resized, jitter=X and mixup=X (up to 1), with commas, or none"
#define CLI_SEPARATOR_FORM "one character, or tab"
bool cli_is_separator(const char *text);
bool cli_is_spec(const char *text);
bool cli_is_augment(const char *text);
// Opens settings.data. schema is that of the table that a network was trained on, or NULL. Returns
// false, reported, on failure.
bool cli_source_open(tn_ctx *cx, const cli_settings *s, cli_part part, const char *schema,
                     cli_source *d);
// Opens a table of rows to predict, for a network that was trained on settings.data.
tn_data *cli_rows_open(tn_ctx *cx, const cli_settings *s, const char *path, const char *schema);
// Reports the context's error, with options of the tool instead of the library's. Returns 1.
int cli_fail_of_data(tn_ctx *cx);
// Returns the defaults for data of this kind, for cli_options_default.
const char *cli_source_defaults(const char *spec);
// Return the path of a SPEC, "" if it has none, and its kind, "csv".
void        cli_source_path(const char *spec, char *room, size_t size);
const char *cli_source_kind(const char *spec);
// Whether two SPECs name the same file.
bool cli_source_same(const char *a, const char *b);
bool cli_source_has_test(const char *spec);  // whether it has a test part
// How pictures are read for a network that was trained on a SPEC; zeros, as they are, if it names
// no pictures.
tn_image_opts cli_image_options(const char *spec, const cli_facts *f);
// Prints on stderr which images could not be read, if any.
void cli_report_skipped(const tn_data *d);
// Opens the tokenizer of the settings. *tokenizer is NULL if text is bytes.
bool cli_tokenizer(tn_ctx *cx, const cli_settings *s, tn_tokenizer **tokenizer);

// ---- files -------------------------------------------------------------------------------------

// Whether two paths name the same file, existing or not.
bool cli_same_file(const char *a, const char *b);
// Whether --save, --log and --report can be written and differ from all other files of the run.
// Reports it otherwise.
bool cli_files_check(const cli_settings *s);

// An output file that is renamed into place when it is complete, or stdout.
typedef struct {
    FILE *f;
    char *path, *temp;  // NULL: stdout
} cli_out;

// Opens --out. Returns false, reported, if it cannot be written, is one of the files that are read,
// or exists without --force. Until it is closed, a signal that ends the tool removes the temporary
// file.
bool cli_out_open(cli_out *o, const cli_settings *s);
// Renames the file into place if ok, otherwise removes it. Returns false, reported, if writing
// failed.
bool cli_out_close(cli_out *o, bool ok);

// ---- models ------------------------------------------------------------------------------------

// A network of the tool.
typedef struct {
    const char *name, *what;
    const char *defaults;  // for cli_options_default
    // Builds it for data with these facts. Returns NULL, reported, if they do not fit.
    tn_layer *(*build)(tn_ctx *cx, const cli_settings *s, const cli_facts *f);
    const char *blocks;  // the layer whose children are its blocks; NULL: it has none
} cli_model;

#define CLI_MODEL_FORM  "mlp, lenet, resnet, gpt2 or llama, or resnet18 and its kin"
#define CLI_HIDDEN_FORM "sizes with commas, as in 128,64, or none"
#define CLI_STOP_FORM   "at most 16 tokens with commas, as in 0,2"
#define CLI_NORMALIZE_FORM \
    "MEAN,STD or MEAN,MEAN,.../STD,STD,..., a number for each channel, as in 0.1307,0.3081"
bool             cli_is_normalize(const char *text);
bool             cli_is_model(const char *text);
bool             cli_is_hidden(const char *text);
bool             cli_is_stop(const char *text);
const cli_model *cli_model_at(int i);  // NULL past the last
const cli_model *cli_model_find(const char *name);
// Builds a network inside the normalization of the settings. weights, if not NULL, is a file of
// another program, from which the inner network is loaded. Returns NULL, reported, on failure.
tn_layer *cli_model_build(tn_ctx *cx, const cli_model *m, const cli_settings *s, const cli_facts *f,
                          const char *weights);
// Sets its blocks to be recomputed in the backward pass.
void       cli_model_recompute(const cli_model *m, tn_layer *net, const cli_settings *s);
tn_tensor *cli_loss(tn_layer *net, const cli_facts *f, tn_tensor *y, tn_tensor *target);
// Returns how often the target is one of the k most likely classes. It is a class, or a chance of
// each.
tn_tensor *cli_hits(tn_tensor *y, tn_tensor *target, int64_t k);
enum {
    CLI_TOP         = 5,
    CLI_FEW_CLASSES = 10
};  // of that many classes or fewer, the best five say little

// Makes a network for rows of a table: tn_nn_standardize around body; numbers are in units of the
// target.
tn_layer *cli_tabular(tn_ctx *cx, const cli_facts *f, tn_layer *body);
// Computes means and deviations from the data, and assigns them.
tn_status cli_tabular_fit(tn_layer *net, const cli_facts *f, tn_data *data);

// ---- text --------------------------------------------------------------------------------------

// The newest tokens of a text: first the prompt; always at least the context of the network.
typedef struct {
    int64_t *ids;  // owned
    int64_t  count, room;
} cli_tokens;

// Reads the tokens of a prompt (of a newline if it has none), with room for more; `special` adds
// those that the tokenizer puts around a text, such as <s>. Returns false on failure, with the
// error in the context.
bool cli_tokens_read(tn_ctx *cx, const char *prompt, tn_tokenizer *tokenizer, bool special,
                     int64_t more, cli_tokens *t);
// Runs the network on the newest `context` tokens. Returns the logits of the next token.
tn_tensor *cli_tokens_next(tn_layer *net, const cli_tokens *t, int64_t context);
// Returns the bytes of a token, which the caller frees; NULL on failure, with the error in the
// context. A number beyond the tokenizer's, where a network has a round number of them, has no
// bytes.
char *cli_token_text(tn_ctx *cx, tn_tokenizer *tokenizer, int64_t id, int64_t *bytes);

// ---- evaluation --------------------------------------------------------------------------------

typedef struct {
    int64_t items;
    double  loss;
    double  accuracy, top5;  // of classes, 0 .. 1: the most likely is right, or one of five
    double  rmse, r2;        // of numbers
    double  bits_per_byte;   // of text
} cli_score;

// The confusion matrix: count[i * classes + k] items of class i were taken for class k. Owned;
// NULL: not counted.
enum { CLI_MOST_CLASSES = 1000 };  // whose matrix can be looked at
typedef struct {
    int64_t  classes;
    int64_t *count;
} cli_confusion;

// Evaluates on the test part, in order, in evaluation mode. Then sets training mode again. The
// ranks of a world divide the items, and all get the score of all; NULL: this process alone.
// confusion, unless NULL or of too many classes, is counted anew.
tn_status cli_evaluate(tn_dist *dist, tn_layer *net, const cli_source *d, int64_t batch,
                       cli_score *score, cli_confusion *confusion);
// Prints results on stdout. For classes, the last line is the accuracy.
void cli_score_print(const cli_facts *f, const cli_score *score);

// ---- cases to explain and profile --------------------------------------------------------------

// The tensors and objects of a case, of which each case uses some. Everything belongs to the
// context.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *x, *y, *w, *b, *mean, *var, *target;
    tn_layer  *net;
    tn_optim  *opt;
    int64_t    used;  // elements of y that were used
} cli_kit;

// A computation to explain or profile: make creates its inputs, record records it. After `steps`
// steps it is as in the middle of a long run.
typedef struct {
    const char *name, *what;
    void (*make)(cli_kit *k);
    void (*record)(cli_kit *k);
    int steps;
} cli_case;

const cli_case *cli_case_at(int i);  // NULL past the last

// The command line of explain or profile: a case, the list, or a program with its arguments.
// profile is set before parsing and chooses the options: trace and steps, or source; html is of
// both.
typedef struct {
    bool            profile;
    const char     *command, *device, *trace, *html;
    const cli_case *one;
    char          **program;
    int64_t         steps;  // 0: not given
    bool            source, list;
} cli_case_line;

// Returns false, reported, if the command line is wrong: exit with 2.
bool cli_case_line_parse(cli_case_line *l, int argc, char **argv);
// Replaces this process by the program, with an environment variable set for the library. Returns
// 1, reported, if it cannot be run.
int cli_case_line_program(const cli_case_line *l, const char *variable, const char *value);
int cli_cases_list(void);
// Runs this many steps of a case, or until one fails.
void cli_case_steps(cli_kit *k, const cli_case *c, int64_t steps);

// ---- a run of training -------------------------------------------------------------------------

enum { CLI_CURVE = 256 };

// The loss over the steps, in at most CLI_CURVE points: when they are full, pairs are merged.
typedef struct {
    int64_t stride;  // steps per point
    int64_t points;  // complete
    int64_t steps;   // in the incomplete point
    double  sum;     // of their losses
    float   y[CLI_CURVE];
} cli_curve;

void cli_curve_add(cli_curve *c, double loss);
void cli_curve_draw(const cli_curve *c);

// The best evaluation so far, of a run with --patience.
typedef struct {
    int64_t   step;   // 0: none yet
    int64_t   since;  // evaluations after it
    cli_score score;
} cli_best;

// The state of a run besides weights, optimizer and data, stored in its checkpoint byte for byte.
// It contains no times, so that equal runs write equal files.
typedef struct {
    int64_t   step;                                     // done
    double    loss, accuracy, weight, accuracy_weight;  // smoothed: sums and their weights
    cli_curve curve;
    cli_best  best;
} cli_memory;

// The measurements of one step, for the log and the progress. NaN: not measured.
typedef struct {
    int64_t          step, steps, epoch, epochs, epoch_steps;
    double           loss, accuracy, lr, grad_norm, seconds;
    double           rate;       // items per second; of text, tokens
    double           share;      // of the flops per second that products reach on the device
    double           held_out;   // loss of the newest evaluation
    double           mean_loss;  // smoothed
    double           mean_accuracy;
    bool             epoch_ends;
    int64_t          bytes;  // of tensor memory at most
    cli_task         task;
    const cli_score *score;  // NULL: the network was not evaluated after this step
} cli_moment;

// A value of a moment by its name in the log, "test_loss".
enum { CLI_MEASURES = 12 };
typedef struct {
    const char *name;
    double      v;
    int         digits;  // in the log
} cli_measure;

// Fills the list with what was measured in a step. Returns how many values there are.
int cli_measures(const cli_moment *m, cli_measure list[CLI_MEASURES]);

// Progress on stderr: a bar on a terminal, otherwise lines every few seconds.
typedef struct {
    bool    quiet, bar, colours, utf8;
    int64_t every;         // steps between lines, 0: by time
    double  drawn, lined;  // when the newest bar or line was drawn, and the newest line
    double  began;
    int64_t first_step;  // done before this process
} cli_progress;

void cli_progress_begin(cli_progress *p, const cli_settings *s, int64_t first_step);
void cli_progress_step(cli_progress *p, const cli_moment *m);
void cli_progress_end(cli_progress *p);  // erases the bar

// After cli_signals_begin, the first SIGINT or SIGTERM only requests a stop, with a message unless
// quiet; the second ends the process at once. cli_signals_asked returns the requesting signal, or
// 0. cli_signals_end restores the default actions. bar: messages first erase the progress bar.
void cli_signals_begin(bool quiet, bool bar);
int  cli_signals_asked(void);
void cli_signals_end(void);
// From now on, a signal that ends the process (SIGINT, SIGTERM, SIGHUP) first removes this
// incomplete file. The path must stay valid. NULL ends this.
void cli_signals_remove(const char *path);

// A training run. Datasets, network and optimizer belong to the context, settings to the caller,
// everything else to the run. Only `memory` outlives the process, in the checkpoint.
typedef struct {
    cli_settings    *s;
    tn_ctx          *cx;
    tn_dist         *dist;  // the ranks that train together; one without a launcher
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
    tn_tensorboard  *board;
    tn_report       *report;
    cli_confusion    confusion;     // of the newest evaluation, for the report
    uint32_t         sinks_failed;  // bit i: sink i could not be written, and was let go
    char             sink_error[256];
    char            *notes;  // of the checkpoint: memory and settings, as saved.c writes them
    size_t           notes_bytes;

    double    began, saved;  // the clock when this process began to train, and when it last saved
    double    ended;         // when the last step was scored; 0: not yet
    double    earlier;       // seconds that the log has of processes before it
    int64_t   first_step;    // done before this process
    double    items, busy;   // of the newest steps, smoothed: items, and seconds of training alone
    int64_t   item_tokens;   // tokens of an item; 1 if it is no text
    double    token_flops, peak;  // of a token; what the device reaches in a second; 0: not known
    bool      is_scored;          // by this process
    cli_score score;
    int       signal;  // that stopped it, or 0
    bool      late;    // rank 0 has not saved for a while
} cli_run;

// Opens the device, the data, the network and (resume) what was saved. Returns the exit status.
int cli_run_open(cli_run *r, cli_settings *s);
// Trains to the end or to a signal; evaluates, and prints the results. Returns the exit status.
int  cli_run_train(cli_run *r);
void cli_run_close(cli_run *r);
// Whether the last --patience evaluations brought no improvement.
bool cli_is_out_of_patience(const cli_run *r);
// The seconds of this process, up to the end of the run.
double cli_run_seconds(const cli_run *r);

// Where the measurements of a run go: the table in sinks.c. Opens those that the settings ask for;
// false, reported, on failure.
bool cli_sinks_open(cli_run *r);
// Whether anything but the terminal is written: then more is measured.
bool cli_sinks_want(const cli_run *r);
// Whether a step is one of --every, or the last.
bool cli_sink_is_due(const cli_run *r, const cli_moment *m);
void cli_sinks_step(cli_run *r, const cli_moment *m);
void cli_sinks_end(cli_run *r);  // the last step is done, or the run is stopped
void cli_sinks_close(cli_run *r);
// The context's error, as why a sink could not be written; clears it, since the run goes on.
const char *cli_sink_error(cli_run *r);

// The sinks, by what sinks.c asks of each. The log has one JSON object per line. A resumed run
// first removes the records after its step, and sets r->earlier to the time of the last remaining
// one.
bool        cli_log_open(cli_run *r);
const char *cli_log_step(cli_run *r, const cli_moment *m);
void        cli_log_close(cli_run *r);

// The parameters that are trained and, unless gx is NULL, their gradients, in a step that has
// histograms. Starts zeroed.
typedef struct {
    tn_tensor **x, **gx;
    char      **name;
    int         count, room;
} cli_trained;

// TensorBoard's event file.
bool        cli_board_open(cli_run *r);
const char *cli_board_step(cli_run *r, const cli_moment *m);
void        cli_board_close(cli_run *r);
// Whether a step has histograms; recording their gradients, before the step, and writing them,
// after it.
bool cli_board_wants(const cli_run *r, int64_t step);
void cli_board_record(cli_run *r, tn_tensor *loss, cli_trained *p);
void cli_board_histograms(cli_run *r, int64_t step, cli_trained *p);

// The page of the run, which replaces a page of a run, but no other file.
bool        cli_is_run_page(const char *path);
bool        cli_report_open(cli_run *r);
const char *cli_report_step(cli_run *r, const cli_moment *m);
const char *cli_report_end(cli_run *r);
void        cli_report_close(cli_run *r);

// ---- saved networks ----------------------------------------------------------------------------

// All ranks together: rank 0 writes.
tn_status cli_run_save(cli_run *r);
// Whether this process was started again by `tenon launch --restarts`, and saved after the first
// start.
bool cli_is_restart(const cli_settings *s);
// Whether a new run may be saved where settings.save says: not over one that is finished, without
// --force. False, reported on stderr.
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
    bool             folder;   // of Hugging Face's: its config.json says everything
} cli_saved;

// Folders of Hugging Face's, with config.json and safetensors.
bool cli_is_folder(const char *path);
// Open the settings and the weights of a folder. NULL, with the error in the context, on failure.
tn_file *cli_folder_config(tn_ctx *cx, const char *path);
tn_file *cli_folder_weights(tn_ctx *cx, const char *path);
// Reads the settings of a folder into s, and facts. False, reported.
bool cli_folder_open(tn_ctx *cx, cli_settings *s, const char *path, cli_saved *f);
// Builds and loads its network. NULL, reported on stderr, on failure.
tn_layer *cli_folder_build(tn_ctx *cx, const cli_settings *s, const char *path);

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

// ---- models of files ---------------------------------------------------------------------------

// Whether argv[*i] is the option of this name. If so, sets *value to the text after "=" or the next
// argument; NULL, reported, if there is none.
bool cli_line_option(const char *command, int argc, char **argv, int *i, const char *name,
                     const char *form, const char **value);

// NAME=VALUE of the command line.
enum { CLI_MOST_PAIRS = 256, CLI_MOST_PORTS = 256 };
typedef struct {
    const char *name;
    size_t      length;  // of the name
    const char *value;
} cli_pair;
// The pair of that name; NULL if there is none.
const cli_pair *cli_pair_find(const cli_pair *list, int count, const char *name);

// The command line of a command about models; uses is set before parsing.
enum { CLI_RUNS = 1, CLI_TIMES = 2, CLI_SHOWS = 4, CLI_COMPARES = 8 };
typedef struct {
    unsigned    uses;
    const char *command, *model[2], *device, *html;
    cli_pair    input[CLI_MOST_PAIRS], output[CLI_MOST_PAIRS], dim[CLI_MOST_PAIRS];
    int         inputs, outputs, dims;
    int64_t     threads, top, warmup;
    double      seconds, tolerance;
    tn_dtype    precision;
    bool        nodes;
} cli_model_line;
bool cli_model_line_parse(cli_model_line *l, int argc, char **argv);

// A model of a file: of ONNX, or a network that was saved by train. Both belong to the context.
typedef struct {
    tn_ctx      *cx;
    tn_onnx     *onnx;  // NULL: layer is the model
    tn_layer    *layer;
    cli_settings settings;
    cli_saved    saved;
    tn_onnx_port port;  // the input of a layer
    int          ins, outs;
    double       seconds;  // that opening took
} cli_net;

// Opens the model, in a context by the line's device and threads; cx NULL: in a new one, which
// cli_net_close closes. False, reported, on failure.
bool cli_net_open(cli_net *n, tn_ctx *cx, const cli_model_line *l, const char *path);
void cli_net_close(cli_net *n, bool with_context);
// The inputs that the line asks for, else random numbers; false, reported, on failure.
bool         cli_net_inputs(cli_net *n, const cli_model_line *l, tn_tensor **x);
tn_onnx_port cli_net_input(const cli_net *n, int i);
const char  *cli_net_output(const cli_net *n, int i);
// Runs it; the outputs, and what else is named. The error is in the context.
tn_status cli_net_run(cli_net *n, tn_tensor *const *x, int ny, const char *const *names,
                      tn_tensor **y);
// The script of the page of `tenon show --html`: model_page.js, which the build embeds.
extern const char cli_model_page_js[];
// Writes "f32 (1, 1000)".
void cli_write_shape(char *to, size_t size, tn_onnx_port p);

// ---- pictures ----------------------------------------------------------------------------------

// A class that a network sees in a picture.
typedef struct {
    const char *name;
    double      chance;
} cli_guess;

// Prints a picture (C, H, W) in [0, 1] on stdout, and beside it n guesses, the most likely first.
// False, with the error in the context, on failure.
bool cli_answer(const char *title, tn_tensor *x, int n, const cli_guess *guess);
// The first n items of a dataset of grey images (B, 1, H, W), drawn on stdout with what the network
// takes them for.
tn_status cli_pictures(tn_layer *net, tn_data *data, int n);

#endif
