// test_predict.c: `tenon predict` for every network that `tenon train` saves, and what it needs to
// be told of tables: missing cells, separators, patience; and networks from elsewhere.
#include "cli_kit.h"
#include "picture_files.h"
#include "scratch.h"
#include "tenon/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- data made here

// Numbers, words with what CSV has to quote, and a target: of words, or of numbers.
static void write_rows(const char *name, bool target, bool words, int from, int to)
{
    static const char *const towns[] = { "Rome", "\"Lima, Peru\"", "Oslo" };

    FILE *f = create(name);
    if (!f) return;
    fprintf(f, "area,town%s\n", target ? words ? ",size" : ",price" : "");
    for (int i = from; i < to; i++) {
        int area = 30 + i * 37 % 170;
        fprintf(f, "%d,%s", area, towns[i % 3]);
        if (target && words) fprintf(f, ",%s", area < 115 ? "\"so \"\"small\"\"\"" : "large");
        if (target && !words) fprintf(f, ",%d", 1000000 + 1000 * area);
        fputc('\n', f);
    }
    fclose(f);
}

static void write_text_file(const char *name, const char *text)
{
    FILE *f = create(name);
    if (!f) return;
    fputs(text, f);
    fclose(f);
}

// The n-th line of what was printed, cut out.
static const char *line_of(int n)
{
    static char line[512];
    const char *s = out;
    while (n-- > 0 && s) {
        s = strchr(s, '\n');
        if (s) s++;
    }
    snprintf(line, sizeof line, "%.*s", s ? (int)strcspn(s, "\n") : 0, s ? s : "");
    return line;
}

// ---- tables

static void classes_of_rows_come_with_names_and_probabilities(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, true, 0, 300);
    write_rows("new.csv", false, true, 300, 304);
    write_rows("known.csv", true, true, 300, 304);
    runs(0, "tenon train --model mlp --data csv:train.csv --epochs 40 --save m --quiet");
    runs(0, "tenon predict --load m new.csv >a && tenon predict --load m known.csv >b && cmp a b &&"
            " cat a");
    CHECK_STR(line_of(0), "item,class,probability");
    int right = 0;
    for (int i = 0; i < 4; i++) {
        char   want[64];
        double chance = -1;
        int    n      = snprintf(want, sizeof want, "%d,%s,", i + 1,
                         30 + (300 + i) * 37 % 170 < 115 ? "\"so \"\"small\"\"\"" : "large");
        if (!strncmp(line_of(i + 1), want, (size_t)n)) chance = strtod(line_of(i + 1) + n, NULL);
        right += chance >= 0.5 && chance <= 1;
    }
    CHECK_INT(right, 4);

    runs(0, "tenon predict --load m --top 9 new.csv --out p.csv && cat p.csv");  // there are two
    CHECK_STR(line_of(0), "item,class,probability,class_2,probability_2");
    double first = 0, second = 0;
    int    n = sscanf(line_of(2), "2,large,%lf,\"so \"\"small\"\"\",%lf", &first, &second);
    if (n != 2) n = sscanf(line_of(2), "2,\"so \"\"small\"\"\",%lf,large,%lf", &first, &second);
    CHECK_INT(n, 2);
    CHECK(fabs(first + second - 1) < 1e-5 && first >= second);
    scratch_close();
}

static void predictions_are_written_over_a_file_by_force_alone(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, false, 0, 50);
    write_rows("new.csv", false, false, 50, 52);
    runs(0, "tenon train --model mlp --data csv:train.csv --epochs 1 --save m --quiet");
    runs(1, "echo mine >p.csv; tenon predict --load m new.csv --out p.csv");
    CHECK_STR(out, "tenon: --out p.csv exists; --force overwrites it\n");
    runs(0, "cat p.csv; ls");
    prints("mine\n");
    CHECK(strstr(out, "tenon-tmp") == NULL);
    runs(0, "tenon predict --load m new.csv --out p.csv --force; tail -1 p.csv");
    prints("2,");
    runs(0, ": >empty; tenon predict --load m new.csv --out empty; tail -1 empty");
    prints("2,");
    runs(2, "tenon predict --load m new.csv --force");
    prints("--force does nothing without --out");
    runs(0, "tenon help predict | grep -e --force; tenon help train | grep -e --force");
    prints("overwrite the file at --out\n");
    prints("overwrite a finished run at --save\n");
    scratch_close();
}

static void numbers_come_in_the_units_of_the_target(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, false, 0, 300);
    write_rows("new.csv", false, false, 300, 303);
    write_rows("more.csv", false, false, 303, 304);
    runs(0, "tenon train --model mlp --data csv:train.csv --epochs 60 --lr 0.01 --save m --quiet");
    runs(0, "tenon predict --load m new.csv more.csv");
    CHECK_STR(line_of(0), "file,item,value");
    for (int i = 0; i < 4; i++) {
        char   begins[32];
        int    n    = snprintf(begins, sizeof begins, i < 3 ? "new.csv,%d," : "more.csv,1,", i + 1);
        double want = 1e6 + 1000 * (30 + (300 + i) * 37 % 170);
        const char *line = line_of(i + 1);
        CHECK(!strncmp(line, begins, (size_t)n) && fabs(strtod(line + n, NULL) - want) < 20000);
    }
    runs(2, "tenon predict --load m --top 2 new.csv");
    prints("--top is for classes and tokens");
    scratch_close();
}

// What the tool trained on a table is a network that a C program can build and load.
static void a_c_program_loads_what_the_tool_trained(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, false, 0, 100);
    write_rows("new.csv", false, false, 100, 101);
    runs(0, "tenon train --model mlp --hidden 8 --data csv:train.csv --epochs 2 --save m --quiet");
    runs(0, "tenon predict --load m new.csv");
    double    said = strtod(strchr(line_of(1), ',') + 1, NULL);
    tn_ctx   *cx   = tn_open("cpu");
    tn_layer *net  = tn_nn_standardize_nd(cx, TN_SHAPE(4), tn_mlp(cx, 3, (int64_t[]){ 4, 8, 1 }),
                                          (tn_nn_standardize_opts){ .outputs = 1 });
    CHECK_STATUS(tn_load(net, scratch_path("m")), TN_OK);
    tn_file *f = tn_file_open(cx, scratch_path("m"));
    tn_data *d = tn_csv(cx, scratch_path("new.csv"),
                        (tn_csv_opts){ .schema = tn_file_meta(f, "schema"), .no_target = true });
    double   y = tn_item(tn_forward(net, tn_next(d, 1).x));
    CHECK(fabs(y - said) <= 1e-6 * fabs(y));
    tn_close(cx);
    scratch_close();
}

// The schema that is saved has the means of the rows that were trained on.
static void missing_cells_get_the_mean_of_the_rows_trained_on(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, false, 0, 200);
    runs(0, "echo ',Rome,1050000' >>train.csv; tenon train --model mlp --data csv:train.csv"
            " --epochs 1 --seed 3 --missing mean --save m --quiet");
    tn_ctx     *cx   = tn_open("cpu");
    tn_csv_opts o    = { .missing = TN_MISSING_MEAN, .held_out = 0.1, .split_seed = 3 };
    const char *have = tn_file_meta(tn_file_open(cx, scratch_path("m")), "schema");
    CHECK_STR(have, tn_data_schema(tn_csv(cx, scratch_path("train.csv"), o)));
    o.held_out = 0;
    CHECK(strcmp(have, tn_data_schema(tn_csv(cx, scratch_path("train.csv"), o))) != 0);
    tn_close(cx);
    scratch_close();
}

static void missing_cells_are_filled_flagged_or_skipped_as_in_training(void)
{
    if (!begin()) return;
    write_rows("train.csv", true, false, 0, 200);
    runs(0, "printf 'NA,Rome,1050000\\n?,,1000000\\n70,,1070000\\n,Oslo,\\n' >>train.csv");
    write_text_file("new.csv", "area,town\n60,Rome\n,Oslo\n70,null\n80,Oslo\nNA,\n");
    runs(1, "tenon train --model mlp --data csv:train.csv --quiet");
    prints(
        "train.csv:202: column 1 (\"area\"): \"NA\" is no number but a missing one: use --missing");
    static const char *const ways[] = { "mean", "category", "skip" };
    for (int i = 0; i < 3; i++) {
        runs(
            0,
            "tenon train --model mlp --data csv:train.csv --epochs 2 --missing %s --save m --force --quiet"
            " && tenon eval --load m >/dev/null && tenon predict --load m new.csv",
            ways[i]);
        prints(i < 2 ? "tenon: 1 row with missing cells was skipped"
                     : "tenon: 4 rows with missing cells were skipped");
        runs(0, "tenon predict --load m new.csv");
        CHECK(!strncmp(line_of(1), "1,1", 3) && !strncmp(line_of(4), "4,1", 3));
        CHECK((strlen(line_of(2)) == 2) == (i == 2));  // "2," where it is left out
        CHECK((strlen(line_of(3)) == 2) == (i == 2));
        CHECK((strlen(line_of(5)) == 2) == (i == 2));
    }
    scratch_close();
}

static void separator_and_header_are_settings_that_are_kept(void)
{
    if (!begin()) return;
    FILE *f = create("t.csv");
    for (int i = 0; f && i < 60; i++) fprintf(f, "%d|%d|%d.5\n", i, i % 7, 3 * i);
    if (f) fclose(f);
    write_text_file("new.csv", "3|3\n4|4\n");
    runs(0,
         "tenon train --model mlp --data csv:t.csv --separator '|' --no-header --epochs 2 --quiet"
         " --save m && tenon eval --load m && tenon predict --load m new.csv");
    prints("item,value\n1,");
    runs(0,
         "tr '|' '\\t' <t.csv >tabs.csv && tenon train --model mlp --data csv:tabs.csv --separator"
         " tab --no-header --epochs 1 --quiet");
    runs(2, "tenon train --model mlp --data csv:t.csv --separator abc");
    prints("--separator is one character, or tab; not \"abc\"");
    runs(2, "tenon train --model mlp --data digits --missing mean");
    prints("--missing does nothing for --data digits; it is for: csv");
    scratch_close();
}

static void a_target_that_never_changes_is_said(void)
{
    if (!begin()) return;
    runs(0, "{ echo a,y; seq 40 | sed 's/$/,2.5/'; } >n.csv;"
            " { echo a,y; seq 40 | sed 's/$/,yes/'; } >w.csv;"
            " tenon train --model mlp --data csv:n.csv --epochs 1 --quiet");
    prints("tenon: the target is 2.5 in every training row, so there is nothing to learn");
    runs(0, "tenon train --model mlp --data csv:w.csv --epochs 1 --quiet");
    prints("tenon: the target is \"yes\" in every training row");
    scratch_close();
}

// ---- patience

// The inputs tell nothing of the target, so that the loss on what is held out only rises.
static void a_run_out_of_patience_stops_and_keeps_the_best(void)
{
    if (!begin()) return;
    FILE *f = create("t.csv");
    if (f) fprintf(f, "a,b,y\n");
    for (int i = 0; f && i < 60; i++)
        fprintf(f, "%d,%d,%d.5\n", i * 7919 % 101, i * 104729 % 97, i * 15485863 % 89);
    if (f) fclose(f);
    runs(0,
         "tenon train --model mlp --data csv:t.csv --epochs 200 --lr 0.01 --patience 3 --save m"
         " --quiet >said; cat said; tenon eval --load m >again; tail -3 said >a; tail -3 again >b;"
         " cmp a b");
    prints("stopped early: 3 evaluations after step ");
    prints("were no better\nsaved as m: the network of step ");
    const char *at = strstr(out, " after step ");
    CHECK(at && strtol(at + 12, NULL, 10) > 0 && strtol(out, NULL, 10) < 400);

    // What was stopped stays stopped, until it is given more patience.
    runs(0,
         "cp m m.old; tenon train --resume --save m --quiet >more; cmp m m.old; grep -c 0' of them'"
         " more; tail -3 more >a; cmp a b");
    runs(0, "tenon train --resume --save m --patience 5 --quiet");
    prints("stopped early: 5 evaluations after step ");
    runs(2, "tenon train --model mlp --data csv:t.csv --patience 3");
    prints("--patience does nothing without --save");
    scratch_close();
}

// ---- images

static void write_pixels(FILE *f, int n, int step)
{
    for (int i = 0; i < n; i++) fputc(i * step % 256, f);
}

static void images_are_predicted_in_every_form(void)
{
    static const unsigned char idx[] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28 };
    if (!begin()) return;
    FILE *f = create("two-idx3-ubyte");
    if (f) fwrite(idx, 1, sizeof idx, f), write_pixels(f, 784, 7), write_pixels(f, 784, 11);
    if (f) fclose(f);
    f = create("one.pgm");
    if (f) fprintf(f, "P5 28 28 255\n"), write_pixels(f, 784, 11), fclose(f);
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *x  = tn_idx_read(cx, scratch_path("two-idx3-ubyte"));
    CHECK_STATUS(tn_npy_write(x, scratch_path("two.npy")), TN_OK);
    x = tn_div_s(tn_cast(x, TN_F32), 255);
    CHECK_STATUS(tn_npy_write(tn_reshape(x, TN_SHAPE(2, 1, 28, 28)), scratch_path("floats.npy")),
                 TN_OK);
    tn_close(cx);
    runs(0,
         "tenon train --model lenet --data digits:count=64 --epochs 1 --normalize 0.13,0.3 --save m"
         " --quiet");
    runs(0, "tenon predict --load m two-idx3-ubyte >a && cat a");
    CHECK_STR(line_of(0), "item,class,probability");
    runs(0,
         "tenon predict --load m two.npy >b && cmp a b && tenon predict --load m floats.npy >b &&"
         " cmp a b && tenon predict --load m one.pgm >b && sed 's/^2/1/' a | tail -1 >c &&"
         " tail -1 b | cmp - c");
    runs(1, "printf 'GIF89a' >x.gif; tenon predict --load m x.gif");
    CHECK_STR(
        out,
        "tenon: image_read: x.gif: GIF is not read, only JPEG, PNG, PGM and PPM: convert it\n");
    runs(1,
         "printf 'P6 1 1 255\\nabc' >x.ppm; tenon predict --load m x.ppm --out y.csv; ls; exit 1");
    prints(
        "x.ppm has 3 x 1 x 1; the network is for images of 1 x 28 x 28: channels, rows, columns");
    CHECK(strstr(out, "y.csv") == NULL);
    scratch_close();
}

// Dark and bright pictures of many sizes, one of which is cut short.
static void pictures_of_folders_have_their_names(void)
{
    if (!has_libpng()) SKIP("no libpng is installed");
    if (!begin()) return;
    static unsigned char file[PICTURE_ROOM], grey[40 * 40];
    runs(0, "mkdir -p p/dark p/bright");
    for (int i = 0; i < 40; i++) {
        char name[32];
        memset(grey, i % 2 ? 30 + i : 200 + i, sizeof grey);
        png_file png = { .width = 20 + i / 2, .height = 40 - i / 2, .bits = 8, .rows = grey };
        snprintf(name, sizeof name, "p/%s/%d.png", i % 2 ? "dark" : "bright", i);
        size_t n = png_write(file, &png);
        CHECK(scratch_write(scratch_path(name), file, i == 8 ? n - 30 : n));
    }
    runs(0,
         "tenon train --model mlp --hidden 8 --data images:p:size=8 --epochs 20 --batch 8 --lr 0.01"
         " --save m");
    prints("1 image could not be read and was skipped:\n  p/bright/8.png: ");
    prints("test accuracy 100.00 %");
    runs(0, "tenon predict --load m p/dark/1.png p/bright/2.png | sed 's/,[.0-9e-]*$//'");
    CHECK_STR(out, "file,item,class,probability\np/dark/1.png,1,dark\np/bright/2.png,1,bright\n");
    runs(0, "tenon eval --load m --part train");
    // Of more than ten classes, the best five count too.
    for (int i = 0; i < 60; i++) {
        char name[64];
        snprintf(name, sizeof name, "mkdir -p q/train/%d q/val/%d", i % 12, i % 12);
        if (i < 12) runs(0, "%s", name);
        memset(grey, 20 * (i % 12), sizeof grey);
        png_file png = { .width = 20, .height = 20, .bits = 8, .rows = grey };
        snprintf(name, sizeof name, "q/%s/%d/%d.png", i < 48 ? "train" : "val", i % 12, i);
        CHECK(scratch_write(scratch_path(name), file, png_write(file, &png)));
    }
    runs(0, "tenon train --model mlp --hidden 8 --data images:q:size=8 --epochs 1 --batch 8"
            " --augment resized,jitter=0.4,mixup=0.2 --quiet");
    prints("test accuracy of the best 5 ");
    scratch_close();
}

static void classes_of_images_have_their_names(void)
{
    if (!begin()) return;
    static const char *const files[] = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin" };
    for (int i = 0; i < 6; i++) {
        FILE *f = create(files[i]);
        for (int k = 0; f && k < 2; k++) fputc(k, f), write_pixels(f, 3072, 3 + k);
        if (f) fclose(f);
    }
    FILE *f = create("x.ppm");
    if (f) fprintf(f, "P6 32 32 255\n"), write_pixels(f, 3072, 3), fclose(f);
    runs(0, "tenon train --model mlp --hidden 4 --data cifar10:. --epochs 1 --save m --quiet"
            " --normalize 0.5,0.4,0.3/0.2,0.2,0.2 && tenon predict --load m --top 10 x.ppm");
    prints("automobile,");
    prints(",truck,");
    scratch_close();
}

// ---- text

static void the_next_token_of_every_line_is_predicted(void)
{
    if (!begin()) return;
    FILE *f = create("t.txt");
    for (int i = 0; f && i < 300; i++) fputs("a,b\n", f);
    if (f) fclose(f);
    write_text_file("lines.txt", "a,b\na,\n\na");
    runs(
        0,
        "tenon train --model gpt2 --layers 1 --heads 2 --width 16 --context 16 --lr 0.01 --epochs 30"
        " --data text:t.txt --save m --quiet && tenon predict --load m lines.txt");
    prints("item,token,text,probability\n1,10,\\x0a,0.");
    prints("\n2,98,b,0.");
    prints("\n3,");  // an empty line counts as the end of one
    prints("\n4,44,\",\",0.");
    runs(0, "tenon predict --load m --prompt a, --top 2");
    prints("item,token,text,probability,token_2,text_2,probability_2\n1,98,b,");
    runs(2, "tenon predict --load m --prompt a lines.txt");
    prints("either --prompt or an INPUT");
    runs(2, "tenon predict --load m");
    prints("an INPUT or --prompt TEXT is needed");
    scratch_close();
}

// ---- weights of other programs

static void weights_from_elsewhere_are_evaluated_as_the_network_that_is_named(void)
{
    if (!begin()) return;
    tn_ctx   *cx  = tn_open("cpu");
    tn_layer *net = tn_mlp(cx, 3, (int64_t[]){ 784, 16, 10 });
    CHECK_STATUS(tn_save(net, scratch_path("w")), TN_OK);
    tn_close(cx);
    runs(1, "tenon eval --load w");
    prints("w does not say how it was trained");
    runs(0, "tenon eval --load w --model mlp --hidden 16 --data digits:count=600");
    prints("mlp, 100 items of digits:count=600\ntest loss ");
    runs(0,
         "tenon eval --load w --model mlp --hidden 16 --data digits:count=600 >a;"
         " tenon eval --load w --model mlp --hidden 16 --data digits:count=600 --normalize 0,1 >b;"
         " cmp a b; ! tenon eval --load w --model mlp --hidden 16 --data digits:count=600"
         " --normalize 0.5,0.1 | cmp -s - a");
    runs(1, "tenon eval --load w --model mlp --hidden 17 --data digits:count=600");
    prints("(16, 784)");
    runs(0,
         "tenon train --model mlp --hidden 16 --data digits:count=64 --epochs 1 --save m --quiet");
    runs(1, "tenon eval --load m --hidden 17");
    prints("--hidden cannot be another for a network that is trained; m has 16");
    scratch_close();
}

const test_case tests_predict[] = {
    TEST(classes_of_rows_come_with_names_and_probabilities),
    TEST(predictions_are_written_over_a_file_by_force_alone),
    TEST(numbers_come_in_the_units_of_the_target),
    TEST(a_c_program_loads_what_the_tool_trained),
    TEST(missing_cells_get_the_mean_of_the_rows_trained_on),
    TEST(missing_cells_are_filled_flagged_or_skipped_as_in_training),
    TEST(separator_and_header_are_settings_that_are_kept),
    TEST(a_target_that_never_changes_is_said),
    TEST(a_run_out_of_patience_stops_and_keeps_the_best),
    TEST(images_are_predicted_in_every_form),
    TEST(pictures_of_folders_have_their_names),
    TEST(classes_of_images_have_their_names),
    TEST(the_next_token_of_every_line_is_predicted),
    TEST(weights_from_elsewhere_are_evaluated_as_the_network_that_is_named),
    TEST_END,
};
