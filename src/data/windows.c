// A text as a dataset: windows of its bytes or tokens, each with the window one token further as
// its target. Bytes stay in the mapped file; tokens are stored in two bytes each if their numbers
// fit, else in four.
//
// T length of a window
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "io/mapping.h"

enum { DEFAULT_LENGTH = 128, BYTES = 256, MOST_NARROW = 1 << 16 };

// tokens points to `count` numbers of `width` bytes: 1, 2 or 4. They are in map or in own.
typedef struct {
    tni_item_source source;  // first
    tni_mapping    *map;
    void           *own;
    const void     *tokens;
    int             width;
    int64_t         count, length;
} windows;

// Returns token i of the text, in whichever width it is stored.
static int64_t token_at(const windows *w, int64_t i)
{
    if (w->width == 1) return ((const uint8_t *)w->tokens)[i];
    return w->width == 2 ? ((const uint16_t *)w->tokens)[i] : ((const uint32_t *)w->tokens)[i];
}

// x is a window, y the same window one token further. Windows do not overlap, except for y's last
// token.
static int get_window(const tni_item_source *s, int64_t item, void *const *dst)
{
    const windows *w     = (const windows *)s;
    int64_t        first = item * w->length, *x = dst[0], *y = dst[1];
    for (int64_t i = 0; i < w->length; i++) {
        x[i] = token_at(w, first + i);
        y[i] = token_at(w, first + i + 1);
    }
    return 0;
}

static void free_windows(tni_heap *h, tni_item_source *s)
{
    windows *w = (windows *)s;
    tni_mapping_unref(w->map);
    tni_free(h, w->own);
    tni_free(h, w);
}

// Where the tokens of a text go: to w->own, which grows.
typedef struct {
    tni_token_sink sink;  // first
    tn_ctx        *cx;
    windows       *w;
    size_t         capacity;
} window_sink;

static bool put_tokens(tni_token_sink *sink, const uint32_t *ids, size_t n)
{
    window_sink *s = (window_sink *)sink;
    windows     *w = s->w;
    if (!tni_grow(&s->cx->heap, &w->own, &s->capacity, (size_t)w->count + n, (size_t)w->width))
        return tni_no_memory(s->cx, "text");
    for (size_t i = 0; i < n; i++, w->count++) {
        if (w->width == 2) ((uint16_t *)w->own)[w->count] = (uint16_t)ids[i];
        else ((uint32_t *)w->own)[w->count] = ids[i];
    }
    return true;
}

// Encodes the whole text; the mapping is not needed afterwards.
static bool encode_text(tn_ctx *cx, windows *w, tn_tokenizer *t)
{
    window_sink s = { .sink = { put_tokens }, .cx = cx, .w = w };
    w->width      = t->vocabulary.count <= MOST_NARROW ? 2 : 4;
    if (!tni_encode(t, "text", (const char *)w->map->data, w->map->bytes, false, &s.sink))
        return false;
    w->tokens = w->own;
    tni_mapping_unref(w->map);
    w->map = NULL;
    return true;
}

// The last window needs one token more, for its y.
static bool read_text(tn_ctx *cx, windows *w, const char *path, tn_tokenizer *t)
{
    w->map = tni_mapping_open(cx, "text", path);
    if (!w->map) return false;
    w->tokens = w->map->data;
    w->width  = 1;
    w->count  = (int64_t)w->map->bytes;
    if (t) {
        w->count = 0;
        if (!encode_text(cx, w, t)) return false;
    }
    if (w->count == 0) return tni_refuse(cx, TN_EFORMAT, "text: %s: it is empty", path);
    w->source.count = (w->count - 1) / w->length;
    if (w->source.count > 0) return true;
    return tni_refuse(cx, TN_EFORMAT,
                      "text: %s: %lld %s are too few for a window of %lld and the one after it",
                      path, (long long)w->count, t ? "tokens" : "bytes", (long long)w->length);
}

// One window is an item; shuffling mixes windows, not tokens.
tn_data *tn_text(tn_ctx *cx, const char *path, tn_text_opts o)
{
    if (!tni_ctx_ok(cx, "text")) return NULL;
    if (!o.tokenizer) o.tokenizer = o.bpe;
    if (o.tokenizer && !tni_owned_ok("text", o.tokenizer, TNI_TOKENIZER)) return NULL;
    if (o.length < 0 || (o.tokenizer && o.tokenizer->owned.cx != cx))
        return tni_fail(cx, TN_EARG, "text: %s",
                        o.length < 0 ? "the length of a window is negative"
                                     : "the tokenizer belongs to another context");
    windows *w = tni_zalloc(&cx->heap, sizeof *w);
    if (!w) return tni_fail_memory(cx, "text");
    w->length         = o.length ? o.length : DEFAULT_LENGTH;
    tn_array one_item = tni_field(TN_I64, TN_SHAPE(w->length));
    w->source         = (tni_item_source){ .fields  = 2,
                                           .field   = { one_item, one_item },
                                           .classes = o.tokenizer ? o.tokenizer->vocabulary.count : BYTES,
                                           .get     = get_window,
                                           .free    = free_windows };
    if (read_text(cx, w, path, o.tokenizer)) return tni_data_make(cx, "text", &w->source);
    free_windows(&cx->heap, &w->source);
    return NULL;
}
