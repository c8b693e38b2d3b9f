/* A kernel for dnnl::conv2d_bias_relu, as an example: plain loops, float32, one group.
 *
 * The first half is what a kernel author writes against the header that
 *
 *     dpl inspect partitioned.onnx --c-header kernels.h
 *
 * makes. The second half registers it with onnxruntime as a custom operator of the same domain and
 * name, which onnxruntime then runs instead of the function's body.
 *
 * With -DPLANTED_ERROR the kernel forgets the ReLU. Each call adds a byte to the file that the
 * environment variable KERNEL_CALLS names.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"
#include "ort_kernel_api.h"

static int64_t at(const int64_t *dims, int64_t i, int64_t j, int64_t k, int64_t l) {
  return ((i * dims[1] + j) * dims[2] + k) * dims[3] + l;
}

int dpl_dnnl_conv2d_bias_relu(
    const struct dpl_dnnl_conv2d_bias_relu_attributes *attributes,
    const struct dpl_tensor *const *inputs,
    struct dpl_tensor *const *outputs) {
  const struct dpl_tensor *x = inputs[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_X];
  const struct dpl_tensor *w = inputs[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_W];
  const struct dpl_tensor *b = inputs[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_B];
  const struct dpl_tensor *y = outputs[0];
  const float *image = x->data, *filter = w->data, *bias = b->data;
  const int64_t *step = attributes->strides.data, *pad = attributes->pads.data;
  const int64_t *gap = attributes->dilations.data;
  float *result = y->data;
  for (int64_t n = 0; n < y->dims[0]; n++)
    for (int64_t m = 0; m < y->dims[1]; m++)
      for (int64_t row = 0; row < y->dims[2]; row++)
        for (int64_t column = 0; column < y->dims[3]; column++) {
          float sum = bias[m];
          for (int64_t c = 0; c < w->dims[1]; c++)
            for (int64_t i = 0; i < w->dims[2]; i++)
              for (int64_t j = 0; j < w->dims[3]; j++) {
                int64_t h = row * step[0] - pad[0] + i * gap[0];
                int64_t v = column * step[1] - pad[1] + j * gap[1];
                if (h < 0 || v < 0 || h >= x->dims[2] || v >= x->dims[3]) continue;
                sum += image[at(x->dims, n, c, h, v)] * filter[at(w->dims, m, c, i, j)];
              }
#ifndef PLANTED_ERROR
          if (sum < 0) sum = 0;
#endif
          result[at(y->dims, n, m, row, column)] = sum;
        }
  return 0;
}

/* -- onnxruntime ------------------------------------------------------------------------------- */

enum { RANK = 4, SIDES = 4, AXES = 2 };

struct kernel {
  const OrtApi *api;
  int64_t strides[AXES], pads[SIDES], dilations[AXES];
};

/* What the call does not give has its default: the caller fills it in before. */
static void read_ints(
    const struct kernel *self, const OrtKernelInfo *info, const char *name, int64_t *to, size_t n) {
  size_t size = n;
  OrtStatus *status = ORT_ATTRIBUTE_INTS(self->api)(info, name, to, &size);
  if (status != NULL) ORT_RELEASE_STATUS(self->api)(status);
}

static OrtStatus *create(
    const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **made) {
  struct kernel *self = calloc(1, sizeof *self);
  (void)op;
  if (self == NULL) return ORT_CREATE_STATUS(api)(ORT_FAIL, "out of memory");
  self->api = api;
  for (int axis = 0; axis < AXES; axis++) self->strides[axis] = self->dilations[axis] = 1;
  read_ints(self, info, DPL_DNNL_CONV2D_BIAS_RELU_ATTRIBUTE_STRIDES, self->strides, AXES);
  read_ints(self, info, DPL_DNNL_CONV2D_BIAS_RELU_ATTRIBUTE_PADS, self->pads, SIDES);
  read_ints(self, info, DPL_DNNL_CONV2D_BIAS_RELU_ATTRIBUTE_DILATIONS, self->dilations, AXES);
  *made = self;
  return NULL;
}

static OrtStatus *read_tensor(
    const OrtApi *api, const OrtValue *value, struct dpl_tensor *to, int64_t *dims) {
  OrtShape *shape = NULL;
  OrtStatus *status = ORT_SHAPE(api)(value, &shape);
  to->dtype = DPL_FLOAT32;
  to->dims = dims;
  if (status == NULL) status = ORT_RANK(api)(shape, &to->rank);
  if (status == NULL && to->rank > RANK) {
    status = ORT_CREATE_STATUS(api)(ORT_FAIL, "a tensor of rank 4 or less is wanted");
  }
  if (status == NULL) status = ORT_DIMS(api)(shape, dims, to->rank);
  if (shape != NULL) ORT_RELEASE_SHAPE(api)(shape);
  if (status == NULL) status = ORT_TENSOR_DATA(api)(value, &to->data);
  return status;
}

static void note_call(void) {
  const char *path = getenv("KERNEL_CALLS");
  FILE *file = path == NULL ? NULL : fopen(path, "ab");
  if (file == NULL) return;
  fputc('.', file);
  fclose(file);
}

static OrtStatus *compute(void *kernel, OrtKernelContext *context) {
  struct kernel *self = kernel;
  const OrtApi *api = self->api;
  int64_t dims[DPL_DNNL_CONV2D_BIAS_RELU_INPUTS][RANK], made[RANK];
  struct dpl_tensor read[DPL_DNNL_CONV2D_BIAS_RELU_INPUTS], result;
  const struct dpl_tensor *inputs[DPL_DNNL_CONV2D_BIAS_RELU_INPUTS];
  struct dpl_tensor *outputs[] = {&result};
  struct dpl_dnnl_conv2d_bias_relu_attributes attributes = {0};
  const OrtValue *value = NULL;
  OrtValue *output = NULL;
  OrtStatus *status;
  for (size_t slot = 0; slot < DPL_DNNL_CONV2D_BIAS_RELU_INPUTS; slot++) {
    status = ORT_INPUT(api)(context, slot, &value);
    if (status == NULL) status = read_tensor(api, value, &read[slot], dims[slot]);
    if (status != NULL) return status;
    inputs[slot] = &read[slot];
  }
  made[0] = dims[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_X][0];
  made[1] = dims[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_W][0];
  for (int axis = 0; axis < AXES; axis++) {
    int64_t size = dims[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_X][2 + axis];
    int64_t window = dims[DPL_DNNL_CONV2D_BIAS_RELU_INPUT_W][2 + axis];
    size += self->pads[axis] + self->pads[AXES + axis];
    made[2 + axis] = (size - self->dilations[axis] * (window - 1) - 1) / self->strides[axis] + 1;
  }
  status = ORT_OUTPUT(api)(context, 0, made, RANK, &output);
  if (status == NULL) status = read_tensor(api, output, &result, made);
  if (status != NULL) return status;
  attributes.strides = (struct dpl_ints){self->strides, AXES};
  attributes.pads = (struct dpl_ints){self->pads, SIDES};
  attributes.dilations = (struct dpl_ints){self->dilations, AXES};
  note_call();
  if (dpl_dnnl_conv2d_bias_relu(&attributes, inputs, outputs) != 0) {
    return ORT_CREATE_STATUS(api)(ORT_FAIL, "the kernel failed");
  }
  return NULL;
}

static const char *name(const OrtCustomOp *op) {
  (void)op;
  return DPL_DNNL_CONV2D_BIAS_RELU_NAME;
}

static const char *any_provider(const OrtCustomOp *op) {
  (void)op;
  return NULL;
}

static int float_type(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_FLOAT;
}

static size_t input_count(const OrtCustomOp *op) {
  (void)op;
  return DPL_DNNL_CONV2D_BIAS_RELU_INPUTS;
}

static size_t output_count(const OrtCustomOp *op) {
  (void)op;
  return DPL_DNNL_CONV2D_BIAS_RELU_OUTPUTS;
}

static int required(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_REQUIRED;
}

static int default_memory(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ORT_MEMORY_DEFAULT;
}

static const OrtCustomOp CONV2D_BIAS_RELU = {
    .version = KERNEL_API_VERSION,
    .GetName = name,
    .GetExecutionProviderType = any_provider,
    .GetInputType = float_type,
    .GetInputTypeCount = input_count,
    .GetOutputType = float_type,
    .GetOutputTypeCount = output_count,
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
  OrtStatus *status = ORT_CREATE_DOMAIN(api)(DPL_DNNL_CONV2D_BIAS_RELU_DOMAIN, &domain);
  if (status == NULL) status = ORT_DOMAIN_ADD(api)(domain, &CONV2D_BIAS_RELU);
  if (status == NULL) status = ORT_ADD_DOMAIN(api)(options, domain);
  return status;
}
