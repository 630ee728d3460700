// No sequence of crashes, hangs, cut links, delays and restarts, of workers or of the coordinator, makes a run lose a
// step, do one twice, use a generation twice or stand still for ever; shown by simulating thousands of runs, each drawn
// from a seed, with the rules checked at every event (sim_truth.h). That the rules can be broken is shown by planting
// bugs. Replay of one seed, with its events: HOLDFAST_SIM_SEED=7 test_elastic_control --gtest_filter=Simulation.AnyFaults

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/elastic/control/simulation.h"

namespace holdfast::sim {
namespace {

constexpr uint64_t kSeeds = 3000;

std::string Replay(const std::string& test, uint64_t seed) {
  return absl::StrCat("replay: HOLDFAST_SIM_SEED=", seed, " test_elastic_control --gtest_filter=Simulation.", test);
}

struct Totals {
  int64_t finished = 0, stopped = 0, lost = 0, worlds = 0, steps = 0, hung = 0, restarts = 0, bits_differ = 0;
};

Totals RunSeeds(const std::string& test, uint64_t first, uint64_t count, const std::function<Scenario(uint64_t)>& make) {
  const char* chosen = std::getenv("HOLDFAST_SIM_SEED");
  if (chosen != nullptr) first = std::strtoull(chosen, nullptr, 10), count = 1;
  Totals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Scenario scenario = make(seed);
    scenario.keep_log = chosen != nullptr;
    const Result result = Simulation(scenario).Run();
    for (const std::string& line : result.log) std::cout << line << "\n";
    EXPECT_EQ(result.violation, "") << Replay(test, seed);
    if (testing::Test::HasFailure()) return totals;
    (result.exit_code == 0 ? totals.finished : result.exit_code == 1 ? totals.lost : totals.stopped) += 1;
    totals.worlds += result.worlds;
    totals.steps += result.committed;
    totals.hung += result.hung;
    totals.restarts += result.coordinator_lives - 1;
    totals.bits_differ += result.bits_differ;
  }
  std::cout << totals.finished << " runs finished, " << totals.stopped << " stopped, " << totals.lost << " lost; "
            << totals.steps << " steps, " << totals.worlds << " worlds, " << totals.hung << " hung, " << totals.restarts
            << " coordinator restarts, " << totals.bits_differ << " times other bits\n";
  return totals;
}

TEST(Simulation, AnyFaults) { RunSeeds("AnyFaults", 1, kSeeds, [](uint64_t seed) { return Scenario::FromSeed(seed); }); }

}  // namespace
}  // namespace holdfast::sim
