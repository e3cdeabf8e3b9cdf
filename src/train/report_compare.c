// tn_report_compare: two runs beside each other, as a page and as text.
//
//   settings                     a.html           b.html
//     lr                          0.001             0.01
//   results                                                    b - a
//     test_accuracy              0.9812           0.9756     -0.0056
//   curves, mean of the last tenth
//     loss                      0.08431           0.1127    +0.02839
#include "train/report_parts.h"

#include <math.h>
#include <string.h>

enum { NAME = 24, COLUMN = 16 };

extern const char tni_compare_page_js[];

// ---- text --------------------------------------------------------------------------------------

// Names and texts come from files, so they are printed with control characters escaped.
static void print_cell(FILE *f, int width, const char *text)
{
    fprintf(f, " %*.*s", width, 60, tni_escaped(text ? text : "-").s);
}

// Indented under its heading.
static void print_name(FILE *f, const char *name)
{
    fprintf(f, "  %-*.60s", NAME, tni_escaped(name).s);
}

// NaN: the run has no such value. A count is printed whole.
static tni_text value_text(double v)
{
    if (isnan(v)) return tni_text_of("-");
    return tni_text_of(fabs(v) < 1e15 && v == floor(v) ? "%.0f" : "%.6g", v);
}

// A difference needs both, and equal infinities have none.
static void print_numbers(FILE *f, const char *name, double a, double b)
{
    print_name(f, name);
    print_cell(f, COLUMN, value_text(a).s);
    print_cell(f, COLUMN, value_text(b).s);
    if (!isnan(b - a))
        print_cell(
            f, COLUMN,
            tni_text_of(fabs(b - a) >= 1e4 && b - a == floor(b - a) ? "%+.0f" : "%+.4g", b - a).s);
    fputc('\n', f);
}

// A setting that only one of them has counts as different.
static bool differ(const tni_report_pair *a, const tni_report_pair *b)
{
    return !a || !b || strcmp(a->text ? a->text : "", b->text ? b->text : "") != 0;
}

// A dash where a run was not set to anything.
static void print_setting(FILE *f, const char *name, const tni_report_pair *a,
                          const tni_report_pair *b)
{
    print_name(f, name);
    print_cell(f, COLUMN, a ? a->text : NULL);
    print_cell(f, COLUMN, b ? b->text : NULL);
    fputc('\n', f);
}

// Those of a in their order, then those that only b has.
static void print_settings(FILE *f, const tni_report_pairs *a, const tni_report_pairs *b)
{
    int shown = 0;
    for (size_t i = 0; i < a->count; i++) {
        const char            *name  = a->pair[i].name;
        const tni_report_pair *other = tni_report_pair_of(b, name);
        if (differ(&a->pair[i], other)) print_setting(f, name, &a->pair[i], other), shown++;
    }
    for (size_t i = 0; i < b->count; i++)
        if (!tni_report_pair_of(a, b->pair[i].name))
            print_setting(f, b->pair[i].name, NULL, &b->pair[i]), shown++;
    if (!shown) fprintf(f, "  no setting differs\n");
}

// In the same order. Equal results are shown as well: that they are equal is what one looks for.
static void print_figures(FILE *f, const tni_report_pairs *a, const tni_report_pairs *b)
{
    for (size_t i = 0; i < a->count; i++) {
        const tni_report_pair *other = tni_report_pair_of(b, a->pair[i].name);
        print_numbers(f, a->pair[i].name, a->pair[i].v, other ? other->v : NAN);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!tni_report_pair_of(a, b->pair[i].name))
            print_numbers(f, b->pair[i].name, NAN, b->pair[i].v);
}

// Single steps are noise, so the end of a curve is the mean of its last tenth.
static double end_of(const tni_report_curve *c)
{
    if (!c || !c->count) return NAN;
    size_t first = c->count - (c->count + 9) / 10, n = 0;
    double sum = 0;
    for (size_t i = first; i < c->count; i++) {
        if (isnan(c->point[i].mean)) continue;
        sum += c->point[i].mean;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

// Only the ends fit into a line; the page has the curves themselves.
static void print_curves(FILE *f, const tn_report *a, const tn_report *b)
{
    for (size_t i = 0; i < a->curves; i++)
        print_numbers(f, a->curve[i].name, end_of(&a->curve[i]),
                      end_of(tni_report_find(b, a->curve[i].name)));
    for (size_t i = 0; i < b->curves; i++)
        if (!tni_report_find(a, b->curve[i].name))
            print_numbers(f, b->curve[i].name, NAN, end_of(&b->curve[i]));
}

// Titles may be long, so the columns are named a and b.
static void print_text(FILE *f, const tn_report *a, const tn_report *b)
{
    fprintf(f, "a: %s\nb: %s\n\n", tni_escaped(a->title).s, tni_escaped(b->title).s);
    fprintf(f, "%-*s %*s %*s\n", NAME + 2, "settings", COLUMN, "a", COLUMN, "b");
    print_settings(f, &a->settings, &b->settings);
    fprintf(f, "%-*s %*s %*s %*s\n", NAME + 2, "results", COLUMN, "", COLUMN, "", COLUMN, "b - a");
    print_figures(f, &a->figures, &b->figures);
    fprintf(f, "curves, mean of the last tenth\n");
    print_curves(f, a, b);
}

// ---- the call ----------------------------------------------------------------------------------

// Samples are left out of the page: the runs may have looked at different items.
tn_status tn_report_compare(tn_report *a, tn_report *b, const char *path, FILE *f)
{
    static const char op[] = "report_compare";

    tn_ctx *cx = tni_owned_ok(op, a, TNI_REPORT);
    if (!cx || !tni_owned_ok(op, b, TNI_REPORT)) return tni_failed();
    if (b->owned.cx != cx)
        return tni_fail_status(cx, TN_EARG, "%s: the reports are of two contexts", op);
    if (f) print_text(f, a, b);
    if (!path) return TN_OK;
    tni_json_writer w = { .heap = &cx->heap };
    tni_json_put(&w, "{\"kind\":\"comparison\",\"runs\":[");
    tni_report_json(a, &w, false);
    tni_json_put(&w, ",\n");
    tni_report_json(b, &w, false);
    tni_json_put(&w, "]}");
    return tni_report_page(cx, op, path, "Two runs", NULL, &w, tni_compare_page_js);
}
