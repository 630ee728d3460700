#include <algorithm>
#include <sstream>

#include "kernels/cuda/gemm_plan.h"

namespace holdfast::kernels {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmAlgorithm));

constexpr int kMaxProposals = 128;

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }
const char* NameOf(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "f32"; }

/// For questions that look at nothing but a pointer's alignment.
void* AnyAddress(int alignment) { return reinterpret_cast<void*>(static_cast<uintptr_t>(alignment)); }

cublasLtEpilogue_t EpilogueOf(const GemmShape& shape) {
  if (shape.gelu_input) return CUBLASLT_EPILOGUE_DGELU;
  if (shape.a_sums) return CUBLASLT_EPILOGUE_BGRADB;  // our A is its B
  if (shape.gelu && shape.pre_gelu) return shape.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (shape.gelu) return shape.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Parts of a long sum may be kept in fp32 and added by a kernel of their own, but neither in the order in which they
/// are done nor in the output's type.
bool HasFixedOrder(const cublasLtMatmulAlgo_t& algorithm) {
  uint32_t scheme = 0;
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                     &scheme, sizeof(scheme), &written);
  return status == CUBLAS_STATUS_SUCCESS &&
         (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

}  // namespace

std::string GemmShape::Name() const {
  std::ostringstream name;
  name << 'm' << m << "_n" << n << "_k" << k << '_' << (transpose_a ? 't' : 'n') << (transpose_b ? 't' : 'n') << '_'
       << NameOf(in) << '_' << NameOf(out);
  if (accumulate) name << "_accumulate";
  if (bias) name << "_bias" << vector_alignment;
  if (gelu) name << "_gelu";
  if (pre_gelu) name << "_pre" << aux_stride << 'x' << aux_alignment;
  if (gelu_input) name << "_dgelu" << aux_stride << 'x' << aux_alignment;
  if (a_sums) name << "_sums" << vector_alignment;
  name << "_a" << a_stride << 'x' << a_alignment << "_b" << b_stride << 'x' << b_alignment << "_c" << c_stride << 'x'
       << c_alignment;
  return name.str();
}

int GemmAlignmentOf(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  int alignment = 16;
  while (at % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

GemmPlan::GemmPlan(const GemmShape& shape) : shape_(shape) {
  cublasLtMatmulDesc_t product = nullptr;
  Check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  product_.reset(product);
  if (product == nullptr) return;
  Set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  DescribeEpilogue();
  const auto layout_of = [&](int64_t rows, int64_t cols, bool transposed, int64_t stride) {
    return MakeLayout(shape.in, transposed ? cols : rows, transposed ? rows : cols, stride);
  };
  a_ = layout_of(shape.k, shape.n, shape.transpose_b, shape.b_stride);
  b_ = layout_of(shape.m, shape.k, shape.transpose_a, shape.a_stride);
  c_ = MakeLayout(shape.out, shape.m, shape.n, shape.c_stride);
}

void GemmPlan::Check(cublasStatus_t status) {
  if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
}

template <typename T>
void GemmPlan::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(product_.get(), attribute, &value, sizeof(value)));
}

/// Of a row-major matrix.
GemmPlan::Layout GemmPlan::MakeLayout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  Check(cublasLtMatrixLayoutCreate(&layout, TypeOf(dtype), static_cast<uint64_t>(cols), static_cast<uint64_t>(rows),
                                   stride));
  return Layout(layout);
}

void GemmPlan::DescribeEpilogue() {
  Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(shape_));
  const auto type = static_cast<int32_t>(TypeOf(shape_.out));
  if (shape_.has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  if (shape_.has_aux()) {
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.aux_stride);
  }
  SetPointers(AnyAddress(shape_.vector_alignment), AnyAddress(shape_.aux_alignment));
}

void GemmPlan::SetPointers(const void* vector, const void* aux) {
  if (shape_.has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (shape_.has_aux()) Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

std::vector<GemmAlgorithm> GemmPlan::Propose(cublasLtHandle_t handle, int most) {
  std::vector<GemmAlgorithm> proposals;
  if (status_ != CUBLAS_STATUS_SUCCESS) return proposals;
  cublasLtMatmulPreference_t created = nullptr;
  Check(cublasLtMatmulPreferenceCreate(&created));
  const Owned<cublasLtMatmulPreferenceOpaque_t> preference(created);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    Check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kGemmWorkspaceBytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(shape_.b_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape_.a_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(shape_.c_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(shape_.c_alignment));
  if (status_ != CUBLAS_STATUS_SUCCESS) return proposals;

  cublasLtMatmulHeuristicResult_t results[kMaxProposals] = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, product_.get(), a_.get(), b_.get(), c_.get(), c_.get(), preference.get(), kMaxProposals, results, &found);
  if (status != CUBLAS_STATUS_SUCCESS) return proposals;  // not supported: nothing to propose
  for (int i = 0; i < found && static_cast<int>(proposals.size()) < most; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= kGemmWorkspaceBytes &&
        HasFixedOrder(results[i].algo)) {
      std::copy_n(results[i].algo.data, GemmAlgorithm().size(), proposals.emplace_back().begin());
    }
  }
  return proposals;
}

void GemmPlan::Take(const GemmAlgorithm& algorithm) {
  std::copy(algorithm.begin(), algorithm.end(), algorithm_.data);
  has_algorithm_ = true;
}

bool GemmPlan::TakeChecked(cublasLtHandle_t handle, const GemmAlgorithm& algorithm) {
  if (status_ != CUBLAS_STATUS_SUCCESS) return false;
  Take(algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, product_.get(), a_.get(), b_.get(), c_.get(), c_.get(), &algorithm_, &result);
  has_algorithm_ = status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kGemmWorkspaceBytes;
  return has_algorithm_;
}

cublasStatus_t GemmPlan::Run(cublasLtHandle_t handle, const GemmPointers& at, void* workspace, cudaStream_t stream) {
  SetPointers(at.vector, at.aux);
  if (status_ != CUBLAS_STATUS_SUCCESS) return status_;
  const float alpha = 1, beta = shape_.accumulate ? 1 : 0;
  return cublasLtMatmul(handle, product_.get(), &alpha, at.b, a_.get(), at.a, b_.get(), &beta, at.c, c_.get(), at.c,
                        c_.get(), &algorithm_, workspace, kGemmWorkspaceBytes, stream);
}

}  // namespace holdfast::kernels
