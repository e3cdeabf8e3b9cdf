// What tests of tuning share: an empty cache folder for each, and the device that TN_TEST_DEVICE names.
#ifndef TEST_TUNE_KIT_H
#define TEST_TUNE_KIT_H

#include "check.h"
#include "rules_kit.h"
#include "scratch.h"

#include "kernel/tuning.h"

#include <stdlib.h>

// Winners are read again at the next use, as a new process would, from the folder of this name.
static inline void tune_begin(const char *name)
{
    CHECK(scratch_open());
    setenv("TN_CACHE_DIR", scratch_path(name), 1);
    tni_tuned_forget();
}

static inline void tune_end(void)
{
    unsetenv("TN_TUNE");
    unsetenv("TN_DETERMINISTIC");
    tni_tuned_forget();
    scratch_close();
}

static inline tn_ctx *tune_open(void)
{
    const char *name = getenv("TN_TEST_DEVICE");
    return rules_open(name ? name : "cpu");
}

#endif
