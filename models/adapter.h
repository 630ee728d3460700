#pragma once
// LoRA (Hu et al. 2021, arXiv 2106.09685): what is added to a frozen linear layer, scale * dropout(x) A^T B^T with A of
// few rows. A layer that is several of theirs in one (query, key and value; gate and up) has an adapter for each that
// is wanted, all in one pair of matrices.

#include <cstdint>
#include <string>
#include <vector>

#include "models/parameter_builder.h"
#include "models/pass.h"

namespace holdfast {

class Adapter {
 public:
  /// Columns of the layer's result that one adapter adds to.
  struct Segment {
    int64_t first = 0, count = 0;
  };

  /// Adds "<name>.lora_a" (segments * rank, in) and "<name>.lora_b" (columns of all segments, rank) to the unit at
  /// hand. `fp32`: of a layer whose weight and result are fp32, whatever x is; so is what adapters compute.
  Adapter(ParameterBuilder& builder, const std::string& name, int64_t in, std::vector<Segment> segments,
          bool fp32 = false);

  /// Adds to y (R, n) what belongs to columns first .. first + n - 1 of the layer's result for x (R, in).
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, int64_t first, kernels::Matrix y) const;

  /// Overwrites the gradients of both matrices, for d_y (R, out). Returns what AddInputGradient needs, on the arena.
  Tensor Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                  kernels::ConstMatrix d_y) const;

  /// Adds to d_x (R, in), which may be the memory of the x that Backward was given, and may be fp32.
  void AddInputGradient(const Pass& pass, UnitTensors weights, const Tensor& d_inner, kernels::Matrix d_x) const;

 private:
  kernels::Dropout DropoutOf(const Pass& pass) const;
  /// dropout(x), on the arena; x itself where nothing is dropped.
  kernels::ConstMatrix Input(const Pass& pass, kernels::ConstMatrix x) const;
  /// (R, segments * rank) of a product, and scaled in DTypeOf; in fp32 both are one.
  struct Narrow {
    Tensor sums, rounded;
  };
  Narrow Allocate(const Pass& pass, int64_t rows) const;
  void Scale(const Pass& pass, const Narrow& narrow) const;
  /// scale * dropout(x) A^T (R, segments * rank), on the arena.
  Tensor Inner(const Pass& pass, UnitTensors weights, kernels::ConstMatrix input) const;

  DType DTypeOf(const Pass& pass) const { return fp32_ ? DType::kF32 : pass.dtype; }

  std::vector<Segment> segments_;
  bool fp32_;
  int64_t rank_;
  float scale_, dropout_;
  uint32_t site_;
  int a_, b_;
};

/// Of the matrix that reads. As torch.nn.Linear begins, whose values are uniform: this has their variance, 1 / (3 in).
float AdapterInitStd(int64_t in);

/// One adapter for all `columns` of a layer if it is wanted.
inline std::vector<Adapter::Segment> AdaptedIf(bool wanted, const LoraOptions& lora, int64_t columns) {
  if (!wanted || lora.rank == 0) return {};
  return {{0, columns}};
}

}  // namespace holdfast
