// peer_torch.c: the Python process that runs programs in PyTorch (torch_side.py). It is started
// once; a program goes to it as text, and what it gave comes back as bytes.
#include "peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- the process

static void become_python(const char *python, int in, int out)
{
    dup2(in, 0);
    dup2(out, 1);
    // A library that PyTorch and Tenon both have need not fill the machine twice.
    setenv("OMP_NUM_THREADS", "1", 1);
    execlp(python, python, "-u", TN_SOURCE_DIR "/test/peer/torch_side.py", (char *)NULL);
    _exit(127);
}

static bool read_bytes(int from, void *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(from, (char *)to + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

static bool write_bytes(int to, const void *from, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(to, (const char *)from + at, n - at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += (size_t)put;
    }
    return true;
}

// Its first line is "torch VERSION"; a Python without PyTorch ends without one.
static bool read_version(peer_torch *t)
{
    size_t n = 0;
    char   c;
    while (n + 1 < sizeof t->version && read_bytes(t->from, &c, 1) && c != '\n')
        t->version[n++] = c;
    t->version[n] = 0;
    return strncmp(t->version, "torch ", 6) == 0;
}

static bool start(peer_torch *t, const char *python)
{
    int in[2], out[2];
    if (pipe(in) != 0) return false;
    if (pipe(out) != 0) return close(in[0]), close(in[1]), false;
    t->pid = fork();
    if (t->pid == 0) {
        close(in[1]);
        close(out[0]);
        become_python(python, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    t->to   = in[1];
    t->from = out[0];
    if (t->pid > 0 && read_version(t)) return true;
    peer_torch_stop(t);
    return false;
}

bool peer_torch_start(peer_torch *t)
{
    const char *const pythons[] = { getenv("TN_PYTHON"), "python3", "/usr/bin/python3" };
    *t                          = (peer_torch){ .to = -1, .from = -1 };
    for (int i = 0; i < 3; i++)
        if (pythons[i] && *pythons[i] && start(t, pythons[i])) return true;
    return false;
}

void peer_torch_stop(peer_torch *t)
{
    if (t->to >= 0) close(t->to);
    if (t->from >= 0) close(t->from);
    if (t->pid > 0) waitpid(t->pid, NULL, 0);
    *t = (peer_torch){ .to = -1, .from = -1 };
}

// ---- asking

// Takes bytes of a reply; false at its end.
typedef struct {
    const char *at;
    size_t      left;
} reply;

static bool take(reply *r, void *to, size_t n)
{
    if (r->left < n) return false;
    memcpy(to, r->at, n);
    r->at += n;
    r->left -= n;
    return true;
}

static bool take_elements(reply *r, peer_array *a)
{
    size_t bytes  = (size_t)a->count * 8;
    void  *memory = malloc(bytes + 8);
    if (peer_is_float(a->dtype)) a->x = memory;
    else a->i = memory;
    return memory && take(r, memory, bytes);
}

static bool take_value(reply *r, peer_truth *t)
{
    int32_t    head[2];
    peer_array a = { .rank = 0 };
    if (!take(r, head, sizeof head) || !take(r, a.size, sizeof a.size)) return false;
    a.dtype = (tn_dtype)head[0];
    a.rank  = head[1];
    a.count = peer_count(a.rank, a.size);
    int n   = t->own.count;
    if (!take(r, &t->slack[n], sizeof t->slack[n])) return false;
    t->own.out[t->own.count++]   = a;
    t->best.out[t->best.count++] = a;
    return take_elements(r, &t->own.out[n]) && take_elements(r, &t->best.out[n]);
}

static bool take_truth(reply *r, peer_truth *t)
{
    int32_t n;
    if (!take(r, &n, sizeof n) || n > PEER_STEPS) return false;
    if (!take(r, t->large, (size_t)n * sizeof *t->large)) return false;
    if (!take(r, t->unit, (size_t)n * sizeof *t->unit)) return false;
    if (!take(r, &n, sizeof n) || n > PEER_STEPS * PEER_OUTS) return false;
    for (int i = 0; i < n; i++)
        if (!take_value(r, t)) return false;
    return true;
}

static bool send_program(const peer_torch *t, const peer_program *p, int more)
{
    char  *text = NULL, head[64];
    size_t size = 0;
    FILE  *f    = open_memstream(&text, &size);
    if (!f) return false;
    peer_print_python(p, f);
    fclose(f);
    int  n  = snprintf(head, sizeof head, "%zu %d\n", size, more);
    bool ok = write_bytes(t->to, head, (size_t)n) && write_bytes(t->to, text, size);
    free(text);
    return ok;
}

peer_answer peer_torch_ask(peer_torch *t, const peer_program *p, int more, peer_truth *truth,
                           char *why)
{
    int64_t     size;
    peer_answer told = PEER_GONE;
    memset(truth, 0, sizeof *truth);
    snprintf(why, PEER_TEXT, "the Python process is gone");
    if (!send_program(t, p, more) || !read_bytes(t->from, &size, sizeof size)) return PEER_GONE;
    char *bytes = malloc((size_t)size + 1);
    if (bytes && read_bytes(t->from, bytes, (size_t)size)) {
        reply r     = { bytes + 1, (size_t)size - 1 };
        bytes[size] = 0;
        if (bytes[0] == 0) told = take_truth(&r, truth) ? PEER_TOLD : PEER_GONE;
        else told = PEER_REFUSED, snprintf(why, PEER_TEXT, "%s", bytes + 1);
    }
    free(bytes);
    return told;
}

void peer_truth_free(peer_truth *t)
{
    peer_free(&t->own);
    peer_free(&t->best);
}
