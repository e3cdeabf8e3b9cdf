// main.c: the tool `tenon`. A table of commands, those that take a line or two, and the help.
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef int command_fn(int argc, char **argv);

// A command. `tenon help NAME` prints `more` before the table of options.
typedef struct {
    const char *name, *what, *usage, *more;
    command_fn *run;
    unsigned    options;  // of options.c; 0: none
} command;

static command_fn help, version, doctor, devices;

static const char spec_help[] =
    "\nSPEC, where the data is:\n"
    "  digits[:count=N]        drawn digits, 28 x 28, generated on demand; nothing to download\n"
    "  idx:DIR                 MNIST, or data in its format: train-* and t10k-*, plain or .gz\n"
    "  cifar10:DIR             data_batch_1.bin ... and test_batch.bin\n"
    "  images:DIR[:size=N]     a folder of JPEG and PNG files for each class, in DIR or in DIR/train and\n"
    "                          DIR/val; resized to :resize=N (8/7 of the size), N (224) of the middle\n"
    "  csv:FILE[:target=COL]   a table; the target is a column by name or number, else the last;\n"
    "                          add :header=no if the first line is data\n"
    "  text:FILE               a text, for gpt2 and llama\n"
    "A tenth of csv, text and images without DIR/train is held out for the test, chosen by the seed.\n";

static const command commands[] = {
    { "train", "trains a network", "--model NAME --data SPEC [OPTION]...",
      "Trains, evaluates on held-out data, and saves. Ctrl-C stops after the current step, saves, and\n"
      "prints how to resume; a second Ctrl-C ends the run at once.\n",
      cli_train, CLI_TRAIN },
    { "eval", "evaluates a trained network", "--load FILE [--data SPEC] [OPTION]...",
      "The file names its network and the data it was trained on. Of a table or text that it was\n"
      "trained on, only the held-out part counts; other files count as a whole. For weights of another\n"
      "program, which do not name their network, give --model, its sizes, and --data.\n",
      cli_eval, CLI_EVAL },
    { "predict", "applies a trained network to new data",
      "--load FILE [OPTION]... INPUT...\n       tenon predict --load FILE --prompt TEXT [OPTION]...",
      "Writes CSV: one line for each row, image or line of text, with the most likely class or next\n"
      "token and its probability, or the number in the units of the target. An INPUT depends on the\n"
      "network:\n"
      "  a table        csv, plain or .gz; the target may be missing and is ignored\n"
      "  images         JPEG, PNG, PGM, PPM, npy (bytes, or numbers as in training) or IDX\n"
      "  text           a file; the token after each of its lines is predicted\n"
      "With several INPUTs, the first column is the file. In a terminal, a network that was trained on\n"
      "images:DIR shows each picture instead, with the five most likely classes.\n",
      cli_predict, CLI_PREDICT },
    { "sample", "writes text with a trained gpt2 or llama",
      "--load FILE [--prompt TEXT] [OPTION]...",
      "Prints the text while it is generated. The same seed gives the same text.\n", cli_sample,
      CLI_SAMPLE },
    { "run", "runs a model", "MODEL [--input NAME=WHAT]... [--output NAME=FILE.npy]... [OPTION]...",
      "MODEL is an ONNX file, or a network that train saved. An input is a file .npy, a picture for\n"
      "models of pictures, text:TEXT for networks that were trained on text, random, zeros or ones;\n"
      "random numbers by default. Outputs that are not written are described.\n"
      "  --dim NAME=N       a size that the file leaves open, by its name; 1 by default\n"
      "  --top N            of rows of classes, show the N largest (5)\n"
      "  --precision NAME   compute in f16 or bf16 instead of f32\n"
      "  --device NAME, --threads N\n",
      cli_run_model, 0 },
    { "bench", "times a model", "MODEL [--input NAME=WHAT]... [OPTION]...",
      "Prints the latency, the throughput and the memory of a model, see tenon help run.\n"
      "  --seconds X        to time it for (3), at least 5 runs\n"
      "  --warmup N         runs before that (10)\n"
      "  --dim NAME=N, --precision NAME, --device NAME, --threads N\n",
      cli_bench_model, 0 },
    { "show", "shows a model: its graph, sizes, flops, and where its time goes",
      "MODEL [--nodes] [--html FILE] [OPTION]...",
      "Runs a model on inputs as tenon run does, and prints its inputs, outputs and ops, its weights and\n"
      "flops, and the time of its kernels with the nodes they compute.\n"
      "  --nodes            a line for each node\n"
      "  --html FILE        a page instead: the graph, time and memory; it needs no network\n"
      "  --input NAME=WHAT, --dim NAME=N, --precision NAME, --device NAME, --threads N\n",
      cli_show_model, 0 },
    { "compare", "compares two models on the same inputs, two runs or two profiles",
      "MODEL MODEL [OPTION]...\n       tenon compare TRACE TRACE [--html FILE]\n       tenon compare RUN RUN [--html FILE]",
      "Of models, compares the outputs, in order, and of ONNX files the values inside that have one name in\n"
      "both; the first difference is named. Exits with 1 if outputs differ. Of two profiles, as tenon profile\n"
      "--trace writes them, prints the times of both by kernel, the largest difference first.\n"
      "Of two runs, the pages of train --report or the logs of --log, prints settings that differ, results and\n"
      "the ends of curves. --html also writes a page, with the curves of both runs.\n"
      "  --tolerance X      of the largest element, at least 1 (1e-4)\n"
      "  --input NAME=WHAT, --dim NAME=N, --precision NAME, --device NAME, --threads N\n",
      cli_compare, 0 },
    { "info", "lists the tensors of a file", "FILE",
      "Name, dtype, shape and size of every tensor of a safetensors or npy file, and its metadata;\n"
      "of a folder with a model of Hugging Face's, those of all its files, and its config.json.\n",
      cli_info, 0 },
    { "demo", "trains lenet on digits and shows its predictions", "[OPTION]...",
      "Runs `tenon train` with settings for a first look. Options override them.\n", cli_demo,
      CLI_DEMO },
    { "explain", "shows the kernels of a computation",
      "CASE [--device NAME] [--source] [--html FILE]\n       tenon explain --list\n"
      "       tenon explain [--device NAME] [--source | --html FILE] -- PROGRAM [ARGUMENT]...",
      "Prints the kernels of a case, or on stderr those of every plan that a program builds: the bytes\n"
      "they move and the least possible, their sizes, their source lines, and the memory for\n"
      "intermediate values. --list lists the cases, --source adds the text of the kernels. --html writes a\n"
      "page: the kernels as a graph, with all of this, the text of a kernel on a click; it needs no network.\n"
      "TN_EXPLAIN=FILE does the same for any program.\n",
      cli_explain, 0 },
    { "profile", "times the kernels of a computation",
      "CASE [--device NAME] [--steps N] [--trace FILE] [--html FILE]\n       tenon profile --list\n"
      "       tenon profile [--device NAME] [--trace FILE | --html FILE] -- PROGRAM [ARGUMENT]...",
      "Prints the kernels of N steps of a case (20), or on stderr those of a whole program: their time,\n"
      "bytes and flops per second, the share of the rate of a large copy or product on this machine,\n"
      "and their source lines. --list lists the cases. --trace writes every run of a kernel to a file\n"
      "whose name ends in .json, for Perfetto or chrome://tracing; --html a page with timeline, table,\n"
      "roofline and memory, which needs no network. TN_PROFILE=FILE does the same for any program.\n",
      cli_profile, 0 },
    { "tune", "measures how kernels run fastest, and keeps it",
      "[--seconds N] [--device NAME] CASE | PROGRAM [ARGUMENT]...\n       tenon tune --list\n"
      "       tenon tune [--import FILE] [CASE] [--export FILE]",
      "Measures the kernels of a case or of a program under other settings than those that rules\n"
      "choose, and other ways to fuse and store what it computes, for N seconds (20), and prints on\n"
      "stderr what won. Winners are kept in the cache folder for this chip and used by all later\n"
      "programs. --export writes them to a file, --import adds those of a file; with a CASE, these\n"
      "are known before it is measured, and the file is written behind it. --list lists the cases.\n"
      "TN_TUNE=0 leaves everything to the rules.\n",
      cli_tune, 0 },
    { "launch", "runs several ranks of a program on this machine",
      "-n N [--engine mpi|nccl] [--restarts K] [--] PROGRAM [ARGUMENT]...",
      "Starts N processes of a program that opens a world (tn_dist_open): for MPI by the mpiexec in\n"
      "PATH, for NCCL by itself. Without --engine it is NCCL if TN_DEVICE is cuda. Each line that a\n"
      "rank prints begins with its number. When one fails, all are ended, with its status; then\n"
      "--restarts starts them again, up to K times, for a program that resumes from what it saved.\n"
      "TN_RESTART counts the restarts. Unless they are set, TN_DEVICE is cpu (NCCL: cuda), and\n"
      "TN_NUM_THREADS each rank's part of the cores. Ranks on cuda have a GPU each, in order.\n",
      cli_launch, 0 },
    { "devices", "lists the devices of this build", "",
      "One line each: the name for --device, whether it is available, and the chip and libraries.\n",
      devices, 0 },
    { "doctor", "shows what Tenon found, where, and what is missing", "",
      "Version, devices, threads, the BLAS in use, what decodes pictures and connects ranks, and the\n"
      "TN_ variables that are set.\n",
      doctor, 0 },
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
        printf("  %-14s  %s\n                  %s\n", m->name, m->what, m->defaults);
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

// Whether the command line has at most this many words. Reports the first one too many.
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
    for (int i = 0; i < tn_device_count(); i++) {
        tn_device_desc d = tn_device_info(i);
        printf("%-8s %-9s %s\n", d.name, d.available ? "ready" : "missing", cli_shown(d.detail));
    }
    return 0;
}

// If a standard stream is closed, the next file that is opened would take its number and receive
// the output. Opens a stand-in for it that cannot be written, so that writing fails and is
// reported.
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
