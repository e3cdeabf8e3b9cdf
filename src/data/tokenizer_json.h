// Reading a tokenizer.json: what tokenizer_json.c (vocabulary, added tokens, model) and
// tokenizer_parts.c (normalizers, pre-tokenizers, post-processors, decoders) share.
#ifndef TNI_DATA_TOKENIZER_JSON_H
#define TNI_DATA_TOKENIZER_JSON_H

#include "base/json.h"
#include "data/tokenizer.h"
#include "io/mapping.h"

enum { TNI_MOST_DECODE = 16 };

// The state of reading.
typedef struct {
    tn_tokenizer   *t;
    tn_ctx         *cx;
    const char     *path;
    tni_mapping    *map;
    char           *text, *other;  // scratch for strings; each as large as the file
    tni_decode_step decode[TNI_MOST_DECODE];
    int             decodes;
    bool            fused;   // the decoder joined the tokens
    uint32_t        addeds;  // added tokens
} tni_tokenizer_file;

// A member of an object that is looked for: the reader at its value, if it is there and not null.
typedef struct {
    const char *name;
    tni_json    at;
    bool        is;
} tni_member;

// Reports what is wrong with the file; returns false.
bool tni_tokenizer_bad(tni_tokenizer_file *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Looks for n members of the object at j. False, reported, if it is no object.
bool tni_find_members(tni_tokenizer_file *f, tni_json j, const char *what, tni_member *m, int n);
// Values of members; the default if it is not there. False, reported, if it is of another kind.
bool tni_member_bool(tni_tokenizer_file *f, const tni_member *m, bool *v, bool otherwise);
bool tni_member_int(tni_tokenizer_file *f, const tni_member *m, int64_t *v, int64_t otherwise);
// A text of a member as a copy that the caller owns; false, reported, if there is none.
bool tni_member_text(tni_tokenizer_file *f, const tni_member *m, char **text, size_t *bytes);

// The parts of a pipeline, at their object; they add steps to the tokenizer.
bool tni_read_normalizer(tni_tokenizer_file *f, tni_json j);
bool tni_read_pre_tokenizer(tni_tokenizer_file *f, tni_json j);
bool tni_read_post_processor(tni_tokenizer_file *f, tni_json j);
bool tni_read_decoder(tni_tokenizer_file *f, tni_json j);

#endif
