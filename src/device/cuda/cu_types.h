// The types and numbers of CUDA's driver interface that this folder uses, declared by ourselves: no
// header of CUDA is needed to build. If such headers are installed, a test compares them.
#ifndef TNI_CUDA_TYPES_H
#define TNI_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

// ---- handles -----------------------------------------------------------------------------------

typedef unsigned long long        tni_cuptr;     // an address on the device
typedef unsigned long long        tni_cumemory;  // memory without an address
typedef struct tni_cuda_context  *tni_cucontext;
typedef struct tni_cuda_stream   *tni_custream;
typedef struct tni_cuda_event    *tni_cuevent;
typedef struct tni_cuda_module   *tni_cumodule;
typedef struct tni_cuda_function *tni_cufunction;
typedef struct tni_cuda_kernel   *tni_cukernel;
typedef struct tni_cuda_graph    *tni_cugraph;
typedef struct tni_cuda_node     *tni_cunode;
typedef struct tni_cuda_exec     *tni_cuexec;  // a graph that can be launched
typedef struct tni_nvrtc_program *tni_nvprogram;

// ---- numbers -----------------------------------------------------------------------------------

// What functions return. After an error of the second block nothing works any more in the process.
enum {
    TNI_CU_OK                = 0,
    TNI_CU_INVALID_VALUE     = 1,
    TNI_CU_OUT_OF_MEMORY     = 2,
    TNI_CU_STUB              = 34,  // the library to link with, which is no driver
    TNI_CU_NO_DEVICE         = 100,
    TNI_CU_INVALID_IMAGE     = 200,
    TNI_CU_NO_BINARY         = 209,  // machine code for another chip
    TNI_CU_NOT_FOUND         = 500,
    TNI_CU_NOT_READY         = 600,  // of a query: the work is not done
    TNI_CU_TOO_MUCH          = 701,  // a launch asks for more than a block may have
    TNI_CU_NOT_SUPPORTED     = 801,
    TNI_CU_CAPTURE_FIRST     = 900,  // from here on something that cannot be captured
    TNI_CU_CAPTURE_LAST      = 908,
    TNI_CU_UPDATE_IMPOSSIBLE = 910,

    TNI_CU_BAD_MEMORY      = 214,  // of the GPU, beyond correction
    TNI_CU_BAD_LINK        = 220,
    TNI_CU_ILLEGAL_ADDRESS = 700,
    TNI_CU_TIMEOUT         = 702,
    TNI_CU_DESTROYED       = 709,
    TNI_CU_ASSERT          = 710,
    TNI_CU_BAD_STACK       = 714,  // from here to the next: instructions and addresses
    TNI_CU_LAUNCH_FAILED   = 719,
};

// Attributes of a device.
enum {
    TNI_CU_MULTIPROCESSORS     = 16,
    TNI_CU_CLOCK_KHZ           = 13,
    TNI_CU_MEMORY_CLOCK_KHZ    = 36,
    TNI_CU_MEMORY_BUS_BITS     = 37,
    TNI_CU_L2                  = 38,
    TNI_CU_THREADS             = 39,  // of a multiprocessor, at most
    TNI_CU_MAJOR               = 75,
    TNI_CU_MINOR               = 76,
    TNI_CU_SHARED              = 81,  // of a multiprocessor
    TNI_CU_REGISTERS           = 82,  // of a multiprocessor
    TNI_CU_SHARED_PER_BLOCK    = 97,  // what a function can ask for
    TNI_CU_HAS_RESERVED_RANGES = 102,
    TNI_CU_HAS_CLUSTERS        = 120,
};

// Attributes of a function. The last two are set before a launch that needs them.
enum {
    TNI_CU_FUNCTION_THREADS       = 0,  // of a block, at most
    TNI_CU_FUNCTION_STATIC_SHARED = 1,
    TNI_CU_FUNCTION_LOCAL         = 3,  // bytes of a thread: its stack and what is spilled
    TNI_CU_FUNCTION_REGISTERS     = 4,
    TNI_CU_FUNCTION_SHARED        = 8,   // most dynamic shared memory
    TNI_CU_FUNCTION_BIG_CLUSTERS  = 14,  // more than 8 blocks in a cluster
};

// How a tensor is described to TMA: the type of its elements, how 128 bytes of them are swizzled in
// shared memory, and that L2 reads 256 bytes at once.
enum { TNI_CU_TENSOR_U16 = 1, TNI_CU_SWIZZLE_128 = 3, TNI_CU_PROMOTE_256 = 3 };

// Flags of streams, events and host memory.
enum {
    TNI_CU_STREAM_NONBLOCKING = 1,  // does not wait for the null stream
    TNI_CU_EVENT_BLOCKING     = 1,  // who waits for it sleeps
    TNI_CU_EVENT_NO_TIMING    = 2,
    TNI_CU_HOST_PORTABLE      = 1,
    TNI_CU_HOST_MAPPED        = 2,
    TNI_CU_HOST_WRITE_ONLY    = 4,  // fast to write and slow to read
};

// Capturing a stream, and graphs.
enum {
    TNI_CU_CAPTURE_GLOBAL      = 0,  // modes
    TNI_CU_CAPTURE_THREAD      = 1,
    TNI_CU_CAPTURE_RELAXED     = 2,
    TNI_CU_CAPTURE_NONE        = 0,  // states
    TNI_CU_CAPTURE_ACTIVE      = 1,
    TNI_CU_CAPTURE_INVALIDATED = 2,
    TNI_CU_NODE_KERNEL         = 0,
    TNI_CU_NODE_COPY           = 1,
    TNI_CU_NODE_SET            = 2,
    TNI_CU_NODE_HOST           = 3,
    TNI_CU_NODE_EMPTY          = 5,
    TNI_CU_UPDATE_OK           = 0,
};

// Reserved ranges.
enum {
    TNI_CU_PINNED      = 1,  // of an allocation
    TNI_CU_AT_DEVICE   = 1,  // of a location
    TNI_CU_READ_WRITE  = 3,
    TNI_CU_LEAST       = 0,  // granularity
    TNI_CU_RECOMMENDED = 1,
};

// Questions about an address.
enum {
    TNI_CU_POINTER_CONTEXT = 1,
    TNI_CU_POINTER_TYPE    = 2,  // one of the next two, or 4, which is both
    TNI_CU_MEMORY_HOST     = 1,
    TNI_CU_MEMORY_DEVICE   = 2,
    TNI_CU_MEMORY_UNIFIED  = 4,
    TNI_CU_POINTER_DEVICE  = 9,   // ordinal
    TNI_CU_POINTER_START   = 11,  // of the range that it is in
    TNI_CU_POINTER_SIZE    = 12,
};

// Attributes of a launch.
enum {
    TNI_CU_LAUNCH_CLUSTER = 4,
    TNI_CU_LAUNCH_OVERLAP = 6,  // may begin before what is ahead of it in the stream has ended
    TNI_CU_LAUNCH_CARVEOUT =
        14,  // percent of a multiprocessor's memory that is to be shared memory
};

// Options of loading a module, and results of NVRTC.
enum {
    TNI_CU_LOAD_ERROR_LOG   = 5,
    TNI_CU_LOAD_ERROR_BYTES = 6,
    TNI_NV_INVALID_OPTION   = 5,
    TNI_NV_COMPILATION      = 6,
};

// ---- structures --------------------------------------------------------------------------------
// They are the driver's, byte for byte; what we do not use of them stays zero.

typedef struct {
    int type;
    int id;  // the device's
} tni_culocation;

// The memory to create for a reserved range.
typedef struct {
    int            type, handle_types;
    tni_culocation at;
    void          *windows;
    struct {
        unsigned char  compression, direct;
        unsigned short usage;
        unsigned char  rest[4];
    } flags;
} tni_cuallocation;

// Who may use a range, and how.
typedef struct {
    tni_culocation at;
    int            flags;
} tni_cuaccess;

// A kernel of a graph: what is launched, as cuLaunchKernel takes it.
typedef struct {
    tni_cufunction f;
    unsigned       gx, gy, gz, bx, by, bz, shared;
    void         **args, **extra;
    tni_cukernel   kernel;  // in place of f
    tni_cucontext  cx;      // for kernel only
} tni_cunode_params;

// One attribute of a launch. The value has room for every attribute of the driver.
typedef struct {
    int  id;
    char pad[4];
    union {
        char  room[64];
        void *align;
        struct {
            unsigned x, y, z;
        } cluster;
        int      overlap;
        unsigned shared;  // percent
    } value;
} tni_culaunch_attribute;

// A launch with attributes.
typedef struct {
    unsigned                gx, gy, gz, bx, by, bz, shared;
    tni_custream            stream;
    tni_culaunch_attribute *attribute;
    unsigned                attributes;
} tni_culaunch;

// The result of updating a graph, and where it failed.
typedef struct {
    int        result;
    tni_cunode node, from;
} tni_cuupdate;

// What TMA knows of a tensor, in the driver's own form; it lies at a multiple of 128 bytes, in
// kernels' arguments too.
typedef struct {
    _Alignas(128) uint64_t word[16];
} tni_cutensor_map;

// How one node of a graph waits for another.
typedef struct {
    unsigned char from_port, to_port, type, rest[5];
} tni_cuedge;

#endif
