// OpenCL 1.2 as far as this device uses it, in declarations of our own, so that no header has to be
// installed. Types have the tags of the official header and functions its names and parameters, so
// that a compiler which sees both compares them (test_opencl.c).
#ifndef TNI_DEVICE_OPENCL_CL_API_H
#define TNI_DEVICE_OPENCL_CL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id   *tni_cl_platform_id;
typedef struct _cl_device_id     *tni_cl_device_id;
typedef struct _cl_context       *tni_cl_context;
typedef struct _cl_command_queue *tni_cl_command_queue;
typedef struct _cl_mem           *tni_cl_mem;
typedef struct _cl_program       *tni_cl_program;
typedef struct _cl_kernel        *tni_cl_kernel;
typedef struct _cl_event         *tni_cl_event;

// Constants: name, value. The official name is CL_ and the name.
#define TNI_CL_CONSTANTS(C)                         \
    C(SUCCESS, 0)                                   \
    C(MEM_OBJECT_ALLOCATION_FAILURE, -4)            \
    C(OUT_OF_RESOURCES, -5)                         \
    C(OUT_OF_HOST_MEMORY, -6)                       \
    C(DEVICE_TYPE_CPU, 1 << 1)                      \
    C(DEVICE_TYPE_GPU, 1 << 2)                      \
    C(DEVICE_TYPE_ALL, 0xFFFFFFFF)                  \
    C(DEVICE_TYPE, 0x1000)                          \
    C(DEVICE_MAX_COMPUTE_UNITS, 0x1002)             \
    C(DEVICE_MAX_WORK_GROUP_SIZE, 0x1004)           \
    C(DEVICE_MAX_MEM_ALLOC_SIZE, 0x1010)            \
    C(DEVICE_MAX_PARAMETER_SIZE, 0x1017)            \
    C(DEVICE_SINGLE_FP_CONFIG, 0x101B)              \
    C(DEVICE_GLOBAL_MEM_SIZE, 0x101F)               \
    C(DEVICE_LOCAL_MEM_SIZE, 0x1023)                \
    C(DEVICE_NAME, 0x102B)                          \
    C(DRIVER_VERSION, 0x102D)                       \
    C(DEVICE_VERSION, 0x102F)                       \
    C(DEVICE_EXTENSIONS, 0x1030)                    \
    C(FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, 1 << 7)     \
    C(MEM_READ_WRITE, 1 << 0)                       \
    C(MEM_ALLOC_HOST_PTR, 1 << 4)                   \
    C(MAP_READ, 1 << 0)                             \
    C(MAP_WRITE, 1 << 1)                            \
    C(MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 1 << 1) \
    C(PROGRAM_BINARY_SIZES, 0x1165)                 \
    C(PROGRAM_BINARIES, 0x1166)                     \
    C(PROGRAM_BUILD_LOG, 0x1183)

#define C(name, value) static const int64_t TNI_CL_##name __attribute__((unused)) = value;
TNI_CL_CONSTANTS(C)
#undef C

typedef void tni_cl_notify(const char *text, const void *more, size_t size, void *user);
typedef void tni_cl_built(tni_cl_program program, void *user);

// Functions: result, name, parameters.
// clang-format off
#define TNI_CL_FUNCTIONS(F)                                                                        \
    F(int32_t, clGetPlatformIDs, (uint32_t, tni_cl_platform_id *, uint32_t *))                     \
    F(int32_t, clGetDeviceIDs, (tni_cl_platform_id, uint64_t, uint32_t, tni_cl_device_id *,        \
                                uint32_t *))                                                       \
    F(int32_t, clGetDeviceInfo, (tni_cl_device_id, uint32_t, size_t, void *, size_t *))            \
    F(tni_cl_context, clCreateContext, (const intptr_t *, uint32_t, const tni_cl_device_id *,      \
                                        tni_cl_notify *, void *, int32_t *))                       \
    F(tni_cl_command_queue, clCreateCommandQueue, (tni_cl_context, tni_cl_device_id, uint64_t,     \
                                                   int32_t *))                                     \
    F(int32_t, clFinish, (tni_cl_command_queue))                                                   \
    F(int32_t, clFlush, (tni_cl_command_queue))                                                    \
    F(tni_cl_mem, clCreateBuffer, (tni_cl_context, uint64_t, size_t, void *, int32_t *))           \
    F(int32_t, clReleaseMemObject, (tni_cl_mem))                                                   \
    F(int32_t, clEnqueueReadBuffer, (tni_cl_command_queue, tni_cl_mem, uint32_t, size_t, size_t,   \
                                     void *, uint32_t, const tni_cl_event *, tni_cl_event *))      \
    F(int32_t, clEnqueueWriteBuffer, (tni_cl_command_queue, tni_cl_mem, uint32_t, size_t, size_t,  \
                                      const void *, uint32_t, const tni_cl_event *,                \
                                      tni_cl_event *))                                             \
    F(int32_t, clEnqueueMigrateMemObjects, (tni_cl_command_queue, uint32_t, const tni_cl_mem *,    \
                                            uint64_t, uint32_t, const tni_cl_event *,              \
                                            tni_cl_event *))                                       \
    F(void *, clEnqueueMapBuffer, (tni_cl_command_queue, tni_cl_mem, uint32_t, uint64_t, size_t,   \
                                   size_t, uint32_t, const tni_cl_event *, tni_cl_event *,         \
                                   int32_t *))                                                     \
    F(int32_t, clWaitForEvents, (uint32_t, const tni_cl_event *))                                  \
    F(int32_t, clReleaseEvent, (tni_cl_event))                                                     \
    F(tni_cl_program, clCreateProgramWithSource, (tni_cl_context, uint32_t, const char **,         \
                                                  const size_t *, int32_t *))                      \
    F(tni_cl_program, clCreateProgramWithBinary, (tni_cl_context, uint32_t,                        \
                                                  const tni_cl_device_id *, const size_t *,        \
                                                  const unsigned char **, int32_t *, int32_t *))   \
    F(int32_t, clBuildProgram, (tni_cl_program, uint32_t, const tni_cl_device_id *, const char *,  \
                                tni_cl_built *, void *))                                           \
    F(int32_t, clGetProgramInfo, (tni_cl_program, uint32_t, size_t, void *, size_t *))             \
    F(int32_t, clGetProgramBuildInfo, (tni_cl_program, tni_cl_device_id, uint32_t, size_t, void *, \
                                       size_t *))                                                  \
    F(int32_t, clReleaseProgram, (tni_cl_program))                                                 \
    F(tni_cl_kernel, clCreateKernel, (tni_cl_program, const char *, int32_t *))                    \
    F(int32_t, clReleaseKernel, (tni_cl_kernel))                                                   \
    F(int32_t, clSetKernelArg, (tni_cl_kernel, uint32_t, size_t, const void *))                    \
    F(int32_t, clEnqueueNDRangeKernel, (tni_cl_command_queue, tni_cl_kernel, uint32_t,             \
                                        const size_t *, const size_t *, const size_t *, uint32_t,  \
                                        const tni_cl_event *, tni_cl_event *))
// clang-format on

// The functions, found in the library by name; filled once, read-only from then on.
typedef struct {
#define F(result, name, args) result(*name) args;
    TNI_CL_FUNCTIONS(F)
#undef F
} tni_cl_api;

#endif
