#include "framework/nn/statistics.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

StatisticsLayout::StatisticsLayout(std::vector<StatisticSpec> specs) : specs_(std::move(specs)) {
  for (const StatisticSpec& spec : specs_) {
    const auto same = [&](const StatisticSpec& other) { return other.name == spec.name; };
    HOLDFAST_CHECK(spec.size > 0 && std::count_if(specs_.begin(), specs_.end(), same) == 1);
    offsets_.push_back(size_);
    size_ += spec.size;
  }
}

const Statistic& Statistics::Find(std::string_view name) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Statistic& s) { return s.name == name; });
  HOLDFAST_CHECK(found != all_.end());
  return *found;
}

uint64_t Statistics::Digest() const {
  uint64_t digest = 0;
  const auto add = [&digest](const void* bytes, size_t size) { digest = XXH3_64bits_withSeed(bytes, size, digest); };
  for (const Statistic& statistic : all_) {
    add(statistic.name.data(), statistic.name.size());
    std::visit([&](const auto& values) { add(values.data(), values.size() * sizeof(values[0])); }, statistic.values);
  }
  return digest;
}

absl::Span<const double> Statistics::Reals(std::string_view name) const {
  return std::get<std::vector<double>>(Find(name).values);
}

absl::Span<const int64_t> Statistics::Counts(std::string_view name) const {
  return std::get<std::vector<int64_t>>(Find(name).values);
}

}  // namespace holdfast
