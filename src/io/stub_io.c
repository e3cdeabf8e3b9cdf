// Not written yet.
#include <tenon.h>

tn_file *tn_file_open(tn_ctx *cx, const char *path)
{
    (void)cx;
    (void)path;
    return NULL;
}

int tn_file_count(const tn_file *f)
{
    (void)f;
    return 0;
}

tn_file_desc tn_file_info(const tn_file *f, int i)
{
    (void)f;
    (void)i;
    return (tn_file_desc){ 0 };
}

const char *tn_file_name(const tn_file *f, int i)
{
    (void)f;
    (void)i;
    return NULL;
}

tn_tensor *tn_file_tensor(tn_file *f, const char *name)
{
    (void)f;
    (void)name;
    return NULL;
}

const char *tn_file_meta(const tn_file *f, const char *key)
{
    (void)f;
    (void)key;
    return NULL;
}

void tn_file_free(tn_file *f)
{
    (void)f;
}

tn_status tn_file_write(tn_ctx *cx, const char *path, int n, const char *const *names,
                        tn_tensor *const *tensors, int nmeta, const char *const *meta)
{
    (void)cx;
    (void)path;
    (void)n;
    (void)names;
    (void)tensors;
    (void)nmeta;
    (void)meta;
    return TN_EARG;
}

tn_tensor *tn_npy_read(tn_ctx *cx, const char *path)
{
    (void)cx;
    (void)path;
    return NULL;
}

tn_status tn_npy_write(tn_tensor *t, const char *path)
{
    (void)t;
    (void)path;
    return TN_EARG;
}
