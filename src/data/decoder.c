// What tokens become when they are decoded. A decoder treats each token by itself, so its result is
// computed once, when the tokenizer is opened.
#include "base/text.h"
#include "data/tokenizer.h"

#include <string.h>

// The text of a token while the steps change it: each reads one buffer and writes the other.
typedef struct {
    tni_heap     *heap;
    tni_byte_list now, next;
} token_text;

static bool put(token_text *t, const char *s, size_t n)
{
    return tni_byte_list_add(t->heap, &t->next, s, n);
}

// If one character stands for no byte, the token is no text of bytes, and stays: an added token.
static bool decode_bytes(token_text *t)
{
    const char *s = t->now.data, *end = s + t->now.bytes;
    while (s < end) {
        int  byte = tni_character_byte(tni_read_character(s, end, &s));
        char c    = (char)byte;
        if (byte < 0) {
            t->next.bytes = 0;
            return put(t, t->now.data, t->now.bytes);
        }
        if (!put(t, &c, 1)) return false;
    }
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool decode_fallback(token_text *t)
{
    const char *s  = t->now.data;
    bool        is = t->now.bytes == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' &&
              hex_value(s[3]) >= 0 && hex_value(s[4]) >= 0;
    char c = is ? (char)(hex_value(s[3]) * 16 + hex_value(s[4])) : 0;
    return is ? put(t, &c, 1) : put(t, s, t->now.bytes);
}

static bool decode_replace(token_text *t, const tni_decode_step *k)
{
    const char *s = t->now.data, *end = s + t->now.bytes;
    size_t      n = strlen(k->from), m = strlen(k->to);
    while (s < end) {
        bool here = n && (size_t)(end - s) >= n && memcmp(s, k->from, n) == 0;
        if (!put(t, here ? k->to : s, here ? m : 1)) return false;
        s += here ? n : 1;
    }
    return true;
}

static bool decode_strip(token_text *t, const tni_decode_step *k)
{
    const char *s = t->now.data, *end = s + t->now.bytes;
    size_t      n = strlen(k->from);
    for (int i = 0; i < k->start && (size_t)(end - s) >= n && !memcmp(s, k->from, n); i++) s += n;
    for (int i = 0; i < k->stop && (size_t)(end - s) >= n && !memcmp(end - n, k->from, n); i++)
        end -= n;
    return put(t, s, (size_t)(end - s));
}

static bool decode_step(token_text *t, const tni_decode_step *k)
{
    t->next.bytes = 0;
    bool ok       = k->kind == TNI_DECODE_BYTES      ? decode_bytes(t)
                    : k->kind == TNI_DECODE_FALLBACK ? decode_fallback(t)
                    : k->kind == TNI_DECODE_REPLACE  ? decode_replace(t, k)
                                                     : decode_strip(t, k);

    tni_byte_list now = t->now;
    t->now            = t->next;
    t->next           = now;
    return ok;
}

// Computes what token `id`, spelled s, becomes; false when memory is out.
static bool decode_token(tni_decoder *d, token_text *t, uint32_t id, const char *s, size_t n,
                         const tni_decode_step *step, int steps)
{
    t->now.bytes = 0;
    bool ok      = tni_byte_list_add(t->heap, &t->now, s, n);
    for (int k = 0; ok && k < steps; k++) ok = decode_step(t, &step[k]);
    d->of[id].start  = (uint32_t)d->pool.bytes;
    d->of[id].length = (uint32_t)t->now.bytes;
    return ok && tni_byte_list_add(t->heap, &d->pool, t->now.data, t->now.bytes);
}

// Added tokens are spelled as they are looked for, as in Hugging Face's tokenizers.
bool tni_decoder_make(tn_tokenizer *t, const tni_decode_step *step, int steps)
{
    tni_heap             *h = &t->owned.cx->heap;
    const tni_vocabulary *v = &t->vocabulary;
    tni_decoder          *d = &t->decoder;
    token_text            w = { .heap = h };
    d->of                   = tni_zalloc(h, (size_t)v->count * sizeof *d->of);
    bool ok                 = d->of && tni_byte_list_add(h, &d->pool, "", 0);
    for (uint32_t i = 0; ok && i < v->count; i++)
        ok = decode_token(d, &w, i, v->pool.data + v->token[i].start, v->token[i].length, step,
                          steps);
    for (uint32_t i = 0; ok && i < t->addeds; i++)
        ok = decode_token(d, &w, t->added[i].id, t->added[i].text, t->added[i].bytes, step, steps);
    tni_free(h, w.now.data);
    tni_free(h, w.next.data);
    return ok || tni_no_memory(t->owned.cx, "tokenizer");
}
