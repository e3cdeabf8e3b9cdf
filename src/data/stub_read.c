// Not written yet.
#include <tenon.h>

tn_data *tn_idx(tn_ctx *cx, const char *dir, bool test)
{
    (void)cx;
    (void)dir;
    (void)test;
    return NULL;
}

tn_data *tn_idx_files(tn_ctx *cx, const char *images, const char *labels)
{
    (void)cx;
    (void)images;
    (void)labels;
    return NULL;
}

tn_data *tn_cifar10(tn_ctx *cx, const char *dir, bool test)
{
    (void)cx;
    (void)dir;
    (void)test;
    return NULL;
}

tn_data *tn_csv(tn_ctx *cx, const char *path, tn_csv_opts o)
{
    (void)cx;
    (void)path;
    (void)o;
    return NULL;
}

tn_data *tn_text(tn_ctx *cx, const char *path, tn_text_opts o)
{
    (void)cx;
    (void)path;
    (void)o;
    return NULL;
}

tn_bpe *tn_bpe_open(tn_ctx *cx, const char *vocab, const char *encoder)
{
    (void)cx;
    (void)vocab;
    (void)encoder;
    return NULL;
}

int64_t tn_bpe_count(const tn_bpe *b)
{
    (void)b;
    return 0;
}

int64_t tn_bpe_encode(tn_bpe *b, const char *text, int64_t bytes, int64_t *ids, int64_t room)
{
    (void)b;
    (void)text;
    (void)bytes;
    (void)ids;
    (void)room;
    return 0;
}

int64_t tn_bpe_decode(tn_bpe *b, const int64_t *ids, int64_t n, char *text, int64_t room)
{
    (void)b;
    (void)ids;
    (void)n;
    (void)text;
    (void)room;
    return 0;
}

void tn_bpe_free(tn_bpe *b)
{
    (void)b;
}
