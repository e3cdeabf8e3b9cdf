// The public calls of a tokenizer: opening, encoding, decoding.
#include "data/tokenizer.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// ---- making ------------------------------------------------------------------------------------

static void free_step(tni_heap *h, tni_step *s)
{
    tni_regex_free(h, s->regex);
    tni_free(h, s->text);
    tni_free(h, s->content);
    tni_free(h, s->out.data);
}

// Frees the tables and the memory of the current word.
static void free_tokenizer(tni_owned *o)
{
    tn_tokenizer *t = (tn_tokenizer *)o;
    tni_heap     *h = &o->cx->heap;
    tni_vocabulary_free(&t->vocabulary);
    for (int i = 0; i < t->steps; i++) free_step(h, &t->step[i]);
    for (uint32_t i = 0; i < t->addeds; i++) tni_free(h, t->added[i].text);
    tni_free(h, t->added);
    tni_free(h, t->decoder.pool.data);
    tni_free(h, t->decoder.of);
    tni_free(h, t->piece);
    tni_free(h, t->heap);
    tni_free(h, t->ids);
    tni_free(h, t->kept);
    tni_free(h, t);
}

// Makes an empty one. It is owned by the context, like every object, so that tn_close frees a
// forgotten one.
static tn_tokenizer *new_tokenizer(tn_ctx *cx)
{
    tn_tokenizer *t = tni_zalloc(&cx->heap, sizeof *t);
    if (!t) return tni_fail_memory(cx, "tokenizer");
    tni_owned_add(cx, &t->owned, TNI_TOKENIZER, free_tokenizer);
    t->vocabulary.heap = &cx->heap;
    t->unknown         = tni_no_token;
    for (int i = 0; i < 256; i++) t->byte_id[i] = tni_no_token;
    return t;
}

static tn_tokenizer *finished(tn_tokenizer *t, bool ok)
{
    if (ok) return t;
    tn_tokenizer_free(t);
    return NULL;
}

tn_tokenizer *tn_tokenizer_gpt2(tn_ctx *cx, const char *vocab, const char *encoder)
{
    if (!tni_ctx_ok(cx, "tokenizer")) return NULL;
    tn_tokenizer *t = new_tokenizer(cx);
    return t ? finished(t, tni_gpt2_load(t, vocab, encoder)) : NULL;
}

// Whether a folder has a file; its path goes to `path`.
static bool has_file(char *path, size_t size, const char *folder, const char *name)
{
    struct stat s;
    int         n = snprintf(path, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size && stat(path, &s) == 0;
}

// A folder may have both kinds; a tokenizer.json says more, so it counts.
tn_tokenizer *tn_tokenizer_open(tn_ctx *cx, const char *path)
{
    char        vocab[4096], encoder[4096];
    struct stat s;
    if (!tni_ctx_ok(cx, "tokenizer")) return NULL;
    bool folder = path && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    if (folder && has_file(vocab, sizeof vocab, path, "tokenizer.json")) path = vocab;
    else if (folder) {
        bool named = has_file(vocab, sizeof vocab, path, "vocab.bpe") ||
                     has_file(vocab, sizeof vocab, path, "merges.txt");
        if (named && (has_file(encoder, sizeof encoder, path, "encoder.json") ||
                      has_file(encoder, sizeof encoder, path, "vocab.json")))
            return tn_tokenizer_gpt2(cx, vocab, encoder);
        return tni_fail(cx, TN_EIO,
                        "tokenizer: %s: it has no tokenizer.json, and not both vocab.bpe and "
                        "encoder.json",
                        path);
    }
    tn_tokenizer *t = new_tokenizer(cx);
    return t ? finished(t, tni_tokenizer_load_json(t, path)) : NULL;
}

void tn_tokenizer_free(tn_tokenizer *t)
{
    if (!t || !tni_owned_ok("tokenizer_free", t, TNI_TOKENIZER)) return;
    tni_owned_remove(&t->owned);
    free_tokenizer(&t->owned);
}

// ---- tokens ------------------------------------------------------------------------------------

int64_t tn_tokenizer_count(const tn_tokenizer *t)
{
    return tni_owned_ok("tokenizer_count", t, TNI_TOKENIZER) ? (int64_t)t->vocabulary.count : -1;
}

// Besides its own bytes a token can complete a character of the tokens before it.
int64_t tn_tokenizer_longest(const tn_tokenizer *t)
{
    uint32_t most = 0;
    if (!tni_owned_ok("tokenizer_longest", t, TNI_TOKENIZER)) return -1;
    for (uint32_t i = 0; i < t->vocabulary.count; i++)
        if (t->decoder.of[i].length > most) most = t->decoder.of[i].length;
    return (int64_t)most + 8;
}

static bool has_token(const tn_tokenizer *t, int64_t id)
{
    return id >= 0 && id < t->vocabulary.count && t->vocabulary.token[id].is_there;
}

const char *tn_tokenizer_token(tn_tokenizer *t, int64_t id)
{
    if (!tni_owned_ok("tokenizer_token", t, TNI_TOKENIZER)) return NULL;
    return has_token(t, id) ? tni_token_text(&t->vocabulary, (uint32_t)id) : NULL;
}

int64_t tn_tokenizer_id(tn_tokenizer *t, const char *token)
{
    if (!tni_owned_ok("tokenizer_id", t, TNI_TOKENIZER)) return -1;
    uint32_t id = token ? tni_vocabulary_find(&t->vocabulary, token, strlen(token)) : tni_no_token;
    return id == tni_no_token ? -1 : (int64_t)id;
}

bool tn_tokenizer_is_special(tn_tokenizer *t, int64_t id)
{
    if (!tni_owned_ok("tokenizer_is_special", t, TNI_TOKENIZER)) return false;
    return has_token(t, id) && t->vocabulary.token[id].is_special;
}

// ---- encoding ----------------------------------------------------------------------------------

// Checks the arrays of a call and their counts, n and capacity.
static bool arrays_ok(const tn_tokenizer *t, const char *op, const void *in, int64_t n,
                      const void *out, int64_t capacity)
{
    if (!tni_owned_ok(op, t, TNI_TOKENIZER)) return false;
    if (n >= 0 && capacity >= 0 && (in || !n) && (out || !capacity)) return true;
    tni_fail(t->owned.cx, TN_EARG, "%s: %s", op,
             n < 0 || capacity < 0 ? "a count is negative" : "an argument is NULL");
    return false;
}

// The caller's array. Counts on when it is full, so that a caller can measure first.
typedef struct {
    tni_token_sink sink;  // first
    int64_t       *ids, count, capacity;
} array_sink;

static bool put_array(tni_token_sink *s, const uint32_t *ids, size_t n)
{
    array_sink *a = (array_sink *)s;
    for (size_t i = 0; i < n; i++, a->count++)
        if (a->count < a->capacity) a->ids[a->count] = ids[i];
    return true;
}

static int64_t encode(tn_tokenizer *t, const char *op, const char *text, int64_t bytes,
                      int64_t *ids, int64_t capacity, tn_encode_opts o)
{
    array_sink a = { .sink = { put_array }, .ids = ids, .capacity = capacity };
    if (!arrays_ok(t, op, text, bytes, ids, capacity)) return -1;
    if (o.add_special) put_array(&a.sink, t->before, (size_t)t->befores);
    if (bytes && !tni_encode(t, op, text, (size_t)bytes, o.plain, &a.sink)) return -1;
    if (o.add_special) put_array(&a.sink, t->after, (size_t)t->afters);
    return a.count;
}

int64_t tn_tokenizer_encode(tn_tokenizer *t, const char *text, int64_t bytes, int64_t *ids,
                            int64_t capacity)
{
    return encode(t, "tokenizer_encode", text, bytes, ids, capacity, (tn_encode_opts){ 0 });
}

int64_t tn_tokenizer_encode_with(tn_tokenizer *t, const char *text, int64_t bytes, int64_t *ids,
                                 int64_t capacity, tn_encode_opts o)
{
    return encode(t, "tokenizer_encode_with", text, bytes, ids, capacity, o);
}

// ---- decoding ----------------------------------------------------------------------------------

// The bytes that are written, and how many there would be.
typedef struct {
    char   *text;
    int64_t count, capacity;
} byte_sink;

static void put_byte(byte_sink *b, char c)
{
    if (b->count < b->capacity) b->text[b->count] = c;
    b->count++;
}

// Whether a text has this character, of some bytes with a 0 after them, at its start.
static size_t is_at(const char *s, const char *end, const char *character)
{
    size_t n = strlen(character);
    return n && (size_t)(end - s) >= n && memcmp(s, character, n) == 0 ? n : 0;
}

// Appends what a token adds to the text. `tokens` and `stripped` are those of the text before it.
static void put_token(const tn_tokenizer *t, uint32_t id, int64_t tokens, int *stripped,
                      byte_sink *to)
{
    const tni_decoder *d = &t->decoder;
    const char        *s = d->pool.data + d->of[id].start, *end = s + d->of[id].length;
    if (tokens && d->spaced) put_byte(to, ' ');
    if (!tokens && *d->dropped) {
        s   = tni_token_text(&t->vocabulary, id);
        end = s + t->vocabulary.token[id].length;
    }
    for (size_t n; s < end && *stripped < d->strip_count && (n = is_at(s, end, d->strip)) > 0;
         s += n)
        ++*stripped;
    if (s < end) *stripped = d->strip_count;  // what follows is not the start
    while (s < end) {
        size_t n = !tokens ? is_at(s, end, d->dropped) : 0;
        if (n) s += n;
        else put_byte(to, *s++);
    }
}

static bool id_ok(const tn_tokenizer *t, const char *op, const char *name, int64_t id)
{
    if (has_token(t, id)) return true;
    tni_fail(t->owned.cx, TN_EARG, "%s: %s is %lld, of %u tokens", op, name, (long long)id,
             (unsigned)t->vocabulary.count);
    return false;
}

// As tn_tokenizer_encode, for bytes.
int64_t tn_tokenizer_decode(tn_tokenizer *t, const int64_t *ids, int64_t n, char *text,
                            int64_t capacity)
{
    byte_sink to       = { .text = text, .capacity = capacity };
    int       stripped = 0;
    if (!arrays_ok(t, "tokenizer_decode", ids, n, text, capacity)) return -1;
    for (int64_t i = 0; i < n; i++) {
        if (!id_ok(t, "tokenizer_decode", tni_text_of("ids[%lld]", (long long)i).s, ids[i]))
            return -1;
        put_token(t, (uint32_t)ids[i], i, &stripped, &to);
    }
    return to.count;
}

// The number of bytes at the end of a text that can be the start of a character.
static int64_t unfinished(const char *s, int64_t n)
{
    for (int64_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)s[n - k];
        if ((c & 0xc0) == 0x80) continue;
        int64_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return length > k ? k : 0;
    }
    return 0;
}

// The rest of the tokens before goes first; a character that is not complete waits for the next
// token.
int64_t tn_tokenizer_stream(tn_tokenizer *t, tn_token_stream *s, int64_t id, char *text,
                            int64_t capacity)
{
    if (!arrays_ok(t, "tokenizer_stream", s, 1, text, capacity)) return -1;
    byte_sink to       = { .text = text, .capacity = capacity };
    int       stripped = s->stripped, bytes = s->bytes > 0 && s->bytes <= 4 ? s->bytes : 0;
    if (id != -1 && !id_ok(t, "tokenizer_stream", "id", id)) return -1;
    for (int i = 0; i < bytes; i++) put_byte(&to, s->rest[i]);
    if (id != -1) put_token(t, (uint32_t)id, s->tokens, &stripped, &to);
    if (to.count > capacity) return to.count;
    int64_t waits = id == -1 ? 0 : unfinished(text, to.count);
    s->tokens += id != -1;
    s->stripped = stripped;
    s->bytes    = (int)waits;
    if (waits) memcpy(s->rest, text + to.count - waits, (size_t)waits);
    return to.count - waits;
}
