// main.c: the tool `tenon`. A table of commands, and those that take a line or two.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <unistd.h>

typedef int command_fn(int argc, char **argv);

typedef struct {
    const char *name, *what;  // one line each
    const char *more;         // what `tenon help NAME` adds
    command_fn *run;
} command;

static command_fn help, version, doctor, devices;

static const command commands[] = {
    { "demo", "fits a curve with autograd and draws it",
      "Trains a small network on noisy points, on the device that TN_DEVICE names or the fastest\n"
      "present, prints the loss as it falls, and draws the points and the curve.\n",
      cli_demo },
    { "devices", "lists the devices of this build",
      "One line each: the name that tn_open takes, whether it can be used, and what serves it.\n",
      devices },
    { "doctor", "says what was found, where, and what is missing",
      "Version, devices, threads, the BLAS in use, and the TN_ variables that are set.\n", doctor },
    { "version", "prints the version", "The same as tenon --version.\n", version },
    { "help", "explains a command: tenon help COMMAND", "Without a command, lists them all.\n",
      help },
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
    fprintf(f, "usage: tenon COMMAND\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(f, "  %-8s  %s\n", commands[i].name, commands[i].what);
}

static int unknown(const char *name)
{
    fprintf(stderr, "tenon: there is no command \"%s\"\n", name);
    usage(stderr);
    return 2;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        usage(stdout);
        return 0;
    }
    const command *c = find(argv[1]);
    if (!c) return unknown(argv[1]);
    printf("tenon %s: %s\n\n%s", c->name, c->what, c->more);
    return 0;
}

static int version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("tenon %s\n", tn_version());
    return 0;
}

static int doctor(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    tn_doctor(stdout);
    return 0;
}

static int devices(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < tn_devices(); i++) {
        tn_device_desc d = tn_device_info(i);
        printf("%-8s %-9s %s\n", d.name, d.available ? "ready" : "missing", d.detail);
    }
    return 0;
}

bool cli_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const command *c = find(argv[1]);
    if (!c) return unknown(argv[1]);
    int status = c->run(argc - 1, argv + 1);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "tenon: the output could not be written\n");
    return 1;
}
