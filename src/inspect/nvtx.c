// Ranges of NVTX by layer and line around the launches of steps, so that Nsight shows what each
// kernel is for.
//
// NVTX 3 is a convention, not a library. A tool that is attached sets NVTX_INJECTION64_PATH to its
// own library; the program opens that, calls InitializeInjectionNvtx2 in it with a function that
// hands out tables, and the tool writes its functions into the slots of those tables:
//
//   get_table(CALLBACKS)->table_of(CORE, &table, &size);  *table[RANGE_PUSH] = tool's function;  ...
//
// So nothing is to be installed, and without a tool nothing is loaded. CUDA toolkits also bring a
// library with the functions (libnvtx3interop, earlier libnvToolsExt), which TN_NVTX=1 opens: it
// finds tools that attach in other ways.
#include "inspect/nvtx.h"

#include "base/find_libraries.h"
#include "inspect/step_facts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The numbers of NVTX: of the tables that a tool asks for, of the modules in them, of the functions
// in module CORE.
enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3 };
enum { MODULES = 7, CORE = 1, SLOTS = 17, RANGE_PUSH_A = 9, RANGE_POP = 11, NVTX_VERSION = 3 };

typedef void any_function(void);
typedef int  push_function(const char *name);
typedef int  pop_function(void);

typedef struct {
    size_t bytes;
    int (*table_of)(int module, any_function ****table, unsigned *size);
} callbacks;
typedef struct {
    size_t   bytes;
    uint32_t version, reserved;
    void (*set_version)(uint32_t version);
} version_info;

// What the process has of NVTX. The slots are the tool's to fill, so they stay for the life of the
// process. Functions that are not called here have slots, too, since a tool fills all that it
// knows.
static struct {
    pthread_once_t once;
    any_function  *slot[MODULES][SLOTS];
    any_function **table[MODULES][SLOTS];
    push_function *push;
    pop_function  *pop;
    tni_text       state;
} nvtx = { .once = PTHREAD_ONCE_INIT };

// ---- what a tool asks for ----------------------------------------------------------------------

// How many slots NVTX 3 has in each module, with slot 0, which is not used.
static const unsigned module_slots[MODULES] = { 0, 16, 9, 15, 7, 16, 7 };

// Called by the tool, as often as it likes. 1: the module is known.
static int table_of(int module, any_function ****table, unsigned *size)
{
    if (module <= 0 || module >= MODULES) return 0;
    for (unsigned i = 1; i < module_slots[module]; i++)
        nvtx.table[module][i] = &nvtx.slot[module][i];
    if (size) *size = module_slots[module];
    if (table) *table = nvtx.table[module];
    return 1;
}

// Programs could refuse versions of tools that are known to fail; none is.
static void set_version(uint32_t version)
{
    (void)version;
}

// The only function of this program that the tool is given; everything else it finds by this one.
static const void *get_table(uint32_t id)
{
    static const callbacks    calls = { sizeof calls, table_of };
    static const version_info info  = { sizeof info, NVTX_VERSION, 0, set_version };
    return id == TABLE_CALLBACKS ? (const void *)&calls : id == TABLE_VERSION ? &info : NULL;
}

// ---- finding one -------------------------------------------------------------------------------

// Lets the tool at this path fill the slots. A tool that is not there or declines leaves no ranges.
static void attach(const char *path)
{
    typedef int start_function(const void *(*)(uint32_t));

    void           *lib = dlopen(path, RTLD_LAZY);
    void           *at  = lib ? dlsym(lib, "InitializeInjectionNvtx2") : NULL;
    start_function *start;
    memcpy(&start, &at, sizeof start);  // a pointer to data is no pointer to a function in C
    if (!at || !start(get_table)) {
        nvtx.state = tni_text_of("none: %.100s %s", path, at ? "declined" : "is no tool of NVTX");
        return;
    }
    nvtx.push  = (push_function *)nvtx.slot[CORE][RANGE_PUSH_A];
    nvtx.pop   = (pop_function *)nvtx.slot[CORE][RANGE_POP];
    nvtx.state = tni_text_of("%.150s", path);
}

// Opens the library of a toolkit, whose functions look for a tool themselves.
static void open_library(void)
{
    static const char *const names[] = { "libnvtx3interop.so.1", "libnvToolsExt.so.1", NULL };

    tni_text where;
    void    *lib  = tni_nvidia_open(names, &where);
    void    *push = lib ? dlsym(lib, "nvtxRangePushA") : NULL;
    void    *pop  = lib ? dlsym(lib, "nvtxRangePop") : NULL;
    nvtx.state    = push && pop ? where : tni_text_of("none: no library of NVTX is found");
    memcpy(&nvtx.push, &push, sizeof push);
    memcpy(&nvtx.pop, &pop, sizeof pop);
}

// What is attached goes first, as NVTX itself would do it. TN_NVTX=0 is for those who want a
// timeline of graphs as they run without a tool.
static void find_tool(void)
{
    const char *asked = getenv("TN_NVTX"), *path = getenv("NVTX_INJECTION64_PATH");
    nvtx.state = tni_text_of("none: no tool is attached, and TN_NVTX is not 1");
    if (asked && !strcmp(asked, "0")) nvtx.state = tni_text_of("none: TN_NVTX is 0");
    else if (path && *path) attach(path);
    else if (asked && !strcmp(asked, "1")) open_library();
}

// For tn_doctor, which has no context yet.
tni_text tni_nvtx_state(void)
{
    pthread_once(&nvtx.once, find_tool);
    return nvtx.state;
}

// A context that opens later asks again, and gets the same tool: the environment is read once.
void tni_nvtx_open(tn_ctx *cx)
{
    pthread_once(&nvtx.once, find_tool);
    if (nvtx.push && nvtx.pop) cx->engine->watch |= TNI_WATCH_NAMES;
}

// ---- ranges ------------------------------------------------------------------------------------

// "fc1: matmul + POINT (64, 128), train.c:12 linear": the first layer that the step has, what it
// is, and its first line.
void tni_nvtx_push(const tni_run *r, tni_plan_step step)
{
    const tni_node *n, *line = NULL;
    const char     *layer = NULL;
    tni_text        name  = { "" };
    for (int at = 0; (n = tni_step_origin(r->g, r->plan, step, &at)) != NULL;) {
        if (!line && n->site.line) line = n;
        if (!layer && n->site.layer) layer = n->site.layer->text;
    }
    if (layer) tni_text_add(&name, "%s: ", layer);
    tni_text_add(&name, "%s %s", tni_step_name(r->g, r->plan, step).s,
                 tni_step_sizes(r->g, r->plan, step).s);
    if (line)
        tni_text_add(&name, ", %s:%d %s", line->site.file, line->site.line,
                     line->site.op ? line->site.op : tni_op_table[line->op].name);
    nvtx.push(name.s);
}

// Ranges of a thread form a stack, so that an end needs no name.
void tni_nvtx_pop(const tni_run *r)
{
    (void)r;
    nvtx.pop();
}
