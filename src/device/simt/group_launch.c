// Launches of hand-written kernels, put together argument by argument.
#include "device/simt/groups.h"

#include <string.h>

// Items of a group where a kernel does not need more: two warps of NVIDIA, one wavefront of AMD.
enum { GROUP = 64 };

// With compile_only the text only starts to be compiled: arguments are collected and the launch
// does nothing, so that callers need no case for it.
tn_status tni_kernel_args_begin(tni_kernel_args *h, const tni_call *c, const char *const *text,
                                const char *name, tn_dtype x, tn_dtype y)
{
    tn_status s     = TN_OK;
    h->fns          = c->device->calls->groups;
    h->session      = c->session;
    h->what         = tni_op_table[c->op].name;
    h->fail         = NULL;
    h->ticket       = c->ticket;
    h->compile_only = c->compile_only;
    h->overlaps     = false;
    h->count        = 0;
    h->used         = 0;
    h->kernel       = NULL;
    if (c->compile_only) tni_compiled_group_kernel_soon(h->fns->compiled(c->session), text, x, y);
    else
        h->kernel = tni_compiled_group_kernel(h->fns->compiled(c->session), text, name, x, y, &s,
                                              c->why);
    return s;
}

// Zeroes the padding behind an argument, since replay compares the arguments of launches as bytes.
void tni_kernel_args_add(tni_kernel_args *h, const void *value, size_t bytes)
{
    int i        = h->count++;
    h->at[i]     = h->used;
    h->bytes[i]  = bytes;
    size_t whole = (bytes + 7) / 8 * 8;
    memset(h->value + h->used, 0, whole);  // launches are compared as bytes
    memcpy(h->value + h->used, value, bytes);
    h->used += whole;
}

void tni_kernel_args_add_long(tni_kernel_args *h, int64_t value)
{
    tni_kernel_args_add(h, &value, sizeof value);
}

// Returns the bytes from the buffer's start to the address, which kernels get as an offset: on
// OpenCL a buffer is a handle and not an address.
int64_t tni_kernel_args_add_buffer(tni_kernel_args *h, const void *address)
{
    tni_buffer_at s = h->fns->buffer_at(h->session, address);
    tni_kernel_args_add(h, &s.handle, sizeof s.handle);
    return s.offset;
}

// Clears fail: the launch fills it only if there is no ticket.
void tni_kernel_args_add_state(tni_kernel_args *h, int64_t fail[2])
{
    tni_buffer_at s = h->fns->state_at(h->session, h->ticket);
    tni_kernel_args_add(h, &s.handle, sizeof s.handle);
    h->fail = fail;
    fail[0] = fail[1] = 0;
}

// No groups, no launch: drivers refuse an empty grid.
tn_status tni_kernel_args_launch(tni_kernel_args *h, int64_t groups, int items, tni_text *why)
{
    return groups && !h->compile_only ? h->fns->launch(h, groups, items, why) : TN_OK;
}

tn_status tni_kernel_args_launch_groups(tni_kernel_args *h, int64_t groups, tni_text *why)
{
    return tni_kernel_args_launch(h, groups, GROUP, why);
}

tn_status tni_kernel_args_launch_items(tni_kernel_args *h, int64_t count, tni_text *why)
{
    return tni_kernel_args_launch_groups(h, tni_ceil_div(count, GROUP), why);
}
