// Not written yet.
#include <tenon.h>

tn_batch tn_next(tn_data *d, int64_t n)
{
    (void)d;
    (void)n;
    return (tn_batch){ 0 };
}

tn_data *tn_digits(tn_ctx *cx, tn_digits_opts o)
{
    (void)cx;
    (void)o;
    return NULL;
}

tn_data *tn_arrays(tn_ctx *cx, int n, tn_tensor *const *fields)
{
    (void)cx;
    (void)n;
    (void)fields;
    return NULL;
}

tn_data *tn_dataset(tn_ctx *cx, tn_dataset_def def)
{
    (void)cx;
    (void)def;
    return NULL;
}

tn_data_desc tn_data_info(const tn_data *d)
{
    (void)d;
    return (tn_data_desc){ 0 };
}

int64_t tn_data_count(const tn_data *d)
{
    (void)d;
    return 0;
}

int64_t tn_data_batches(const tn_data *d, int64_t n)
{
    (void)d;
    (void)n;
    return 0;
}

const char *tn_data_schema(const tn_data *d)
{
    (void)d;
    return NULL;
}

const char *tn_data_class(const tn_data *d, int64_t i)
{
    (void)d;
    (void)i;
    return NULL;
}

tn_status tn_data_shuffle(tn_data *d, bool on, uint64_t seed)
{
    (void)d;
    (void)on;
    (void)seed;
    return TN_EARG;
}

tn_status tn_data_drop_last(tn_data *d, bool on)
{
    (void)d;
    (void)on;
    return TN_EARG;
}

tn_data *tn_data_split(tn_data *d, double fraction, uint64_t seed)
{
    (void)d;
    (void)fraction;
    (void)seed;
    return NULL;
}

tn_status tn_data_augment(tn_data *d, tn_augment_opts o)
{
    (void)d;
    (void)o;
    return TN_EARG;
}

tn_cursor tn_data_cursor(const tn_data *d)
{
    (void)d;
    return (tn_cursor){ 0 };
}

tn_status tn_data_seek(tn_data *d, tn_cursor c)
{
    (void)d;
    (void)c;
    return TN_EARG;
}

tn_status tn_data_rewind(tn_data *d)
{
    (void)d;
    return TN_EARG;
}

void tn_data_free(tn_data *d)
{
    (void)d;
}
