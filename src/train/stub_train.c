// Not written yet.
#include <tenon.h>

tn_status tn_save(tn_layer *l, const char *path)
{
    (void)l;
    (void)path;
    return TN_EARG;
}

tn_status tn_save_with(tn_layer *l, const char *path, tn_save_opts o)
{
    (void)l;
    (void)path;
    (void)o;
    return TN_EARG;
}

tn_status tn_load(tn_layer *l, const char *path)
{
    (void)l;
    (void)path;
    return TN_EARG;
}

tn_status tn_load_with(tn_layer *l, const char *path, tn_load_opts o)
{
    (void)l;
    (void)path;
    (void)o;
    return TN_EARG;
}

tn_status tn_checkpoint_save(tn_ctx *cx, const char *path, const tn_checkpoint *c)
{
    (void)cx;
    (void)path;
    (void)c;
    return TN_EARG;
}

tn_status tn_checkpoint_load(tn_ctx *cx, const char *path, tn_checkpoint *c)
{
    (void)cx;
    (void)path;
    (void)c;
    return TN_EARG;
}
