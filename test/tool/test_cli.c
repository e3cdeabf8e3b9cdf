// test_cli.c: the tool as its users run it: a process, its output, its files and its signals.
#include "cli_kit.h"
#include "scratch.h"
#include "tiny_bpe.h"
#include "tree.h"

#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The last line that has the text, cut out; NULL when there is none.
static const char *last_line_with(const char *text)
{
    static char line[256];
    const char *at = NULL;
    for (const char *s = out; (s = strstr(s, text)) != NULL; s++) at = s;
    if (!at) return NULL;
    while (at > out && at[-1] != '\n') at--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static double accuracy(void)
{
    const char *line = last_line_with("accuracy");
    double      value;
    int         n = 0;
    if (line && sscanf(line, "test accuracy %lf %%%n", &value, &n) == 1 && n && !line[n])
        return value;
    test_that(false, "the last line with accuracy is: %s", line ? line : "none");
    return -1;
}

// ---- data made here

static uint32_t random_state;

static uint32_t next_random(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void put_big_endian(FILE *f, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8) fputc((int)(v >> shift & 255), f);
}

// Images of rows x 5 pixels; a class is a bright row, if there is that row.
static void write_images(const char *part, uint32_t n, uint32_t rows, uint32_t classes)
{
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    FILE *images = create(name);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    FILE *labels = create(name);
    if (!images || !labels) return;
    put_big_endian(images, 2051);
    put_big_endian(images, n);
    put_big_endian(images, rows);
    put_big_endian(images, 5);
    put_big_endian(labels, 2049);
    put_big_endian(labels, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t label = i == 0 ? classes - 1 : next_random(classes);
        for (uint32_t k = 0; k < 5 * rows; k++)
            fputc((int)(next_random(180) + (k / 5 == label ? 60 : 0)), images);
        fputc((int)label, labels);
    }
    fclose(images);
    fclose(labels);
}

static void write_idx(const char *part, uint32_t n)
{
    write_images(part, n, 6, 6);
}

static void write_table(const char *name, bool classes)
{
    FILE *f = create(name);
    if (!f) return;
    fprintf(f, "area,rooms,town,%s\n", classes ? "size" : "price");
    for (int i = 0; i < 600; i++) {
        static const char *const towns[] = { "Rome", "Oslo", "Lima" };

        int area = 30 + (int)next_random(170), rooms = 1 + (int)next_random(6);
        int town = (int)next_random(3);
        fprintf(f, "%d,%d,%s,", area, rooms, towns[town]);
        if (classes) fprintf(f, "%s\n", area < 80 ? "small" : area < 140 ? "middle" : "large");
        else fprintf(f, "%d\n", 1000 * area * (town + 1) + 5000 * rooms + (int)next_random(3000));
    }
    fclose(f);
}

static void write_text(const char *name)
{
    FILE *f = create(name);
    if (!f) return;
    for (int i = 0; i < 400; i++) fprintf(f, "the cat sat on the mat. ");
    fclose(f);
}

static void write_cifar(const char *name)
{
    FILE *f = create(name);
    if (!f) return;
    for (int i = 0; i < 8; i++) {
        fputc(i, f);
        for (int k = 0; k < 3072; k++) fputc((int)next_random(256), f);
    }
    fclose(f);
}

// ---- help and the command line

static void every_command_has_help(void)
{
    static const char *const commands[] = { "train",  "eval",    "predict", "sample",  "info",
                                            "demo",   "explain", "profile", "devices", "doctor",
                                            "launch", "version", "help" };
    if (!begin()) return;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char first[64];
        runs(0, "tenon help %s", commands[i]);
        snprintf(first, sizeof first, "tenon %s: ", commands[i]);
        CHECK(strncmp(out, first, strlen(first)) == 0);
        prints("usage: tenon ");
        runs(0, "tenon %s --help", commands[i]);
        CHECK(strncmp(out, first, strlen(first)) == 0);
    }
    runs(0, "tenon help train");
    prints("  --epochs N            passes over the data\n");
    prints("  gpt2 ");
    prints("csv:FILE");
    scratch_close();
}

static void wrong_command_lines_name_the_option_and_the_help(void)
{
    static const struct {
        const char *line, *says;
    } wrong[] = {
        { "train --data digits", "--model NAME is needed" },
        { "train --model mlp", "--data SPEC is needed" },
        { "train --model mlp --data digits --nope 3", "there is no option \"--nope\"" },
        { "train --model mlp --data digits --tokens 3", "there is no option \"--tokens\"" },
        { "train mlp", "\"mlp\" is not an option" },
        { "train --epochs", "--epochs needs a value, N" },
        { "train --epochs --quiet", "--epochs needs a value, N" },
        { "train --epochs=", "--epochs needs a whole number from 1, not \"\"" },
        { "train --epochs 0", "--epochs needs a whole number from 1, not \"0\"" },
        { "train --epochs 3x", "not \"3x\"" },
        { "train --epochs 2.5", "not \"2.5\"" },
        { "train --epochs 99999999999999999999", "--epochs needs" },
        { "train --lr nan", "--lr needs a number" },
        { "train --lr=-1", "--lr needs a number" },
        { "train --threads 257", "--threads needs a whole number from 1 to 256" },
        { "train --dropout 1.5", "--dropout needs a number from 0 to 0.99" },
        { "train --batch 9999999999", "--batch needs a whole number from 1 to 1000000000, not" },
        { "train --quiet=yes", "--quiet takes no value" },
        { "train --optim sgdx", "--optim is one of: sgd adam adamw rmsprop adagrad" },
        { "train --precision f8", "--precision is one of: f32 tf32 bf16 f16" },
        { "train --model alexnet", "--model is mlp, lenet, resnet, gpt2 or llama" },
        { "train --data mnist:x", "--data is digits" },
        { "train --data idx", "--data is digits" },
        { "train --data digits:count=many", "--data is digits" },
        { "train --hidden 3,,4", "--hidden is sizes with commas" },
        { "train --augment twist", "--augment is shift=N" },
        { "train --resume", "--resume needs --save" },
        { "train --data csv:x.csv:header=perhaps", "csv:FILE[:target=COLUMN][:header=no]" },
        { "train --model lenet --data digits --hidden 3",
          "--hidden does nothing for --model lenet; it is for: mlp" },
        { "train --model mlp --data digits --depth 20", "--depth does nothing for --model mlp" },
        { "train --model mlp --data digits --tokenizer .",
          "--tokenizer does nothing for --data digits; it is for: text" },
        { "train --model mlp --data csv:x.csv --augment flip",
          "--augment does nothing for --data csv" },
        { "train --model mlp --data digits --momentum 0.5",
          "--momentum does nothing for --optim adam; it is for: sgd rmsprop muon" },
        { "train --model mlp --data digits --save-every 3",
          "--save-every does nothing without --save" },
        { "demo --hidden 3", "--hidden does nothing for --model lenet" },
        { "train --model mlp --data digits --force", "--force does nothing without --save" },
        { "train --resume --force --save x", "--resume continues a run, --force overwrites it" },
        { "version extra",
          "tenon version: \"extra\" is one word too many; see tenon help version" },
        { "--version extra", "\"extra\" is one word too many" },
        { "doctor --nope", "\"--nope\" is one word too many" },
        { "devices cpu", "\"cpu\" is one word too many" },
        { "help train eval", "\"eval\" is one word too many" },
        { "info a b", "one FILE is needed, and \"b\" is one word too many" },
        { "eval extra", "\"extra\" is not an option" },
        { "sample extra", "\"extra\" is not an option" },
        { "demo extra", "\"extra\" is not an option" },
        { "explain --list softmax", "--list and a CASE, softmax: give one of them" },
        { "eval", "--load FILE is needed" },
        { "sample", "--load FILE is needed" },
        { "info", "one FILE is needed" },
        { "explain", "a CASE is needed" },
        { "explain nothing", "there is no case \"nothing\"" },
        { "explain softmax clip", "one CASE at a time: softmax or clip" },
        { "explain --nope", "there is no option \"--nope\"" },
        { "explain softmax --device", "--device needs a value, NAME" },
        { "explain softmax --device=", "--device needs a value, NAME" },
        { "explain --", "a program is needed after --" },
        { "explain softmax -- true", "a CASE or a program, not both" },
        { "explain softmax --steps 3", "there is no option \"--steps\"" },
        { "profile", "a CASE is needed" },
        { "profile softmax --source", "there is no option \"--source\"" },
        { "profile softmax --steps 0", "--steps is a number from 1 to 1000000, not \"0\"" },
        { "profile softmax --steps=x", "--steps is a number from 1 to 1000000, not \"x\"" },
        { "profile --steps 3 -- true", "--steps needs a CASE" },
        { "profile softmax --trace", "--trace needs a value, FILE" },
        { "explain softmax --html x", "--html is a file whose name ends in .html, not \"x\"" },
        { "profile softmax --html x", "--html is a file whose name ends in .html, not \"x\"" },
        { "profile --html x.html --trace x.json -- true", "--trace or --html, not both" },
        { "profile softmax --trace x", "--trace is a file whose name ends in .json, not \"x\"" },
        { "tune", "a CASE, a PROGRAM, --export or --import is needed" },
        { "tune softmax clip", "one CASE at a time: softmax or clip" },
        { "tune softmax -- true", "a CASE or a program, not both" },
        { "tune softmax --seconds 0", "--seconds is a number above 0, not \"0\"" },
        { "tune --export x.txt -- true", "--export and --import are without a PROGRAM" },
    };
    if (!begin()) return;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        runs(2, "tenon %s 2>&1 >/dev/null", wrong[i].line);
        prints(wrong[i].says);
        prints("; see tenon help ");
    }
    scratch_close();
}

static void kernels_of_a_case_and_of_a_program_are_timed(void)
{
    if (!begin()) return;
    runs(0, "tenon profile mlp_step --steps 2 --trace steps.json");
    CHECK(strncmp(out, "mlp_step: profile on ", 21) == 0);
    prints(" in 2 evaluations\n");
    prints("ceiling, measured here: copies ");
    prints("cli/explain_cases.c:");
    prints(" cross_entropy");
    runs(0, "head -c 60 steps.json");
    prints("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernels\":");
    runs(0, "tenon profile -- '" TN_BUILD_DIR
            "/tenon' explain mlp_step 2>table && grep -c '^profile on ' table");
    prints("mlp_step: ");
    prints("\n1\n");
    runs(0, "tenon profile --trace all.json -- '" TN_BUILD_DIR
            "/tenon' explain mlp_step >/dev/null && ls");
    prints("all.json");
    runs(0, "tenon profile --list");
    prints("gpt2_step ");
    scratch_close();
}

// A command that fails with one line, which says so.
static void fails_with(const char *line, const char *says)
{
    runs(1,
         "tenon %s 2>&1 >/dev/null | grep '^tenon: ' >said; cat said; test $(wc -l <said) = 1"
         " && exit 1",
         line);
    prints(says);
}

static void what_cannot_be_done_is_said_in_one_line(void)
{
    static const struct {
        const char *line, *says;
    } wrong[] = {
        { "train --model mlp --data idx:nowhere", "nowhere" },
        { "train --model gpt2 --data digits", "gpt2 is for text" },
        { "train --model mlp --data digits:count=60 --save no/where.safetensors", "no/where" },
        { "train --model mlp --data digits:count=60 --log no/where.jsonl", "--log no/where.jsonl" },
        { "train --model mlp --data digits:count=60 --device abacus", "abacus" },
        { "train --resume --save nothing.safetensors", "nothing.safetensors" },
        { "eval --load nothing.safetensors", "nothing.safetensors" },
        { "train --model mlp --data digits:count=600 --optim sgd --lr 1e30",
          "the loss is not a number after step 2; try a smaller --lr" },
        { "train --model mlp --data digits:count=60 --epochs 2 --accumulate 3",
          "--accumulate 3 is more than the 2 steps of the run" },
        { "train --model mlp --data digits:count=60 --epochs 1 --warmup 1",
          "--warmup 1 is not below the 1 update of the run" },
        { "demo --device abacus", "abacus" },
        { "explain softmax --device abacus", "abacus" },
        { "explain -- ./nowhere", "./nowhere: " },
        { "profile softmax --device abacus", "abacus" },
        { "profile softmax --steps 1 --trace no/where.json", "no/where.json" },
        { "profile -- ./nowhere", "./nowhere: " },
    };
    if (!begin()) return;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fails_with(wrong[i].line, wrong[i].says);
    scratch_close();
}

static void data_that_does_not_do_is_named_before_training(void)
{
    static const struct {
        const char *data, *says;
    } wrong[] = {
        { "csv:one.csv", "csv:one.csv has 1 row; at least 5 are needed" },
        { "csv:bare.csv", "add :header=no to --data" },
        { "csv:t.csv:bogus=3", "csv has no setting \"bogus\"; it has: target, header" },
        { "text:t.csv", "mlp is for images and tables, not for text" },
        { "idx:.", "its training part has 10 classes of 1 x 6 x 5, its test part 12 classes of" },
        { "idx:tall", "its training part has 10 classes of 1 x 6 x 5, its test part 10 classes of 1"
                      " x 7 x 5" },
    };
    if (!begin()) return;
    write_table("t.csv", false);
    runs(0, "head -2 t.csv >one.csv; (echo 1,2; echo 3,4) >bare.csv; mkdir tall");
    write_idx("train", 20);
    write_images("t10k", 20, 6, 12);
    write_idx("tall/train", 20);
    write_images("tall/t10k", 20, 7, 6);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[256];
        snprintf(line, sizeof line, "train --model mlp --data %s", wrong[i].data);
        fails_with(line, wrong[i].says);
    }
    fails_with("train --model lenet --data idx:tall", "its training part has");
    fails_with("train --model lenet --data csv:t.csv", "lenet is for classes of images");
    runs(0,
         "head -6 t.csv >six.csv; tenon train --model mlp --data csv:six.csv --epochs 1 --quiet");
    prints("1 step in ");
    prints("test R2 -\n");
    runs(0, "rm -r tall");
    scratch_close();
}
// ---- training

static void eval_says_what_train_said(void)
{
    if (!begin()) return;
    write_idx("train", 800);
    write_idx("t10k", 200);
    runs(0, "tenon train --model mlp --hidden 24 --data idx:. --epochs=12 --lr 3e-3 --save"
            " m.safetensors");
    double trained = accuracy();
    prints("loss\n");
    CHECK(trained > 60);
    CHECK(strchr(out, '\033') == NULL);
    runs(0, "tenon eval --load m.safetensors --data idx:. --batch 7");
    CHECK(accuracy() == trained);
    prints("200 items");
    runs(0, "tenon eval --load m.safetensors");
    CHECK(accuracy() == trained);
    runs(0, "tenon eval --load m.safetensors --part train");
    prints("800 items");
    runs(1, "tenon eval --load m.safetensors --data digits:count=60");
    prints("does not fit");
    scratch_close();
}

static void quiet_leaves_results_and_errors(void)
{
    if (!begin()) return;
    runs(0, "tenon train --model mlp --data digits:count=300 --quiet 2>&1 >results");
    CHECK_STR(out, "");
    runs(0, "cat results");
    accuracy();
    CHECK(strstr(out, "loss\n") == NULL);  // no curve
    runs(0, "tenon train --model mlp --data digits:count=300 --every 2 2>&1 >results");
    prints("epoch 1/5  step 2/25  loss ");
    prints("  ETA ");
    CHECK(strchr(out, '\r') == NULL);
    scratch_close();
}

static void a_terminal_gets_a_bar(void)
{
    if (!tree_has("script")) SKIP("script is not installed");
    if (!begin()) return;
    runs(0, "TERM=xterm LC_ALL=C script -qec \"'" TN_BUILD_DIR "/tenon' train --model mlp --data"
            " digits:count=6000\" /dev/null");
    prints("\repoch 1/5  ");
    prints("\033[K");
    prints("\033[36m");
    runs(0,
         "TERM=xterm LC_ALL=C NO_COLOR=1 script -qec \"'" TN_BUILD_DIR "/tenon' train --model mlp"
         " --data digits:count=6000\" /dev/null");
    prints("\033[K");
    CHECK(strstr(out, "\033[3") == NULL);
    scratch_close();
}

// In 40 columns no line is longer, and the bar ends with a whole field.
static void a_narrow_terminal_is_not_overrun(void)
{
    if (!tree_has("script")) SKIP("script is not installed");
    if (!begin()) return;
    runs(
        0,
        "TERM=xterm LC_ALL=C NO_COLOR=1 script -qec \"stty cols 40; '" TN_BUILD_DIR
        "/tenon' train --model mlp --data digits:count=6000 --epochs 2\" /dev/null |"
        " tr '\\r' '\\n' | sed 's/\033\\[K//' >seen; grep -c '|' seen;"
        " grep '|' seen | grep -E '.{41}'; grep -E '^epoch [0-9/]+  [-#0-9]' seen | grep -vE"
        " '^epoch ./2  ([-#]+  )?[0-9]+/188  loss [0-9.]{6}(  acc [0-9.]+ %%)?(  [0-9]+/s)?$'; true");
    CHECK_STR(out, "12\n");
    scratch_close();
}

static void two_runs_of_one_seed_are_equal(void)
{
    if (!begin()) return;
    runs(0, "for k in a b; do tenon train --model lenet --data digits:count=200 --seed 5 --epochs 1"
            " --augment shift=1 --quiet --save $k.safetensors --threads $((1 + $(echo $k | grep -c"
            " a))) || exit 9; done; cmp a.safetensors b.safetensors && cmp a.safetensors.state"
            " b.safetensors.state");
    runs(1,
         "tenon train --model lenet --data digits:count=200 --seed 6 --epochs 1 --augment shift=1"
         " --quiet --save b.safetensors --force; cmp a.safetensors b.safetensors");
    scratch_close();
}

// Trains for a while, ends the run by a signal, and goes on: the weights must be those of a run
// that was left alone, and the log whole.
static void stop_and_resume(const char *signal, int status)
{
    if (!begin()) return;
    runs(0,
         "a='--model mlp --hidden 32 --data digits:count=1200 --epochs 30 --accumulate 3"
         " --augment shift=1 --optim adamw --save-every 25 --quiet'\n"
         "tenon train $a --save whole.safetensors\n"
         "'" TN_BUILD_DIR "/tenon' train $a --save it.safetensors --log it.jsonl 2>said & p=$!\n"
         "for i in $(seq 3000); do [ -e it.safetensors.state ] && [ $(wc -l <it.jsonl) -ge 60 ] &&"
         " break; sleep 0.01; done\n"
         "kill -%s $p; wait $p; echo ended with $?; cat said; wc -l <it.jsonl",
         signal);
    char line[64];
    snprintf(line, sizeof line, "ended with %d\n", status);
    prints(line);
    if (status == 130) prints("resume with: ");
    runs(0, "tenon train --resume --save it.safetensors --log it.jsonl\n"
            "cmp whole.safetensors it.safetensors && test $(wc -l <it.jsonl) = 570");
    prints("continuing after step ");
    scratch_close();
}

// A run in 16 bits keeps f32 weights, and with them its copies, its scale and its precision.
static void a_run_in_16_bits_goes_on_exactly(void)
{
    if (!begin()) return;
    runs(0, "a='--model mlp --hidden 16 --data digits:count=300 --schedule constant --quiet'\n"
            "for p in bf16 f16 tf32; do\n"
            "tenon train $a --precision $p --epochs 3 --save whole.$p || exit 9\n"
            "tenon train $a --precision $p --epochs 1 --save it.$p || exit 9\n"
            "tenon train --resume --epochs 3 --save it.$p || exit 9\n"
            "cmp whole.$p it.$p && cmp whole.$p.state it.$p.state || exit 9\n"
            "head -c 900 whole.$p | grep -q '\"F32\"' || exit 9\n"
            "head -c 900 whole.$p | grep -q 'F16\"' && exit 9\n"
            "done; ! cmp -s whole.bf16 whole.f16");
    runs(0, "grep -aq loss_scale whole.f16.state && ! grep -aq loss_scale whole.bf16.state");
    scratch_close();
}

static void a_run_stopped_by_ctrl_c_goes_on_exactly(void)
{
    stop_and_resume("INT", 130);
}

static void a_killed_run_goes_on_exactly(void)
{
    stop_and_resume("KILL", 137);
}

static void a_resumed_run_may_be_longer_but_not_another(void)
{
    if (!begin()) return;
    runs(0,
         "tenon train --model mlp --data digits:count=300 --epochs 2 --quiet --save m.safetensors");
    runs(1, "tenon train --resume --save m.safetensors --lr 0.1");
    prints("--lr cannot change when a run is resumed; m.safetensors has 0.001");
    runs(1, "tenon train --resume --save m.safetensors --epochs 1");
    prints("--epochs may be raised, not lowered, when a run is resumed; m.safetensors has 2");
    runs(0, "tenon train --resume --save m.safetensors --epochs 4 --log m.jsonl");
    prints("continuing after step 10");
    prints("20 steps, 10 of them now, in ");
    runs(0, "tenon info m.safetensors; head -1 m.jsonl");
    prints("epochs          4\n");
    prints("{\"step\": 11, \"epoch\": 3, ");
    CHECK(strstr(out, "\"lr\": 0,") == NULL);  // the schedule is that of the longer run
    runs(1, "rm m.safetensors.state; tenon train --resume --save m.safetensors");
    prints("there is nothing to resume: m.safetensors.state");
    scratch_close();
}

// ---- files

// The limit is above the weights' size, below the state's: the disk is full before the first file
// is whole. Whether the signal of that limit is ignored from the start must not matter.
static void a_run_that_cannot_be_saved_leaves_the_one_before(void)
{
    if (strstr(TN_SANITIZE, "thread"))
        SKIP("the sanitizer itself needs files larger than the limit");
    if (!begin()) return;
    runs(0,
         "tenon train --model mlp --data digits:count=60 --epochs 1 --quiet --save m.safetensors;"
         " mkdir old; cp m.* old");
    for (int ignored = 0; ignored < 2; ignored++) {
        runs(1,
             "%s ulimit -f 300; tenon train --model mlp --data digits:count=60 --epochs 1 --seed 3"
             " --quiet --force --save m.safetensors",
             ignored ? "trap '' XFSZ;" : "");
        prints("m.safetensors.state: File too large");
    }
    runs(0, "for f in m.*; do cmp $f old/$f || exit 1; done; test $(ls | wc -l) = 3 && rm -r old");
    scratch_close();
}

static void a_finished_run_is_not_written_over(void)
{
    if (!begin()) return;
    runs(
        1,
        "a='--model mlp --hidden 8 --data digits:count=120 --quiet --save m.safetensors'; tenon train"
        " $a --epochs 2 && cp m.safetensors first && tenon train $a --epochs 1 --seed 7");
    prints("tenon: --save m.safetensors has a finished run of 4 steps; --resume with more --epochs"
           " continues it, --force overwrites it\n");
    runs(
        0,
        "cmp first m.safetensors; a='--model mlp --hidden 8 --data digits:count=120 --quiet --save"
        " m.safetensors'; mv m.safetensors.state s; ! tenon train $a && mv s m.safetensors.state && rm"
        " m.safetensors && ! tenon train $a && ! tenon demo --save m.safetensors --quiet && tenon"
        " train $a --epochs 1 --seed 7 --force && ! cmp first m.safetensors && tenon train --resume"
        " --save m.safetensors --epochs 2 --quiet");
    prints("tenon: --save m.safetensors has a finished run of 4 steps; --force overwrites it\n");
    // One that was not finished is written over, and so is what is no run.
    runs(
        0,
        "a='--model mlp --hidden 8 --data digits:count=120 --quiet --save u.safetensors'; timeout -s INT"
        " 1 '" TN_BUILD_DIR
        "/tenon' train $a --epochs 1000000; tenon train $a --epochs 1 && echo no"
        " >u.safetensors && echo no >u.safetensors.state && tenon train $a --epochs 1");
    scratch_close();
}

static void a_log_that_cannot_be_written_is_said_at_once(void)
{
    if (access("/dev/full", W_OK) != 0) SKIP("there is no /dev/full");
    if (!begin()) return;
    runs(1, "tenon train --model mlp --hidden 8 --data digits:count=640 --epochs 2 --every 3 --log"
            " /dev/full --save m.safetensors 2>&1");
    const char *said = strstr(
        out, "tenon: --log /dev/full: No space left on device after step 3; the run"
             " continues without it\n");
    const char *line = strstr(out, "step 6/20");
    CHECK(said && line && said < line);
    prints("saved as m.safetensors\n");
    accuracy();
    scratch_close();
}

// What a failure between the two files leaves: a state beside the weights of another run.
static void a_state_needs_nothing_beside_it(void)
{
    if (!begin()) return;
    runs(0,
         "a='--data digits:count=60 --epochs 2 --quiet'; tenon train --model lenet $a --save"
         " old.safetensors; tenon train --model mlp --hidden 9 $a --save m.safetensors\n"
         "cp old.safetensors n.safetensors; cp m.safetensors.state n.safetensors.state\n"
         "cp m.safetensors.state o.safetensors.state\n"
         "for k in m n o; do tenon train --resume --epochs 3 --save $k.safetensors --quiet || exit"
         " 9; done\n"
         "cmp m.safetensors n.safetensors && cmp m.safetensors o.safetensors");
    scratch_close();
}

static void files_that_cannot_be_written_are_refused_at_once(void)
{
    static const struct {
        const char *options, *says;
    } wrong[] = {
        { "--save ''", "--save \"\" is not the name of a file" },
        { "--save folder", "--save folder: it is a folder" },
        { "--save of", "--save of.state: it is a folder" },
        { "--save /dev/null", "--save /dev/null: it is not a regular file" },
        { "--save no/where", "--save no/where: No such file" },
        { "--save link.csv", "--save link.csv and --data t.csv are the same file" },
        { "--log ./link.csv", "--log ./link.csv and --data t.csv are the same file" },
        { "--save x --log ./x", "--save x and --log ./x are the same file" },
        { "--save x --log folder/../x.state", "are the same file" },
    };
    if (!begin()) return;
    write_table("t.csv", false);
    runs(0, "mkdir folder of.state; ln -s t.csv link.csv");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[256];
        snprintf(line, sizeof line, "train --model mlp --data csv:t.csv --epochs 1000000 %s",
                 wrong[i].options);
        fails_with(line, wrong[i].says);
    }
    runs(0, "test $(ls | wc -l) = 5 && rm -r folder of.state");  // with what it said last
    scratch_close();
}

// One record of a log: its step; 0 where it is not an object that has what it should.
static int64_t step_of(const char *line, size_t length)
{
    static const char *const keys[] = { "step", "epoch", "loss", "lr", "samples_per_s", "time" };

    tni_json j;
    int64_t  step = 0, number;
    size_t   seen = 0;
    tni_json_open(&j, line, length);
    if (tni_json_next(&j) != TNI_JSON_OBJECT) return 0;
    while (tni_json_next(&j) == TNI_JSON_KEY) {
        bool is_step = tni_json_is(&j, "step");
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) seen += tni_json_is(&j, keys[i]);
        if (tni_json_next(&j) != TNI_JSON_NUMBER) return 0;
        if (is_step && tni_json_int(&j, &number)) step = number;
    }
    return j.kind == TNI_JSON_OBJECT_END && tni_json_next(&j) == TNI_JSON_END && seen == 6 ? step
                                                                                           : 0;
}

static void the_log_has_an_object_for_every_step(void)
{
    int64_t step = 0;
    if (!begin()) return;
    runs(0,
         "tenon train --model mlp --data digits:count=640 --epochs 3 --eval-every 10 --log l.jsonl"
         " --quiet >results; cat l.jsonl");
    for (const char *s = out; *s; s += strcspn(s, "\n") + 1) {
        int64_t got = step_of(s, strcspn(s, "\n"));
        step++;
        if (!test_that(got == step, "record %d: %.200s", (int)step, s)) break;
    }
    CHECK_INT(step, 30);
    prints("\"accuracy\": ");
    prints("\"test_accuracy\": ");
    runs(0, "tenon train --model mlp --data digits:count=640 --epochs 3 --every 7 --log l.jsonl"
            " --quiet >results; test $(wc -l <l.jsonl) = 5 && tail -1 l.jsonl");
    prints("{\"step\": 30, ");
    scratch_close();
}

static void info_lists_tensors_and_metadata(void)
{
    if (!begin()) return;
    runs(0, "tenon train --model mlp --hidden 16 --data digits:count=60 --epochs 1 --quiet --save"
            " m.safetensors >results; tenon info m.safetensors");
    prints("1.weight  F32     (16, 784)               49.0 KiB\n");
    prints("3.bias    F32     (10,)                       40 B\n");
    prints("4 tensors, 12730 numbers, 49.7 KiB\n");
    prints("  model           mlp\n");
    prints("  hidden          16\n");
    runs(1, "echo nonsense >n.safetensors; tenon info n.safetensors");
    prints("tenon: ");
    scratch_close();
}

static void closed_outputs_harm_no_file(void)
{
    if (!begin()) return;
    runs(1, "tenon train --model mlp --data digits:count=60 --epochs 1 --quiet --save m.safetensors"
            " --log m.jsonl >&-");
    prints("could not be written");
    runs(0, "head -c 9 m.jsonl; tenon eval --load m.safetensors <&- 2>&-");
    prints("{\"step\": ");
    accuracy();
    runs(1, "tenon train --model mlp --data digits:count=60 --epochs 1 --force --save m.safetensors"
            " --log m.jsonl >/dev/full");
    prints("the output could not be written");
    scratch_close();
}

// ---- tables and text

static void a_table_of_classes_is_learned(void)
{
    if (!begin()) return;
    write_table("t.csv", true);
    runs(0, "tenon train --model mlp --data csv:t.csv:target=size --epochs 40 --save t.safetensors"
            " --quiet");
    double trained = accuracy();
    CHECK(trained >= 90);
    runs(0, "tenon eval --load t.safetensors --data csv:t.csv:target=size");
    CHECK(accuracy() == trained);
    prints("60 items");
    runs(0, "cp t.csv other.csv; tenon eval --load t.safetensors --data csv:other.csv:target=size");
    prints("600 items");  // another file is a test as a whole
    scratch_close();
}

static void a_table_of_numbers_is_learned(void)
{
    char rmse[256];
    if (!begin()) return;
    write_table("t.csv", false);
    runs(0, "tenon train --model mlp --data csv:t.csv:target=price --save t.safetensors --quiet");
    const char *line = last_line_with("test R2 ");
    CHECK(line && atof(line + 8) > 0.99);
    line = last_line_with("test rmse ");
    if (CHECK(line != NULL)) snprintf(rmse, sizeof rmse, "%s", line);
    runs(0, "tenon eval --load t.safetensors");
    line = last_line_with("test rmse ");
    if (CHECK(line != NULL)) CHECK_STR(line, rmse);
    runs(1, "sed -i '5s/^/x/' t.csv; tenon train --model mlp --data csv:t.csv:target=price");
    prints("t.csv:5: column 1");
    scratch_close();
}

// What it saves has Hugging Face's names, so with a config.json it is a folder of theirs.
static void a_llama_learns_and_a_folder_is_loaded(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"hidden_size\": 32, \"intermediate_size\": 64, "
        "\"vocab_size\": 256, \"max_position_embeddings\": 24, \"rms_norm_eps\": 1e-05, "
        "\"tie_word_embeddings\": true, \"eos_token_id\": [0]}";
    char text[512];
    if (!begin()) return;
    write_text("t.txt");
    runs(0, "tenon train --model llama --layers 1 --heads 4 --kv-heads 2 --width 32 --hidden 64"
            " --tied --context 24 --data text:t.txt --epochs 4 --lr 5e-3 --save g.safetensors"
            " --quiet");
    CHECK(atof(last_line_with("test perplexity ") + 16) < 3);
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 15 --temperature 0"
            " --quiet");
    prints("the cat sat on the mat");
    snprintf(text, sizeof text, "%.500s", out);
    runs(0, "mkdir folder && cp g.safetensors folder/model.safetensors");
    scratch_write(scratch_path("folder/config.json"), config, strlen(config));
    runs(0, "tenon sample --load folder --prompt 'the cat' --tokens 15 --temperature 0 --quiet");
    CHECK_STR(out, text);
    runs(0, "tenon eval --load folder --data text:t.txt --batch 4");
    prints("test perplexity ");
    runs(0, "tenon info folder");
    prints("model.layers.0.self_attn.k_proj.weight");
    prints("num_key_value_heads  2");
    runs(1, "tenon sample --load folder/nothing");
    runs(1, "rm folder/config.json; tenon sample --load folder");
    prints("config.json: No such file");
    scratch_close();
}

static void a_gpt2_learns_and_writes(void)
{
    char text[512];
    if (!begin()) return;
    write_text("t.txt");
    runs(0,
         "tenon train --model gpt2 --layers 1 --heads 2 --width 32 --context 24 --data text:t.txt"
         " --epochs 4 --lr 5e-3 --save g.safetensors --quiet");
    prints("test perplexity ");
    prints("test bits per byte ");
    CHECK(atof(last_line_with("test perplexity ") + 16) < 3);
    runs(0, "tenon eval --load g.safetensors");
    prints("test perplexity ");
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 40 --seed 3 --top-k 5"
            " --quiet");
    CHECK_INT(strlen(out), 7 + 40 + 1);
    CHECK(strncmp(out, "the cat", 7) == 0);
    snprintf(text, sizeof text, "%.500s", out);
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 40 --seed 3 --top-k 5"
            " 2>rates");
    CHECK_STR(out, text);
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 20 --temperature 0");
    prints("the cat sat on the mat");
    prints("prompt: 7 tokens, ");
    prints("; then 19, ");
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 20 --temperature 0"
            " --top-p 0.5 --repetition-penalty 1 --stop 7,111 --quiet");  // 'o'
    CHECK_STR(out, "the cat sat \n");
    // Text without end: it takes no memory in advance, and Ctrl-C ends it.
    // With a sanitizer a second may be over before its first token.
    runs(130,
         "timeout --preserve-status -s INT %d '" TN_BUILD_DIR
         "/tenon' sample --load g.safetensors --tokens 99999999999 >text; s=$?;"
         " test $(wc -c <text) -ge 50 || exit 9; exit $s",
         TN_SANITIZE[0] ? 10 : 1);
    CHECK_STR(out, "");
    scratch_close();
}

static void a_terminal_gets_no_control_characters(void)
{
    if (!tree_has("script")) SKIP("script is not installed");
    if (!begin()) return;
    write_text("t.txt");
    runs(0,
         "tenon train --model gpt2 --layers 1 --heads 1 --width 8 --context 8 --data text:t.txt"
         " --limit 16 --epochs 1 --save g.safetensors --quiet >results; s='sample --quiet"
         " --load g.safetensors --tokens 200 --temperature 900'; LC_ALL=C tenon $s | LC_ALL=C tr -d"
         " '\\n\\t -~' | wc -c; TERM=xterm LC_ALL=C script -qec \"'" TN_BUILD_DIR
         "/tenon' $s\" /dev/null | LC_ALL=C tr -d '\\r\\n\\t -~' | wc -c");
    CHECK(atoi(out) > 50);  // as they are into a pipe
    prints("\n0\n");
    scratch_close();
}

static void eval_ends_with_ctrl_c(void)
{
    if (!begin()) return;
    runs(130, "tenon train --model lenet --data digits:count=60 --epochs 1 --quiet --save"
              " m.safetensors >results; timeout --preserve-status -s INT 0.5 '" TN_BUILD_DIR
              "/tenon' eval --load m.safetensors --data digits:count=100000000");
    CHECK_STR(out, "");
    CHECK_INT(scratch_count(), 3);
    scratch_close();
}

static void text_can_be_the_tokens_of_a_vocabulary(void)
{
    static tiny_bpe files;
    char            loss[256];
    if (!begin()) return;
    tiny_bpe_make(&files);
    CHECK(tiny_bpe_write(&files));
    write_text("t.txt");
    runs(0,
         "tenon train --model gpt2 --layers 1 --heads 2 --width 32 --context 24 --data text:t.txt"
         " --tokenizer . --epochs 2 --lr 5e-3 --save g.safetensors --quiet");
    runs(0, "tenon train --resume --epochs 4 --save g.safetensors --quiet");
    const char *line = last_line_with("test loss ");
    if (CHECK(line != NULL)) snprintf(loss, sizeof loss, "%s", line);
    // " the" is one token, which makes 18 of 24 bytes; bits are those of a byte, nats those of a
    // token.
    double nats = atof(last_line_with("test loss ") + 10);
    double bits = atof(last_line_with("test bits per byte ") + 19);
    CHECK(bits < 0.85 * nats / log(2));
    runs(0, "tenon eval --load g.safetensors");
    line = last_line_with("test loss ");
    if (CHECK(line != NULL)) CHECK_STR(line, loss);
    runs(0, "tenon sample --load g.safetensors --prompt 'the cat' --tokens 18 --temperature 0");
    prints("the cat sat on the ");
    runs(0, "mkdir v; mv encoder.json vocab.bpe v; tenon sample --load g.safetensors --tokens 1"
            " --prompt the --tokenizer v");
    prints("the");
    runs(1, "tenon sample --load g.safetensors");
    prints("tenon: tokenizer: .: it has no tokenizer.json");
    runs(0, "rm -r v");
    scratch_close();
}

// A folder's tokenizer puts <s> before a prompt, and its generation_config.json may name more end
// tokens.
static void a_folder_is_sampled_as_hugging_face_does(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"hidden_size\": 16, \"intermediate_size\": 24, \"vocab_size\": 907, "
        "\"max_position_embeddings\": 12, \"eos_token_id\": 2}";
    if (!begin()) return;
    write_text("t.txt");
    runs(
        0,
        "mkdir f && cp '" TN_SOURCE_DIR
        "/test/recordings/tokenizers/llama2.json' f/tokenizer.json &&"
        " tenon train --model llama --layers 1 --heads 2 --width 16 --hidden 24 --context 12 --limit 8"
        " --tokenizer f --data text:t.txt --epochs 1 --save g.safetensors --quiet >results &&"
        " cp g.safetensors f/model.safetensors");
    scratch_write(scratch_path("f/config.json"), config, strlen(config));
    runs(0, "tenon sample --load g.safetensors --prompt 'the' --tokens 4 --seed 1");
    prints("prompt: 1 token, ");
    runs(0, "tenon sample --load f --prompt 'the' --tokens 4 --seed 1");
    prints("\nprompt: 2 tokens, ");  // in a line of its own, though stdout and stderr are one
    prints("; then 3, ");
    runs(0, "tenon sample --load f --tokens 4 --seed 1");
    prints("prompt: 1 token, ");
    runs(0, "tenon sample --load f --tokens 4 --prompt 'the cat sat on the mat and the dog'");
    prints("tokens the network sees the last 6: its context is 12\n");
    // All tokens that the first step can choose end the text: the most likely is one of them.
    runs(0, "t=$(tenon predict --load f --prompt the | tail -1 | cut -d, -f2);"
            " echo \"{\\\"eos_token_id\\\": [2, $t]}\" >f/generation_config.json;"
            " tenon sample --load f --prompt the --tokens 4 --temperature 0");
    CHECK_STR(out, "the\n");
    runs(1, "mv f/tokenizer.json t.json; tenon sample --load f --prompt the --tokens 4");
    prints("f has no tokenizer.json, and its 907 tokens are not bytes; give --tokenizer PATH");
    runs(0, "tenon sample --load f --prompt the --tokens 4 --tokenizer t.json");
    scratch_close();
}

static void a_resnet_trains_on_small_images(void)
{
    if (!begin()) return;
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        write_cifar(name);
    }
    write_cifar("test_batch.bin");
    runs(0, "tenon train --model resnet --data cifar10:. --limit 4 --batch 2 --epochs 1 --augment"
            " crop=4,flip --save r.safetensors --quiet");
    prints("2 steps in ");
    double trained = accuracy();
    runs(0, "tenon eval --load r.safetensors");
    CHECK(accuracy() == trained);
    scratch_close();
}

static void the_demo_draws_digits_and_says_what_next(void)
{
    if (!begin()) return;
    runs(0, "LC_ALL=C.UTF-8 tenon demo --limit 320 --epochs 1 --data digits:count=600 --save"
            " d.safetensors");
    accuracy();
    prints("Try next:\n");
    prints("eval --load d.safetensors");
    prints("\xe2\xa0");  // braille
    CHECK(strchr(out, '\033') == NULL);
    runs(0, "LC_ALL=C tenon demo --limit 320 --epochs 1 --data digits:count=600 2>said");
    for (const char *s = out; *s; s++)
        if (!test_that((unsigned char)*s < 128, "byte %d in the C locale", (unsigned char)*s))
            break;
    scratch_close();
}

static void no_command_leaks(void)
{
    if (!strstr(TN_SANITIZE, "address")) SKIP("for builds with the address sanitizer");
    if (!begin()) return;
    write_table("t.csv", false);
    write_text("t.txt");
    runs(0,
         "unset ASAN_OPTIONS; set -e\n"
         "tenon train --model mlp --data csv:t.csv:target=price --epochs 1 --save t.safetensors"
         " --log t.jsonl\n"
         "tenon train --resume --save t.safetensors --epochs 2\n"
         "tenon eval --load t.safetensors\n"
         "tenon train --model gpt2 --layers 1 --width 16 --context 8 --data text:t.txt --limit 32"
         " --epochs 1 --save g.safetensors\n"
         "tenon sample --load g.safetensors --tokens 4\n"
         "tenon info g.safetensors\n"
         "tenon demo --limit 64 --epochs 1 --data digits:count=60");
    runs(2, "unset ASAN_OPTIONS; tenon train --model mlp --hidden 3 --data digits --nope");
    runs(1, "unset ASAN_OPTIONS; tenon train --resume --save t.safetensors --lr 7");
    scratch_close();
}

// ---- the manual page

static void the_manual_page_has_every_option(void)
{
    char *page = tree_read("docs/tenon.1", NULL);
    if (CHECK(page != NULL) && begin()) {
        runs(
            0,
            "for c in train eval predict sample demo; do tenon help $c; done | grep -o '^  --[a-z-]*'"
            " | sed 's/-/\\\\-/g' | sort -u");
        for (char *name = strtok(out, "\n"); name; name = strtok(NULL, "\n"))
            test_that(strstr(page, name + 2) != NULL, "docs/tenon.1 lacks %s", name + 2);
        scratch_close();
    }
    free(page);
}

static void the_manual_page_is_well_formed(void)
{
    if (!tree_has("groff")) SKIP("groff is not installed");
    CHECK_INT(tree_run("groff -man -ww -Tascii docs/tenon.1 2>&1 >/dev/null", out, sizeof out), 0);
    CHECK_STR(out, "");
}

const test_case tests_cli[] = {
    TEST(every_command_has_help),
    TEST(wrong_command_lines_name_the_option_and_the_help),
    TEST(kernels_of_a_case_and_of_a_program_are_timed),
    TEST(what_cannot_be_done_is_said_in_one_line),
    TEST(data_that_does_not_do_is_named_before_training),
    TEST(eval_says_what_train_said),
    TEST(quiet_leaves_results_and_errors),
    TEST(a_terminal_gets_a_bar),
    TEST(a_narrow_terminal_is_not_overrun),
    TEST(two_runs_of_one_seed_are_equal),
    TEST(a_run_in_16_bits_goes_on_exactly),
    TEST(a_run_stopped_by_ctrl_c_goes_on_exactly),
    TEST(a_killed_run_goes_on_exactly),
    TEST(a_resumed_run_may_be_longer_but_not_another),
    TEST(a_run_that_cannot_be_saved_leaves_the_one_before),
    TEST(a_finished_run_is_not_written_over),
    TEST(a_log_that_cannot_be_written_is_said_at_once),
    TEST(a_state_needs_nothing_beside_it),
    TEST(files_that_cannot_be_written_are_refused_at_once),
    TEST(the_log_has_an_object_for_every_step),
    TEST(info_lists_tensors_and_metadata),
    TEST(closed_outputs_harm_no_file),
    TEST(a_table_of_classes_is_learned),
    TEST(a_table_of_numbers_is_learned),
    TEST(a_gpt2_learns_and_writes),
    TEST(a_llama_learns_and_a_folder_is_loaded),
    TEST(a_terminal_gets_no_control_characters),
    TEST(eval_ends_with_ctrl_c),
    TEST(text_can_be_the_tokens_of_a_vocabulary),
    TEST(a_folder_is_sampled_as_hugging_face_does),
    TEST(a_resnet_trains_on_small_images),
    TEST(the_demo_draws_digits_and_says_what_next),
    TEST(no_command_leaks),
    TEST(the_manual_page_has_every_option),
    TEST(the_manual_page_is_well_formed),
    TEST_END,
};
