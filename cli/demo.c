// demo.c: `tenon demo`, a run of training with settings that suit a first look: lenet learns drawn
// digits, and shows what it takes some of them for.
#include "cli.h"

enum { SHOWN = 10 };

static const char preset[] = "model=lenet data=digits limit=25000 epochs=2 batch=64";

static void say_what_next(const cli_settings *s)
{
    const char *tenon = s->program;
    printf("Try next:\n"
           "  %s train --model mlp --data digits --save mlp.safetensors\n",
           tenon);
    if (s->save) printf("  %s eval --load %s --data %s\n", tenon, s->save, s->data);
    else printf("  %s eval --load mlp.safetensors --data digits\n", tenon);
    printf("  %s train --model gpt2 --data text:FILE --save gpt2.safetensors\n"
           "  %s sample --load gpt2.safetensors --prompt \"Once\"\n"
           "  %s help train\n",
           tenon, tenon, tenon);
}

int cli_demo(int argc, char **argv)
{
    cli_settings s;
    cli_run      r;
    if (!cli_options_parse(&s, CLI_DEMO, argc, argv)) return 2;
    cli_options_default(&s, preset);
    int status = cli_run_open(&r, &s);
    if (status == 0) status = cli_run_train(&r);
    if (status == 0 && r.is_scored) {
        putchar('\n');
        if (cli_pictures(r.net, r.data.test, SHOWN) != TN_OK) status = cli_fail_of(r.cx);
        else say_what_next(&s);
    }
    cli_run_close(&r);
    cli_settings_free(&s);
    return status;
}
