// tenon-transformers FOLDER DEVICE: the side of Tenon in compare.py. Loads the network of a folder,
// runs it on FOLDER/tokens.npy in evaluation mode, and writes FOLDER/have.safetensors: the logits,
// the loss of predicting FOLDER/targets.npy, and grad.NAME for every parameter.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <tenon/models.h>

enum { MOST = 1000 };

// What is written.
typedef struct {
    int         count;
    char        text[MOST][128];
    const char *name[MOST];
    tn_tensor  *t[MOST];
} contents;

static void add(contents *c, const char *name, tn_tensor *t)
{
    if (c->count == MOST) return;
    snprintf(c->text[c->count], sizeof c->text[0], "%s", name);
    c->name[c->count] = c->text[c->count];
    c->t[c->count++]  = t;
}

static void add_gradient(const char *name, tn_tensor *t, void *user)
{
    char key[128];
    snprintf(key, sizeof key, "grad.%s", name);
    add(user, key, tn_grad_of(t));
}

static tn_tensor *read_npy(tn_ctx *cx, const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return tn_npy_read(cx, path);
}

int main(int argc, char **argv)
{
    static contents c;
    char            path[4096];
    if (argc != 3) return fprintf(stderr, "usage: %s FOLDER DEVICE\n", argv[0]), 2;
    tn_ctx    *cx   = tn_open(*argv[2] ? argv[2] : NULL);
    tn_layer  *net  = tn_pretrained(cx, argv[1]);
    tn_tensor *y    = tn_forward(net, read_npy(cx, argv[1], "tokens.npy"));
    tn_tensor *loss = tn_cross_entropy(tn_transpose(y, 1, 2), read_npy(cx, argv[1], "targets.npy"));
    if (!loss || tn_backward(loss, NULL) != TN_OK) return 1;
    add(&c, "logits", y);
    add(&c, "loss", loss);
    tn_layer_each(net, add_gradient, &c);
    snprintf(path, sizeof path, "%s/have.safetensors", argv[1]);
    int status = tn_file_write(cx, path, c.count, c.name, c.t, 0, NULL) != TN_OK;
    tn_close(cx);
    return status;
}
