// A product of matrices or a convolution with what is done to its result, as one kernel of CUTLASS:
// last(binary(activation(image * filter + bias), residual)), by implicit GEMM. A product of matrices
// is a convolution whose window is one place: the image has one line, and its places are the rows.
//
// Images are NHWC, filters OHWI. The compiler is told DPL_ACTIVATION, DPL_BINARY and DPL_LAST, and
// DPL_HALF for float16 on tensor cores; else it is float32 on plain ones, as TF32 would be less exact.

#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "cutlass/conv/device/implicit_gemm_convolution.h"  // does not include what it needs
#include "cutlass/epilogue/thread/activation.h"
#include "cutlass/epilogue/thread/linear_combination_residual_block.h"

namespace {

using cutlass::gemm::GemmShape;
using Layout = cutlass::layout::TensorNHWC;

#ifdef DPL_HALF
using Element = cutlass::half_t;
using Cores = cutlass::arch::OpClassTensorOp;
using Block = GemmShape<128, 128, 32>;
using Warp = GemmShape<64, 64, 32>;
using Instruction = GemmShape<16, 8, 16>;
constexpr int kStages = 4;
constexpr int kAccess = 8;
#else
using Element = float;
using Cores = cutlass::arch::OpClassSimt;
using Block = GemmShape<128, 128, 8>;
using Warp = GemmShape<32, 64, 8>;
using Instruction = GemmShape<1, 1, 1>;
constexpr int kStages = 4;
constexpr int kAccess = 1;
#endif

using Epilogue = cutlass::epilogue::thread::LinearCombinationResidualBlock<
    Element, float, float, Element, kAccess, cutlass::epilogue::thread::DPL_ACTIVATION,
    cutlass::DPL_BINARY, cutlass::epilogue::thread::DPL_LAST>;

using Kernel = cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
    Element, Layout, Element, Layout, Element, Layout, float, Cores, cutlass::arch::Sm80, Block, Warp,
    Instruction, Epilogue, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, kStages,
    cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized,
    cutlass::conv::StrideSupport::kStrided, kAccess, kAccess>::Kernel;

using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;

}  // namespace

// Starts the kernel; all pointers but `sizes` are of the GPU.
//
// sizes: N, H, W and C of the image; K, R and S of the filter; P and Q of the result; padding,
// stride and dilation, each of height and width; and whether the residual is a row of K numbers.
// Returns a cutlass::Status: 0 if it was started.
extern "C" int dpl_product(void* image, void* filter, void* bias, void* residual, void* result,
                           const int* sizes, void* stream) {
  const auto [n, h, w, c] = reinterpret_cast<const int(&)[4]>(sizes[0]);
  const auto [k, r, s, p, q] = reinterpret_cast<const int(&)[5]>(sizes[4]);
  const cutlass::conv::Conv2dProblemSize problem(
      n, h, w, c, k, r, s, p, q, sizes[9], sizes[10], sizes[11], sizes[12], sizes[13], sizes[14],
      cutlass::conv::Mode::kCrossCorrelation);
  const Layout dense = Layout::packed({n, p, q, k});
  const Layout repeated{Layout::Stride()};
  const Convolution::Arguments arguments(
      problem, {static_cast<Element*>(image), Layout::packed({n, h, w, c})},
      {static_cast<Element*>(filter), Layout::packed({k, r, s, c})},
      {static_cast<Element*>(residual), sizes[15] ? repeated : dense},
      {static_cast<Element*>(result), dense}, {1.0f, 1.0f}, cutlass::conv::SplitKMode::kSerial, bias);
  Convolution convolution;
  const cutlass::Status status = convolution.can_implement(arguments);
  if (status != cutlass::Status::kSuccess) return static_cast<int>(status);
  return static_cast<int>(convolution(arguments, nullptr, static_cast<cudaStream_t>(stream)));
}
