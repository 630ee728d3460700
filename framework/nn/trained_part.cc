#include "framework/nn/trained_part.h"

#include <algorithm>
#include <string>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

ParameterLayout TrainedLayout(const ParameterLayout& model) {
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> units;
  for (const Unit& unit : model.units()) {
    const size_t before = parameters.size();
    int parts = 0, last = -1;  // those with something trained are numbered anew
    for (const ParameterSpec& spec : model.parameters().subspan(static_cast<size_t>(unit.first_parameter),
                                                                static_cast<size_t>(unit.num_parameters))) {
      if (spec.frozen) continue;
      parameters.push_back(spec);
      parameters.back().unit = static_cast<int>(units.size());
      if (spec.part < 0) continue;
      if (spec.part != last) ++parts;
      last = spec.part;
      parameters.back().part = parts - 1;
    }
    if (parameters.size() > before) units.push_back(unit.name);
  }
  return ParameterLayout(std::move(parameters), std::move(units));
}

int ParameterAt(const ParameterLayout& layout, int64_t offset) {
  const auto parameters = layout.parameters();
  const auto after = std::upper_bound(parameters.begin(), parameters.end(), offset,
                                      [](int64_t at, const ParameterSpec& spec) { return at < spec.offset; });
  return static_cast<int>(after - parameters.begin()) - 1;
}

TrainedPart::TrainedPart(const ParameterLayout& model) : model_(&model), layout_(TrainedLayout(model)) {
  HOLDFAST_CHECK(!layout_.parameters().empty());
  int next = 0, units = 0;
  for (const Unit& unit : model.units()) {
    const int first = next;
    for (int p = unit.first_parameter; p < unit.first_parameter + unit.num_parameters; ++p) {
      const bool frozen = model.parameters()[static_cast<size_t>(p)].frozen;
      parameter_of_.push_back(frozen ? -1 : next++);
      if (!frozen) in_model_.push_back(p);
    }
    unit_of_.push_back(next > first ? units++ : -1);
  }
}

int64_t TrainedPart::OffsetInModel(int64_t offset) const {
  const auto parameter = static_cast<size_t>(ParameterAt(layout_, offset));
  const ParameterSpec& in_model = model_->parameters()[static_cast<size_t>(in_model_[parameter])];
  return in_model.offset + offset - layout_.parameters()[parameter].offset;
}

UnitSchedule TrainedPart::Of(const UnitSchedule& schedule) const {
  UnitSchedule trained;
  for (const StoreCall& call : schedule) {
    const int unit = UnitOf(call.unit);
    if (unit >= 0) trained.push_back({call.kind, unit});
  }
  return trained;
}

}  // namespace holdfast
