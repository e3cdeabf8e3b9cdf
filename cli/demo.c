// demo.c: `tenon demo`, a training run with settings for a first look: lenet learns drawn digits,
// and shows its predictions for some of them.
#include "cli.h"

enum { SHOWN = 10 };  // images

// Sized to take about a minute.
static const char preset[] = "model=lenet data=digits limit=25000 epochs=2 batch=64";

// Prints commands to try next, with the name that this program was called by.
static void say_what_next(const cli_settings *s)
{
    static const char *const next[] = {
        " train --model mlp --data digits --save mlp.safetensors --report mlp.html",
        NULL,  // eval
        " train --model gpt2 --data text:FILE --save gpt2.safetensors",
        " sample --load gpt2.safetensors --prompt \"Once\"",
        " explain mlp_step --html kernels.html",
        " profile mlp_step --html profile.html",
        " help train"
    };
    puts("Try next:");
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        fputs("  ", stdout);
        cli_print_word(stdout, s->program);
        if (next[i]) fputs(next[i], stdout);
        else {
            fputs(" eval --load ", stdout);
            cli_print_word(stdout, s->save ? s->save : "mlp.safetensors");
            fputs(" --data ", stdout);
            cli_print_word(stdout, s->save ? s->data : "digits");
        }
        putchar('\n');
    }
}

int cli_demo(int argc, char **argv)
{
    cli_settings s;
    cli_run      r;
    if (!cli_options_parse(&s, CLI_DEMO, argc, argv)) return 2;
    cli_options_default(&s, preset);
    int status = cli_run_open(&r, &s);
    if (status == 0) status = cli_run_train(&r);
    if (status == 0 && r.is_scored && tn_dist_rank(r.dist) == 0) {
        putchar('\n');
        if (cli_pictures(r.net, r.data.test, SHOWN) != TN_OK) status = cli_fail_of(r.cx);
        else say_what_next(&s);
    }
    cli_run_close(&r);
    cli_settings_free(&s);
    return status;
}
