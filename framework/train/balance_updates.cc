#include "framework/train/balance_updates.h"

#include <numeric>

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// +1 where a count is below the mean, -1 where it is above.
void AddSigns(absl::Span<const int64_t> counts, const Chunk& chunk, int64_t first, std::vector<float>* out) {
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (const int64_t count :
       counts.subspan(static_cast<size_t>(chunk.offset - first), static_cast<size_t>(chunk.elements))) {
    const int64_t all = count * static_cast<int64_t>(counts.size());
    out->push_back(all < sum ? 1.0f : all > sum ? -1.0f : 0.0f);
  }
}

}  // namespace

BalanceUpdates::BalanceUpdates(const ParameterLayout& layout, Device& device) : layout_(&layout), device_(&device) {
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    if (layout.parameters()[static_cast<size_t>(chunk.parameter)].balance.has_value()) chunks_.push_back(c);
  }
}

absl::StatusOr<BalanceUpdates> BalanceUpdates::Create(const ParameterLayout& layout, Device& device) {
  BalanceUpdates updates(layout, device);
  size_t elements = 0;
  for (const int c : updates.chunks_) elements += static_cast<size_t>(layout.chunks()[static_cast<size_t>(c)].elements);
  if (elements == 0) return updates;
  ASSIGN_OR_RETURN(updates.updates_, Buffer::Allocate(device, elements * sizeof(float), "updates"));
  return updates;
}

absl::Span<const float* const> BalanceUpdates::With(const Statistics& step, absl::Span<const float* const> others) {
  if (chunks_.empty()) return others;
  by_chunk_.assign(others.begin(), others.end());
  by_chunk_.resize(layout_->chunks().size(), nullptr);
  here_.clear();
  for (const int c : chunks_) {
    const Chunk& chunk = layout_->chunks()[static_cast<size_t>(c)];
    const ParameterSpec& parameter = layout_->parameters()[static_cast<size_t>(chunk.parameter)];
    const absl::Span<const int64_t> counts =
        step.Counts(parameter.balance->statistic)
            .subspan(static_cast<size_t>(parameter.balance->first), static_cast<size_t>(parameter.shape.elements()));
    by_chunk_[static_cast<size_t>(c)] = updates_.as<float>() + here_.size();
    AddSigns(counts, chunk, parameter.offset, &here_);
  }
  device_->CopyFromCpu(updates_.data(), here_.data(), here_.size() * sizeof(float));
  return by_chunk_;
}

}  // namespace holdfast
