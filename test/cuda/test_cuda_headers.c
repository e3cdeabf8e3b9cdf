// test_cuda_headers.c: what we declare of NVIDIA's libraries, beside their own headers where those
// are installed: headers/real_*.c is compiled with both, and what differs is an error of it.
#include "check.h"
#include "nvidia_headers.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/driver.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_ROOM = 8192 };

// ---- the headers -------------------------------------------------------------------------------

// Compiles a file of test/cuda/headers, declarations in `first` before those of src; what the
// compiler says is in out.
static bool compiles(const char *file, const char *folder, const char *first, char *out)
{
    char command[NVIDIA_FLAGS + 2 * NVIDIA_PATH], flags[NVIDIA_FLAGS];
    nvidia_headers_flags(folder, flags);
    snprintf(command, sizeof command,
             "'%s' -std=c11 -fsyntax-only -I'%s' -Isrc -Iinclude %s test/cuda/headers/%s", TN_CC,
             first, flags, file);
    return tree_run(command, out, TEXT_ROOM) == 0;
}

#define NEED_HEADERS(folder)  \
    char folder[NVIDIA_PATH]; \
    if (!nvidia_headers_find(folder)) SKIP(NVIDIA_NO_HEADERS)

// ---- ours beside theirs ------------------------------------------------------------------------

static void our_declarations_are_those_of_nvidia(void)
{
    tree_list l = { 0 };
    NEED_HEADERS(folder);
    tree_add(&l, "test/cuda/headers", ".c");
    CHECK(l.count > 0);
    for (int i = 0; i < l.count; i++) {
        char out[TEXT_ROOM];
        bool ok = compiles(strrchr(l.path[i], '/') + 1, folder, ".", out);
        test_that(ok, "%s with the headers of %s: %.800s", l.path[i], folder, out);
    }
    tree_free(&l);
}

// The next word of a text that begins so, put into word; where it ends, or NULL.
static const char *next_word(const char *text, const char *start, char *word, size_t room)
{
    const char *at = strstr(text, start);
    size_t      n  = 0;
    if (!at) return NULL;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    snprintf(word, room, "%.*s", (int)n, at);
    return at + n;
}

static bool has_word(const char *text, const char *word)
{
    char found[100];
    while ((text = next_word(text, word, found, sizeof found)))
        if (strcmp(found, word) == 0) return true;
    return false;
}

static void every_number_of_ours_is_compared(void)
{
    char *types   = tree_read("src/device/cuda/cu_types.h", NULL);
    char *compare = tree_read("test/cuda/headers/real_cuda.c", NULL);
    char  word[100];
    int   n = 0;
    if (!CHECK(types && compare)) return;
    for (const char *at = types; (at = next_word(at, "TNI_CU_", word, sizeof word)); n++)
        test_that(has_word(compare, word), "%s is compared with nothing", word);
    for (const char *at = types; (at = next_word(at, "TNI_NV_", word, sizeof word)); n++)
        test_that(has_word(compare, word), "%s is compared with nothing", word);
    CHECK(n > 50);
    free(types);
    free(compare);
}

// A declaration of ours with an error in it.
typedef struct {
    const char *file, *is, *wrong;
} mistake;

static const mistake mistakes[] = {
    { "driver.h", "(*copy_out)(void *dst, tni_cuptr src", "(*copy_out)(tni_cuptr src, void *dst" },
    { "driver.h", "tni_cumemory m,\n", "const void *m,\n" },
    { "driver.h", "int (*event_destroy)(tni_cuevent e)", "int (*event_destroy)(tni_custream e)" },
    { "driver.h", "const tni_cuaccess *access, size_t", "const tni_cuaccess *access, unsigned" },
    { "driver.h", "int (*log_size)(tni_nvprogram p, size_t",
      "int (*log_size)(tni_nvprogram p, int" },
    { "driver.def", "cuMemUnmap", "cuMemRelease" },
    { "driver.def", "cuGraphKernelNodeGetParams_v2", "cuGraphKernelNodeGetParams" },
    { "cu_types.h", "TNI_CU_MAJOR               = 75", "TNI_CU_MAJOR = 76" },
    { "cu_types.h", "tni_cucontext  cx;", "tni_cunode cx;" },
    { "cu_types.h", "char  room[64];", "char room[56];" },
};

// The folder of our declarations in the scratch folder, one of them spoiled.
static bool spoil(const mistake *m)
{
    static const char *const files[] = { "driver.h", "driver.def", "cu_types.h" };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[NVIDIA_PATH], to[NVIDIA_PATH], whole[3 * TEXT_ROOM];
        snprintf(from, sizeof from, "src/device/cuda/%s", files[i]);
        snprintf(to, sizeof to, "device/cuda/%s", files[i]);
        char *text = tree_read(from, NULL), *at = NULL;
        if (!CHECK(text != NULL)) return false;
        if (strcmp(files[i], m->file) == 0) {
            at = strstr(text, m->is);
            test_that(at != NULL, "%s has no \"%s\"", m->file, m->is);
        }
        int before = at ? (int)(at - text) : 0;
        snprintf(whole, sizeof whole, "%.*s%s%s", before, text, at ? m->wrong : "",
                 at ? at + strlen(m->is) : text);
        CHECK(scratch_write(scratch_path(to), whole, strlen(whole)));
        free(text);
    }
    return true;
}

static void a_wrong_declaration_is_noticed(void)
{
    NEED_HEADERS(folder);
    char out[TEXT_ROOM];
    if (!CHECK(scratch_open())) return;
    mkdir(scratch_path("device"), 0700);
    mkdir(scratch_path("device/cuda"), 0700);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (!spoil(&mistakes[i])) break;
        bool ok = compiles("real_cuda.c", folder, scratch_path(""), out);
        test_that(!ok && strstr(out, "assert"), "\"%s\" is not noticed: %.300s", mistakes[i].wrong,
                  out);
    }
    unlink(scratch_path("device/cuda/driver.h"));
    unlink(scratch_path("device/cuda/driver.def"));
    unlink(scratch_path("device/cuda/cu_types.h"));
    rmdir(scratch_path("device/cuda"));
    scratch_close();
}

// A toolkit has a library to link with in place of the driver: every name of the driver, and no
// driver behind it.
static void the_driver_has_every_name(void)
{
    char       path[2 * NVIDIA_PATH];
    tni_text   why = { "" };
    tni_driver cu;
    NEED_HEADERS(folder);
    snprintf(path, sizeof path, "%s/../lib64/stubs/libcuda.so", folder);
    void *stub = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!stub) SKIP("there is no %s", path);
    tni_driver_fill(stub, &cu, &why);
    test_that(!strstr(why.s, "has no"), "%s", why.s);
    CHECK(cu.capture_info_v2 || cu.capture_info_v3);
}

const test_case tests_cuda_headers[] = {
    TEST(our_declarations_are_those_of_nvidia),
    TEST(every_number_of_ours_is_compared),
    TEST(a_wrong_declaration_is_noticed),
    TEST(the_driver_has_every_name),
    TEST_END,
};
