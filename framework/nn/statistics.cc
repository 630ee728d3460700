#include "framework/nn/statistics.h"

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

absl::Span<const double> Statistics::Reals(std::string_view name) const {
  return std::get<std::vector<double>>(Find(name).values);
}

absl::Span<const int64_t> Statistics::Counts(std::string_view name) const {
  return std::get<std::vector<int64_t>>(Find(name).values);
}

std::map<std::string, double> Summarize(const Statistics& statistics) {
  std::map<std::string, double> summary;
  for (const Statistic& statistic : statistics.all()) {
    std::visit(
        [&](const auto& values) {
          if (values.size() == 1) {
            summary[statistic.name] = static_cast<double>(values[0]);
            return;
          }
          double sum = 0;
          for (const auto value : values) sum += static_cast<double>(value);
          const auto largest = static_cast<double>(*std::max_element(values.begin(), values.end()));
          summary[statistic.name + ".max_over_mean"] =
              sum == 0 ? 0 : largest * static_cast<double>(values.size()) / sum;
          summary[statistic.name + ".zeros"] = static_cast<double>(std::count(values.begin(), values.end(), 0));
        },
        statistic.values);
  }
  return summary;
}

}  // namespace holdfast
