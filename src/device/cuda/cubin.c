// CUDA text to machine code by NVRTC, the disk cache of machine code, and reading the assembler's
// log.
#include "device/cuda/cubin.h"

#include "base/background.h"
#include "device/cuda/driver.h"
#include "kernel/disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- compiling ---------------------------------------------------------------------------------

// Copies the compiler's log; without memory for it only the explanation is missing.
static void take_log(tni_cubin *c, const tni_nvrtc *rtc, tni_nvprogram p)
{
    size_t n = 0;
    if (rtc->log_size(p, &n) != TNI_CU_OK || !(c->log = malloc(n + 1))) return;
    if (rtc->log(p, c->log) != TNI_CU_OK) n = 0;
    c->log[n] = 0;
}

static tn_status take_image(tni_cubin *c, const tni_nvrtc *rtc, tni_nvprogram p, tni_text *why)
{
    if (rtc->cubin_size(p, &c->bytes) != TNI_CU_OK) {
        tni_text_add(why, "NVRTC returned no machine code");
        return TN_EDEVICE;
    }
    if (!(c->image = malloc(c->bytes))) {
        tni_text_add(why, "out of memory for a kernel");
        return TN_EMEM;
    }
    if (rtc->cubin(p, c->image) == TNI_CU_OK) return TN_OK;
    tni_text_add(why, "NVRTC returned no machine code");
    return TN_EDEVICE;
}

// Adds the first line of the log that contains an error.
static void report_first_error(const tni_cubin *c, tni_text *why)
{
    const char *at = c->log ? strstr(c->log, "error") : NULL;
    if (!at) {
        tni_text_add(why, "NVRTC could not compile a kernel");
        return;
    }
    while (at > c->log && at[-1] != '\n') at--;
    tni_text_add(why, "NVRTC: %.*s", (int)strcspn(at, "\n"), at);
}

// Contraction is off, and division and square roots are exact by default, so that results have the
// same bits as on other devices. with_usage: -v makes the assembler report what each function uses,
// which code from NVRTC's own cache does not. Warnings about unused functions (177) and values
// (550) are off, since preludes have many. The last option is unknown to older versions of NVRTC,
// so that it is dropped when they reject it: --Ofast-compile to compile quickly, --split-compile to
// use a thread for each kernel of a text.
static int run_nvrtc(const tni_nvrtc *rtc, tni_nvprogram p, const char *chip, bool with_usage,
                     bool quick)
{
    enum { OPTIONS = 6 };
    char arch[64];
    int  n = 3;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", chip);
    const char *option[OPTIONS] = { arch, "--fmad=false", "--std=c++17" };
    option[n++]                 = with_usage ? "--diag-suppress=177,550" : "--disable-warnings";
    if (with_usage) option[n++] = "--ptxas-options=-v";
    option[n++] = with_usage ? "--no-cache" : quick ? "--Ofast-compile=mid" : "--split-compile=0";
    int error   = rtc->compile(p, n, option);
    return error == TNI_NV_INVALID_OPTION ? rtc->compile(p, n - 1, option) : error;
}

// NVRTC calls this while it compiles and gives up if it returns 1. It never does: giving up frees
// memory that is not NVRTC's own in some cases (13.0, in the assembler). But it is the moment to
// register the wait at the end of the process, after NVRTC has set itself up and before it would be
// taken down.
static int on_progress(void *payload, void *unused)
{
    (void)payload, (void)unused;
    tni_background_guard();
    return 0;
}

// Compiles a text. The log is taken in any case, the image only on success.
static tn_status compile_cubin(tni_cubin *c, const char *text, const char *chip, bool with_usage,
                               bool quick, tni_text *why)
{
    *c                   = (tni_cubin){ 0 };
    const tni_nvrtc *rtc = tni_nvrtc_get(why);
    tni_nvprogram    p   = NULL;
    tn_status        s   = TN_EDEVICE;
    if (!rtc) return s;
    if (rtc->create(&p, text, "tenon.cu", 0, NULL, NULL) != TNI_CU_OK) {
        tni_text_add(why, "NVRTC could not create a program");
        return s;
    }
    if (rtc->flow_callback) rtc->flow_callback(p, on_progress, NULL);
    int error = run_nvrtc(rtc, p, chip, with_usage, quick);
    take_log(c, rtc, p);
    if (error == TNI_CU_OK) s = take_image(c, rtc, p, why);
    else report_first_error(c, why);
    rtc->destroy(&p);
    return s;
}

tn_status tni_cubin_compile(tni_cubin *c, const char *text, const char *chip, bool with_usage,
                            tni_text *why)
{
    return compile_cubin(c, text, chip, with_usage, false, why);
}

void tni_cubin_free(tni_cubin *c)
{
    free(c->image);
    free(c->log);
    *c = (tni_cubin){ 0 };
}

// ---- the disk cache ----------------------------------------------------------------------------

// The cache folder, opened at the first program. Guarded by the lock.
static struct {
    pthread_mutex_t lock;
    bool            opened;
    tni_disk        disk;
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

// Looks for machine code of a text, or keeps it. The key is everything that it depends on: the text
// itself, the options, the version of NVRTC and the chip. Returns whether c has an image.
static bool use_disk_cache(tni_cubin *c, const char *text, const char *chip, bool keep,
                           tni_text *why)
{
    char             compiler[32];
    int              major = 0, minor = 0;
    const tni_nvrtc *rtc = tni_nvrtc_get(why);
    if (!rtc) return false;
    rtc->version(&major, &minor);
    snprintf(compiler, sizeof compiler, "NVRTC %d.%d", major, minor);
    tni_disk_key key = { "cubin", text, "--fmad=false --std=c++17", compiler, chip };
    pthread_mutex_lock(&cache.lock);
    if (!cache.opened) tni_disk_open(&cache.disk);
    cache.opened = true;
    if (keep) tni_disk_keep(&cache.disk, &key, c->image, c->bytes);
    else c->image = tni_disk_find(&cache.disk, &key, &c->bytes);
    pthread_mutex_unlock(&cache.lock);
    return c->image != NULL;
}

bool tni_cubin_find(tni_cubin *c, const char *text, const char *chip)
{
    *c = (tni_cubin){ 0 };
    return use_disk_cache(c, text, chip, false, &(tni_text){ 0 });
}

// quick is no part of the key: the interpreter, which is compiled quickly, has a text that is never
// compiled otherwise.
tn_status tni_cubin_get(tni_cubin *c, const char *text, const char *chip, bool quick, bool *found,
                        tni_text *why)
{
    *found = tni_cubin_find(c, text, chip);
    if (*found) return TN_OK;
    tn_status s = compile_cubin(c, text, chip, false, quick, why);
    if (s == TN_OK) use_disk_cache(c, text, chip, true, why);
    return s;
}

// ---- what the assembler says -------------------------------------------------------------------

// Returns the number in front of a word in a line; 0 if the line does not have the word.
static int number_before(const char *line, const char *end, const char *word)
{
    const char *at = strstr(line, word);
    if (!at || at >= end) return 0;
    while (at > line && (at[-1] == ' ' || tni_is_digit(at[-1]))) at--;
    return atoi(at);
}

// The lines of a function, from the one that names it to the one that counts its registers:
//
//     ptxas info    : Function properties for NAME
//     ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//     ptxas info    : Used 14 registers, used 1 barriers, 144 bytes smem
bool tni_cubin_usage(const tni_cubin *c, const char *function, tni_usage *u)
{
    char head[160];
    snprintf(head, sizeof head, "Function properties for %s\n", function);
    const char *at   = c->log ? strstr(c->log, head) : NULL;
    const char *used = at ? strstr(at, "Used ") : NULL;
    if (!used) return false;
    const char *end = used + strcspn(used, "\n");
    u->registers    = number_before(used, end, " registers");
    u->shared       = number_before(used, end, " bytes smem");
    u->stack        = number_before(at, used, " bytes stack frame");
    u->spills       = number_before(at, used, " bytes spill stores") +
                number_before(at, used, " bytes spill loads");
    return true;
}
