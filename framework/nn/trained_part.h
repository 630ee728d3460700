#pragma once
// The parameters of a model that are trained, as a layout of their own: the state, its chunks, digests, checkpoints and
// everything that moves know nothing of those that are frozen. Where nothing is frozen, both layouts are alike.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/status.h"
#include "framework/nn/layout.h"
#include "framework/nn/unit_schedule.h"

namespace holdfast {

/// The parameter that element `offset` of the layout belongs to.
int ParameterAt(const ParameterLayout& layout, int64_t offset);

class TrainedPart {
 public:
  /// At least one parameter of `model`, which must outlive this, is trained.
  explicit TrainedPart(const ParameterLayout& model);

  const ParameterLayout& model() const { return *model_; }
  const ParameterLayout& layout() const { return layout_; }
  bool is_all() const { return layout_.elements() == model_->elements(); }

  /// What a unit or a parameter of the model is in layout(); -1 if it is frozen, a unit if all of it is.
  int UnitOf(int unit) const { return unit_of_[static_cast<size_t>(unit)]; }
  int ParameterOf(int parameter) const { return parameter_of_[static_cast<size_t>(parameter)]; }
  /// What element `offset` of layout() is in the model.
  int64_t OffsetInModel(int64_t offset) const;

  /// Values [first, first + out.size()) of the model: by `trained`, which has the offsets of layout(), or by `frozen`,
  /// which has those of the model, parameter after parameter.
  template <typename Trained, typename Frozen>
  absl::Status Read(int64_t first, absl::Span<float> out, const Trained& trained, const Frozen& frozen) const {
    while (!out.empty()) {
      const int parameter = ParameterAt(*model_, first), in_layout = ParameterOf(parameter);
      const ParameterSpec& spec = model_->parameters()[static_cast<size_t>(parameter)];
      const int64_t at = first - spec.offset;
      const absl::Span<float> part = out.first(std::min(out.size(), static_cast<size_t>(spec.shape.elements() - at)));
      RETURN_IF_ERROR(in_layout < 0 ? frozen(first, part)
                                    : trained(layout_.parameters()[static_cast<size_t>(in_layout)].offset + at, part));
      first += static_cast<int64_t>(part.size());
      out.remove_prefix(part.size());
    }
    return absl::OkStatus();
  }

  /// The calls that a pass of the model leaves for whoever holds what is trained.
  UnitSchedule Of(const UnitSchedule& schedule) const;

 private:
  const ParameterLayout* model_;
  std::vector<int> unit_of_, parameter_of_;
  std::vector<int> in_model_;  // by parameter of layout()
  ParameterLayout layout_;
};

/// Without pointers to anything.
ParameterLayout TrainedLayout(const ParameterLayout& model);

}  // namespace holdfast
