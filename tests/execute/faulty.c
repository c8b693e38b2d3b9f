/* A oneDNN with a fault: all functions but one are those of the library that this one is linked with.
 *
 * FAULT says which: 1 crashes when something runs, 2 crashes when a graph is looked at, 3 takes every
 * Relu for a Sigmoid, 4 takes every padding for none at the beginning and more at the end, 5 leaves every
 * Relu out, 6 gives every second partition that runs the weights of the one before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if FAULT == 1
int dnnl_graph_compiled_partition_execute(void) { abort(); }
#elif FAULT == 2
int dnnl_graph_graph_filter(void) { *(volatile int *)NULL = 0; return 0; }
#elif FAULT == 3
enum { RELU = 58, SIGMOID = 62 };
int dnnl_graph_op_create(void **op, size_t id, int kind, const char *name) {
  int (*real)(void **, size_t, int, const char *) = dlsym(RTLD_NEXT, "dnnl_graph_op_create");
  return real(op, id, kind == RELU ? SIGMOID : kind, name);
}
#elif FAULT == 5
enum { RELU = 58, LEAKY_RELU = 35, ALPHA = 1 };
int dnnl_graph_op_create(void **op, size_t id, int kind, const char *name) {
  int (*create)(void **, size_t, int, const char *) = dlsym(RTLD_NEXT, "dnnl_graph_op_create");
  int (*set)(void *, int, const float *, size_t) = dlsym(RTLD_NEXT, "dnnl_graph_op_set_attr_f32");
  const float same = 1;
  if (kind != RELU) return create(op, id, kind, name);
  int status = create(op, id, LEAKY_RELU, name);
  return status ? status : set(*op, ALPHA, &same, 1);
}
#elif FAULT == 6
int dnnl_graph_compiled_partition_execute(void *code, void *stream, size_t in, void **inputs, size_t out,
                                          void **outputs) {
  int (*real)(void *, void *, size_t, void **, size_t, void **) =
      dlsym(RTLD_NEXT, "dnnl_graph_compiled_partition_execute");
  static void *first;
  static int count;
  void *given[8];
  for (size_t at = 0; at < in && at < 8; ++at) given[at] = inputs[at];
  if (count++ % 2 == 0) first = given[1];
  given[1] = first;
  return real(code, stream, in, given, out, outputs);
}
#else
enum { PADS_BEGIN = 0x46, PADS_END = 0x47 };
int dnnl_graph_op_set_attr_s64(void *op, int name, const int64_t *values, size_t count) {
  int (*real)(void *, int, const int64_t *, size_t) = dlsym(RTLD_NEXT, "dnnl_graph_op_set_attr_s64");
  int64_t changed[8];
  for (size_t at = 0; at < count && at < 8; ++at) {
    changed[at] = name == PADS_BEGIN ? 0 : name == PADS_END ? 2 * values[at] : values[at];
  }
  return real(op, name, changed, count);
}
#endif
