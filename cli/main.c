// main.c: the tool `tenon`. A table of commands, those that take a line or two, and the help.
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef int command_fn(int argc, char **argv);

// A command. `more` is what `tenon help NAME` says before the table of options.
typedef struct {
    const char *name, *what, *usage, *more;
    command_fn *run;
    unsigned    options;  // of options.c; 0: none
} command;

static command_fn help, version, doctor, devices;

static const char spec_help[] =
    "\nSPEC, where the data is:\n"
    "  digits[:count=N]        drawn digits, 28 x 28, made as they are needed; nothing to download\n"
    "  idx:DIR                 MNIST and its kin: train-* and t10k-*, plain or .gz\n"
    "  cifar10:DIR             data_batch_1.bin ... and test_batch.bin\n"
    "  csv:FILE[:target=COL]   a table; predicts a column, by name or number, else the last;\n"
    "                          :header=no where the first line is data\n"
    "  text:FILE               a text, for gpt2\n"
    "Of csv and text a tenth is held out for the test, chosen by the seed.\n";

static const command commands[] = {
    { "train", "trains a network", "--model NAME --data SPEC [OPTION]...",
      "Trains, evaluates on data that was not trained on, and saves. Ctrl-C stops after the step,\n"
      "saves, and says how to resume; once more ends it at once.\n",
      cli_train, CLI_TRAIN },
    { "eval", "evaluates a trained network", "--load FILE [--data SPEC] [OPTION]...",
      "The file knows its network, and the data it was trained on. Of a table or text that it was\n"
      "trained on, only what was held out counts; other files count as a whole. Weights of another\n"
      "program, which say nothing of their network, want it named: --model, its sizes, and --data.\n",
      cli_eval, CLI_EVAL },
    { "predict", "says what a trained network makes of new data",
      "--load FILE [OPTION]... INPUT...\n       tenon predict --load FILE --prompt TEXT [OPTION]...",
      "Writes CSV: a line for every row, image or line of text, with the likeliest class or next token\n"
      "and its probability, or the number, in the target's own units. An INPUT is, by the network:\n"
      "  a table        csv, plain or .gz, with or without the target, which is not looked at\n"
      "  images         npy (bytes, or numbers as in training), IDX, PGM or PPM; no PNG or JPEG yet\n"
      "  text           a file; what comes after each of its lines is predicted\n"
      "With several INPUTs the first column is the file.\n",
      cli_predict, CLI_PREDICT },
    { "sample", "writes text with a trained gpt2", "--load FILE [--prompt TEXT] [OPTION]...",
      "The text appears as it is made. The same seed gives the same text.\n", cli_sample,
      CLI_SAMPLE },
    { "info", "lists the tensors of a file", "FILE",
      "Name, dtype, shape and size of every tensor of a safetensors or npy file, and its metadata.\n",
      cli_info, 0 },
    { "demo", "trains lenet on digits and shows what it sees", "[OPTION]...",
      "A run of `tenon train` with settings that suit a first look; each can be given.\n", cli_demo,
      CLI_DEMO },
    { "explain", "shows the kernels that a computation becomes",
      "CASE [--device NAME] [--source]\n       tenon explain --list\n"
      "       tenon explain [--device NAME] [--source] -- PROGRAM [ARGUMENT]...",
      "The kernels of a case, or of every plan that a program builds, on stderr there: the bytes they\n"
      "move and the least that must be moved, their sizes, the lines they come from, the memory for\n"
      "what lies between them. --list lists the cases, --source adds the kernels' text.\n",
      cli_explain, 0 },
    { "profile", "times the kernels of a computation",
      "CASE [--device NAME] [--steps N] [--trace FILE]\n       tenon profile --list\n"
      "       tenon profile [--device NAME] [--trace FILE] -- PROGRAM [ARGUMENT]...",
      "The kernels of N steps of a case (20), or of all that a program does, on stderr there: how long\n"
      "they took, the bytes and flops a second that this is, beside what this machine's large copies and\n"
      "products reach, and the lines they come from. --list lists the cases. --trace writes every run of\n"
      "a kernel to a file whose name ends in .json, for Perfetto or chrome://tracing.\n",
      cli_profile, 0 },
    { "devices", "lists the devices of this build", "",
      "One line each: the name that --device takes, whether it can be used, and what serves it.\n",
      devices, 0 },
    { "doctor", "says what was found, where, and what is missing", "",
      "Version, devices, threads, the BLAS in use, and the TN_ variables that are set.\n", doctor,
      0 },
    { "version", "prints the version", "", "The same as tenon --version.\n", version, 0 },
    { "help", "explains a command: tenon help COMMAND", "[COMMAND]",
      "Without a command, lists them all.\n", help, 0 },
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const command *find(const char *name)
{
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) name = "version";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

static void usage(FILE *f)
{
    fprintf(f, "usage: tenon COMMAND [OPTION]...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(f, "  %-8s  %s\n", commands[i].name, commands[i].what);
    fprintf(f, "\ntenon help COMMAND explains one.\n");
}

static int unknown(const char *name)
{
    fprintf(stderr, "tenon: there is no command \"%s\"\n", cli_shown(name));
    usage(stderr);
    return 2;
}

static void explain_models(void)
{
    const cli_model *m;
    puts("\nNAME, the network, and its defaults:");
    for (int i = 0; (m = cli_model_at(i)) != NULL; i++)
        printf("  %-8s  %s\n            %s\n", m->name, m->what, m->defaults);
}

static int explain(const command *c)
{
    printf("tenon %s: %s\n\nusage: tenon %s%s%s\n\n%s", c->name, c->what, c->name,
           *c->usage ? " " : "", c->usage, c->more);
    if (c->options) cli_options_help(c->options);
    if (c->options & (CLI_TRAIN | CLI_EVAL)) explain_models();
    if (c->options & (CLI_TRAIN | CLI_EVAL)) fputs(spec_help, stdout);
    return 0;
}

// Returns whether the command line has at most this many words. Reports the first that is too many.
static bool ends_after(int words, int argc, char **argv)
{
    if (argc <= words) return true;
    fprintf(stderr, "tenon %s: \"%s\" is one word too many; see tenon help %s\n", argv[1],
            cli_shown(argv[words]), argv[1]);
    return false;
}

static int help(int argc, char **argv)
{
    if (!ends_after(3, argc, argv)) return 2;
    if (argc < 3) {
        usage(stdout);
        return 0;
    }
    const command *c = find(argv[2]);
    return c ? explain(c) : unknown(argv[2]);
}

static int version(int argc, char **argv)
{
    if (!ends_after(2, argc, argv)) return 2;
    printf("tenon %s\n", tn_version());
    return 0;
}

static int doctor(int argc, char **argv)
{
    if (!ends_after(2, argc, argv)) return 2;
    tn_doctor(stdout);
    return 0;
}

static int devices(int argc, char **argv)
{
    if (!ends_after(2, argc, argv)) return 2;
    for (int i = 0; i < tn_devices(); i++) {
        tn_device_desc d = tn_device_info(i);
        printf("%-8s %-9s %s\n", d.name, d.available ? "ready" : "missing", cli_shown(d.detail));
    }
    return 0;
}

// With a standard stream closed, the next file that is opened would take its place, and get what is
// printed. What stands in for it here cannot be written, so that the failure is noticed.
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error like others
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const command *c = find(argv[1]);
    if (!c) return unknown(argv[1]);
    argv[1]    = (char *)c->name;  // for messages: it may have been --version
    int status = asks_for_help(argc, argv) ? explain(c) : c->run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "tenon: the output could not be written\n");
    return 1;
}
