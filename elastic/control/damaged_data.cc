#include "elastic/control/damaged_data.h"

#include <algorithm>
#include <utility>

namespace holdfast {

void DamagedData::Add(const std::string& reporter, const FailureMessage& failure) {
  if (failure.bad_data) reports_.push_back({reporter, failure.step, failure.cause});
}

void DamagedData::Conclude() {
  const std::vector<Report> reports = std::exchange(reports_, {});
  const auto is_same = [this](const Report& report) { return report.step == step_ && report.cause == cause_; };
  if (std::none_of(reports.begin(), reports.end(), is_same)) {
    Clear();
    if (reports.empty()) return;
    step_ = reports.front().step;
    cause_ = reports.front().cause;
  }
  ++worlds_;
  for (const Report& report : reports) {
    if (is_same(report)) reporters_.insert(report.worker);
  }
}

void DamagedData::Clear() { *this = DamagedData(); }

}  // namespace holdfast
