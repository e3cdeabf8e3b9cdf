// test_cuda_find.c: how libraries of NVIDIA are found, with libraries made for it, and what is said
// of drivers that do not serve us, with drivers made for it. Each case is a process of its own:
// nothing of what is loaded goes away again.
#include "check.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/driver.h"
#include "base/find_libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

enum { PATH_ROOM = 1024 };

// ---- the ground --------------------------------------------------------------------------------

// Runs a shell command in the scratch folder; what it does must work.
static bool run(const char *fmt, const char *a, const char *b)
{
    char command[2 * PATH_ROOM], text[PATH_ROOM], out[2000];
    snprintf(text, sizeof text, fmt, a, b);
    snprintf(command, sizeof command, "cd '%s' && %s", scratch_path(""), text);
    return test_that(tree_run(command, out, sizeof out) == 0, "%s: %s", text, out);
}

static void end(void)
{
    run("rm -rf ./*%s%s", "", "");
    scratch_close();
}

// A library of this name, in folders; a colon stands between them.
static bool make_library(const char *name, const char *folders)
{
    char text[PATH_ROOM];
    if (!run("'%s' -x c -shared -fPIC -o made.so -Wl,-soname,%s /dev/null", TN_CC, name))
        return false;
    while (*folders) {
        size_t n = strcspn(folders, ":");
        snprintf(text, sizeof text, "%.*s", (int)n, folders);
        if (!run("f='%s' && mkdir -p \"$f\" && cp made.so \"$f/%s\"", text, name)) return false;
        folders += n + (folders[n] == ':');
    }
    return true;
}

// The result of a function in a process of its own.
static int in_child(int (*f)(const char *), const char *arg)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(f(arg));
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// ---- where -------------------------------------------------------------------------------------

static const char *const fake[] = { "libtnfake.so.14", "libtnfake.so.13", NULL };

static tni_search_paths places_here(void)
{
    static char              path[6][PATH_ROOM], python[2 * PATH_ROOM];
    static const char *const folder[] = { "own", "venv", "conda", "home", "toolkit [1]*", "older" };
    for (int i = 0; i < 6; i++) snprintf(path[i], sizeof path[i], "%s", scratch_path(folder[i]));
    snprintf(python, sizeof python, "/nowhere::%s", scratch_path("python"));
    return (tni_search_paths){ .own        = path[0],
                               .venv       = path[1],
                               .conda      = path[2],
                               .pythonpath = python,
                               .home       = path[3],
                               .cuda_path  = path[4],
                               .cuda_home  = path[5] };
}

// In the order they are looked at.
#define FOLDERS                                                       \
    "own/nvidia/cu13/lib:own/nvidia/cublas/lib:"                      \
    "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib:"        \
    "conda/lib/python3.10/site-packages/nvidia/cudnn/lib:"            \
    "python/nvidia/cu13/lib:"                                         \
    "home/.local/lib/python3.11/site-packages/nvidia/cu13/lib:"       \
    "conda/lib:conda/targets/sbsa-linux/lib:"                         \
    "toolkit [1]*/lib64:toolkit [1]*/lib:toolkit [1]*/targets/x/lib:" \
    "older/lib64"

// Whether the library is found in this folder of the scratch folder.
static int found_in(const char *folder)
{
    tni_text         where = { "" };
    tni_search_paths p     = places_here();
    const char      *name  = strcmp(folder, "older/lib64") ? fake[1] : fake[0];
    char             want[PATH_ROOM];
    snprintf(want, sizeof want, "%s/%s", scratch_path(folder), name);
    void *lib = tni_nvidia_open_in(&p, fake, &where);
    if (lib && strcmp(where.s, want) == 0) return 0;
    printf("found \"%s\", not \"%s\"\n", where.s, want);
    fflush(stdout);
    return 1;
}

static int found_nowhere(const char *unused)
{
    tni_text         where = { "" };
    tni_search_paths p = places_here(), none = { 0 };
    (void)unused;
    return !tni_nvidia_open_in(&p, fake, &where) && !tni_nvidia_open_in(&none, fake, &where) &&
                   !*where.s
               ? 0
               : 1;
}

// Each place is emptied when it was found. The last has a newer library, which does not matter: the
// place counts more than the version.
static void places_are_looked_at_in_their_order(void)
{
    if (!CHECK(scratch_open())) return;
    if (make_library(fake[1], FOLDERS) && make_library(fake[0], "older/lib64"))
        for (const char *at = FOLDERS; *at;) {
            char   folder[PATH_ROOM];
            size_t n = strcspn(at, ":");
            snprintf(folder, sizeof folder, "%.*s", (int)n, at);
            test_that(in_child(found_in, folder) == 0, "not found in %s", folder);
            run("rm -r '%s'%s", folder, "");
            at += n + (at[n] == ':');
        }
    CHECK_INT(in_child(found_nowhere, NULL), 0);
    end();
}

static int found_loaded(const char *path)
{
    tni_text         where = { "" };
    tni_search_paths p     = places_here();
    void            *lib   = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return lib && tni_nvidia_open_in(&p, fake, &where) == lib && strcmp(where.s, path) == 0 ? 0 : 1;
}

static void what_is_loaded_already_is_taken(void)
{
    char path[PATH_ROOM];
    if (!CHECK(scratch_open())) return;
    if (make_library(fake[1], "own/nvidia/cu13/lib:elsewhere")) {
        snprintf(path, sizeof path, "%s/%s", scratch_path("elsewhere"), fake[1]);
        CHECK_INT(in_child(found_loaded, path), 0);
    }
    end();
}

// The compiler asks the loader for its functions by name alone.
static int builtins_are_there(const char *unused)
{
    static const char *const names[] = { "libnvrtc.so.99", NULL };

    tni_text         where = { "" };
    tni_search_paths p     = places_here();
    (void)unused;
    return tni_nvidia_open_in(&p, names, &where) &&
                   dlopen("libnvrtc-builtins.so.99.1", RTLD_NOW | RTLD_LOCAL)
               ? 0
               : 1;
}

static void the_functions_of_nvrtc_come_from_its_folder(void)
{
    if (!CHECK(scratch_open())) return;
    if (make_library("libnvrtc.so.99", "venv/lib/python3.9/site-packages/nvidia/cu13/lib") &&
        make_library("libnvrtc-builtins.so.99.1",
                     "venv/lib/python3.9/site-packages/nvidia/cu13/lib"))
        CHECK_INT(in_child(builtins_are_there, NULL), 0);
    end();
}

// ---- drivers -----------------------------------------------------------------------------------

// Every function of the driver, doing nothing, but for those that are asked.
static const char driver_text[] =
    "#define cuInit unused_init\n"
    "#define cuDriverGetVersion unused_version\n"
    "#define cuDeviceGetCount unused_count\n"
    "#define cuGetErrorString unused_string\n"
    "#define FUNCTION(name) int name(void) { return 0; }\n"
    "#define CALL(field, name) FUNCTION(name)\n"
    "#include \"device/cuda/driver.def\"\n"
    "#undef cuInit\n"
    "#undef cuDriverGetVersion\n"
    "#undef cuDeviceGetCount\n"
    "#undef cuGetErrorString\n"
    "int cuInit(unsigned flags) { return flags ? 1 : START; }\n"
    "int cuDriverGetVersion(int *v) { *v = SERVES; return 0; }\n"
    "int cuDeviceGetCount(int *n) { *n = 0; return 0; }\n"
    "int cuGetErrorString(int e, const char **s) { *s = \"fabric not ready\"; return e < 0; }\n";

// Makes one and loads it as a program would that links it.
static bool load_driver(const char *options)
{
    return CHECK(scratch_write(scratch_path("driver.c"), driver_text, strlen(driver_text))) &&
           run("'%s' -shared -fPIC -I'" TN_SOURCE_DIR
               "/src' -Wl,-soname,libcuda.so.1 %s -o libcuda.so.1 driver.c",
               TN_CC, options) &&
           CHECK(dlopen(scratch_path("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) != NULL);
}

static int says(const char *text, const char *part)
{
    bool ok = strstr(text, part) != NULL;
    if (!ok) printf("\"%s\" does not say \"%s\"\n", text, part);
    fflush(stdout);
    return ok ? 0 : 1;
}

// What tn_open and the doctor say of a driver.
static int open_says(const char *part)
{
    char  *text  = NULL;
    size_t bytes = 0;
    FILE  *f     = open_memstream(&text, &bytes);
    if (tn_open("cuda") || !f) return 1;
    int wrong = says(tn_error_text(NULL), "open: device cuda is not available: ");
    wrong |= says(tn_error_text(NULL), part);
    tn_doctor(f);
    fclose(f);
    wrong |= says(text, part) | says(text, "  cuda     missing  ");
    free(text);
    return wrong;
}

static int too_old(const char *options)
{
    static const char part[] =
        "the NVIDIA driver is too old: it supports CUDA 11.4; CUDA 12.0 is needed";
    return load_driver(options) ? open_says(part) : 1;
}

static int without_a_function(const char *options)
{
    static const char part[] = "the NVIDIA driver is too old: it supports CUDA 11.8 and has no "
                               "cuLaunchKernelEx; CUDA 12.0 is needed";
    return load_driver(options) ? open_says(part) : 1;
}

static void an_old_driver_is_told(void)
{
    if (!CHECK(scratch_open())) return;
    CHECK_INT(in_child(too_old, "-DSERVES=11040 -DSTART=0"), 0);
    CHECK_INT(in_child(without_a_function, "-DSERVES=11080 -DSTART=0 -DcuLaunchKernelEx=other"), 0);
    end();
}

// What starting it says, with CUDA_VISIBLE_DEVICES so.
static int start_says(const char *options, const char *visible, const char *part)
{
    tni_text why   = { "" };
    int      count = -1;
    if (visible) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    else unsetenv("CUDA_VISIBLE_DEVICES");
    const tni_driver *cu = load_driver(options) ? tni_driver_get(&why) : NULL;
    if (!cu || cu->capture_info_v2 || cu->capture_info_v3) return 1;
    return tni_driver_start(cu, &count, &why) || count != 0 || says(why.s, part);
}

static int none(const char *options)
{
    return start_says(options, NULL, "the NVIDIA driver finds no GPU");
}

static int hidden(const char *options)
{
    return start_says(options, "7", "no GPU is visible: CUDA_VISIBLE_DEVICES is \"7\"");
}

static int broken(const char *options)
{
    return start_says(options, "0",
                      "the NVIDIA driver does not start: fabric not ready (error 802)");
}

static void no_gpu_and_a_hidden_one_are_told_apart(void)
{
    if (!CHECK(scratch_open())) return;
    CHECK_INT(in_child(none, "-DSERVES=12000 -DSTART=100"), 0);
    CHECK_INT(in_child(none, "-DSERVES=13000 -DSTART=0"), 0);
    CHECK_INT(in_child(hidden, "-DSERVES=13000 -DSTART=100"), 0);
    CHECK_INT(in_child(broken, "-DSERVES=13000 -DSTART=802"), 0);
    end();
}

// A library fits the driver, if there is a choice, wherever it lies.
static int fits(const char *options)
{
    tni_text where = { "" };
    setenv("VIRTUAL_ENV", scratch_path("new"), 1);
    setenv("CUDA_PATH", scratch_path("old"), 1);
    if (!load_driver(options)) return 1;
    void *lib = tni_cuda_library("libtnother", &where);
    return !lib || says(where.s, strstr(options, "=13") ? "/new/" : "/old/");
}

static void the_version_that_fits_the_driver_is_taken(void)
{
    if (!CHECK(scratch_open())) return;
    if (make_library("libtnother.so.13", "new/lib/python3.9/site-packages/nvidia/cu13/lib") &&
        make_library("libtnother.so.12", "old/lib64")) {
        CHECK_INT(in_child(fits, "-DSERVES=13010 -DSTART=0"), 0);
        CHECK_INT(in_child(fits, "-DSERVES=12080 -DSTART=0"), 0);
    }
    end();
}

static void some_errors_lose_the_gpu(void)
{
    CHECK(tni_driver_lost(TNI_CU_ILLEGAL_ADDRESS) && tni_driver_lost(TNI_CU_LAUNCH_FAILED));
    CHECK(!tni_driver_lost(TNI_CU_OK) && !tni_driver_lost(TNI_CU_OUT_OF_MEMORY));
    CHECK(!tni_driver_lost(TNI_CU_TOO_MUCH) && !tni_driver_lost(TNI_CU_NOT_SUPPORTED));
}

const test_case tests_cuda_find[] = {
    TEST(places_are_looked_at_in_their_order),
    TEST(what_is_loaded_already_is_taken),
    TEST(the_functions_of_nvrtc_come_from_its_folder),
    TEST(an_old_driver_is_told),
    TEST(no_gpu_and_a_hidden_one_are_told_apart),
    TEST(the_version_that_fits_the_driver_is_taken),
    TEST(some_errors_lose_the_gpu),
    TEST_END,
};
