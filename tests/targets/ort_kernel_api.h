/* The part of onnxruntime's stable C interface that a kernel needs, and no more.
 *
 * The members of OrtApi never change their places and OrtCustomOp only grows at its end, so numbers
 * of places and the layout of version 16 hold for every onnxruntime from 1.16 on. Whoever has
 * onnxruntime's own onnxruntime_c_api.h includes that instead.
 */
#ifndef ORT_KERNEL_API_H
#define ORT_KERNEL_API_H

#include <stddef.h>
#include <stdint.h>

#define KERNEL_API_VERSION 16

typedef struct OrtStatus OrtStatus; /* NULL is success */
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtValue OrtValue;
typedef struct OrtShape OrtShape; /* OrtTensorTypeAndShapeInfo */
typedef struct OrtDomain OrtDomain; /* OrtCustomOpDomain */
typedef struct OrtSessionOptions OrtSessionOptions;

typedef void (*OrtMember)(void);

typedef struct OrtApi {
  OrtMember members[164]; /* more follow */
} OrtApi;

typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1 };
enum { ORT_FLOAT = 1 };        /* ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT */
enum { ORT_REQUIRED = 0 };     /* INPUT_OUTPUT_REQUIRED */
enum { ORT_MEMORY_DEFAULT = 0 }; /* OrtMemTypeDefault */

typedef struct OrtCustomOp OrtCustomOp;
struct OrtCustomOp {
  uint32_t version;
  void *(*CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
  const char *(*GetName)(const OrtCustomOp *);
  const char *(*GetExecutionProviderType)(const OrtCustomOp *);
  int (*GetInputType)(const OrtCustomOp *, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp *);
  int (*GetOutputType)(const OrtCustomOp *, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp *);
  void (*KernelCompute)(void *, OrtKernelContext *);
  void (*KernelDestroy)(void *);
  int (*GetInputCharacteristic)(const OrtCustomOp *, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp *, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp *, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp *);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp *);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp *);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *);
  OrtStatus *(*CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **);
  OrtStatus *(*KernelComputeV2)(void *, OrtKernelContext *);
};

/* A member of OrtApi by its place, with its type. */
#define ORT_CREATE_STATUS(api) ((OrtStatus * (*)(int, const char *))(api)->members[0])
#define ORT_CREATE_DOMAIN(api) ((OrtStatus * (*)(const char *, OrtDomain **))(api)->members[26])
#define ORT_DOMAIN_ADD(api) ((OrtStatus * (*)(OrtDomain *, const OrtCustomOp *))(api)->members[27])
#define ORT_ADD_DOMAIN(api) \
  ((OrtStatus * (*)(OrtSessionOptions *, OrtDomain *))(api)->members[28])
#define ORT_TENSOR_DATA(api) ((OrtStatus * (*)(const OrtValue *, void **))(api)->members[51])
#define ORT_RANK(api) ((OrtStatus * (*)(const OrtShape *, size_t *))(api)->members[61])
#define ORT_DIMS(api) ((OrtStatus * (*)(const OrtShape *, int64_t *, size_t))(api)->members[62])
#define ORT_SHAPE(api) ((OrtStatus * (*)(const OrtValue *, OrtShape **))(api)->members[65])
#define ORT_ATTRIBUTE_INT(api) \
  ((OrtStatus * (*)(const OrtKernelInfo *, const char *, int64_t *))(api)->members[86])
#define ORT_INPUT(api) \
  ((OrtStatus * (*)(const OrtKernelContext *, size_t, const OrtValue **))(api)->members[90])
#define ORT_OUTPUT(api) \
  ((OrtStatus * (*)(OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **)) \
   (api)->members[91])
#define ORT_RELEASE_STATUS(api) ((void (*)(OrtStatus *))(api)->members[93])
#define ORT_RELEASE_SHAPE(api) ((void (*)(OrtShape *))(api)->members[99])
#define ORT_ATTRIBUTE_INTS(api) \
  ((OrtStatus * (*)(const OrtKernelInfo *, const char *, int64_t *, size_t *))(api)->members[163])

#endif
