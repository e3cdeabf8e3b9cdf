// What the tests of the rules share: contexts, values, errors, a user's op.
#include "skeleton.h"
#include "rules_kit.h"

#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const devices[] = { "cpu", "ref" };
enum { DEVICES = sizeof devices / sizeof *devices };

tn_ctx *rules_open(const char *device)
{
    tn_ctx *cx = skeleton_open((tn_open_opts){ .device = device });
    test_that(cx != NULL, "no context: %s", tn_error_text(NULL));
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}

tn_ctx *rules_open_scratch(void)
{
    CHECK(scratch_open());
    return rules_open("cpu");
}

void rules_close_scratch(tn_ctx *cx)
{
    tn_close(cx);
    scratch_close();
}

tn_ctx *rules_next(tn_ctx *cx)
{
    static int  at;
    const char *more = getenv("TN_TEST_DEVICE");
    at               = cx ? at + 1 : 0;
    if (cx && tn_error(cx)) test_that(false, "left behind: %s", tn_error_text(cx));
    tn_close(cx);
    if (at < DEVICES) return rules_open(devices[at]);
    return more && *more && at == DEVICES ? rules_open(more) : NULL;
}

tn_tensor *rules_ramp(tn_ctx *cx, int64_t n)
{
    float data[256];
    for (int64_t i = 0; i < n && i < 256; i++) data[i] = (float)(i + 1);
    return tn_from(cx, TN_F32, TN_SHAPE(n), data);
}

tn_tensor *rules_there(tn_ctx *cx, int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    float *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; data && i < n; i++) data[i] = (float)(i % 17) / 8 - 1;
    tn_tensor *t = data ? tn_from(cx, TN_F32, rank, size, data) : NULL;
    free(data);
    return t;
}

bool rules_values(tn_tensor *t, int n, const double *want, const char *file, int line,
                  const char *text)
{
    double have[256];
    if (!t) return test_that(false, "%s:%d: %s is NULL: %s", file, line, text, tn_error_text(NULL));
    tn_ctx *cx = tn_ctx_of(t);
    if (tn_count(t) != n)
        return test_that(false, "%s:%d: %s has %lld elements", file, line, text,
                         (long long)tn_count(t));
    if (tn_read(t, TN_F64, have, n) != TN_OK) {
        test_that(false, "%s:%d: %s: %s", file, line, text, tn_error_text(cx));
        tn_error_clear(cx);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (!(have[i] == want[i] || (have[i] != have[i] && want[i] != want[i])))
            return test_that(false, "%s:%d: %s: [%d] is %.9g, not %.9g", file, line, text, i,
                             have[i], want[i]);
    return true;
}

bool rules_failed(tn_ctx *cx, tn_status code, const char *part, const char *also, const char *file,
                  int line)
{
    const char *text = tn_error_text(cx);
    bool        ok   = tn_error(cx) == code && strstr(text, part) && (!also || strstr(text, also));
    test_that(ok, "%s:%d: the error is %s \"%s\", not %s \"%s\"%s%s", file, line,
              tn_status_name(tn_error(cx)), text, tn_status_name(code), part, also ? " and " : "",
              also ? also : "");
    tn_error_clear(cx);
    return ok;
}

const char *rules_site(const char *file, int line)
{
    static char text[8][256];
    static int  at;
    char       *s = text[at++ & 7];
    snprintf(s, sizeof *text, "%s:%d", file, line);
    return s;
}

// ---- the op ------------------------------------------------------------------------------------

int  rules_computed;
bool rules_fail;

tn_status rules_same_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    *out = *in;
    return TN_OK;
}

static tn_status twice_compute(const void *attr, const tn_array *in, tn_array *out)
{
    int64_t n = 1;
    (void)attr;
    rules_computed++;
    if (rules_fail) return TN_EUSER;
    for (int i = 0; i < in->rank; i++) n *= in->size[i];
    for (int64_t i = 0; i < n; i++) ((float *)out->data)[i] = 2 * ((const float *)in->data)[i];
    return TN_OK;
}

static tn_status twice_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                            tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)x, (void)y;
    gx[0] = rules_double(gy[0]);
    return gx[0] ? TN_OK : TN_EUSER;
}

const tn_op_def rules_twice = { .name    = "twice",
                                .nin     = 1,
                                .shape   = rules_same_shape,
                                .compute = twice_compute,
                                .grad    = twice_grad };

tn_tensor *rules_double(tn_tensor *x)
{
    return tn_custom(&rules_twice, &x, NULL, 0);
}

void rules_release(void *data, void *user)
{
    (void)data;
    ++*(int *)user;
}
