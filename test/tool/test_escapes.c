// test_escapes.c: texts from outside (names in files, paths, arguments, variables) reach a terminal
// only as it can print them, through every reader of the library and every command of the tool.
#include "cli_kit.h"

#include "base/text.h"
#include "tenon.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- what may be printed

// The first byte of a text that is a control character, not UTF-8, or part of a character that is
// not seen; NULL where there is none. Lines may end.
static const char *find_bad(const char *s, size_t n)
{
    for (size_t i = 0, step; i < n; i += step) {
        step = tni_utf8(s + i, n - i);
        if (step == 0) return s + i;
        uint32_t c = tni_code_point(s + i, step);
        if (c < ' ' && c != '\n') return s + i;
        if ((c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f)) return s + i;
        if ((c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f)) return s + i;
        if (c == 0xfeff || c == 0x61c || c >> 8 == 0xe00) return s + i;
    }
    return NULL;
}

static void is_clean(const char *what, const char *text)
{
    const char *bad = find_bad(text, strlen(text));
    test_that(!bad, "%s prints byte 0x%02x at %d of \"%s\"", what, bad ? (unsigned char)*bad : 0u,
              bad ? (int)(bad - text) : 0, tni_quoted(text).s);
}

static void escapes_to(const char *text, const char *expected)
{
    char shown[256];
    CHECK_INT(tn_escape(shown, sizeof shown, text), strlen(text));
    CHECK_STR(shown, expected);
}

static void texts_of_others_are_escaped(void)
{
    escapes_to("plain, with spaces \\ and 'quotes'", "plain, with spaces \\ and 'quotes'");
    escapes_to("gr\xc3\xbc\xc3\x9f \xe6\xbc\xa2 \xf0\x9f\x99\x82",
               "gr\xc3\xbc\xc3\x9f \xe6\xbc\xa2 \xf0\x9f\x99\x82");
    escapes_to("a\033[31mb\a\tc\r\n\x7f", "a\\x1b[31mb\\x07\\x09c\\x0d\\x0a\\x7f");
    escapes_to("\x9b"
               "2J \xff \xe6\xbc \xc0\x80",
               "\\x9b2J \\xff \\xe6\\xbc \\xc0\\x80");
    escapes_to("\xc2\x9b"
               "2J",
               "\\u{9b}2J");
    escapes_to("exe\xe2\x80\xaetxt", "exe\\u{202e}txt");
    escapes_to("a\xe2\x80\x8b"
               "b\xef\xbb\xbf\xf3\xa0\x81\x81",
               "a\\u{200b}b\\u{feff}\\u{e0041}");
    CHECK_INT(tn_escape((char[1]){ "" }, 1, NULL), 0);
}

static void escaping_cuts_between_characters(void)
{
    const char *text = "ab\033\xe6\xbc\xa2";
    for (size_t room = 0; room < 12; room++) {
        char   shown[16] = "#";
        size_t taken     = tn_escape(shown, room, text);
        if (room == 0) CHECK_STR(shown, "#");
        else CHECK(strlen(shown) < room && !find_bad(shown, strlen(shown)));
        CHECK_INT(taken, room < 2 ? 0 : room < 3 ? 1 : room < 7 ? 2 : room < 10 ? 3 : 6);
    }
}

// ---- readers

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

// Puts things that a terminal obeys at random places of a text.
static size_t make_hostile(char *s, size_t n, size_t room)
{
    static const char *const evil[] = { "\033]0;x\a",
                                        "\033[2J",
                                        "\x9b"
                                        "1m",
                                        "\xc2\x9b"
                                        "1m",
                                        "\r",
                                        "\x7f",
                                        "\b",
                                        "\xe2\x80\xae",
                                        "\xff",
                                        "\t",
                                        "\\u001b[1m",
                                        "\\u202e" };
    for (int i = 0; i < 3; i++) {
        const char *e  = evil[next_random(sizeof evil / sizeof *evil)];
        size_t      at = next_random((uint32_t)n + 1), k = strlen(e);
        if (n + k >= room) break;
        memmove(s + at + k, s + at, n - at);
        memcpy(s + at, e, k);
        n += k;
    }
    return n;
}

// The beginnings of files, by the name that makes a reader take them, each as text: what must be a
// number before it is put there when it is written.
static const struct {
    const char *name, *text;
} seeds[] = {
    { "a.safetensors", "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                       "\"__metadata__\":{\"key\":\"value\"}}" },
    { "a.index.json", "{\"metadata\":{},\"weight_map\":{\"w\":\"part.safetensors\"}}" },
    { "a.npy", "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" },
    { "a.csv", "area,rooms,town\n1,2,Rome\n3,4,Oslo\n5,x,Lima\n" },
    { "a.csv", "area,\"rooms,town\n1,2,Rome\n3,4,Oslo\n" },
    { "a.idx", "gibberish" },
};

enum { SEEDS = sizeof seeds / sizeof *seeds };

static size_t write_hostile(int seed, const char *path)
{
    char   text[1024], file[1100];
    size_t n = 0, k = strlen(seeds[seed].text);
    if (seed == 2) k = 10 + strlen(seeds[seed].text + 10);
    memcpy(text, seeds[seed].text, k);
    k = make_hostile(text, k, sizeof text);
    if (seed == 0) {
        for (; n < 8; n++) file[n] = (char)(k >> 8 * n);
    }
    memcpy(file + n, text, k);
    memset(file + n + k, 0, 8);
    CHECK(scratch_write(path, file, n + k + 8));
    return n + k + 8;
}

static void readers_name_nothing_that_a_terminal_obeys(void)
{
    CHECK(scratch_open());
    tn_ctx *cx     = tn_open("ref");
    int     errors = 0;
    tn_on_error(cx, NULL, NULL);
    for (int i = 0; i < 1200; i++) {
        int    seed = i % SEEDS;
        char   name[128];
        size_t n = (size_t)snprintf(name, 64, "%s", "x");
        if (i % 3 == 0) n = make_hostile(name, n, 64);
        snprintf(name + n, sizeof name - n, "%s", seeds[seed].name);
        const char *path = scratch_path(name);
        write_hostile(seed, path);
        if (seed < 3) tn_file_free(tn_file_open(cx, path));
        else if (seed < 5) tn_data_free(tn_csv(cx, path, (tn_csv_opts){ .target = "\033[1mtown" }));
        else tn_data_free(tn_idx_files(cx, path, path));
        errors += tn_error(cx) != TN_OK;
        is_clean(name, tn_error_text(cx));
        tn_error_clear(cx);
        unlink(path);
    }
    CHECK(errors > 600);
    tn_close(cx);
    scratch_close();
}

// Errors that name what the program gave: an op's name, a tensor's, a layer's, a device.
static void errors_name_arguments_as_they_can_be_printed(void)
{
    tn_ctx *cx = tn_open("ref");
    tn_on_error(cx, NULL, NULL);
    CHECK(tn_file_open(cx, "no\033[31m\x9b\nfile") == NULL);
    CHECK_STR(tn_error_text(cx), "file_open: no\\x1b[31m\\x9b\\x0afile: No such file or directory");
    tn_error_clear(cx);
    tn_error_set(cx, TN_EUSER, "mine\033[31m");
    CHECK_STR(tn_error_text(cx), "mine\\x1b[31m");
    tn_close(cx);
    CHECK(tn_open("cp\033[1mu") == NULL);
    is_clean("tn_open", tn_error_text(NULL));
}

// ---- the tool

// Runs a script, whatever its status, and looks at all that it prints.
#define prints_clean(script) \
    (runs(0, "%s", "{ " script "; } || true\n"), CHECK(*out), is_clean(script, out))

// A name that sets a title, colours, turns back, and is not UTF-8 in the end.
#define HOSTILE \
    "u=$(printf 'a\\033]0;x\\007\\302\\233c\\342\\200\\256\\rd'); h=$u$(printf '\\233'); "

static void commands_print_nothing_that_a_terminal_obeys(void)
{
    static const char header[] =
        "{\"w\\u001b[31m\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"x\\u009b\\u202e\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},\"__metadata__\":"
        "{\"key\\r\":\"value\\u001b]0;x\\u0007\\ttab\",\"tenon.model\":\"\\u001b[2Jmlp\","
        "\"tenon.data\":\"csv:\\u001b[2J\"}}";
    char   file[1024] = "";
    size_t n          = strlen(header);
    if (!begin()) return;
    for (int i = 0; i < 8; i++) file[i] = (char)(n >> 8 * i);
    memcpy(file + 8, header, n);
    CHECK(scratch_write(scratch_path("t.safetensors"), file, n + 24));
    prints_clean(HOSTILE "tenon info t.safetensors; cp t.safetensors \"$h\"; tenon info \"$h\"");
    prints("w\\x1b[31m");
    prints("x\\u{9b}\\u{202e}");
    prints("key\\x0d");
    prints("value\\x1b]0;x\\x07\\x09tab");
    prints_clean("tenon eval --load t.safetensors; tenon sample --load t.safetensors");
    prints_clean(HOSTILE
                 "tenon info \"no$h\"; tenon eval --load \"no$h\"; tenon \"$h\"; tenon help \"$h\";"
                 " tenon version \"$h\"; tenon devices \"$h\"; tenon doctor \"$h\"");
    prints_clean(HOSTILE
                 "tenon train --model \"$h\"; tenon train --model mlp --data \"$h\"; tenon train"
                 " \"--$h\" 1; tenon train \"$h\"; tenon train --model mlp --data \"idx:$h\";"
                 " tenon train --model mlp --data digits --lr \"$h\"; tenon train --model mlp"
                 " --data digits --device \"$h\"; tenon train --resume --save \"$h\"");
    prints_clean(HOSTILE
                 "tenon explain \"$h\"; tenon explain -- \"./$h\"; tenon profile relu --trace"
                 " \"$h\"; tenon explain relu --device \"$h\"; tenon profile --steps \"$h\"");
    prints_clean(HOSTILE
                 "export TN_BLAS=\"$h\" TN_CC=\"$h\" TN_CACHE_DIR=\"$h\" TN_NUM_THREADS=\"$h\""
                 " TN_OPENCL_DEVICE=\"$h\"; tenon doctor; tenon devices; TN_DEVICE=\"$h\" tenon"
                 " doctor; TN_MEM_LIMIT=\"$h\" tenon explain relu");
    scratch_close();
}

// A table whose columns, classes and own name are hostile is learned, and saved under such a name.
static void a_run_of_hostile_names_prints_none_of_them(void)
{
    if (!begin()) return;
    FILE *f = create("table");
    for (int i = 0; f && i < 60; i++)
        fprintf(f, i ? "%d,%d,cl\033[3%dm\n" : "a\033[2J,b\xc2\x9b,c\r\n", i % 7, i % 5, i % 2);
    if (f) fclose(f);
    prints_clean(HOSTILE "tenon train --model mlp --data \"csv:$h\" --save x");
    prints("d\\x9b is not UTF-8, and would be saved with the network\n");
    prints_clean(HOSTILE
                 "cp table \"$u\"; tenon train --model mlp --data \"csv:$u\" --epochs 2"
                 " --save \"$h.s\" --log \"$h.log\" && tenon eval --load \"$h.s\" && tenon info"
                 " \"$h.s\" && tenon info \"$h.s.state\" && tenon eval --load \"$h.s\" --data"
                 " csv:table");
    prints("test accuracy");
    prints("saved as a\\x1b]0;x\\x07\\u{9b}c\\u{202e}\\x0dd\\x9b.s\n");
    prints_clean(HOSTILE "timeout -s INT 1 '" TN_BUILD_DIR
                         "/tenon' train --model mlp --data csv:table"
                         " --epochs 1000000 --save \"$h.t\" --quiet");
    // The command that goes on with a run is one that a shell reads.
    prints("train --resume --save $'a\\033]0;x\\007\\302\\233c\\342\\200\\256\\015d\\233.t'\n");
    scratch_close();
}

const test_case tests_escapes[] = {
    TEST(texts_of_others_are_escaped),
    TEST(escaping_cuts_between_characters),
    TEST(readers_name_nothing_that_a_terminal_obeys),
    TEST(errors_name_arguments_as_they_can_be_printed),
    TEST(commands_print_nothing_that_a_terminal_obeys),
    TEST(a_run_of_hostile_names_prints_none_of_them),
    TEST_END,
};
