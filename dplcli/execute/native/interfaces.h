// What is used here of the C interfaces of onnxruntime and of oneDNN: neither has to be installed to
// compile, and nothing is linked with them.
//
// Members of onnxruntime's OrtApi keep their places, and OrtCustomOp only grows at its end, so places
// and the layout of version 16 hold for onnxruntime 1.16 and all later ones (onnxruntime_c_api.h). The
// numbers and structures of oneDNN's Graph API are those of dnnl_graph_types.h, from version 3.2 on.
#pragma once

#include <cstddef>
#include <cstdint>

// -- onnxruntime --------------------------------------------------------------------------------------

struct OrtStatus;  // null is success
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;
struct OrtCustomOpDomain;
struct OrtSessionOptions;
struct OrtMemoryInfo;
struct OrtAllocator;

constexpr uint32_t kOrtVersion = 16;
constexpr int kOrtFail = 1;
constexpr int kArenaAllocator = 1, kDefaultMemory = 0;  // OrtAllocatorType, OrtMemType

struct OrtApi {
  void (*members[254])();  // more follow
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
};

// A member of OrtApi, by its place, with its type.
#define ORT_MEMBER(name, place, result, ...)                                  \
  inline auto name(const OrtApi* api) {                                       \
    return reinterpret_cast<result (*)(__VA_ARGS__)>(api->members[place]);    \
  }

namespace ort {
ORT_MEMBER(CreateStatus, 0, OrtStatus*, int, const char*)
ORT_MEMBER(GetErrorMessage, 2, const char*, const OrtStatus*)
ORT_MEMBER(CreateCustomOpDomain, 26, OrtStatus*, const char*, OrtCustomOpDomain**)
ORT_MEMBER(CustomOpDomain_Add, 27, OrtStatus*, OrtCustomOpDomain*, const OrtCustomOp*)
ORT_MEMBER(AddCustomOpDomain, 28, OrtStatus*, OrtSessionOptions*, OrtCustomOpDomain*)
ORT_MEMBER(GetTensorMutableData, 51, OrtStatus*, OrtValue*, void**)
ORT_MEMBER(GetDimensionsCount, 61, OrtStatus*, const OrtTensorTypeAndShapeInfo*, size_t*)
ORT_MEMBER(GetDimensions, 62, OrtStatus*, const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)
ORT_MEMBER(GetTensorTypeAndShape, 65, OrtStatus*, const OrtValue*, OrtTensorTypeAndShapeInfo**)
ORT_MEMBER(CreateCpuMemoryInfo, 69, OrtStatus*, int, int, OrtMemoryInfo**)
ORT_MEMBER(AllocatorAlloc, 75, OrtStatus*, OrtAllocator*, size_t, void**)
ORT_MEMBER(AllocatorFree, 76, OrtStatus*, OrtAllocator*, void*)
ORT_MEMBER(KernelInfoGetAttribute_float, 85, OrtStatus*, const OrtKernelInfo*, const char*, float*)
ORT_MEMBER(KernelInfoGetAttribute_int64, 86, OrtStatus*, const OrtKernelInfo*, const char*, int64_t*)
ORT_MEMBER(KernelInfoGetAttribute_string, 87, OrtStatus*, const OrtKernelInfo*, const char*, char*,
           size_t*)
ORT_MEMBER(KernelContext_GetInput, 90, OrtStatus*, const OrtKernelContext*, size_t, const OrtValue**)
ORT_MEMBER(KernelContext_GetOutput, 91, OrtStatus*, OrtKernelContext*, size_t, const int64_t*, size_t,
           OrtValue**)
ORT_MEMBER(ReleaseStatus, 93, void, OrtStatus*)
ORT_MEMBER(ReleaseMemoryInfo, 94, void, OrtMemoryInfo*)
ORT_MEMBER(ReleaseTensorTypeAndShapeInfo, 99, void, OrtTensorTypeAndShapeInfo*)
ORT_MEMBER(ReleaseAllocator, 132, void, OrtAllocator*)
ORT_MEMBER(KernelInfoGetAttributeArray_float, 162, OrtStatus*, const OrtKernelInfo*, const char*,
           float*, size_t*)
ORT_MEMBER(KernelInfoGetAttributeArray_int64, 163, OrtStatus*, const OrtKernelInfo*, const char*,
           int64_t*, size_t*)
ORT_MEMBER(HasSessionConfigEntry, 237, OrtStatus*, const OrtSessionOptions*, const char*, int*)
ORT_MEMBER(GetSessionConfigEntry, 238, OrtStatus*, const OrtSessionOptions*, const char*, char*,
           size_t*)
ORT_MEMBER(KernelInfo_GetNodeName, 244, OrtStatus*, const OrtKernelInfo*, char*, size_t*)
ORT_MEMBER(KernelInfoGetConstantInput_tensor, 249, OrtStatus*, const OrtKernelInfo*, size_t, int*,
           const OrtValue**)
ORT_MEMBER(KernelContext_GetAllocator, 253, OrtStatus*, const OrtKernelContext*, const OrtMemoryInfo*,
           OrtAllocator**)
}  // namespace ort

// -- oneDNN -------------------------------------------------------------------------------------------

constexpr int kMostDims = 12;
constexpr size_t kAligned = 64;  // bytes, as onnxruntime aligns what it gives
constexpr int kCpu = 1;
constexpr int kInOrder = 1;
constexpr int kUnknownRank = -1;
constexpr int kAnyLayout = 1, kStrided = 2;
constexpr int kVarying = 1, kConstant = 2;
constexpr int kFusion = 1;
constexpr int kFloat32 = 3;
constexpr int kConvolution = 13, kConvTranspose = 16, kEnd = 25, kMatmul = 39;
constexpr int kGroups = 0x32, kDilations = 0x41, kPadsBegin = 0x46, kPadsEnd = 0x47, kStrides = 0x4B;
constexpr int kTransposeA = 0x65, kTransposeB = 0x66, kDataFormat = 0x83, kWeightsFormat = 0x87;
constexpr int kX86 = 0x1, kAvx2 = 0x4, kAvx512 = 0x20, kVnni = 0x8 | 0x40,
              kAmx = 0x200;  // bits of dnnl_cpu_isa_t

struct LogicalTensor {  // dnnl_graph_logical_tensor_t
  size_t id;
  int ndims;
  int64_t dims[kMostDims];
  int data_type;
  int property;
  int layout_type;
  union {
    int64_t strides[kMostDims];
    size_t layout_id;
  } layout;
};

struct InplacePair {  // dnnl_graph_inplace_pair_t
  size_t input_id, output_id;
};

struct DnnlVersion {  // dnnl_version_t
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

// Functions: name, parameters. All return a status, 0 for success.
#define DNNL_FUNCTIONS(X)                                                                              \
  X(dnnl_engine_create, (void** engine, int kind, size_t index))                                       \
  X(dnnl_engine_destroy, (void* engine))                                                               \
  X(dnnl_stream_create, (void** stream, void* engine, unsigned flags))                                 \
  X(dnnl_stream_wait, (void* stream))                                                                  \
  X(dnnl_stream_destroy, (void* stream))                                                               \
  X(dnnl_graph_get_constant_tensor_cache, (int* flag))                                                 \
  X(dnnl_graph_set_compiled_partition_cache_capacity, (int capacity))                                  \
  X(dnnl_graph_set_constant_tensor_cache, (int flag))                                                  \
  X(dnnl_graph_logical_tensor_init,                                                                    \
    (LogicalTensor * made, size_t id, int dtype, int rank, int layout, int property))                  \
  X(dnnl_graph_logical_tensor_init_with_strides,                                                       \
    (LogicalTensor * made, size_t id, int dtype, int rank, const int64_t* dims, const int64_t* strides, \
     int property))                                                                                    \
  X(dnnl_graph_logical_tensor_get_mem_size, (const LogicalTensor* tensor, size_t* size))               \
  X(dnnl_graph_graph_create_with_fpmath_mode, (void** graph, int engine_kind, int mode))               \
  X(dnnl_graph_graph_destroy, (void* graph))                                                           \
  X(dnnl_graph_graph_finalize, (void* graph))                                                          \
  X(dnnl_graph_graph_filter, (void* graph, int policy))                                                \
  X(dnnl_graph_graph_get_partition_num, (void* graph, size_t* count))                                  \
  X(dnnl_graph_graph_get_partitions, (void* graph, size_t count, void** partitions))                   \
  X(dnnl_graph_op_create, (void** op, size_t id, int kind, const char* name))                          \
  X(dnnl_graph_op_destroy, (void* op))                                                                 \
  X(dnnl_graph_op_set_attr_bool, (void* op, int name, const uint8_t* values, size_t count))            \
  X(dnnl_graph_op_set_attr_str, (void* op, int name, const char* text, size_t length))                 \
  X(dnnl_graph_op_set_attr_f32, (void* op, int name, const float* values, size_t count))               \
  X(dnnl_graph_op_set_attr_s64, (void* op, int name, const int64_t* values, size_t count))             \
  X(dnnl_graph_op_add_input, (void* op, const LogicalTensor* tensor))                                  \
  X(dnnl_graph_op_add_output, (void* op, const LogicalTensor* tensor))                                 \
  X(dnnl_graph_add_op, (void* graph, void* op))                                                        \
  X(dnnl_graph_partition_destroy, (void* partition))                                                   \
  X(dnnl_graph_partition_is_supported, (void* partition, uint8_t* answer))                             \
  X(dnnl_graph_partition_get_op_num, (void* partition, size_t* count))                                 \
  X(dnnl_graph_partition_get_ops, (void* partition, size_t count, size_t* ops))                        \
  X(dnnl_graph_partition_get_input_ports_num, (void* partition, size_t* count))                        \
  X(dnnl_graph_partition_get_input_ports, (void* partition, size_t count, LogicalTensor* ports))       \
  X(dnnl_graph_partition_get_output_ports_num, (void* partition, size_t* count))                       \
  X(dnnl_graph_partition_get_output_ports, (void* partition, size_t count, LogicalTensor* ports))      \
  X(dnnl_graph_compiled_partition_create, (void** compiled, void* partition))                          \
  X(dnnl_graph_compiled_partition_destroy, (void* compiled))                                           \
  X(dnnl_graph_partition_compile,                                                                      \
    (void* partition, void* compiled, size_t in, const LogicalTensor** inputs, size_t out,             \
     const LogicalTensor** outputs, void* engine))                                                     \
  X(dnnl_graph_compiled_partition_query_logical_tensor,                                                \
    (void* compiled, size_t id, LogicalTensor* found))                                                 \
  X(dnnl_graph_compiled_partition_get_inplace_ports,                                                   \
    (void* compiled, size_t* count, const InplacePair** pairs))                                        \
  X(dnnl_graph_compiled_partition_execute,                                                             \
    (void* compiled, void* stream, size_t in, const void** inputs, size_t out, const void** outputs))  \
  X(dnnl_graph_tensor_create,                                                                          \
    (void** tensor, const LogicalTensor* described, void* engine, void* data))                         \
  X(dnnl_graph_tensor_destroy, (void* tensor))                                                         \
  X(dnnl_graph_tensor_set_data_handle, (void* tensor, void* data))
