// A JSON file of settings, such as the config.json of a model: no tensors, and every value of it as
// metadata. Keys of nested objects are joined by dots, places in arrays are numbers from 0:
//
//   {"model_type": "llama", "rope_scaling": {"factor": 8.0}, "architectures": ["LlamaForCausalLM"]}
//
// has "model_type" = "llama", "rope_scaling.factor" = "8.0", "architectures.0" =
// "LlamaForCausalLM". Numbers keep their text; true, false and null are those words.
#include "base/json.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

// Names repeat the keys around them, so a small file could ask for much memory: no more than this.
enum { MOST_TEXT = 1 << 26, MOST_NAME = 1024 };

// A walk through the file. name is the path of keys to the current value; text collects pairs.
typedef struct {
    tn_file *f;
    tni_json j;
    char     name[MOST_NAME];
    size_t   length;  // of name
    char    *text;
    size_t   bytes, capacity, pairs;
} walk;

// Room for n more bytes of text. NULL, reported, if there is none.
static char *room_for(walk *w, size_t n)
{
    tn_ctx *cx = w->f->owned.cx;
    if (n > MOST_TEXT - w->bytes) {
        tni_file_wrong(w->f, "its settings are more than %d bytes", (int)MOST_TEXT);
        return NULL;
    }
    if (tni_grow(&cx->heap, (void **)&w->text, &w->capacity, w->bytes + n, 1))
        return w->text + w->bytes;
    return tni_fail_memory(cx, w->f->op);
}

// Adds the name and the value of the current token as a pair of texts.
static bool add_pair(walk *w, bool escaped)
{
    size_t n  = w->length + 1;
    char  *to = room_for(w, n + w->j.length + 1);
    if (!to) return false;
    memcpy(to, w->name, n);
    memcpy(to + n, w->j.text, w->j.length);
    to[n + w->j.length] = 0;
    int64_t length      = (int64_t)w->j.length;
    if (escaped) length = tni_json_string(&w->j, to + n, w->j.length + 1);
    if (length < 0 || strlen(to + n) != (size_t)length)
        return tni_file_wrong(w->f, "the value of %s is no text", tni_quoted(w->name).s);
    w->bytes += n + (size_t)length + 1;
    w->pairs++;
    return true;
}

// Appends a key, or a place in an array, to the name.
static bool enter(walk *w, const char *part, size_t n)
{
    if (w->length + n + 2 > MOST_NAME) return tni_file_wrong(w->f, "a key is too long");
    if (w->length) w->name[w->length++] = '.';
    memcpy(w->name + w->length, part, n);
    w->length += n;
    w->name[w->length] = 0;
    return true;
}

static bool read_value(walk *w);

// Reads the value after the key that is current.
static bool read_member(walk *w)
{
    char    key[MOST_NAME];
    int64_t n = tni_json_string(&w->j, key, sizeof key);
    if (n < 0 || n >= MOST_NAME || strlen(key) != (size_t)n)
        return tni_file_wrong(w->f, "a key is no text, or too long");
    if (!enter(w, key, (size_t)n)) return false;
    tni_json_next(&w->j);
    return read_value(w);
}

static bool read_item(walk *w, int64_t i)
{
    char place[24];
    int  n = snprintf(place, sizeof place, "%lld", (long long)i);
    return enter(w, place, (size_t)n) && read_value(w);
}

// Reads all values of the object or array whose bracket is current. A syntax error ends it and is
// reported at the end of the walk.
static bool read_group(walk *w)
{
    size_t length = w->length;
    bool   object = w->j.kind == TNI_JSON_OBJECT;
    for (int64_t i = 0;; i++) {
        tni_json_kind k   = tni_json_next(&w->j);
        bool          end = k == TNI_JSON_OBJECT_END || k == TNI_JSON_ARRAY_END;
        if (end || k == TNI_JSON_ERROR) return true;
        if (!(object ? read_member(w) : read_item(w, i))) return false;
        w->length          = length;
        w->name[w->length] = 0;
    }
}

// Reads the value whose first token is current. tni_json bounds how deep this nests.
static bool read_value(walk *w)
{
    static const char *const words[] = {
        [TNI_JSON_TRUE] = "true", [TNI_JSON_FALSE] = "false", [TNI_JSON_NULL] = "null"
    };
    switch (w->j.kind) {
    case TNI_JSON_OBJECT:
    case TNI_JSON_ARRAY: return read_group(w);
    case TNI_JSON_STRING: return add_pair(w, true);
    case TNI_JSON_TRUE:
    case TNI_JSON_FALSE:
    case TNI_JSON_NULL:
        w->j.text   = words[w->j.kind];
        w->j.length = strlen(w->j.text);
        return add_pair(w, false);
    case TNI_JSON_NUMBER: return add_pair(w, false);
    default: return true;
    }
}

// Walks the file, which must be one object.
static bool read_object(walk *w)
{
    const tni_mapping *m = w->f->part->map;
    tni_json_open(&w->j, (const char *)m->data, m->bytes);
    if (tni_json_next(&w->j) != TNI_JSON_OBJECT)
        return tni_file_wrong(w->f, "it is not an object of settings");
    if (!read_group(w)) return false;
    if (w->j.kind != TNI_JSON_ERROR) tni_json_next(&w->j);
    return w->j.kind == TNI_JSON_END || tni_file_wrong(w->f, "%s", w->j.why);
}

// The text becomes the part's, which frees it with the file.
bool tni_settings_read(tn_file *f)
{
    walk w         = { .f = f };
    bool ok        = read_object(&w);
    f->part->text  = w.text;
    f->part->meta  = w.text;
    f->part->nmeta = ok ? w.pairs : 0;
    return ok;
}
