// real_cuda.c: our declarations of CUDA beside those of cuda.h and nvrtc.h. It is compiled by a
// test where the headers are installed, and never linked: what differs is an error.

// An enum of CUDA is an int of ours. Neither has negative values, and C makes an unsigned type of
// such an enum; so each gets one here, put before a value of it, and becomes a signed type.
#define CUDA_SUCCESS                      SIGNED_RESULT = -1, CUDA_SUCCESS
#define CU_DEVICE_ATTRIBUTE_WARP_SIZE     SIGNED_DEVICE = -1, CU_DEVICE_ATTRIBUTE_WARP_SIZE
#define CU_FUNC_ATTRIBUTE_PTX_VERSION     SIGNED_FUNCTION = -1, CU_FUNC_ATTRIBUTE_PTX_VERSION
#define CU_POINTER_ATTRIBUTE_P2P_TOKENS   SIGNED_POINTER = -1, CU_POINTER_ATTRIBUTE_P2P_TOKENS
#define CU_STREAM_CAPTURE_STATUS_NONE     SIGNED_STATE = -1, CU_STREAM_CAPTURE_STATUS_NONE
#define CU_STREAM_CAPTURE_MODE_GLOBAL     SIGNED_MODE = -1, CU_STREAM_CAPTURE_MODE_GLOBAL
#define CU_GRAPH_NODE_TYPE_MEM_FREE       SIGNED_NODE = -1, CU_GRAPH_NODE_TYPE_MEM_FREE
#define CU_GRAPH_EXEC_UPDATE_ERROR        SIGNED_UPDATE = -1, CU_GRAPH_EXEC_UPDATE_ERROR
#define CU_MEM_LOCATION_TYPE_INVALID      SIGNED_PLACE = -1, CU_MEM_LOCATION_TYPE_INVALID
#define CU_MEM_ALLOCATION_TYPE_INVALID    SIGNED_ALLOCATION = -1, CU_MEM_ALLOCATION_TYPE_INVALID
#define CU_MEM_HANDLE_TYPE_NONE           SIGNED_HANDLE = -1, CU_MEM_HANDLE_TYPE_NONE
#define CU_MEM_ACCESS_FLAGS_PROT_NONE     SIGNED_ACCESS = -1, CU_MEM_ACCESS_FLAGS_PROT_NONE
#define CU_MEM_ALLOC_GRANULARITY_MINIMUM  SIGNED_GRAIN = -1, CU_MEM_ALLOC_GRANULARITY_MINIMUM
#define CU_LAUNCH_ATTRIBUTE_IGNORE        SIGNED_LAUNCH = -1, CU_LAUNCH_ATTRIBUTE_IGNORE
#define CU_JIT_MAX_REGISTERS              SIGNED_LOAD = -1, CU_JIT_MAX_REGISTERS
#define CU_TENSOR_MAP_DATA_TYPE_UINT8     SIGNED_TENSOR = -1, CU_TENSOR_MAP_DATA_TYPE_UINT8
#define CU_TENSOR_MAP_INTERLEAVE_NONE     SIGNED_INTERLEAVE = -1, CU_TENSOR_MAP_INTERLEAVE_NONE
#define CU_TENSOR_MAP_SWIZZLE_NONE        SIGNED_SWIZZLE = -1, CU_TENSOR_MAP_SWIZZLE_NONE
#define CU_TENSOR_MAP_L2_PROMOTION_NONE   SIGNED_PROMOTION = -1, CU_TENSOR_MAP_L2_PROMOTION_NONE
#define CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE SIGNED_FILL = -1, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
#define NVRTC_SUCCESS                     SIGNED_NVRTC = -1, NVRTC_SUCCESS

#define __CUDA_API_VERSION_INTERNAL  // cuda.h then declares every version of a function
#include <cuda.h>
#include <nvrtc.h>
#undef CUDA_SUCCESS
#undef CU_STREAM_CAPTURE_STATUS_NONE
#undef CU_STREAM_CAPTURE_MODE_GLOBAL
#undef CU_MEM_ALLOC_GRANULARITY_MINIMUM

// ---- types: what our handles point to is what the real ones point to

#define tni_cuda_context  CUctx_st
#define tni_cuda_stream   CUstream_st
#define tni_cuda_event    CUevent_st
#define tni_cuda_module   CUmod_st
#define tni_cuda_function CUfunc_st
#define tni_cuda_kernel   CUkern_st
#define tni_cuda_graph    CUgraph_st
#define tni_cuda_node     CUgraphNode_st
#define tni_cuda_exec     CUgraphExec_st
#define tni_nvrtc_program _nvrtcProgram
#include "device/cuda/cu_types.h"

#define TYPES(a, b)      _Generic((a *)0, b * : 1, default : 0)
#define TYPE(ours, real) _Static_assert(TYPES(ours, real), #ours " is not " #real)

// A structure, and a field of it: where it lies and what it is.
#define STRUCT(ours, real)                                                           \
    _Static_assert(sizeof(ours) == sizeof(real) && _Alignof(ours) == _Alignof(real), \
                   #ours " is not as large as " #real)
#define FIELD(ours, field, real, name)                                                       \
    _Static_assert(offsetof(ours, field) == offsetof(real, name) &&                          \
                       TYPES(__typeof__(((ours *)0)->field), __typeof__(((real *)0)->name)), \
                   #ours "." #field " is not " #real "." #name)

TYPE(tni_cuptr, CUdeviceptr);
TYPE(tni_cumemory, CUmemGenericAllocationHandle);
TYPE(tni_cucontext, CUcontext);
TYPE(tni_custream, CUstream);
TYPE(tni_cuevent, CUevent);
TYPE(tni_cumodule, CUmodule);
TYPE(tni_cufunction, CUfunction);
TYPE(tni_cukernel, CUkernel);
TYPE(tni_cugraph, CUgraph);
TYPE(tni_cunode, CUgraphNode);
TYPE(tni_cuexec, CUgraphExec);
TYPE(tni_nvprogram, nvrtcProgram);

STRUCT(tni_culocation, CUmemLocation);
FIELD(tni_culocation, type, CUmemLocation, type);
FIELD(tni_culocation, id, CUmemLocation, id);

STRUCT(tni_cuallocation, CUmemAllocationProp);
FIELD(tni_cuallocation, type, CUmemAllocationProp, type);
FIELD(tni_cuallocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
FIELD(tni_cuallocation, at.type, CUmemAllocationProp, location.type);
FIELD(tni_cuallocation, at.id, CUmemAllocationProp, location.id);
FIELD(tni_cuallocation, windows, CUmemAllocationProp, win32HandleMetaData);
FIELD(tni_cuallocation, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
FIELD(tni_cuallocation, flags.direct, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
FIELD(tni_cuallocation, flags.usage, CUmemAllocationProp, allocFlags.usage);
FIELD(tni_cuallocation, flags.rest, CUmemAllocationProp, allocFlags.reserved);

STRUCT(tni_cuaccess, CUmemAccessDesc);
FIELD(tni_cuaccess, at.type, CUmemAccessDesc, location.type);
FIELD(tni_cuaccess, at.id, CUmemAccessDesc, location.id);
FIELD(tni_cuaccess, flags, CUmemAccessDesc, flags);

STRUCT(tni_cunode_params, CUDA_KERNEL_NODE_PARAMS_v2);
FIELD(tni_cunode_params, f, CUDA_KERNEL_NODE_PARAMS_v2, func);
FIELD(tni_cunode_params, gx, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
FIELD(tni_cunode_params, gy, CUDA_KERNEL_NODE_PARAMS_v2, gridDimY);
FIELD(tni_cunode_params, gz, CUDA_KERNEL_NODE_PARAMS_v2, gridDimZ);
FIELD(tni_cunode_params, bx, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
FIELD(tni_cunode_params, by, CUDA_KERNEL_NODE_PARAMS_v2, blockDimY);
FIELD(tni_cunode_params, bz, CUDA_KERNEL_NODE_PARAMS_v2, blockDimZ);
FIELD(tni_cunode_params, shared, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
FIELD(tni_cunode_params, args, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
FIELD(tni_cunode_params, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
FIELD(tni_cunode_params, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
FIELD(tni_cunode_params, cx, CUDA_KERNEL_NODE_PARAMS_v2, ctx);

STRUCT(tni_culaunch_attribute, CUlaunchAttribute);
FIELD(tni_culaunch_attribute, id, CUlaunchAttribute, id);
FIELD(tni_culaunch_attribute, pad, CUlaunchAttribute, pad);
FIELD(tni_culaunch_attribute, value.room, CUlaunchAttribute, value.pad);
FIELD(tni_culaunch_attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);
FIELD(tni_culaunch_attribute, value.cluster.y, CUlaunchAttribute, value.clusterDim.y);
FIELD(tni_culaunch_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z);
FIELD(tni_culaunch_attribute, value.overlap, CUlaunchAttribute,
      value.programmaticStreamSerializationAllowed);

// CUDA 13 aligns it to 128 bytes, CUDA 12 to 64.
_Static_assert(sizeof(tni_cutensor_map) == sizeof(CUtensorMap), "tensor map");

STRUCT(tni_culaunch, CUlaunchConfig);
FIELD(tni_culaunch, gx, CUlaunchConfig, gridDimX);
FIELD(tni_culaunch, gy, CUlaunchConfig, gridDimY);
FIELD(tni_culaunch, gz, CUlaunchConfig, gridDimZ);
FIELD(tni_culaunch, bx, CUlaunchConfig, blockDimX);
FIELD(tni_culaunch, by, CUlaunchConfig, blockDimY);
FIELD(tni_culaunch, bz, CUlaunchConfig, blockDimZ);
FIELD(tni_culaunch, shared, CUlaunchConfig, sharedMemBytes);
FIELD(tni_culaunch, stream, CUlaunchConfig, hStream);
_Static_assert(offsetof(tni_culaunch, attribute) == offsetof(CUlaunchConfig, attrs), "attribute");
FIELD(tni_culaunch, attributes, CUlaunchConfig, numAttrs);

STRUCT(tni_cuupdate, CUgraphExecUpdateResultInfo);
FIELD(tni_cuupdate, result, CUgraphExecUpdateResultInfo, result);
FIELD(tni_cuupdate, node, CUgraphExecUpdateResultInfo, errorNode);
FIELD(tni_cuupdate, from, CUgraphExecUpdateResultInfo, errorFromNode);

#if CUDA_VERSION >= 12030  // the first with edges of graphs
STRUCT(tni_cuedge, CUgraphEdgeData);
FIELD(tni_cuedge, from_port, CUgraphEdgeData, from_port);
FIELD(tni_cuedge, to_port, CUgraphEdgeData, to_port);
FIELD(tni_cuedge, type, CUgraphEdgeData, type);
FIELD(tni_cuedge, rest, CUgraphEdgeData, reserved);
#define HAS_EDGES(row) row
#else
#define HAS_EDGES(row)
typedef tni_cuedge CUgraphEdgeData;
#endif

// ---- numbers

#define SAME(ours, real) _Static_assert((int)(ours) == (int)(real), #ours " is not " #real)

SAME(TNI_CU_TENSOR_U16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME(TNI_CU_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(TNI_CU_PROMOTE_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(TNI_CU_OK, CUDA_SUCCESS);
SAME(TNI_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(TNI_CU_STUB, CUDA_ERROR_STUB_LIBRARY);
SAME(TNI_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(TNI_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(TNI_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(TNI_CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(TNI_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(TNI_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(TNI_CU_TOO_MUCH, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(TNI_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(TNI_CU_CAPTURE_FIRST, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(TNI_CU_CAPTURE_LAST, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME(TNI_CU_UPDATE_IMPOSSIBLE, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
SAME(TNI_CU_BAD_MEMORY, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(TNI_CU_BAD_LINK, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(TNI_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(TNI_CU_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(TNI_CU_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(TNI_CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(TNI_CU_BAD_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(TNI_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);

SAME(TNI_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(TNI_CU_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(TNI_CU_MEMORY_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(TNI_CU_MEMORY_BUS_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(TNI_CU_L2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(TNI_CU_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME(TNI_CU_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(TNI_CU_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(TNI_CU_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME(TNI_CU_REGISTERS, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME(TNI_CU_SHARED_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(TNI_CU_HAS_RESERVED_RANGES, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(TNI_CU_HAS_CLUSTERS, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);

SAME(TNI_CU_FUNCTION_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(TNI_CU_FUNCTION_STATIC_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(TNI_CU_FUNCTION_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(TNI_CU_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(TNI_CU_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(TNI_CU_FUNCTION_BIG_CLUSTERS, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);

SAME(TNI_CU_STREAM_NONBLOCKING, CU_STREAM_NON_BLOCKING);
SAME(TNI_CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
SAME(TNI_CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(TNI_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(TNI_CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(TNI_CU_HOST_WRITE_ONLY, CU_MEMHOSTALLOC_WRITECOMBINED);

SAME(TNI_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(TNI_CU_CAPTURE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(TNI_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(TNI_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(TNI_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(TNI_CU_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(TNI_CU_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(TNI_CU_NODE_COPY, CU_GRAPH_NODE_TYPE_MEMCPY);
SAME(TNI_CU_NODE_SET, CU_GRAPH_NODE_TYPE_MEMSET);
SAME(TNI_CU_NODE_HOST, CU_GRAPH_NODE_TYPE_HOST);
SAME(TNI_CU_NODE_EMPTY, CU_GRAPH_NODE_TYPE_EMPTY);
SAME(TNI_CU_UPDATE_OK, CU_GRAPH_EXEC_UPDATE_SUCCESS);

SAME(TNI_CU_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(TNI_CU_AT_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(TNI_CU_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(TNI_CU_LEAST, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(TNI_CU_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

SAME(TNI_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(TNI_CU_POINTER_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(TNI_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(TNI_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(TNI_CU_MEMORY_UNIFIED, CU_MEMORYTYPE_UNIFIED);
SAME(TNI_CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(TNI_CU_POINTER_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(TNI_CU_POINTER_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);

SAME(TNI_CU_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(TNI_CU_LAUNCH_OVERLAP, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(TNI_CU_LAUNCH_CARVEOUT, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);

SAME(TNI_CU_LOAD_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(TNI_CU_LOAD_ERROR_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(TNI_NV_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION);
SAME(TNI_NV_COMPILATION, NVRTC_ERROR_COMPILATION);

// ---- functions: from here on our structures are the real ones

#define tni_cuallocation  CUmemAllocationProp
#define tni_cuaccess      CUmemAccessDesc
#define tni_cunode_params CUDA_KERNEL_NODE_PARAMS_v2
#define tni_culaunch      CUlaunchConfig
#define tni_cuupdate      CUgraphExecUpdateResultInfo
#define tni_cuedge        CUgraphEdgeData
#define tni_cutensor_map  CUtensorMap
#include "device/cuda/driver.h"

#define FUNCTION(table, field, name)                                                  \
    _Static_assert(_Generic(((table *)0)->field, __typeof__(&name) : 1, default : 0), \
                   #field " has not the arguments of " #name);

#define CALL(field, name)  FUNCTION(tni_driver, field, name)
#define MAYBE(field, name) HAS_EDGES(FUNCTION(tni_driver, field, name))
#define NVRTC(field, name) FUNCTION(tni_nvrtc, field, name)
#include "device/cuda/driver.def"
