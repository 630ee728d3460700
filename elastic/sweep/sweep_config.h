#pragma once
// What a sweep is asked to do: a base config, a space of values for its keys, a strategy, a budget. Read from YAML:
//
//   sweep:  {config: configs/quickstart.yaml, strategy: bayes, workers: 4, parallel: 4}
//   budget: {trials: 40}
//   space:
//     optimizer.lr: {low: 1e-4, high: 1e-1, scale: log}
//     model.num_layers: {choices: [2, 4, 6]}
//     width: {choices: ["model.hidden_size=64 model.num_heads=2", "model.hidden_size=128 model.num_heads=4"]}
//     optimizer.momentum: {low: 0.8, high: 0.99, when: optimizer.name=muon}
//   hosts:                                  # instead of sweep.workers; a command needs sweep.listen
//     node1: {workers: 8}
//     node2: {workers: 8, command: ssh node2}
//
// A dimension whose name is a key of the config sets that key; one of any other name has choices that each say
// KEY=VALUE, as many as are wanted, with spaces between them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/search/space.h"
#include "framework/search/strategy.h"

namespace holdfast {

/// In what the cost of a trial, and the budget of the search, is counted.
enum class CostKind { kFlops, kTokens, kSeconds };
const char* NameOf(CostKind kind);

/// 0 = no limit of that kind; one at least is set. What is first reached ends the search.
struct SweepBudget {
  int64_t trials = 0;
  double flops = 0;    // those that model FLOPs utilisation counts
  double tokens = 0;   // trained on
  double seconds = 0;  // of one worker
  double money = 0;    // seconds of workers at price_per_hour
  double price_per_hour = 0;
};

/// A machine that trials have workers on.
struct SweepHost {
  std::string name;
  int64_t workers = 1;
  std::string command{};  // that starts what follows it there: "ssh node2"; empty: this machine
  std::string binary{};   // of holdfast there; empty: the path that it has here
};

struct SweepConfig {
  std::string name = "sweep";
  std::string config;                  // of every trial, before its point
  std::vector<std::string> overrides;  // of that config: "section.key=value"
  std::string metric = "validation_loss";
  bool maximize = false;
  CostKind cost = CostKind::kFlops;
  int64_t parallel = 4;              // trials that the search has under way: part of the result, as workers are not
  int64_t workers = 2;               // that all trials share: those of all hosts together
  std::vector<SweepHost> hosts;      // at least one
  std::string listen = "127.0.0.1";  // address at which hosts reach the trials' coordinators
  int64_t attempts = 3;              // of a trial that ends by an error
  std::string runs;                  // directory of the trials' runs; empty: in the sweep's
  search::StrategyOptions strategy;
  SweepBudget budget;
  std::vector<search::Dimension> space;
};

/// What the trials of a metric can be asked for without running one.
inline constexpr char kValidationLoss[] = "validation_loss", kTrainingLoss[] = "training_loss";

/// InvalidArgument lists everything that is wrong, a line each, with file and line.
absl::StatusOr<SweepConfig> LoadSweepConfig(const std::string& path);
absl::StatusOr<SweepConfig> ParseSweepConfig(const std::string& text, const std::string& path);

/// What decides which trials there are and what they give, one line for each value: not workers, attempts, budget or
/// the places of files. Equal texts: the same table of results.
std::string IdentityText(const SweepConfig& config);

}  // namespace holdfast
