// GPT-2's files. encoder.json has every token's number, vocab.bpe the merges in their order. Both
// spell bytes as characters: those that print as themselves, the others, in order, as the characters
// from 256 on.
#include "base/hash.h"
#include "base/json.h"
#include "data/bpe.h"
#include "io/mapping.h"

#include <string.h>

enum { MOST_TOKENS = 1 << 20, MOST_LINE = 8192, MOST_MIB = 256, CHARACTERS = 256 + 68 };

// The state of loading: the tables that only it needs.
typedef struct {
    tn_bpe      *b;
    tn_ctx      *cx;
    const char  *path;              // of the file being read
    tni_mapping *map;               // of it
    int16_t      byte[CHARACTERS];  // the byte that a character stands for, -1: none
    uint32_t    *slot;              // hash table of the tokens' bytes: id + 1, 0 where free
    uint32_t     mask;
    bool        *made;  // by id: it is a single byte, or made by a merge so far
} loading;

static bool no_memory(loading *l)
{
    return tni_no_memory(l->cx, "bpe");
}

// Returns whether GPT-2's files show a byte as itself: printable Latin-1 without the soft hyphen.
static bool is_printed(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The other 68 bytes are shown as the characters from 256 on, in order.
static void map_characters(loading *l)
{
    int spare = 256;
    for (int c = 0; c < CHARACTERS; c++) l->byte[c] = -1;
    for (int v = 0; v < 256; v++) l->byte[is_printed(v) ? v : spare++] = (int16_t)v;
}

// Turns n bytes of UTF-8 into the bytes they stand for; returns how many, or -1. dst may be s, since
// there are never more of them.
static int64_t to_bytes(const loading *l, char *dst, const char *s, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0, step; i < n; i += step) {
        step       = tni_utf8(s + i, n - i);
        uint32_t c = step ? tni_code_point(s + i, step) : CHARACTERS;
        if (c >= CHARACTERS || l->byte[c] < 0) return -1;
        dst[count++] = (char)l->byte[c];
    }
    return count;
}

// Returns the mask of a hash table that is at most half full with n entries.
static uint32_t mask_for(uint32_t n)
{
    uint32_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

// ---- encoder.json ------------------------------------------------------------------------------

static bool bad_json(loading *l, const tni_json *j, const char *why)
{
    return tni_refuse(l->cx, TN_EFORMAT, "bpe: %s: byte %zu: %s", l->path,
                      (size_t)(j->at - j->start), j->kind == TNI_JSON_ERROR ? j->why : why);
}

// Returns the slot of a token with these bytes, or the free one where it would go.
static uint32_t *find_slot(const loading *l, const char *s, size_t n)
{
    const tn_bpe *b = l->b;
    uint32_t      i = (uint32_t)tni_hash(s, n) & l->mask;
    for (; l->slot[i]; i = (i + 1) & l->mask) {
        tni_token t = b->token[l->slot[i] - 1];
        if (t.length == n && memcmp(b->pool + t.start, s, n) == 0) break;
    }
    return &l->slot[i];
}

// The id of a token, or tni_no_token.
static uint32_t find_token(const loading *l, const char *s, size_t n)
{
    uint32_t slot = *find_slot(l, s, n);
    return slot ? slot - 1 : tni_no_token;
}

// The first walk: the file is JSON of the right form, and its size is known before anything is
// allocated.
static bool count_tokens(loading *l, tni_json *j)
{
    uint32_t n = 0;
    if (tni_json_next(j) != TNI_JSON_OBJECT) return bad_json(l, j, "it is not an object");
    for (; tni_json_next(j) == TNI_JSON_KEY; n++) {
        if (tni_json_next(j) != TNI_JSON_NUMBER) return bad_json(l, j, "a token has no number");
        if (n == MOST_TOKENS)
            return bad_json(l, j, tni_text_of("it has more than %d tokens", MOST_TOKENS).s);
    }
    if (j->kind != TNI_JSON_OBJECT_END || tni_json_next(j) != TNI_JSON_END)
        return bad_json(l, j, "it is not one object");
    l->b->count = n;
    return true;
}

// Reads a token and its number. Its bytes go to the pool at `used`, which always has space for the rest
// of the file. Returns the bytes used after it, or -1, reported.
static int64_t read_token(loading *l, tni_json *j, size_t used)
{
    tn_bpe *b = l->b;
    char   *s = b->pool + used;
    int64_t id, n = tni_json_string(j, s, l->map->bytes + 1 - used);
    if (n >= 0) n = to_bytes(l, s, s, (size_t)n);
    if (n < 0) {
        bad_json(l, j, "a token has a character that stands for no byte");
        return -1;
    }
    tni_json_next(j);
    bool number = tni_json_int(j, &id) && id >= 0 && id < b->count;
    if (n == 0 || !number || b->token[id].length) {
        bad_json(l, j,
                 n == 0    ? "a token is empty"
                 : !number ? "a token's number is not below their count"
                           : "two tokens have one number");
        return -1;
    }
    uint32_t *slot = find_slot(l, s, (size_t)n);
    if (*slot) {
        bad_json(l, j, "a token appears twice");
        return -1;
    }
    *slot        = (uint32_t)id + 1;
    b->token[id] = (tni_token){ .start = (uint32_t)used, .length = (uint32_t)n };
    return (int64_t)used + n;
}

// Every single byte must have a token: then every text can be encoded.
static bool find_bytes(loading *l)
{
    tn_bpe *b = l->b;
    for (int v = 0; v < 256; v++) {
        char c        = (char)v;
        b->byte_id[v] = find_token(l, &c, 1);
        if (b->byte_id[v] == tni_no_token)
            return tni_refuse(l->cx, TN_EFORMAT, "bpe: %s: the byte 0x%02x has no token", l->path,
                              (unsigned)v);
        l->made[b->byte_id[v]] = true;
    }
    return true;
}

// Reads encoder.json: counts, allocates, reads.
static bool read_encoder(loading *l)
{
    tn_bpe     *b    = l->b;
    tni_heap   *h    = &l->cx->heap;
    const char *text = (const char *)l->map->data;
    tni_json    j;
    tni_json_open(&j, text, l->map->bytes);
    if (!count_tokens(l, &j)) return false;

    l->mask  = mask_for(b->count);
    l->slot  = tni_zalloc(h, ((size_t)l->mask + 1) * sizeof *l->slot);
    l->made  = tni_zalloc(h, b->count);
    b->token = tni_zalloc(h, b->count * sizeof *b->token);
    b->pool  = tni_alloc(h, l->map->bytes + 1);
    if (!l->slot || !l->made || !b->token || !b->pool) return no_memory(l);

    int64_t used = 0;
    tni_json_open(&j, text, l->map->bytes);
    tni_json_next(&j);
    while (used >= 0 && tni_json_next(&j) == TNI_JSON_KEY) used = read_token(l, &j, (size_t)used);
    return used >= 0 && find_bytes(l);
}

// ---- vocab.bpe ---------------------------------------------------------------------------------

static bool bad_line(loading *l, int64_t line, const char *why)
{
    return tni_refuse(l->cx, TN_EFORMAT, "bpe: %s:%lld: %s", l->path, (long long)line, why);
}

// Reads one line, "left right", as the next merge. A merge may only use bytes and results of earlier
// merges: the encoder relies on it.
static bool read_merge(loading *l, int64_t line, const char *s, size_t n)
{
    char        bytes[MOST_LINE];
    tn_bpe     *b     = l->b;
    const char *space = memchr(s, ' ', n);
    if (n > MOST_LINE)
        return bad_line(l, line, tni_text_of("it is longer than %d bytes", MOST_LINE).s);
    if (!space || space == s || space == s + n - 1)
        return bad_line(l, line, "it is not two tokens with a space between them");
    int64_t left  = to_bytes(l, bytes, s, (size_t)(space - s));
    int64_t right = left < 0 ? -1
                             : to_bytes(l, bytes + left, space + 1, (size_t)(s + n - space - 1));
    if (right < 0) return bad_line(l, line, "it has a character that stands for no byte");

    tni_merge m = { .left   = find_token(l, bytes, (size_t)left),
                    .right  = find_token(l, bytes + left, (size_t)right),
                    .result = find_token(l, bytes, (size_t)(left + right)) };
    if (m.left == tni_no_token || m.right == tni_no_token || m.result == tni_no_token)
        return bad_line(l, line, "it has a token, or makes one, that has no number");
    if (!l->made[m.left] || !l->made[m.right])
        return bad_line(l, line, "it merges a token that no line before it makes");
    if (tni_bpe_rank(b, m.left, m.right) != TNI_BPE_NONE)
        return bad_line(l, line, "an earlier line merges the same tokens");
    l->made[m.result]   = true;
    b->merge[b->merges] = m;
    tni_bpe_enter(b, b->merges++);
    return true;
}

// Sets *s and *n to the line that begins at `at`, without its end, and returns where the next one
// begins.
static const char *next_line(const char *at, const char *end, const char **s, size_t *n)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    const char *last = stop ? stop : end;
    *s               = at;
    *n               = (size_t)(last - at);
    if (*n && last[-1] == '\r') --*n;
    return stop ? stop + 1 : end;
}

// Reads vocab.bpe: counts lines, allocates, reads. Empty lines and the version in the first are
// skipped.
static bool read_vocab(loading *l)
{
    tn_bpe     *b    = l->b;
    tni_heap   *h    = &l->cx->heap;
    const char *text = (const char *)l->map->data, *end = text + l->map->bytes, *s;
    size_t      n, lines                                = 0;
    for (const char *at = text; at < end; lines++) at = next_line(at, end, &s, &n);
    if (lines > MOST_TOKENS)
        return bad_line(l, (int64_t)lines, tni_text_of("it has more than %d lines", MOST_TOKENS).s);

    b->mask  = mask_for((uint32_t)lines);
    b->merge = tni_alloc(h, lines * sizeof *b->merge);
    b->slot  = tni_zalloc(h, ((size_t)b->mask + 1) * sizeof *b->slot);
    if (!b->merge || !b->slot) return no_memory(l);

    int64_t line = 1;
    for (const char *at = text; at < end; line++) {
        at           = next_line(at, end, &s, &n);
        bool version = line == 1 && n >= 8 && memcmp(s, "#version", 8) == 0;
        if (!version && n && !read_merge(l, line, s, n)) return false;
    }
    if (b->merges == 0) return bad_line(l, line, "it has no merges");
    return true;
}

// ---- both --------------------------------------------------------------------------------------

// The limit keeps a file that is no tokenizer from taking all memory.
static bool read_file(loading *l, const char *path, bool (*read)(loading *l))
{
    l->path = path;
    l->map  = tni_mapping_open(l->cx, "bpe", path);
    if (!l->map) return false;
    bool ok = l->map->bytes <= (size_t)MOST_MIB << 20;
    if (ok) ok = read(l);
    else tni_fail(l->cx, TN_EFORMAT, "bpe: %s: it is larger than %d MiB", path, MOST_MIB);
    tni_mapping_unref(l->map);
    return ok;
}

bool tni_bpe_load(tn_bpe *b, const char *vocab, const char *encoder)
{
    loading l = { .b = b, .cx = b->owned.cx };
    map_characters(&l);
    bool ok = read_file(&l, encoder, read_encoder) && read_file(&l, vocab, read_vocab);
    tni_free(&l.cx->heap, l.slot);
    tni_free(&l.cx->heap, l.made);
    return ok;
}
