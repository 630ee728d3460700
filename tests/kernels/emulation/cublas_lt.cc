#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/kernels/emulation/cublasLt.h"

namespace holdfast::emulation {
namespace {

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "cuBLASLt emulation: %s\n", what);
  std::abort();
}

double Load(const void* data, int32_t type, int64_t at) {
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(data)[at]);
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[at]} << 16;
  return static_cast<double>(__uint_as_float(bits));
}

void Store(void* data, int32_t type, int64_t at, double x) {
  const auto value = static_cast<float>(x);
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  uint32_t bits = __float_as_uint(value);
  bits = std::isnan(value) ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(bits >> 16);
}

/// op(M) as rows of doubles, or of its transpose.
std::vector<double> Rows(const void* data, const cublasLtMatrixLayoutOpaque_t& m, bool by_columns) {
  std::vector<double> values(static_cast<size_t>(m.rows * m.cols));
  for (int64_t col = 0; col < m.cols; ++col) {
    for (int64_t row = 0; row < m.rows; ++row) {
      const int64_t at = by_columns ? col * m.rows + row : row * m.cols + col;
      values[static_cast<size_t>(at)] = Load(data, m.type, col * m.ld + row);
    }
  }
  return values;
}

constexpr double kSlope = 0.7978845608028654, kCubic = 0.044715;  // tanh form (Hendrycks & Gimpel 2016)

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(kSlope * (x + kCubic * x * x * x))); }
double GeluDerivative(double x) {
  const double t = std::tanh(kSlope * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSlope * (1 + 3 * kCubic * x * x);
}

bool HasAux(uint32_t epilogue) { return (epilogue & 128u) != 0; }
bool HasVector(uint32_t epilogue) { return (epilogue & (4u | 512u)) != 0; }

/// What the documentation's tables of types and alignments exclude.
bool IsSupported(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                 const cublasLtMatrixLayoutOpaque_t& d) {
  if (a.type == CUDA_R_32F && d.type == CUDA_R_16BF) return false;
  if (HasAux(desc.epilogue) && (desc.aux_ld % 8 != 0 || reinterpret_cast<uintptr_t>(desc.aux) % 16 != 0)) return false;
  return !HasVector(desc.epilogue) || desc.vector_type == d.type;
}

void CheckShapes(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                 const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& d) {
  const int64_t m = desc.transpose_a ? a.cols : a.rows, k = desc.transpose_a ? a.rows : a.cols;
  Demand(m == d.rows, "op(A) and D have different numbers of rows");
  Demand((desc.transpose_b ? b.rows : b.cols) == d.cols, "op(B) and D have different numbers of columns");
  Demand((desc.transpose_b ? b.cols : b.rows) == k, "op(A) and op(B) do not fit");
  Demand(a.type == b.type, "A and B have different types");
  Demand(a.ld >= a.rows && b.ld >= b.rows && d.ld >= d.rows, "a leading dimension is too small");
  if (HasAux(desc.epilogue)) {
    Demand(desc.aux != nullptr && desc.aux_ld >= d.rows, "an epilogue lacks its auxiliary matrix");
    Demand(desc.aux_type == d.type, "the auxiliary matrix has another type than D");
  }
  Demand(!HasVector(desc.epilogue) || desc.vector != nullptr, "an epilogue lacks its vector");
}

constexpr uint64_t kAlgorithms[] = {kPreferred, kUnordered, kFastest, kLarge};
size_t WorkspaceOf(uint64_t algorithm) { return algorithm == kLarge ? size_t{1} << 30 : 0; }
double MillisecondsOf(uint64_t algorithm) {
  if (algorithm == kPreferred) return 10;
  return algorithm == kFastest ? 8 : 5;  // what may not be taken would be faster still
}

/// One element of D after its sum.
double Finish(const cublasLtMatmulDescOpaque_t& desc, double x, int64_t row, int64_t col) {
  const int64_t at = col * desc.aux_ld + row;
  if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) x += Load(desc.vector, desc.vector_type, row);
  if (desc.epilogue == CUBLASLT_EPILOGUE_DGELU) return x * GeluDerivative(Load(desc.aux, desc.aux_type, at));
  if ((desc.epilogue & CUBLASLT_EPILOGUE_GELU) == 0) return x;
  if (HasAux(desc.epilogue)) Store(desc.aux, desc.aux_type, at, x);
  return Gelu(x);
}

}  // namespace

CublasLt& Library() {
  thread_local CublasLt library;
  return library;
}

}  // namespace holdfast::emulation

using holdfast::emulation::Demand;  // NOLINT: the functions below are the library's
using holdfast::emulation::Library;

struct cublasLtContext {};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "emulated";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const auto take = [&](auto& to) {
    Demand(bytes == sizeof(to), "an attribute of another size");
    std::memcpy(&to, value, bytes);
  };
  int32_t operation = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      take(operation);
      desc->transpose_a = operation == CUBLAS_OP_T;
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      take(operation);
      desc->transpose_b = operation == CUBLAS_OP_T;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      take(desc->epilogue);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      take(desc->vector);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      take(desc->vector_type);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      take(desc->aux);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      take(desc->aux_ld);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      take(desc->aux_type);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    Demand(bytes == sizeof(uint64_t), "an attribute of another size");
    std::memcpy(&preference->workspace_bytes, value, bytes);
  } else {
    Demand(bytes == sizeof(uint32_t), "an attribute of another size");
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
      std::memcpy(&preference->reduction_schemes, value, bytes);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  holdfast::emulation::CheckShapes(*desc, *a, *b, *d);
  if (!holdfast::emulation::IsSupported(*desc, *a, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // All of them, also those that the preference excludes: who asks has to look.
  for (const uint64_t algorithm : holdfast::emulation::kAlgorithms) {
    if (*found == wanted) break;
    results[(*found)++] = {{{algorithm}}, holdfast::emulation::WorkspaceOf(algorithm), CUBLAS_STATUS_SUCCESS};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  for (const uint64_t known : holdfast::emulation::kAlgorithms) {
    if (algorithm->data[0] != known || !holdfast::emulation::IsSupported(*desc, *a, *d)) continue;
    *result = {*algorithm, holdfast::emulation::WorkspaceOf(known), CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void* value, size_t bytes,
                                                    size_t* written) {
  const uint32_t scheme = algorithm->data[0] == holdfast::emulation::kUnordered
                              ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                              : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  Demand(bytes == sizeof(scheme), "an attribute of another size");
  std::memcpy(value, &scheme, sizeof(scheme));
  *written = sizeof(scheme);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*,
                              size_t workspace_bytes, cudaStream_t) {
  using namespace holdfast::emulation;  // NOLINT: most of what it consists of
  CheckShapes(*desc, *a_layout, *b_layout, *d_layout);
  if (!IsSupported(*desc, *a_layout, *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Demand(WorkspaceOf(algorithm->data[0]) <= workspace_bytes, "an algorithm lacks its working memory");
  const bool plain = (desc->epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_DEFAULT}) == 0;
  GpuTime().now_ms += MillisecondsOf(algorithm->data[0]) + (plain ? 0 : Library().epilogue_ms);
  Library().calls.push_back({algorithm->data[0], desc->epilogue});

  // Both as rows of k values.
  const std::vector<double> left = Rows(a, *a_layout, desc->transpose_a);
  const std::vector<double> right = Rows(b, *b_layout, !desc->transpose_b);
  const int64_t m = d_layout->rows, n = d_layout->cols, k = desc->transpose_a ? a_layout->rows : a_layout->cols;
  const auto factor = static_cast<double>(*static_cast<const float*>(alpha));
  const auto kept = static_cast<double>(*static_cast<const float*>(beta));
  for (int64_t col = 0; col < n; ++col) {
    const double* y = right.data() + col * k;
    for (int64_t row = 0; row < m; ++row) {
      const double* x = left.data() + row * k;
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += x[i] * y[i];
      sum *= factor;
      if (kept != 0) sum += kept * Load(c, c_layout->type, col * c_layout->ld + row);
      Store(d, d_layout->type, col * d_layout->ld + row, Finish(*desc, sum, row, col));
    }
    if (desc->epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += y[i];
    Store(desc->vector, desc->vector_type, col, sum);
  }
  return CUBLAS_STATUS_SUCCESS;
}
