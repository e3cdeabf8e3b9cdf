// Keeping the first error of a context or thread, and sites as text.
#include "base/fault.h"
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread tni_thread tni_self = { .site = { .file = "" } };

// ---- a thread's own fault: made when it is first needed, freed when the thread ends ------------

// A thread's own fault: allocated when it is first needed, freed by the key's destructor when the
// thread ends. `spare` serves all threads for which there is no memory: a text of another thread
// may show, but a report never fails.
static const tni_fault none = { .site = { .file = "" } };
static tni_fault       spare;  // for all threads, when there is no memory for one of their own
static pthread_key_t   key;
static pthread_once_t  once = PTHREAD_ONCE_INIT;
static bool            has_key;

static void make_thread_key(void)
{
    has_key = pthread_key_create(&key, free) == 0;
}

// As the library is unloaded: the key's destructor would be code that is gone.
__attribute__((destructor)) static void delete_thread_key(void)
{
    if (has_key) pthread_key_delete(key);
    free(tni_self.fault == &spare ? NULL : tni_self.fault);
    tni_self.fault = NULL;
}

// The calling thread's fault, made if need be; never NULL.
static tni_fault *own_fault(void)
{
    if (tni_self.fault) return tni_self.fault;
    pthread_once(&once, make_thread_key);
    tni_fault *f = calloc(1, sizeof *f);
    if (f && (!has_key || pthread_setspecific(key, f))) {
        free(f);
        f = NULL;
    }
    return tni_self.fault = f ? f : &spare;
}

const tni_fault *tni_thread_fault(void)
{
    return tni_self.fault ? tni_self.fault : &none;
}

void tni_thread_clear(void)
{
    if (tni_self.fault) tni_fault_clear(tni_self.fault);
}

// " (in layer3.2.conv1)" at the end. A text that leaves no space for it is cut: the layer says more
// than the tail of a message.
static void add_layer(tni_fault *f)
{
    tni_text layer = tni_layer_text(&f->site);
    size_t   n = strlen(f->text), end = sizeof f->text - strlen(layer.s) - sizeof "()";
    if (n > end) n = end;
    snprintf(f->text + n, sizeof f->text - n, " (%s)", layer.s + 1);
}

// Only the first error is kept, because later ones follow from it. Every message passes here, with
// names, paths and reasons from outside in it: all of it is escaped, so that a terminal shows what
// it is.
bool tni_fault_set(tni_fault *f, int code, const char *fmt, va_list args)
{
    if (f->code) return false;
    f->code     = code;
    f->reported = false;
    f->site     = tni_self.site;
    // Names, paths and reasons of others are in it: this is where all of them pass.
    char text[sizeof f->text];
    vsnprintf(text, sizeof text, fmt, args);
    tni_escape(f->text, sizeof f->text, text, strlen(text));
    if (f->site.layer) add_layer(f);
    return true;
}

void tni_fault_clear(tni_fault *f)
{
    f->code     = 0;
    f->reported = false;
    f->site     = (tni_site){ .file = "" };
    f->text[0]  = 0;
}

// Unlike a context's, a thread's fault is replaced: the program may not have cleared the old one.
void tni_thread_fail(int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tni_self.latest = code;
    tni_fault_clear(own_fault());
    tni_fault_set(own_fault(), code, fmt, args);
    va_end(args);
}

// ---- sites as text -----------------------------------------------------------------------------

// A layer of a sequence has only a number for its name: "layer 3". Long paths are cut, to keep one
// line.
tni_text tni_layer_text(const tni_site *s)
{
    char name[120];
    if (!s->layer) return (tni_text){ "" };
    tni_escape(name, sizeof name, s->layer->text, strlen(s->layer->text));
    return tni_text_of(" in %s%s", tni_is_digit(name[0]) ? "layer " : "", name);
}

tni_text tni_site_text(const tni_site *s)
{
    tni_text t = tni_text_of("%s:%d%s", s->file, s->line, tni_layer_text(s).s);
    if (s->outer_line) tni_text_add(&t, ", called from %s:%d", s->outer_file, s->outer_line);
    return t;
}
