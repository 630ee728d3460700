#include <cstdlib>
#include "kernels/cuda/cuda_ops.h"
namespace holdfast::kernels {
void CudaOps::ColumnSum(float*, ConstMatrix) { std::abort(); }
void CudaOps::EmbeddingForward(Matrix, const int32_t*, ConstMatrix, ConstMatrix, int64_t, const Dropout&) { std::abort(); }
void CudaOps::EmbeddingBackward(Matrix, Matrix, const int32_t*, ConstMatrix, int64_t, const Dropout&) { std::abort(); }
void CudaOps::NormForward(Matrix, Matrix, const NormStats&, ConstMatrix, ConstMatrix, const NormParams&, const Dropout&) { std::abort(); }
void CudaOps::NormBackward(Matrix, float*, float*, ConstMatrix, ConstMatrix, ConstMatrix, const NormStats&, const NormParams&) { std::abort(); }
void CudaOps::ApplyDropout(Matrix, ConstMatrix, const Dropout&) { std::abort(); }
void CudaOps::Rope(Matrix, const float*, int64_t, int64_t, int64_t, bool) { std::abort(); }
void CudaOps::AttentionForward(Matrix, float*, ConstMatrix, const AttentionShape&) { std::abort(); }
void CudaOps::AttentionBackward(Matrix, ConstMatrix, ConstMatrix, const float*, ConstMatrix, const AttentionShape&) { std::abort(); }
void CudaOps::GeluBackward(Matrix, ConstMatrix, ConstMatrix) { std::abort(); }
void CudaOps::SwigluForward(Matrix, ConstMatrix) { std::abort(); }
void CudaOps::SwigluBackward(Matrix, ConstMatrix, ConstMatrix) { std::abort(); }
void CudaOps::SoftmaxCrossEntropy(float*, Matrix, ConstMatrix, const int32_t*, float) { std::abort(); }
void CudaOps::AdamW(const AdamWArgs&) { std::abort(); }
void CudaOps::FillNormal(float*, int64_t, int64_t, float, const RandomKey&) { std::abort(); }
}  // namespace holdfast::kernels
