/* A custom operator that does what its attribute asks for, as broken kernels do.
 *
 * harm.act <kind> (x) is float in, float out: 0 copies, and prints; most others never get there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ort_kernel_api.h"

enum { COPY, SEGFAULT, HANG, EXIT, ABORT, GREED, SEGFAULT_AT_CREATION, HANG_AT_CREATION,
       STARVE };
enum { RANK = 8 };
static const size_t GREEDY = (size_t)512 << 20;

struct kernel {
  const OrtApi *api;
  int64_t kind;
};

static void segfault(void) {
  volatile int *nowhere = NULL;
  *nowhere = 1;
}

static void hang(void) {
  puts("the kernel hangs"), fflush(stdout);
  for (;;) sleep(1);
}

static OrtStatus *create(
    const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **made) {
  struct kernel *self = calloc(1, sizeof *self);
  (void)op;
  if (self == NULL) return ORT_CREATE_STATUS(api)(ORT_FAIL, "out of memory");
  self->api = api;
  *made = self;
  OrtStatus *status = ORT_ATTRIBUTE_INT(api)(info, "kind", &self->kind);
  if (self->kind == SEGFAULT_AT_CREATION) segfault();
  if (self->kind == HANG_AT_CREATION) hang();
  return status;
}

static OrtStatus *harm(const OrtApi *api, int64_t kind) {
  char *memory;
  switch (kind) {
    case SEGFAULT: segfault(); break;
    case HANG: hang(); break;
    case EXIT: exit(3);
    case ABORT: abort();
    case STARVE: /* as glibc does if a thread gets no memory */
      fputs("cannot allocate memory for thread-local data: ABORT\n", stderr);
      _exit(127);
    case GREED:
      memory = malloc(GREEDY);
      if (memory == NULL) return ORT_CREATE_STATUS(api)(ORT_FAIL, "failed to allocate memory");
      memset(memory, 1, GREEDY);
      free(memory);
      break;
    default: puts("the kernel prints"), fflush(stdout);
  }
  return NULL;
}

static OrtStatus *compute(void *kernel, OrtKernelContext *context) {
  struct kernel *self = kernel;
  const OrtApi *api = self->api;
  const OrtValue *value = NULL;
  OrtValue *output = NULL;
  OrtShape *shape = NULL;
  int64_t dims[RANK];
  size_t rank = 0, size = sizeof(float);
  void *from = NULL, *to = NULL;
  OrtStatus *status = harm(api, self->kind);
  if (status == NULL) status = ORT_INPUT(api)(context, 0, &value);
  if (status == NULL) status = ORT_SHAPE(api)(value, &shape);
  if (status == NULL) status = ORT_RANK(api)(shape, &rank);
  if (status == NULL) status = ORT_DIMS(api)(shape, dims, rank);
  if (shape != NULL) ORT_RELEASE_SHAPE(api)(shape);
  if (status == NULL) status = ORT_OUTPUT(api)(context, 0, dims, rank, &output);
  if (status == NULL) status = ORT_TENSOR_DATA(api)(value, &from);
  if (status == NULL) status = ORT_TENSOR_DATA(api)(output, &to);
  if (status != NULL) return status;
  for (size_t axis = 0; axis < rank; axis++) size *= (size_t)dims[axis];
  memcpy(to, from, size);
  return NULL;
}

static const char *name(const OrtCustomOp *op) {
  (void)op;
  return "act";
}

static const char *any_provider(const OrtCustomOp *op) {
  (void)op;
  return NULL;
}

static int float_type(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_FLOAT;
}

static size_t one(const OrtCustomOp *op) {
  (void)op;
  return 1;
}

static int required(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_REQUIRED;
}

static int default_memory(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_MEMORY_DEFAULT;
}

static const OrtCustomOp ACT = {
    .version = KERNEL_API_VERSION,
    .GetName = name,
    .GetExecutionProviderType = any_provider,
    .GetInputType = float_type,
    .GetInputTypeCount = one,
    .GetOutputType = float_type,
    .GetOutputTypeCount = one,
    .KernelDestroy = free,
    .GetInputCharacteristic = required,
    .GetOutputCharacteristic = required,
    .GetInputMemoryType = default_memory,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
};

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(KERNEL_API_VERSION);
  OrtDomain *domain = NULL; /* must outlive the session; a library has it for good */
#ifdef HARM_WHEN_LOADED
  segfault();
#endif
  OrtStatus *status = ORT_CREATE_DOMAIN(api)("harm", &domain);
  if (status == NULL) status = ORT_DOMAIN_ADD(api)(domain, &ACT);
  if (status == NULL) status = ORT_ADD_DOMAIN(api)(options, domain);
  return status;
}
