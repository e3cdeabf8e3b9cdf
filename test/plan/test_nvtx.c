// test_nvtx.c: the ranges that a tool of NVTX sees. The tool is made here: a library that keeps the
// names it gets in a file. Where the headers of NVTX are installed it is compiled with them, so
// that what Tenon offers is what NVIDIA declares.
#include "cli_kit.h"
#include "nvidia_headers.h"

#include <stdlib.h>
#include <string.h>

static const char tool_text[] =
    "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
    "#ifdef REAL\n#include <nvtx3/nvToolsExt.h>\n"
    "#define CORE NVTX_CB_MODULE_CORE\n#define PUSH NVTX_CBID_CORE_RangePushA\n"
    "#define POP NVTX_CBID_CORE_RangePop\n"
    "typedef NvtxExportTableCallbacks calls;\ntypedef NvtxExportTableVersionInfo version;\n"
    "typedef NvtxFunctionTable table_type;\ntypedef NvtxFunctionPointer any;\n"
    "#else\n#define CORE 1\n#define PUSH 9\n#define POP 11\n"
    "typedef void (*any)(void);\ntypedef any **table_type;\n"
    "typedef struct { size_t size; int (*GetModuleFunctionTable)(int, table_type *, unsigned *); }"
    " calls;\n"
    "typedef struct { size_t size; uint32_t version, reserved; void (*set)(uint32_t); } version;\n"
    "#endif\n"
    "static FILE *f;\nstatic int depth;\n"
    "static int push(const char *s) { fprintf(f, \"%d %s\\n\", depth, s); return depth++; }\n"
    "static int pop(void) { fflush(f); return --depth; }\n"
    "int InitializeInjectionNvtx2(const void *(*get)(uint32_t))\n{\n"
    "    const calls *c = get(1);\n    const version *v = get(3);\n"
    "    table_type table, other;\n    unsigned n = 0, m = 0;\n"
    "    if (getenv(\"DECLINE\")) return 0;\n"
    "    if (!c || !v || v->version != 3 || get(2) || !c->GetModuleFunctionTable(CORE, &table, &n)"
    ") return 0;\n"
    "    if (!c->GetModuleFunctionTable(5, &other, &m) || m != 16 ||"
    " c->GetModuleFunctionTable(7, &other, &m)) return 0;\n"
    "    f = fopen(\"names\", \"w\");\n"
    "    if (n != 16 || !f) return 0;\n"
    "    for (unsigned i = 1; i < n; i++) *table[i] = NULL;\n"
    "    *table[PUSH] = (any)push;\n    *table[POP] = (any)pop;\n"
    "    for (unsigned i = 1; i < 16; i++) *other[i] = (any)pop;\n    return 1;\n}\n";

#define TRAIN "tenon train --model mlp --hidden 8 --data digits:count=128 --epochs 1 --quiet"

// Makes the tool, ./tool.so; false, reported, if it cannot be.
static bool make_tool(void)
{
    char  folder[NVIDIA_PATH], flags[NVIDIA_FLAGS] = "";
    FILE *f = create("tool.c");
    if (!f) return false;
    fputs(tool_text, f);
    fclose(f);
    if (nvidia_headers_find(folder)) nvidia_headers_flags(folder, flags);
    return runs(0,
                "r=; echo '#include <nvtx3/nvToolsExt.h>' | cc %s -E - >/dev/null 2>&1 && r=-DREAL;"
                " cc $r %s -shared -fPIC -o tool.so tool.c",
                flags, flags);
}

static void a_tool_sees_layers_and_lines(void)
{
    if (!begin() || !make_tool()) return;
    if (!runs(0, "NVTX_INJECTION64_PATH=$PWD/tool.so " TRAIN " && sort names | uniq -c")) return;
    // The first layer's product, by the layer's name; every range is closed before the next begins.
    prints("0 1: matmul");
    prints("train.c:");
    CHECK(!strstr(out, " 1 1: "));
    runs(0, "grep -c 'linear\\|cross_entropy\\|step' names");
    scratch_close();
}

static void without_a_tool_there_are_no_ranges(void)
{
    if (!begin() || !make_tool()) return;
    runs(0, "NVTX_INJECTION64_PATH=$PWD/tool.so TN_NVTX=0 " TRAIN " && test ! -e names");
    runs(0, "DECLINE=1 NVTX_INJECTION64_PATH=$PWD/tool.so " TRAIN " && test ! -e names");
    runs(0, "NVTX_INJECTION64_PATH=$PWD/tool.c " TRAIN);
    runs(0, "NVTX_INJECTION64_PATH=$PWD/tool.c tenon doctor");
    prints("tool.c is no tool of NVTX");
    runs(0, "NVTX_INJECTION64_PATH=$PWD/tool.so tenon doctor");
    prints("/tool.so");
    scratch_close();
}

// Names are for people alone.
static void ranges_change_no_value(void)
{
    if (!begin() || !make_tool()) return;
    runs(0, TRAIN " --save a.safetensors && NVTX_INJECTION64_PATH=$PWD/tool.so " TRAIN
                  " --save b.safetensors && cmp a.safetensors b.safetensors");
    scratch_close();
}

const test_case tests_nvtx[] = { TEST(a_tool_sees_layers_and_lines),
                                 TEST(without_a_tool_there_are_no_ranges),
                                 TEST(ranges_change_no_value), TEST_END };
