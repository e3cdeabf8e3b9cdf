// dlpack.h: memory that is shared with other libraries, by the structs of DLPack 1.
//
// The structs are declared here under names of Tenon's own, with DLPack's layout: a program that
// has dlpack.h converts pointers. Strides and offsets count elements; byte_offset counts bytes.
//
// What is exported is a snapshot of a value, in place and without a copy. It never changes: a later
// write to the tensor goes to other memory. So a consumer must not write to it, which
// TN_DL_READ_ONLY says.
#ifndef TENON_DLPACK_H
#define TENON_DLPACK_H

// tenon.h includes this file.
enum { TN_DL_CPU = 1, TN_DL_CUDA = 2, TN_DL_CUDA_HOST = 3, TN_DL_CUDA_MANAGED = 13 };  // type
enum { TN_DL_MAJOR = 1, TN_DL_MINOR = 1 };
enum { TN_DL_READ_ONLY = 1, TN_DL_COPIED = 2 };  // flags

typedef struct {
    int32_t type, id;
} tn_dl_device;

typedef struct {
    uint8_t  code, bits;
    uint16_t lanes;
} tn_dl_dtype;

typedef struct {
    void        *data;
    tn_dl_device device;
    int32_t      ndim;
    tn_dl_dtype  dtype;
    int64_t     *shape, *strides;  // strides NULL: row-major
    uint64_t     byte_offset;
} tn_dl_tensor;

// DLPack's DLManagedTensorVersioned. The deleter frees the struct itself.
typedef struct tn_dl_managed tn_dl_managed;
struct tn_dl_managed {
    uint32_t major, minor;
    void    *manager;
    void (*deleter)(tn_dl_managed *self);
    uint64_t     flags;
    tn_dl_tensor tensor;
};

// DLPack's DLManagedTensor, the form before version 1, which has no flags.
typedef struct tn_dl_unversioned tn_dl_unversioned;
struct tn_dl_unversioned {
    tn_dl_tensor tensor;
    void        *manager;
    void (*deleter)(tn_dl_unversioned *self);
};

typedef struct {
    // Of the consumer, on cuda: work that it submits there from now on finds the value computed.
    // CUDA's 1 and 2 stand for its default streams. It must exist until the deleter has run. NULL:
    // the consumer orders its work itself. In no case does the host wait, except for host memory.
    void *stream;
    bool  copy;  // into memory that the consumer may write to
    bool  host;  // into host memory, if it is elsewhere
} tn_dlpack_opts;

// Exports t's value, which is evaluated. The deleter may run on any thread, inside or outside a tn_
// call; the context must be open until then (tn_stats.exported). Values of devices whose memory has
// no addresses are copied to the host. NULL on error.
TN_API tn_dl_managed     *tn_to_dlpack(tn_tensor *t, tn_dlpack_opts o);
TN_API tn_dl_unversioned *tn_to_dlpack_unversioned(tn_tensor *t, tn_dlpack_opts o);
// Makes a tensor that reads m's memory in place, as tn_borrow does, whatever its strides; memory of
// the host is copied to another device. Takes m over: its deleter is called once, on the owner
// thread inside a tn_ call, also if this call fails. On cuda the caller has made the memory ready
// for the context's stream (tn_ctx_stream, tn_ctx_wait_stream).
TN_API tn_tensor *tn_from_dlpack(tn_ctx *cx, tn_dl_managed *m);
TN_API tn_tensor *tn_from_dlpack_unversioned(tn_ctx *cx, tn_dl_unversioned *m);

// Returns the stream that the context's work runs in; NULL on devices without streams.
TN_API_PLAIN void *tn_ctx_stream(const tn_ctx *cx);
// Orders the context's work and a stream by events, without waiting; nothing on devices without
// streams. wait: what the context launches from now on comes after what is in the stream. signal:
// what is submitted to the stream from now on comes after what the context has launched.
TN_API tn_status tn_ctx_wait_stream(tn_ctx *cx, void *stream);
TN_API tn_status tn_ctx_signal_stream(tn_ctx *cx, void *stream);
// Submits the context's work to a stream of the caller's from now on, behind what the context has
// submitted so far, as if it had been opened with that stream (tn_options.stream); NULL: to one of
// its own again. It must exist until another one is used or the context is closed. A stream that
// the caller captures into a CUDA graph is captured with the context's work, if this call comes
// after the capture has begun: then only what has run before with the same shapes can run, without
// copies from or to the host, and the memory that it uses is kept until the process ends. The graph
// and the context share that memory: their work must not run at the same time. A call after the
// capture ends this state.
TN_API tn_status tn_ctx_use_stream(tn_ctx *cx, void *stream);

#endif
