#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "framework/base/status.h"

namespace holdfast {
namespace {

// Jordan 2024: singular values in (0, 1] go to about 1 in five iterations of a * s + b * s^3 + c * s^5.
constexpr int kIterations = 5;
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kNormFloor = 1e-7;
constexpr double kUpdateRms = 0.2;  // that of AdamW's updates (Liu et al. 2025, section 2.2)

constexpr int64_t kSumElements = 1 << 16;  // whose squares are one partial sum

int64_t NumSums(int64_t elements) { return (elements + kSumElements - 1) / kSumElements; }

/// 1 / (Frobenius norm + floor), the same for any device memory and threads. `sums`: NumSums(n) doubles.
absl::StatusOr<float> InverseNorm(Device& device, Stream& stream, const float* x, int64_t n, double* sums) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < n; i += kSumElements) offsets.push_back(i);
  std::vector<double> here(offsets.size());
  offsets.push_back(n);
  stream.ops().ChunkSumSquares(sums, x, offsets.data(), static_cast<int64_t>(here.size()));
  RETURN_IF_ERROR(stream.Synchronize());
  device.CopyToCpu(here.data(), sums, here.size() * sizeof(double));
  double square = 0;
  for (const double sum : here) square += sum;
  return static_cast<float>(1.0 / (std::sqrt(square) + kNormFloor));
}

kernels::Matrix MatrixOf(float* data, int64_t rows, int64_t cols) { return {data, DType::kF32, rows, cols, cols}; }

std::vector<int64_t> RowsOfMatrices(const ParameterSpec& parameter) {
  return parameter.fused.empty() ? std::vector{parameter.shape[0]} : parameter.fused;
}

int64_t WorkspaceOf(int64_t rows, int64_t cols) {
  const int64_t least = std::min(rows, cols);
  return 2 * NumSums(rows * cols) + 2 * least * least + rows * cols;
}

/// U of one matrix, in its place. `workspace`: WorkspaceOf it.
absl::Status MakeOne(Device& device, Stream& stream, float* matrix, int64_t rows, int64_t cols, float* workspace) {
  const int64_t n = rows * cols, least = std::min(rows, cols);
  const bool tall = rows > cols;
  float* const gram = workspace + 2 * NumSums(n);
  float* const polynomial = gram + least * least;
  float* const product = polynomial + least * least;
  const kernels::Matrix x = MatrixOf(matrix, rows, cols), xx = MatrixOf(gram, least, least),
                        p = MatrixOf(polynomial, least, least), px = MatrixOf(product, rows, cols);
  kernels::Ops& ops = stream.ops();
  ASSIGN_OR_RETURN(const float scale, InverseNorm(device, stream, matrix, n, reinterpret_cast<double*>(workspace)));
  const auto size = static_cast<float>(kUpdateRms * std::sqrt(static_cast<double>(std::max(rows, cols))));
  ops.Axpby(matrix, scale, matrix, 0.0f, matrix, n);
  for (int i = 0; i < kIterations; ++i) {  // X = a X + (b XX^T + c (XX^T)^2) X; of a tall X, with X^TX on its right
    ops.Gemm({.a = x, .transpose_a = tall, .b = x, .transpose_b = !tall, .c = xx});
    ops.Gemm({.a = xx, .b = xx, .c = p});
    ops.Axpby(polynomial, kC, polynomial, kB, gram, least * least);
    ops.Gemm({.a = tall ? x : p, .b = tall ? p : x, .c = px});
    const float last = i + 1 == kIterations ? size : 1.0f;
    ops.Axpby(matrix, last * kA, matrix, last, product, n);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Plane> Muon::PlanesOf(const ParameterSpec& parameter) const {
  if (!TakesWhole(parameter)) return adamw_.PlanesOf(parameter);
  return {{kWeightPlane}, {"momentum"}};
}

void Muon::Contribute(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars, float* out) const {
  const auto momentum = static_cast<float>(config_.momentum);
  ops.Axpby(out, momentum, range.planes[1], scalars.grad_scale, range.gradient, range.n);  // M'
  ops.Axpby(out, momentum, out, scalars.grad_scale, range.gradient, range.n);
}

int64_t Muon::WorkspaceElements(const ParameterSpec& parameter) const {
  int64_t elements = 0;
  for (const int64_t rows : RowsOfMatrices(parameter)) {
    elements = std::max(elements, WorkspaceOf(rows, parameter.shape[1]));
  }
  return elements;
}

absl::Status Muon::MakeUpdate(Device& device, Stream& stream, const ParameterSpec& parameter, float* matrix,
                              float* workspace) const {
  for (const int64_t rows : RowsOfMatrices(parameter)) {
    RETURN_IF_ERROR(MakeOne(device, stream, matrix, rows, parameter.shape[1], workspace));
    matrix += rows * parameter.shape[1];
  }
  return stream.Synchronize();
}

void Muon::Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                 uint16_t* weight_bf16) const {
  if (!TakesWhole(*range.parameter)) return adamw_.Apply(ops, range, scalars, weight_bf16);
  const auto momentum = static_cast<float>(config_.momentum);
  const float lr = scalars.LrOf(*range.parameter);
  const float decay = lr * DecayOf(config_, *range.parameter);
  ops.Axpby(range.planes[1], momentum, range.planes[1], scalars.grad_scale, range.gradient, range.n);
  ops.Axpby(range.planes[0], -lr, range.update, 1.0f - decay, range.planes[0], range.n);
  if (weight_bf16 != nullptr) ops.CastToBf16(weight_bf16, range.planes[0], range.n);
}

}  // namespace holdfast
