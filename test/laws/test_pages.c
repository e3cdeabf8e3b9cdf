// test_pages.c: the C in the pages for newcomers is true: programs run, fragments and calls
// compile.
#include "check.h"
#include "scratch.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What the fragments of docs/from-pytorch.md use without declaring it.
static const char surroundings[] = "#include <stdio.h>\n"
                                   "#include <stdlib.h>\n"
                                   "#include <tenon.h>\n"
                                   "#include <tenon/models.h>\n"
                                   "extern tn_ctx *cx;\n"
                                   "extern tn_layer *net, *first, *second;\n"
                                   "extern tn_optim *opt;\n"
                                   "extern tn_data *data;\n"
                                   "extern tn_tensor *x, *y, *a, *b, *w, *m;\n"
                                   "extern tn_sparse s;\n"
                                   "extern double v, *dst;\n"
                                   "extern float values[];\n"
                                   "extern int64_t n, *ids, *counts;\n"
                                   "extern const tn_tokens *prompts;\n"
                                   "extern uint64_t seed;\n"
                                   "extern void *user;\n"
                                   "void f(const char *name, tn_tensor *t, void *user);\n";

// A C file in the scratch folder; NULL, a failed check, when it cannot be made.
static FILE *open_program(void)
{
    FILE *f = scratch_open() ? fopen(scratch_path("page.c"), "w") : NULL;
    CHECK(f != NULL);
    return f;
}

// The next block of C after *at, in place; *at moves behind it. NULL after the last.
static char *next_block(char **at)
{
    char *begin = strstr(*at, "```c\n"), *end = begin ? strstr(begin + 5, "```") : NULL;
    if (!end) return NULL;
    *end = 0;
    *at  = end + 1;
    return begin + 5;
}

static bool at_file_level(const char *block)
{
    return strstr(block, "\nstatic ") != NULL;
}

static void write_blocks(FILE *f, char *page)
{
    int   n = 0;
    char *block;
    while ((block = next_block(&page)) != NULL) {
        if (at_file_level(block)) fprintf(f, "%s\n", block);
        else fprintf(f, "void block%d(void);\nvoid block%d(void)\n{\n%s}\n", n, n, block);
        n++;
    }
    CHECK(n >= 6);
}

// Every `tn_...(...)` of the tables.
static void write_calls(FILE *f, const char *page)
{
    int n = 0;
    fprintf(f, "void calls(void);\nvoid calls(void)\n{\n");
    for (const char *at = page; (at = strstr(at, "`tn_")) != NULL;) {
        const char *end = strchr(++at, '`');
        if (!end) break;
        if (end[-1] == ')' && ++n) fprintf(f, "    (void)%.*s;\n", (int)(end - at), at);
        at = end + 1;
    }
    fprintf(f, "}\n");
    CHECK(n >= 40);
}

static void what_from_pytorch_shows_compiles(void)
{
    FILE *f;
    char  command[1024], out[4096], *page = tree_read("docs/from-pytorch.md", NULL);
    if (!CHECK(page != NULL) || !(f = open_program())) return;
    fputs(surroundings, f);
    write_calls(f, page);
    write_blocks(f, page);
    fclose(f);
    snprintf(command, sizeof command,
             "'%s' -std=c11 -Wall -Wextra -Werror -Wno-unused %s '%s' 2>&1", TN_CC,
             "-fsyntax-only -Iinclude", scratch_path("page.c"));
    int status = tree_run(command, out, sizeof out);
    test_that(status == 0, "docs/from-pytorch.md: %.600s", out);
    scratch_close();
    free(page);
}

// What the layers of docs/from-pytorch.md compute: a cell whose weights are all 0.1 on x and h of
// ones, and attention that a mask leaves one key, whose value is then the result.
static const char with_layers[] =
    "static double sigmoid(double v) { return 1 / (1 + exp(-v)); }\n"
    "static int near(double a, double b) { return fabs(a - b) < 1e-5; }\n"
    "static void fill(const char *name, tn_tensor *t, void *v)\n"
    "{\n"
    "    (void)name;\n"
    "    tn_init_constant(t, *(double *)v);\n"
    "}\n"
    "int main(void)\n"
    "{\n"
    "    double     v = 0.1, z = 2 * 0.1 + 3 * 0.1 + 2 * 0.1;\n"
    "    tn_ctx    *cx = tn_open(\"cpu\");\n"
    "    tn_layer  *c = cell_new(cx, 2, 3), *a = cross_new(cx, 2);\n"
    "    tn_tensor *io[] = { tn_ones(cx, TN_F32, TN_SHAPE(1, 2)), tn_ones(cx, TN_F32, TN_SHAPE(1, 3)),\n"
    "                        tn_full(cx, TN_F32, TN_SHAPE(1, 3), 2) };\n"
    "    tn_layer_each(c, fill, &v);\n"
    "    if (tn_forward_n(c, 3, io, 2, io + 1) != TN_OK) return 1;\n"
    "    double cell = sigmoid(z) * 2 + sigmoid(z) * tanh(z);\n"
    "    if (!near(tn_item(tn_select(tn_select(io[2], 0, 0), 0, 1)), cell)) return 2;\n"
    "    if (!near(tn_item(tn_mean_all(io[1])), sigmoid(z) * tanh(cell))) return 3;\n"
    "    tn_tensor *m = tn_randn(cx, TN_F32, TN_SHAPE(4, 2)), *x = tn_randn(cx, TN_F32, TN_SHAPE(3, 2));\n"
    "    tn_tensor *keys = tn_eq_s(tn_arange(cx, TN_I64, 0, 4, 1), 2), *y, *free;\n"
    "    if (tn_forward_n(a, 3, (tn_tensor *[]){ x, m, keys }, 1, &y) != TN_OK) return 4;\n"
    "    if (tn_forward_n(a, 2, (tn_tensor *[]){ x, m }, 1, &free) != TN_OK) return 5;\n"
    "    tn_tensor *want = tn_select(tn_forward(tn_layer_find_child(a, \"proj.v\"), m), 0, 2);\n"
    "    if (tn_item(tn_max_all(tn_abs(tn_sub(y, want)))) > 1e-5) return 6;\n"
    "    if (tn_item(tn_max_all(tn_abs(tn_sub(free, want)))) < 1e-5) return 7;\n"
    "    tn_close(cx);\n"
    "    return 0;\n"
    "}\n";

static void the_layers_of_from_pytorch_compute_what_they_say(void)
{
    FILE *f;
    char  command[1024], out[4096], *block, *page = tree_read("docs/from-pytorch.md", NULL);
    if (!CHECK(page != NULL) || !(f = open_program())) return;
    fputs("#include <math.h>\n#include <stdlib.h>\n#include <tenon.h>\n", f);
    for (char *at = page; (block = next_block(&at)) != NULL;)
        if (at_file_level(block)) fprintf(f, "%s\n", block);
    fputs(with_layers, f);
    fclose(f);
    snprintf(command, sizeof command,
             "'%s' -std=c11 -Wall -Wextra -Werror -Wno-unused %s%s '%s' -o '%s' -Iinclude -L'%s' "
             "-ltenon -lm -Wl,-rpath,'%s' 2>&1 && '%s'",
             TN_CC, TN_SANITIZE[0] ? "-fsanitize=" : "", TN_SANITIZE, scratch_path("page.c"),
             scratch_path("page"), TN_BUILD_DIR, TN_BUILD_DIR, scratch_path("page"));
    int status = tree_run(command, out, sizeof out);
    test_that(status == 0, "docs/from-pytorch.md ends with %d: %.600s", status, out);
    scratch_close();
    free(page);
}

static void the_program_of_getting_started_learns(void)
{
    FILE *f;
    char  command[1024], out[4096], *page = tree_read("docs/getting-started.md", NULL);
    char *at = page, *block = page ? next_block(&at) : NULL;
    if (!CHECK(block != NULL) || !(f = open_program())) return;
    fputs(block, f);
    fclose(f);
    snprintf(command, sizeof command,
             "'%s' -std=c11 -Wall -Wextra -Werror %s%s '%s' -o '%s' -Iinclude -L'%s' -ltenon "
             "-Wl,-rpath,'%s' && '%s'",
             TN_CC, TN_SANITIZE[0] ? "-fsanitize=" : "", TN_SANITIZE, scratch_path("page.c"),
             scratch_path("page"), TN_BUILD_DIR, TN_BUILD_DIR, scratch_path("page"));
    int status = tree_run(command, out, sizeof out);
    test_that(status == 0 && strstr(out, "right: 9"), "docs/getting-started.md: %.600s", out);
    scratch_close();
    free(page);
}

// Makes a folder as Hugging Face has them, with the tool: a Llama that has hardly learned.
static bool make_folder(char *out, size_t room)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"hidden_size\": 16, \"intermediate_size\": 24, \"vocab_size\": 907, "
        "\"max_position_embeddings\": 96}";
    char command[2048];
    scratch_write(scratch_path("config.json"), config, strlen(config));
    snprintf(
        command, sizeof command,
        "f='%s'; for i in $(seq 400); do echo the cat sat on the mat; done >$f/t.txt && cp "
        "test/recordings/tokenizers/llama2.json $f/tokenizer.json && '" TN_BUILD_DIR
        "/tenon' train --model llama --layers 1 --heads 2 --width 16 --hidden 24 --context 96 --limit 8"
        " --tokenizer $f --data text:$f/t.txt --epochs 1 --quiet --save $f/model.safetensors 2>&1",
        scratch_path("."));
    return tree_run(command, out, room) == 0;
}

// The program loads a folder and writes; the step compiles.
static void the_programs_of_language_models_are_true(void)
{
    FILE *f;
    char  command[2048], out[4096], *page = tree_read("docs/language-models.md", NULL);
    char *at = page, *block = page ? next_block(&at) : NULL;
    if (!CHECK(block != NULL) || !(f = open_program())) return;
    fputs(block, f);
    fclose(f);
    f     = fopen(scratch_path("step.c"), "w");
    block = next_block(&at);
    if (CHECK(f && block))
        fprintf(f, "%svoid step_(void);\nvoid step_(void)\n{\n%s}\n", surroundings, block);
    if (f) fclose(f);
    test_that(make_folder(out, sizeof out), "the folder: %.600s", out);
    snprintf(
        command, sizeof command,
        "c=\"'%s' -std=c11 -Wall -Wextra -Werror -Iinclude\"; eval $c -fsyntax-only '%s' && eval $c %s%s '%s' -o '%s' "
        "-L'%s' -ltenon -Wl,-rpath,'%s' && TN_DEVICE=cpu '%s' '%s' 'the cat'",
        TN_CC, scratch_path("step.c"), TN_SANITIZE[0] ? "-fsanitize=" : "", TN_SANITIZE,
        scratch_path("page.c"), scratch_path("page"), TN_BUILD_DIR, TN_BUILD_DIR,
        scratch_path("page"), scratch_path("."));
    int status = tree_run(command, out, sizeof out);
    test_that(status == 0 && strstr(out, "the cat") && strstr(out, "\n64 tokens\n"),
              "docs/language-models.md: %.600s", out);
    scratch_close();
    free(page);
}

const test_case tests_pages[] = {
    TEST(what_from_pytorch_shows_compiles),
    TEST(the_layers_of_from_pytorch_compute_what_they_say),
    TEST(the_program_of_getting_started_learns),
    TEST(the_programs_of_language_models_are_true),
    TEST_END,
};
