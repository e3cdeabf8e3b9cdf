// pages.h: what a program does, and how long it takes: plans, memory, profiles, and pages of them.
//
// Part of tenon.h, which includes it.
#ifndef TENON_PAGES_H
#define TENON_PAGES_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// Plans all pending work as tn_eval would, and prints the plan. Runs nothing and changes nothing.
// The first line is "N kernels, X bytes moved, Y at least": N counts generated kernels and calls of
// a library or the device, and Y reads each input once and writes each result once. Then come the
// kernels and calls, with their kind, sizes and source lines; then the memory for intermediate
// values, and the least that their lifetimes allow in this order.
TN_API tn_status tn_explain(tn_ctx *cx, FILE *f);
typedef struct {
    bool source;  // adds the instructions of each kernel, and its text as the device compiles it
    bool stored;  // adds the values that each step stores, and why: "stored (64, 10): assigned"
    bool html;    // writes a page instead: the kernels as a graph, with all of this
} tn_explain_opts;
TN_API tn_status tn_explain_with(tn_ctx *cx, FILE *f, tn_explain_opts o);

// The memory of a step, in bytes. The first three members count each tensor of the step once. While
// a step replaces a tensor, its old and its new value both exist; only peak includes that.
typedef struct {
    int64_t parameters;   // leaves that receive gradients
    int64_t gradients;    // stored gradients of these leaves; a gradient that only the step itself
                          // reads, as in tn_step, is an activation
    int64_t optimizer;    // other tensors written in place: optimizer state, running statistics
    int64_t activations;  // intermediate values, at their highest, and other results
    int64_t workspace;    // scratch memory of kernels and library calls
    int64_t peak;         // the most that the context holds during the step, as in tn_stats
} tn_plan_memory;
// Returns the memory that tn_eval would need now, without running anything. Zeros on error.
TN_API tn_plan_memory tn_ctx_plan_memory(tn_ctx *cx);
// Measures how many flops per second large products of a float dtype reach on the context's device,
// which takes a fraction of a second: the ceiling that a profile compares with. 0 if it cannot.
TN_API double tn_ctx_peak(tn_ctx *cx, tn_dtype dt);

// Begins a profile and forgets an earlier one. Until tn_profile_end, every kernel and call runs
// alone and is timed, by the device's clock if it has one. Evaluations are slower; values are the
// same.
TN_API tn_status tn_profile_begin(tn_ctx *cx);
TN_API tn_status tn_profile_end(tn_ctx *cx);
// Writes the profile so far. A path that ends in ".json" gets every run of a kernel as a trace
// event, for Perfetto or chrome://tracing (the first million), with tracks for the host's work,
// copies, and memory by owner. One that ends in ".html" gets a page: timeline, table, roofline and
// memory. Any other path, or stdout if path is
// NULL, gets a table of kernels, the slowest first: time, bytes and flops per second, their share
// of the rate of a large copy or product, which is measured at that time, and source lines. Values
// that stay in a cache can exceed that rate.
TN_API tn_status tn_profile_write(tn_ctx *cx, const char *path);

// Compares two profiles, given as the traces that tn_profile_write wrote to paths that end in
// ".json". Kernels are the same if their names and sizes are. A path that ends in ".html" gets a
// page, any other path, or stdout if path is NULL, a table, the largest difference first.
TN_API tn_status tn_profile_compare(tn_ctx *cx, const char *a, const char *b, const char *path);

// A page of HTML that holds its style, its script and its data, and asks for nothing from the
// network. title and note are plain text. data is a JSON value; script shows it with the helpers of
// src/base/page.js (section, table, lines, bars, scatter, graph), and must not hold "</script".
typedef struct {
    const char *title, *note, *data, *script;
} tn_page;
// Writes a page to a file.
TN_API tn_status tn_page_write(tn_ctx *cx, const char *path, tn_page page);

#endif
