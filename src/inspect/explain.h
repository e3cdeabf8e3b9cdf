// A plan as it is explained: what its text and its page share.
#ifndef TNI_INSPECT_EXPLAIN_H
#define TNI_INSPECT_EXPLAIN_H

#include "inspect/inspect.h"

// launches: kernels, and calls that run. moved: bytes they read and write; least: bytes that even
// one kernel for everything would move; bound: bytes that no arena for this order of steps could do
// without.
typedef struct {
    size_t  launches;
    int64_t moved, least, bound;
} tni_plan_counts;

// False when memory is out.
bool tni_plan_count(tni_graph *g, const tni_plan *p, tni_plan_counts *n);
// The next value that outlives the plan in the place of item i, which is then listed, by item; NULL
// behind the last.
const tni_item *tni_next_stored(const tni_graph *g, const tni_plan *p, int32_t i, bool *listed);
// Where the settings of a kernel, the algorithm of a call or the choices of a plan come from: "136
// us, 153 us by the rule, 138 us next: cluster 7"; "" if nothing was measured.
tni_text tni_step_tuned(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                        tni_plan_step step);
tni_text tni_plan_tuned(tni_graph *g);
// The times of a winner and what was chosen: "812 us, 840 us by the rule, 818 us next: unroll 8".
tni_text tni_tuned_text(const tni_tuned *won, const char *with);
// The source of a kernel under the settings that won, freed by tni_free; NULL if the device shows
// none.
char *tni_planned_text(tni_heap *h, const tni_engine *e, const tni_planned_kernel *k);
// Shows the plan of the body of a loop's node.
void tni_with_body(tn_ctx *cx, const tni_node *n, void *to,
                   void (*show)(void *to, tni_graph *g, const tni_plan *p));

// Writes a plan as JSON, for the page; and the page of plans, which are a list of such, `left` more
// having been left out. False when memory is out.
bool tni_explain_json(tni_graph *g, const tni_plan *p, const char *title, tni_json_writer *w);
bool tni_explain_pages(tn_ctx *cx, const char *plans, int left, FILE *f);
bool tni_explain_html(tni_graph *g, const tni_plan *p, FILE *f);

#endif
