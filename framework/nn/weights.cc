#include "framework/nn/weights.h"

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<Weights> Weights::Create(const ParameterLayout& layout, DType compute_dtype, Device& device,
                                        kernels::Ops& ops) {
  Weights weights(layout, device, ops);
  ASSIGN_OR_RETURN(weights.master_,
                   Buffer::Allocate(device, static_cast<size_t>(layout.elements()) * sizeof(float), "weights"));
  int64_t copied = 0;
  for (const ParameterSpec& p : layout.parameters()) {
    copied += p.ReadType(compute_dtype) == DType::kBF16 ? p.shape.elements() : 0;
  }
  if (compute_dtype == DType::kBF16) {
    ASSIGN_OR_RETURN(weights.copies_, Buffer::Allocate(device, static_cast<size_t>(copied) * 2, "weights"));
  }
  int64_t next = 0;
  for (const ParameterSpec& p : layout.parameters()) {
    if (p.ReadType(compute_dtype) == DType::kBF16) {
      weights.compute_.push_back({weights.copies_.as<uint16_t>() + next, DType::kBF16, p.shape});
      next += p.shape.elements();
    } else {
      weights.compute_.push_back({weights.master_.as<float>() + p.offset, DType::kF32, p.shape});
    }
  }
  return weights;
}

void Weights::Initialize(uint64_t seed) {
  for (int i = 0; i < static_cast<int>(layout_->parameters().size()); ++i) {
    const ParameterSpec& p = spec(i);
    if (p.init == InitKind::kNormal) {
      const kernels::RandomKey key{.seed = seed, .site = static_cast<uint32_t>(i)};
      ops_->FillNormal(master(i), p.shape.elements(), 0, p.init_std, key);
    } else {
      const std::vector<float> constant(static_cast<size_t>(p.shape.elements()), InitialConstant(p));
      device_->CopyFromCpu(master(i), constant.data(), constant.size() * sizeof(float));
    }
  }
  RefreshCopies();
}

void Weights::Set(absl::Span<const float> values) {
  HOLDFAST_CHECK(static_cast<int64_t>(values.size()) == layout_->elements());
  device_->CopyFromCpu(master_.data(), values.data(), master_.bytes());
  RefreshCopies();
}

void Weights::Read(int64_t first, absl::Span<float> out) const {
  device_->CopyToCpu(out.data(), master_.as<float>() + first, out.size() * sizeof(float));
}

uint16_t* Weights::bf16_copy(int parameter) const {
  const Tensor& tensor = compute_[static_cast<size_t>(parameter)];
  return tensor.dtype == DType::kBF16 ? tensor.bf16() : nullptr;
}

void Weights::RefreshCopies() {
  for (int i = 0; i < static_cast<int>(compute_.size()); ++i) {
    if (uint16_t* copy = bf16_copy(i)) ops_->CastToBf16(copy, master(i), spec(i).shape.elements());
  }
}

}  // namespace holdfast
