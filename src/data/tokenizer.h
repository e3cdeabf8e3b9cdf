// Tokenizers: GPT-2's two files and Hugging Face's tokenizer.json, both as one list of steps that a
// text goes through, and byte-pair encoding at its end.
#ifndef TNI_DATA_TOKENIZER_H
#define TNI_DATA_TOKENIZER_H

#include "data/regex.h"
#include "data/vocabulary.h"

enum { TNI_MOST_STEPS = 32, TNI_MOST_FRAME = 8 };

// What a step does to each piece of the text that it gets.
typedef enum {
    TNI_STEP_ADDED,      // added tokens are cut out
    TNI_STEP_PREFIX,     // a text is put before it
    TNI_STEP_REPLACE,    // each match becomes a text
    TNI_STEP_CANONICAL,  // NFC or NFD
    TNI_STEP_STRIP,      // white space at its ends is removed
    TNI_STEP_BYTES,      // each byte becomes GPT-2's character for it
    TNI_STEP_SPLIT       // it is cut at matches
} tni_step_type;

// What becomes of the matches when a text is cut at them.
typedef enum {
    TNI_SPLIT_REMOVED,
    TNI_SPLIT_ISOLATED,
    TNI_SPLIT_WITH_PREVIOUS,
    TNI_SPLIT_WITH_NEXT,
    TNI_SPLIT_CONTIGUOUS
} tni_behavior;

// A step, and the text that it wrote last, if it changes texts. The pattern is a regular
// expression, or a text where that is NULL.
typedef struct {
    tni_step_type kind;
    tni_regex    *regex;
    char         *text;  // the pattern; of PREFIX what is put before
    size_t        text_bytes;
    char         *content;  // of REPLACE
    size_t        content_bytes;
    tni_behavior  behavior;
    bool          invert;    // of SPLIT: what does not match is the match
    bool if_missing, first;  // of PREFIX: unless it is there; only at the start of the text
    bool left, right;        // of STRIP
    bool composed;           // of CANONICAL: NFC
    bool normalized;         // of ADDED: those that are looked for in normalized text
    tni_byte_list out;
} tni_step;

// A token that is looked for in the text itself, before it is cut into words.
typedef struct {
    uint32_t id;
    char    *text;  // as it is looked for
    size_t   bytes;
    bool     single_word, lstrip, rstrip, normalized, special;
} tni_added;

// What the bytes of a text become from its tokens; `bytes` of each token were computed when it was
// opened. The start of the whole text is treated on its own.
typedef struct {
    tni_byte_list pool;
    struct {
        uint32_t start, length;
    } * of;            // by number
    bool spaced;       // a space goes between tokens
    char strip[8];     // a character that is stripped at the start of the text, as UTF-8
    int  strip_count;  // at most that many of it
    char dropped[8];   // of the first token, all of these are dropped
} tni_decoder;

// A token of the word that is being encoded, at its place, in a list.
typedef struct {
    uint32_t id;    // tni_no_token once merged away
    uint32_t prev;  // place of the one before; no place at the first
    uint32_t next;  // of the one after; the word's length at the last
} tni_bpe_piece;

// Words that were encoded lately, with their tokens: most words of a text are a few thousand.
enum { TNI_KEPT_WORDS = 1 << 13, TNI_KEPT_BYTES = 22, TNI_KEPT_TOKENS = 5 };
typedef struct {
    uint8_t  bytes, tokens;
    char     text[TNI_KEPT_BYTES];
    uint32_t id[TNI_KEPT_TOKENS];
} tni_kept_word;

// Where the tokens of a text go. put returns false to stop, which was reported.
typedef struct tni_token_sink tni_token_sink;
struct tni_token_sink {
    bool (*put)(tni_token_sink *s, const uint32_t *ids, size_t n);
};

// A tokenizer. A text passes through the steps in their order; what leaves the last one is a word,
// which byte-pair encoding turns into tokens.
struct tn_tokenizer {
    tni_owned      owned;  // first
    tni_vocabulary vocabulary;
    tni_step       step[TNI_MOST_STEPS];
    int            steps;

    tni_added *added;  // ordered by their first byte, then the longest first
    uint32_t   addeds;
    uint32_t   added_from[257];  // by first byte, where they begin

    // Of the model. A character that is no token becomes the tokens of its bytes, or `unknown`, or
    // nothing.
    uint32_t unknown;
    bool     fuse_unknown, byte_fallback, ignore_merges;
    uint32_t byte_id[256];  // tokens <0x00> to <0xFF>

    // What add_special puts around a text.
    uint32_t before[TNI_MOST_FRAME], after[TNI_MOST_FRAME];
    int      befores, afters;

    tni_decoder decoder;

    // Memory of the current word.
    tni_bpe_piece *piece;
    uint64_t      *heap;  // pairs that may be merged: rank and place
    uint32_t      *ids;
    size_t         piece_cap, heap_cap, ids_cap;
    tni_kept_word *kept;  // by hash
};

// Fills an empty tokenizer from files; false, reported, on failure.
bool tni_gpt2_load(tn_tokenizer *t, const char *vocab, const char *encoder);
bool tni_tokenizer_load_json(tn_tokenizer *t, const char *path);

// Appends a step; NULL if there are too many. What it points to is freed with the tokenizer.
tni_step *tni_add_step(tn_tokenizer *t, tni_step_type kind);
// Appends the steps of GPT-2's words and bytes: what ByteLevel means in tokenizer.json. False, with
// the reason reported by the tokenizer's path, on failure.
bool tni_add_byte_level(tn_tokenizer *t, const char *path, bool prefix, bool words);
// Appends a cut at a regular expression; NULL, reported.
tni_step *tni_add_split(tn_tokenizer *t, const char *path, const char *pattern, size_t n);
// Brings the added tokens into the order in which they are looked for.
void tni_order_added(tn_tokenizer *t);
// Applies the steps from `from` to before `to`, which only change a text, to it; NULL, reported.
const char *tni_rewrite(tn_tokenizer *t, int from, int to, const char *s, size_t n, size_t *bytes);

// Encodes a text; false, reported by the op's name.
bool tni_encode(tn_tokenizer *t, const char *op, const char *s, size_t n, bool plain,
                tni_token_sink *sink);
// Encodes a word; false, reported.
bool tni_encode_word(tn_tokenizer *t, const char *op, const char *s, size_t n,
                     tni_token_sink *sink);

// What a decoder does to the text of each token.
typedef enum {
    TNI_DECODE_BYTES,     // GPT-2's characters become bytes, if all of them are such
    TNI_DECODE_FALLBACK,  // <0x41> becomes a byte
    TNI_DECODE_REPLACE,   // each `from` becomes `to`
    TNI_DECODE_STRIP,     // up to start of `from` at its start, and stop at its end, are removed
} tni_decode_kind;
typedef struct {
    tni_decode_kind kind;
    char            from[16], to[16];
    int             start, stop;
} tni_decode_step;

// Computes what each token becomes by these steps. False, reported, when memory is out.
bool tni_decoder_make(tn_tokenizer *t, const tni_decode_step *step, int steps);

#endif
