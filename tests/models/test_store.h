#pragma once
// A UnitStore that keeps everything in the process and watches the protocol: units are released as often as acquired,
// gradients are opened once, written everywhere (they start as NaN) and closed. What is frozen has none.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/nn/model.h"

namespace holdfast {

class TestStore final : public UnitStore {
 public:
  /// `values` in canonical order, copied; matrices are given out in `dtype`.
  TestStore(const ParameterLayout& layout, const std::vector<float>& values, DType dtype, kernels::Ops& ops)
      : layout_(layout), values_(values), halves_(values.size()), gradients_(values.size(), NAN) {
    for (const ParameterSpec& p : layout.parameters()) {
      gradient_tensors_.push_back(p.frozen ? Tensor() : Tensor{&gradients_[p.offset], DType::kF32, p.shape});
      if (p.frozen) std::fill_n(gradients_.begin() + p.offset, p.shape.elements(), 0.0f);
      if (p.ReadType(dtype) == DType::kBF16) {
        ops.CastToBf16(&halves_[p.offset], &values_[p.offset], p.shape.elements());
        weights_.push_back({&halves_[p.offset], DType::kBF16, p.shape});
      } else {
        weights_.push_back({&values_[p.offset], DType::kF32, p.shape});
      }
    }
  }

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override {
    calls_.push_back(absl::StrCat("acquire ", unit));
    if (--calls_until_failure_ == 0) return absl::UnavailableError("a peer was lost");
    ++held_;
    return Of(weights_, unit);
  }
  void Release(int unit) override {
    calls_.push_back(absl::StrCat("release ", unit));
    --held_;
  }
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override {
    calls_.push_back(absl::StrCat("begin ", unit));
    if (--calls_until_failure_ == 0) return absl::UnavailableError("a peer was lost");
    return Of(gradient_tensors_, unit);
  }
  absl::Status EndGradients(int unit) override {
    calls_.push_back(absl::StrCat("end ", unit));
    const Unit& u = layout_.units()[unit];
    for (int64_t i = u.offset; i < u.offset + u.elements; ++i) {
      EXPECT_FALSE(std::isnan(gradients_[i])) << "element " << i << " of unit " << u.name << " was not written";
      if (std::isnan(gradients_[i])) break;
    }
    return --calls_until_failure_ == 0 ? absl::UnavailableError("a peer was lost") : absl::OkStatus();
  }

  /// The n-th call that can fail, counted from 1, fails.
  void FailAtCall(int n) { calls_until_failure_ = n; }
  int held() const { return held_; }
  const std::vector<std::string>& calls() const { return calls_; }
  const std::vector<float>& gradients() const { return gradients_; }

 private:
  absl::Span<const Tensor> Of(const std::vector<Tensor>& tensors, int unit) const {
    const Unit& u = layout_.units()[unit];
    return absl::MakeConstSpan(tensors).subspan(u.first_parameter, u.num_parameters);
  }

  const ParameterLayout& layout_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
  std::vector<float> gradients_;
  std::vector<Tensor> weights_, gradient_tensors_;
  std::vector<std::string> calls_;
  int held_ = 0, calls_until_failure_ = 0;
};

}  // namespace holdfast
