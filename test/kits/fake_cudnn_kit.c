// fake_cudnn_kit.c: compiles the fake cuDNN and opens a session over it.
#include "fake_cudnn_kit.h"

#include "check.h"
#include "fake_clock.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/choice.h"
#include "device/cuda/dnn_plan.h"
#include "device/cuda/method.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_dnn      *fake_cudnn;
tni_cuda       fake_session;
static tni_gpu gpu;

// Compiles the fake, and the two libraries that it says it needs, into the scratch folder.
bool fake_cudnn_compile(const char *options)
{
    char command[1600], out[1000] = "";
    snprintf(command, sizeof command,
             "cd '%s' && for n in nvrtc cublasLt; do " TN_CC
             " -x c -shared -fPIC -Wl,-soname,lib$n.so.99 -o lib$n.so.99 /dev/null || exit 1; done",
             scratch_path(""));
    if (!test_that(tree_run(command, out, sizeof out) == 0, "companions: %s", out)) return false;
    snprintf(command, sizeof command,
             TN_CC
             " -std=c11 -O1 -shared -fPIC -D_GNU_SOURCE %s -Iinclude -Isrc -Itest/kits -o '%s' "
             "test/cuda/fake/fake_cudnn.c test/kits/host.c -lm",
             options, scratch_path("libcudnn.so.9"));
    return test_that(tree_run(command, out, sizeof out) == 0, "the fake library: %s", out);
}

static int set_context(tni_cucontext cx)
{
    (void)cx;
    return TNI_CU_OK;
}

static int pop_context(tni_cucontext *cx)
{
    (void)cx;
    return TNI_CU_OK;
}

// A GPU with 64 GB, all of them free.
static int mem_info(size_t *free, size_t *all)
{
    *free = *all = (size_t)64 << 30;
    return TNI_CU_OK;
}

static int set32(tni_cuptr p, unsigned value, size_t n, tni_custream s)
{
    (void)s;
    for (size_t i = 0; i < n; i++) memcpy((char *)(uintptr_t)p + 4 * i, &value, 4);
    return TNI_CU_OK;
}

void fake_cudnn_forget(void)
{
    tni_forms_forget();
    tni_dnn_forget();
    tni_choice_forget();
}

// Puts the fake and the session back as they were; the cache is a folder that is empty.
bool fake_cudnn_begin(void)
{
    static bool loaded;
    tni_text    why = { "" };
    if (!CHECK(scratch_open())) return false;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    if (!loaded) {
        if (!fake_cudnn_compile("")) return false;
        setenv("TN_CUDNN", scratch_path("libcudnn.so.9"), 1);
        if (!test_that(tni_cudnn_get(&why) != NULL, "%s", why.s)) return false;
        void *lib = dlopen(scratch_path("libcudnn.so.9"), RTLD_NOW | RTLD_LOCAL);
        fake_dnn *(*get)(void);
        *(void **)&get = dlsym(lib, "fake_dnn_get");
        fake_cudnn     = get();
        loaded         = true;
    }
    int handles = fake_cudnn->handles, alive = fake_cudnn->alive;
    *fake_cudnn = (fake_dnn){
        .engines = 3, .fastest = 1, .fails = FAKE_NONE, .broken = -1, .status = 3000
    };
    fake_cudnn->handles = handles, fake_cudnn->alive = alive;
    fake_session = (tni_cuda){ .gpu = &gpu, .stream = fake_clock_open(&fake_cudnn->milliseconds) };
    fake_cudnn->stream             = fake_session.stream;
    fake_clock_driver.set_current  = set_context;
    fake_clock_driver.push_current = set_context;
    fake_clock_driver.pop_current  = pop_context;
    fake_clock_driver.set32        = set32;
    fake_clock_driver.mem_info     = mem_info;
    gpu                            = (tni_gpu){ .cu = &fake_clock_driver, .name = "fake" };
    fake_cudnn_forget();
    return true;
}

void fake_cudnn_end(void)
{
    fake_cudnn_forget();
    CHECK_INT(fake_cudnn->alive + fake_cudnn->handles + fake_clock_left(), 0);
    unsetenv("TN_CACHE_DIR");
    scratch_close();
}
