// A search strategy over JSON lines: the first line has the space and the options, each further one what became of the
// last suggestion ({} before the first); each is answered with a suggestion. For search_vs_optuna.py.
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/search/strategy.h"

namespace {

using namespace holdfast::search;
using nlohmann::json;

SearchSpace ReadSpace(const json& dimensions) {
  std::vector<Dimension> read;
  for (const json& one : dimensions) {
    Dimension dimension{.name = one.at("name"), .low = one.value("low", 0.0), .high = one.value("high", 0.0)};
    dimension.integer = one.value("integer", false);
    if (one.value("log", false)) dimension.scale = Scale::kLog;
    if (one.contains("choices")) {
      dimension.scale = Scale::kChoice;
      dimension.choices = one.at("choices").get<std::vector<std::string>>();
    }
    if (one.contains("if")) dimension.condition = Condition{one.at("if")[0], one.at("if")[1]};
    read.push_back(std::move(dimension));
  }
  return SearchSpace::Create(std::move(read)).value();
}

json Written(const Point& point) {
  json written = json::object();
  for (const auto& [name, value] : point) {
    std::visit([&](const auto& held) { written[name] = held; }, value);
  }
  return written;
}

}  // namespace

int main() {
  std::string line;
  std::getline(std::cin, line);
  const json first = json::parse(line);
  const auto strategy =
      MakeStrategy(ReadSpace(first.at("space")), {.name = first.at("strategy"), .seed = first.at("seed")}).value();
  std::vector<Observation> history;
  while (std::getline(std::cin, line)) {
    const json told = json::parse(line);
    if (!history.empty()) {
      Observation& last = history.back();
      last.outcome = told.at("failed").get<bool>() ? TrialOutcome::kFailed : TrialOutcome::kMeasured;
      last.value = told.at("value");
      last.cost = told.at("cost");
    }
    const auto next = strategy->Next(history);
    if (!next.has_value()) return 0;
    history.push_back({.trial = static_cast<int64_t>(history.size()), .point = next->point});
    std::cout << json{{"point", Written(next->point)}, {"why", next->why}} << std::endl;
  }
}
