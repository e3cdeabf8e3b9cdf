// The parts of a tokenizer.json's pipeline, each as steps of the tokenizer. A part or a setting of
// one that is not known is an error that names it: to leave it out would give other tokens.
#include "data/tokenizer_json.h"

#include <string.h>

// A kind of part: its name in "type", and what reads its object.
typedef struct {
    const char *name;
    bool (*read)(tni_tokenizer_file *f, tni_json j);
} part_kind;

static bool no_memory(tni_tokenizer_file *f)
{
    return tni_no_memory(f->cx, "tokenizer");
}

// Reads an object by its type.
static bool read_part(tni_tokenizer_file *f, tni_json j, const char *what, const part_kind *kinds,
                      size_t n)
{
    tni_member type = { .name = "type" };
    char       name[64];
    if (!tni_find_members(f, j, what, &type, 1)) return false;
    if (!type.is || type.at.kind != TNI_JSON_STRING)
        return tni_tokenizer_bad(f, "%s has no type", what);
    for (size_t i = 0; i < n; i++)
        if (tni_json_is(&type.at, kinds[i].name)) return kinds[i].read(f, j);
    tni_json_string(&type.at, name, sizeof name);
    return tni_tokenizer_bad(f, "%s %s is not supported", what, tni_quoted(name).s);
}

// Reads each object of a list.
static bool read_list(tni_tokenizer_file *f, tni_json j, const char *name,
                      bool (*read)(tni_tokenizer_file *f, tni_json j))
{
    tni_member m = { .name = name };
    if (!tni_find_members(f, j, "a sequence", &m, 1)) return false;
    if (!m.is || m.at.kind != TNI_JSON_ARRAY)
        return tni_tokenizer_bad(f, "a sequence has no list \"%s\"", name);
    while (tni_json_next(&m.at) != TNI_JSON_ARRAY_END)
        if (!read(f, m.at) || !tni_json_skip(&m.at)) return false;
    return true;
}

static tni_step *new_step(tni_tokenizer_file *f, tni_step_type kind)
{
    tni_step *step = tni_add_step(f->t, kind);
    if (!step) tni_tokenizer_bad(f, "it has too many steps");
    return step;
}

// A copy of a text for a step; false, reported.
static bool set_text(tni_tokenizer_file *f, tni_step *step, const char *text)
{
    step->text       = tni_strdup(&f->cx->heap, text);
    step->text_bytes = strlen(text);
    return step->text || no_memory(f);
}

// Reads { "String": text } or { "Regex": text } into a step.
static bool read_pattern(tni_tokenizer_file *f, const tni_member *pattern, tni_step *step)
{
    tni_member m[] = { { .name = "String" }, { .name = "Regex" } };
    tni_text   why;
    if (!pattern->is) return tni_tokenizer_bad(f, "a part has no pattern");
    if (!tni_find_members(f, pattern->at, "a pattern", m, 2)) return false;
    if (!tni_member_text(f, &m[m[1].is], &step->text, &step->text_bytes)) return false;
    if (!m[1].is && step->text_bytes == 0) return tni_tokenizer_bad(f, "a pattern is empty");
    if (!m[1].is) return true;
    step->regex = tni_regex_open(&f->cx->heap, step->text, step->text_bytes, &why);
    if (step->regex) return true;
    return *why.s ? tni_tokenizer_bad(f, "in a pattern, %s", why.s) : no_memory(f);
}

// ---- normalizers -------------------------------------------------------------------------------

static bool read_prepend(tni_tokenizer_file *f, tni_json j)
{
    tni_member m    = { .name = "prepend" };
    tni_step  *step = new_step(f, TNI_STEP_PREFIX);
    return step && tni_find_members(f, j, "Prepend", &m, 1) &&
           tni_member_text(f, &m, &step->text, &step->text_bytes);
}

static bool read_replace(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[]  = { { .name = "pattern" }, { .name = "content" } };
    tni_step  *step = new_step(f, TNI_STEP_REPLACE);
    return step && tni_find_members(f, j, "Replace", m, 2) && read_pattern(f, &m[0], step) &&
           tni_member_text(f, &m[1], &step->content, &step->content_bytes);
}

static bool read_strip(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[]  = { { .name = "strip_left" }, { .name = "strip_right" } };
    tni_step  *step = new_step(f, TNI_STEP_STRIP);
    return step && tni_find_members(f, j, "Strip", m, 2) &&
           tni_member_bool(f, &m[0], &step->left, true) &&
           tni_member_bool(f, &m[1], &step->right, true);
}

static bool read_canonical(tni_tokenizer_file *f, bool composed)
{
    tni_step *step = new_step(f, TNI_STEP_CANONICAL);
    if (step) step->composed = composed;
    return step != NULL;
}

static bool read_nfc(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return read_canonical(f, true);
}

static bool read_nfd(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return read_canonical(f, false);
}

static bool read_byte_normalizer(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return new_step(f, TNI_STEP_BYTES) != NULL;
}

static bool read_normalizers(tni_tokenizer_file *f, tni_json j)
{
    return read_list(f, j, "normalizers", tni_read_normalizer);
}

bool tni_read_normalizer(tni_tokenizer_file *f, tni_json j)
{
    static const part_kind kinds[] = {
        { "Sequence", read_normalizers },
        { "Prepend", read_prepend },
        { "Replace", read_replace },
        { "Strip", read_strip },
        { "NFC", read_nfc },
        { "NFD", read_nfd },
        { "ByteLevel", read_byte_normalizer },
    };
    return read_part(f, j, "the normalizer", kinds, sizeof kinds / sizeof *kinds);
}

// ---- pre-tokenizers ----------------------------------------------------------------------------

static bool read_byte_level(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[] = { { .name = "add_prefix_space" }, { .name = "use_regex" } };
    bool       prefix, words;
    return tni_find_members(f, j, "ByteLevel", m, 2) && tni_member_bool(f, &m[0], &prefix, true) &&
           tni_member_bool(f, &m[1], &words, true) &&
           tni_add_byte_level(f->t, f->path, prefix, words);
}

static bool read_behavior(tni_tokenizer_file *f, const tni_member *m, tni_behavior *b)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    for (int i = 0; m->is && m->at.kind == TNI_JSON_STRING && i < 5; i++)
        if (tni_json_is(&m->at, names[i])) {
            *b = (tni_behavior)i;
            return true;
        }
    return tni_tokenizer_bad(f, "a split has no behavior that is known");
}

static bool read_split(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[]  = { { .name = "pattern" }, { .name = "behavior" }, { .name = "invert" } };
    tni_step  *step = new_step(f, TNI_STEP_SPLIT);
    return step && tni_find_members(f, j, "Split", m, 3) && read_pattern(f, &m[0], step) &&
           read_behavior(f, &m[1], &step->behavior) &&
           tni_member_bool(f, &m[2], &step->invert, false);
}

static bool add_split(tni_tokenizer_file *f, const char *pattern, tni_behavior behavior,
                      bool invert)
{
    tni_step *step = tni_add_split(f->t, f->path, pattern, strlen(pattern));
    if (!step) return false;
    step->behavior = behavior;
    step->invert   = invert;
    return true;
}

static bool read_digits(tni_tokenizer_file *f, tni_json j)
{
    tni_member m = { .name = "individual_digits" };
    bool       individual;
    return tni_find_members(f, j, "Digits", &m, 1) && tni_member_bool(f, &m, &individual, false) &&
           add_split(f, "\\p{N}", individual ? TNI_SPLIT_ISOLATED : TNI_SPLIT_CONTIGUOUS, false);
}

static bool read_whitespace(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    // \w of Rust's regular expressions: tni_joins_words.
#define WORD                                                                            \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-" \
    "\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
    return add_split(f, "[" WORD "]+|[^\\s" WORD "]+", TNI_SPLIT_REMOVED, true);
}

static bool read_whitespace_split(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return add_split(f, "\\s", TNI_SPLIT_REMOVED, false);
}

static bool read_punctuation(tni_tokenizer_file *f, tni_json j)
{
    tni_member   m        = { .name = "behavior" };
    tni_behavior behavior = TNI_SPLIT_ISOLATED;
    return tni_find_members(f, j, "Punctuation", &m, 1) &&
           (!m.is || read_behavior(f, &m, &behavior)) &&
           add_split(f, "[!-/:-@\\[-`{-~\\p{P}]", behavior, false);
}

// The three members of Metaspace, as the pre-tokenizer and the decoder have it. Before they had
// "prepend_scheme", files had "add_prefix_space".
typedef struct {
    char replacement[8];
    bool always, first, split;
} metaspace;

static bool read_metaspace_members(tni_tokenizer_file *f, tni_json j, metaspace *k)
{
    tni_member m[] = { { .name = "replacement" },
                       { .name = "prepend_scheme" },
                       { .name = "add_prefix_space" },
                       { .name = "split" } };
    if (!tni_find_members(f, j, "Metaspace", m, 4) ||
        !tni_member_bool(f, &m[2], &k->always, true) || !tni_member_bool(f, &m[3], &k->split, true))
        return false;
    int64_t n = m[0].is ? tni_json_string(&m[0].at, k->replacement, sizeof k->replacement) : -1;
    if (n < 1 || n > 4) return tni_tokenizer_bad(f, "the replacement of Metaspace is no character");
    if (!m[1].is) return true;
    k->always = tni_json_is(&m[1].at, "always");
    k->first  = tni_json_is(&m[1].at, "first");
    if (k->always || k->first || tni_json_is(&m[1].at, "never")) return true;
    return tni_tokenizer_bad(f, "the prepend_scheme of Metaspace is not known");
}

// Spaces become a character, which is also put at the start; words begin with it.
static bool read_metaspace(tni_tokenizer_file *f, tni_json j)
{
    metaspace k = { 0 };
    if (!read_metaspace_members(f, j, &k)) return false;
    tni_step *replace = new_step(f, TNI_STEP_REPLACE);
    if (!replace || !set_text(f, replace, " ")) return false;
    replace->content       = tni_strdup(&f->cx->heap, k.replacement);
    replace->content_bytes = strlen(k.replacement);
    if (!replace->content) return no_memory(f);
    if (k.always || k.first) {
        tni_step *prefix = new_step(f, TNI_STEP_PREFIX);
        if (!prefix || !set_text(f, prefix, k.replacement)) return false;
        prefix->if_missing = true;
        prefix->first      = k.first;
    }
    tni_step *split = k.split ? new_step(f, TNI_STEP_SPLIT) : NULL;
    if (split) split->behavior = TNI_SPLIT_WITH_NEXT;
    return !k.split || (split && set_text(f, split, k.replacement));
}

static bool read_pre_tokenizers(tni_tokenizer_file *f, tni_json j)
{
    return read_list(f, j, "pretokenizers", tni_read_pre_tokenizer);
}

bool tni_read_pre_tokenizer(tni_tokenizer_file *f, tni_json j)
{
    static const part_kind kinds[] = {
        { "Sequence", read_pre_tokenizers },
        { "ByteLevel", read_byte_level },
        { "Split", read_split },
        { "Digits", read_digits },
        { "Metaspace", read_metaspace },
        { "Whitespace", read_whitespace },
        { "WhitespaceSplit", read_whitespace_split },
        { "Punctuation", read_punctuation },
    };
    return read_part(f, j, "the pre_tokenizer", kinds, sizeof kinds / sizeof *kinds);
}

// ---- post-processors ---------------------------------------------------------------------------

// Adds a token before or after the text; those of a later post-processor go outside.
static bool add_frame(tni_tokenizer_file *f, int64_t id, bool before, int at)
{
    tn_tokenizer *t    = f->t;
    uint32_t     *list = before ? t->before : t->after;
    int          *n    = before ? &t->befores : &t->afters;
    if (id < 0 || id >= t->vocabulary.count || !t->vocabulary.token[id].is_there)
        return tni_tokenizer_bad(f, "the post_processor adds the token %lld, which is none",
                                 (long long)id);
    if (*n == TNI_MOST_FRAME)
        return tni_tokenizer_bad(f, "the post_processor adds more than %d tokens", TNI_MOST_FRAME);
    memmove(list + at + 1, list + at, (size_t)(*n - at) * sizeof *list);
    list[at] = (uint32_t)id;
    ++*n;
    return true;
}

// Adds the tokens of a special token of a template: special is { name: { "ids": [1] } }.
static bool add_template_token(tni_tokenizer_file *f, tni_json special, const char *name,
                               bool before, int *at)
{
    tni_member m   = { .name = name };
    tni_member ids = { .name = "ids" };
    if (!tni_find_members(f, special, "special_tokens", &m, 1)) return false;
    if (!m.is || !tni_find_members(f, m.at, "a special token", &ids, 1) || !ids.is ||
        ids.at.kind != TNI_JSON_ARRAY)
        return tni_tokenizer_bad(f, "the post_processor has no ids for %s", tni_quoted(name).s);
    while (tni_json_next(&ids.at) != TNI_JSON_ARRAY_END) {
        int64_t id = -1;
        if (ids.at.kind != TNI_JSON_NUMBER || !tni_json_int(&ids.at, &id)) id = -1;
        if (!add_frame(f, id, before, *at)) return false;
        ++*at;
    }
    return true;
}

// [{ "SpecialToken": { "id": "<s>" } }, { "Sequence": { "id": "A" } }]: the text is the sequence.
static bool read_template(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[]    = { { .name = "single" }, { .name = "special_tokens" } };
    bool       before = true;
    int        at     = 0;
    if (!tni_find_members(f, j, "TemplateProcessing", m, 2)) return false;
    if (!m[0].is || m[0].at.kind != TNI_JSON_ARRAY || !m[1].is)
        return tni_tokenizer_bad(f, "TemplateProcessing has no template for one text");
    while (tni_json_next(&m[0].at) != TNI_JSON_ARRAY_END) {
        tni_member piece[] = { { .name = "SpecialToken" }, { .name = "Sequence" } };
        tni_member id      = { .name = "id" };
        char       name[256];
        if (!tni_find_members(f, m[0].at, "a template", piece, 2)) return false;
        if (piece[1].is) {
            before = false;
            at     = f->t->afters;
        } else {
            if (!piece[0].is || !tni_find_members(f, piece[0].at, "SpecialToken", &id, 1) ||
                !id.is || tni_json_string(&id.at, name, sizeof name) >= (int64_t)sizeof name)
                return tni_tokenizer_bad(f, "a template has a part that is not known");
            if (!add_template_token(f, m[1].at, name, before, &at)) return false;
        }
        tni_json_skip(&m[0].at);
    }
    return true;
}

// ["<s>", 0]: the number.
static bool read_named_token(tni_tokenizer_file *f, tni_member *m, int64_t *id)
{
    *id = -1;
    if (m->is && m->at.kind == TNI_JSON_ARRAY && tni_json_next(&m->at) == TNI_JSON_STRING &&
        tni_json_next(&m->at) == TNI_JSON_NUMBER && tni_json_int(&m->at, id))
        return true;
    return tni_tokenizer_bad(f, "the post_processor's \"%s\" is not a token", m->name);
}

static bool read_cls_sep(tni_tokenizer_file *f, tni_json j)
{
    tni_member m[] = { { .name = "cls" }, { .name = "sep" } };
    int64_t    cls, sep;
    return tni_find_members(f, j, "the post_processor", m, 2) && read_named_token(f, &m[0], &cls) &&
           read_named_token(f, &m[1], &sep) && add_frame(f, cls, true, 0) &&
           add_frame(f, sep, false, f->t->afters);
}

// It changes where tokens begin and end in the text, which is not asked for here.
static bool read_nothing(tni_tokenizer_file *f, tni_json j)
{
    (void)f;
    (void)j;
    return true;
}

static bool read_post_processors(tni_tokenizer_file *f, tni_json j)
{
    return read_list(f, j, "processors", tni_read_post_processor);
}

bool tni_read_post_processor(tni_tokenizer_file *f, tni_json j)
{
    static const part_kind kinds[] = {
        { "Sequence", read_post_processors },    { "ByteLevel", read_nothing },
        { "TemplateProcessing", read_template }, { "BertProcessing", read_cls_sep },
        { "RobertaProcessing", read_cls_sep },
    };
    return read_part(f, j, "the post_processor", kinds, sizeof kinds / sizeof *kinds);
}

// ---- decoders ----------------------------------------------------------------------------------

// Appends a step of the decoder. Once tokens are joined, a step would see more than one token.
static tni_decode_step *new_decode(tni_tokenizer_file *f, tni_decode_kind kind)
{
    if (f->fused || f->decodes == TNI_MOST_DECODE) {
        tni_tokenizer_bad(f, f->fused ? "a decoder after Fuse is not supported, but for Strip"
                                      : "it has too many decoders");
        return NULL;
    }
    f->decode[f->decodes] = (tni_decode_step){ .kind = kind };
    return &f->decode[f->decodes++];
}

static bool read_bytes_decoder(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return new_decode(f, TNI_DECODE_BYTES) != NULL;
}

static bool read_fallback_decoder(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return new_decode(f, TNI_DECODE_FALLBACK) != NULL;
}

static bool read_fuse(tni_tokenizer_file *f, tni_json j)
{
    (void)j;
    return f->fused = true;
}

static bool read_short_text(tni_tokenizer_file *f, const tni_member *m, char *to, size_t size)
{
    int64_t n = m->is && m->at.kind == TNI_JSON_STRING ? tni_json_string(&m->at, to, size) : -1;
    if (n >= 0 && n < (int64_t)size) return true;
    return tni_tokenizer_bad(f, "\"%s\" of a decoder is not a text of up to %zu bytes", m->name,
                             size - 1);
}

static bool read_replace_decoder(tni_tokenizer_file *f, tni_json j)
{
    tni_member       m[]  = { { .name = "pattern" }, { .name = "content" } };
    tni_member       text = { .name = "String" };
    tni_decode_step *step = new_decode(f, TNI_DECODE_REPLACE);
    return step && tni_find_members(f, j, "Replace", m, 2) &&
           tni_find_members(f, m[0].at, "a pattern", &text, 1) &&
           read_short_text(f, &text, step->from, sizeof step->from) &&
           read_short_text(f, &m[1], step->to, sizeof step->to);
}

// Of joined tokens only the start of the text is stripped.
static bool read_strip_decoder(tni_tokenizer_file *f, tni_json j)
{
    tni_member       m[]  = { { .name = "content" }, { .name = "start" }, { .name = "stop" } };
    tni_decode_step  step = { .kind = TNI_DECODE_STRIP };
    tni_decode_step *to;
    int64_t          start, stop;
    if (!tni_find_members(f, j, "Strip", m, 3) ||
        !read_short_text(f, &m[0], step.from, sizeof f->t->decoder.strip) ||
        !tni_member_int(f, &m[1], &start, 0) || !tni_member_int(f, &m[2], &stop, 0))
        return false;
    if (!*step.from || start < 0 || stop < 0 || start > 1000 || stop > 1000 || (f->fused && stop))
        return tni_tokenizer_bad(f, f->fused && stop > 0 ? "a decoder that strips the end of the "
                                                           "text is not supported"
                                                         : "the settings of Strip are wrong");
    step.start = (int)start;
    step.stop  = (int)stop;
    if (f->fused) {
        memcpy(f->t->decoder.strip, step.from, sizeof f->t->decoder.strip);
        f->t->decoder.strip_count = step.start;
        return true;
    }
    if (!(to = new_decode(f, TNI_DECODE_STRIP))) return false;
    *to = step;
    return true;
}

// In the first token, it drops what it replaces by spaces elsewhere.
static bool read_metaspace_decoder(tni_tokenizer_file *f, tni_json j)
{
    metaspace k = { 0 };
    if (f->decodes)
        return tni_tokenizer_bad(f, "the decoder Metaspace after others is not supported");
    tni_decode_step *step = new_decode(f, TNI_DECODE_REPLACE);
    if (!step || !read_metaspace_members(f, j, &k)) return false;
    memcpy(step->from, k.replacement, sizeof k.replacement);
    step->to[0] = ' ';
    if (k.always || k.first) memcpy(f->t->decoder.dropped, k.replacement, sizeof k.replacement);
    return true;
}

static bool read_decoders(tni_tokenizer_file *f, tni_json j)
{
    return read_list(f, j, "decoders", tni_read_decoder);
}

bool tni_read_decoder(tni_tokenizer_file *f, tni_json j)
{
    static const part_kind kinds[] = {
        { "Sequence", read_decoders },
        { "ByteLevel", read_bytes_decoder },
        { "ByteFallback", read_fallback_decoder },
        { "Fuse", read_fuse },
        { "Replace", read_replace_decoder },
        { "Strip", read_strip_decoder },
        { "Metaspace", read_metaspace_decoder },
    };
    return read_part(f, j, "the decoder", kinds, sizeof kinds / sizeof *kinds);
}
