// What tests of tuning share: an empty cache folder for each, and the device that TN_TEST_DEVICE
// names.
#ifndef TEST_TUNE_KIT_H
#define TEST_TUNE_KIT_H

#include "check.h"
#include "rules_kit.h"
#include "scratch.h"

#include "engine/engine.h"
#include "kernel/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// Whether the budget is spent, or nothing is left to be measured in the plans that ran twice.
static inline bool tune_is_over(const tn_ctx *cx)
{
    const tni_plans *all  = &cx->engine->plans;
    int              left = 0;
    for (int i = 0; i < all->count; i++)
        left += all->plan[i]->runs > 1 && !(all->plan[i]->chosen && all->plan[i]->measured);
    return !cx->engine->tune_seconds || !left;
}

// How many winners of the folder, of plans or of kernels, say that the next best is faster than
// they are. Where no other is right there is none.
static inline int tune_next_faster(bool plans)
{
    char     path[1024], line[600];
    tni_text why;
    double   us, next;
    int      all = 0, faster = 0;
    snprintf(path, sizeof path, "%s", scratch_path("next.txt"));
    CHECK(tni_tuned_export(path, &all, &why));
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (plans == (strstr(line, "plan_of") != NULL) &&
            sscanf(line, "winner %*s %*s %lf %*f %lf", &us, &next) == 2)
            faster += next > 0 && next < us;
    if (f) fclose(f);
    return faster;
}

#endif
