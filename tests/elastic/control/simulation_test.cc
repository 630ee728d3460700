// No sequence of crashes, hangs, cut links, delays and restarts, of workers or of the coordinator, makes a run lose a
// step, do one twice, use a generation twice or stand still for ever; shown by simulating thousands of runs, each drawn
// from a seed, with the rules checked at every event (sim_truth.h). That the rules can be broken is shown by planting
// bugs. Many more seeds, on all processors: tests/simulate.py 10000, which sets the first (HOLDFAST_SIM_FIRST) and the
// number of each test (HOLDFAST_SIM_SEEDS). Replay of one seed, with its events:
//   HOLDFAST_SIM_SEED=7 test_elastic_control --gtest_filter=Simulation.AnyFaults

#include "tests/elastic/control/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>

namespace holdfast::sim {
namespace {

std::string Replay(const std::string& test, uint64_t seed) {
  return absl::StrCat("replay: HOLDFAST_SIM_SEED=", seed, " test_elastic_control --gtest_filter=Simulation.", test);
}

struct Totals {
  int64_t finished = 0, stopped = 0, lost = 0, worlds = 0, steps = 0, hung = 0, restarts = 0, bits_differ = 0;
  int64_t checkpoints = 0, rewinds = 0, mirrors_missing = 0, mirrors_complete = 0, replaced = 0, takes = 0,
          copies_differ = 0;
  std::vector<uint64_t> lost_seeds;
  bool as_usual = false;  // all seeds, so that enough should have happened
};

Totals RunSeeds(const std::string& test, uint64_t first, uint64_t count,
                const std::function<Scenario(uint64_t)>& make) {
  const char* chosen = std::getenv("HOLDFAST_SIM_SEED");
  const char* more = std::getenv("HOLDFAST_SIM_SEEDS");
  const char* from = std::getenv("HOLDFAST_SIM_FIRST");
  const bool with_digests = std::getenv("HOLDFAST_SIM_DIGESTS") != nullptr;
  if (from != nullptr) first = std::strtoull(from, nullptr, 10);
  if (more != nullptr) count = std::strtoull(more, nullptr, 10);
  if (chosen != nullptr) first = std::strtoull(chosen, nullptr, 10), count = 1;
  Totals totals;
  totals.as_usual = chosen == nullptr && from == nullptr && more == nullptr;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Scenario scenario = make(seed);
    scenario.keep_log = chosen != nullptr;
    scenario.with_digest = with_digests;
    const Result result = Simulation(scenario).Run();
    for (const std::string& line : result.log) std::cout << line << "\n";
    if (with_digests)
      std::cout << "digest " << test << " " << seed << absl::StrCat(" ", absl::Hex(result.digest), "\n");
    EXPECT_EQ(result.violation, "");
    if (!result.violation.empty())
      std::cout << "seed " << seed << ": " << result.violation << "\n" << Replay(test, seed) << "\n";
    if (from == nullptr && testing::Test::HasFailure()) return totals;
    if (result.exit_code == 1 && result.state_lost > 0) totals.lost_seeds.push_back(seed);
    (result.exit_code == 0 ? totals.finished : result.exit_code == 1 ? totals.lost : totals.stopped) += 1;
    totals.worlds += result.worlds;
    totals.steps += result.committed;
    totals.hung += result.hung;
    totals.restarts += result.coordinator_lives - 1;
    totals.bits_differ += result.bits_differ;
    totals.copies_differ += result.copies_differ;
    totals.checkpoints += result.checkpoints;
    totals.rewinds += result.rewinds;
    totals.mirrors_missing += result.mirrors_missing;
    totals.mirrors_complete += result.mirrors_complete;
    totals.replaced += result.replaced;
    totals.takes += result.takes;
  }
  std::cout << totals.finished << " runs finished, " << totals.stopped << " stopped, " << totals.lost << " lost; "
            << totals.steps << " steps, " << totals.worlds << " worlds, " << totals.hung << " hung, " << totals.restarts
            << " coordinator restarts, " << totals.bits_differ << " times other bits, " << totals.checkpoints
            << " checkpoints, " << totals.rewinds << " times back to one, " << totals.replaced
            << " coordinators found that they were replaced\n";
  return totals;
}

TEST(Simulation, NoFaults) {
  const Totals totals = RunSeeds("NoFaults", 1, 50, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.faults = 0;
    return scenario;
  });
  EXPECT_EQ(totals.lost + totals.stopped, 0);
}

TEST(Simulation, AnyFaults) {
  const Totals totals = RunSeeds("AnyFaults", 1, 3000, [](uint64_t seed) { return Scenario::FromSeed(seed); });
  const int64_t runs = totals.finished + totals.stopped + totals.lost;
  if (!totals.as_usual) return;
  // The faults do happen, and most runs get over them.
  EXPECT_GT(6 * totals.hung, runs);
  EXPECT_GT(6 * totals.restarts, runs);
  EXPECT_GT(60 * totals.bits_differ, runs);
  EXPECT_GT(3 * totals.finished, 2 * runs);
  EXPECT_GT(totals.checkpoints, runs);
  EXPECT_GT(60 * totals.rewinds, runs);
  EXPECT_GT(20 * totals.replaced, runs);
}

// Runs that go back often, because they are told to or because their state is lost, while what they have given up is
// still about: in checkpoints, in those that are being written, in the memory of workers.
TEST(Simulation, GoesBack) {
  const Totals totals = RunSeeds("GoesBack", 1, 500, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.faults = 15;
    scenario.parallel.mirrors = 0;
    scenario.parallel.replicas = 1;
    scenario.parallel.sharding = Sharding::kFullShard;
    scenario.checkpoint.every_steps = static_cast<int64_t>(1 + seed % 4);
    scenario.goes_back = 0.4;
    scenario.steps = 100;
    scenario.fault_time = seconds(60);
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_GT(totals.rewinds, totals.finished);
  }
}

// While a coordinator stands still, amid something that it writes as often as not, another is started in its place;
// when it goes on it finds out, and nothing that it did or does since reaches anybody.
TEST(Simulation, TwoCoordinators) {
  const Totals totals = RunSeeds("TwoCoordinators", 1, 1000, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.replaces = 0.7;
    scenario.goes_back = 0.3;
    scenario.steps = 80;
    scenario.fault_time = seconds(40);
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_GT(totals.replaced, totals.finished);
  }
}

// Several wait for their turn under a lease in a store that is slow, fails, cannot be reached or has lost everything,
// with clocks that run differently and stop with their machines. Two never count on the lease at once, and whatever
// becomes of it, the run has one record.
Scenario WithLeases(uint64_t seed) {
  Scenario scenario = Scenario::FromSeed(seed);
  scenario.candidates = static_cast<int>(2 + seed % 2);
  scenario.faults = static_cast<int>(4 + seed % 12);
  scenario.steps = 80;
  scenario.fault_time = seconds(60);
  return scenario;
}
TEST(Simulation, Leases) {
  const Totals totals = RunSeeds("Leases", 1, 500, WithLeases);
  if (totals.as_usual) {
    EXPECT_GT(totals.takes, 2 * (totals.finished + totals.stopped + totals.lost));
    EXPECT_GT(4 * totals.replaced, totals.finished);
  }
}

// A run that is stopped, at any moment, leaves its last step saved, or says that it could not.
TEST(Simulation, Stops) {
  const Totals totals = RunSeeds("Stops", 1, 1000, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.stops = true;
    scenario.faults = static_cast<int>(seed % 3);
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_GT(2 * totals.stopped, totals.finished + totals.lost);
  }
}

// Two nodes that never reach each other again: the run goes on without the smaller of them, and does not stop for long.
TEST(Simulation, NodesThatAreCutOffFromEachOtherForGood) {
  const Totals totals = RunSeeds("NodesThatAreCutOffFromEachOtherForGood", 1, 300, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.cut_for_good = true;
    scenario.nodes = std::max(scenario.nodes, 2);
    scenario.workers = std::max(scenario.workers, 4);
    scenario.elastic.min_workers = 1;
    scenario.parallel.sharding = Sharding::kNoShard;  // every worker can be spared
    scenario.faults = 0;
    scenario.steps = 60;
    return scenario;
  });
  EXPECT_EQ(totals.lost + totals.stopped, 0);
  if (totals.as_usual) {
    EXPECT_LT(totals.worlds, 3 * totals.finished);
  }
}

// All holders of the state are there, and can only not be reached.
TEST(Simulation, ACoordinatorThatIsCutOffFromEverybodyLosesNothing) {
  const Totals totals = RunSeeds("ACoordinatorThatIsCutOffFromEverybodyLosesNothing", 1, 200, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.cut_from_all = true;
    scenario.faults = 0;
    scenario.fault_time = seconds(60);
    scenario.steps = 200;
    scenario.patience = 0;
    return scenario;
  });
  EXPECT_EQ(totals.rewinds + totals.lost + totals.stopped, 0);
  if (totals.as_usual) {
    EXPECT_GT(totals.hung, totals.finished);
  }
}

// With a mirror of everything, faults that do not fall together never lose state.
TEST(Simulation, OneFaultAtATime) {
  const Totals totals = RunSeeds("OneFaultAtATime", 1, 1000, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.one_at_a_time = true;
    scenario.faults = 6;
    scenario.steps = 60;
    return scenario;
  });
  EXPECT_EQ(totals.lost_seeds, std::vector<uint64_t>{});
}

// Copies that steps are computed with go bad. Once that is found no step counts that was computed with one, as far as
// there is a checkpoint from before, whoever has got copies of it meanwhile.
TEST(Simulation, MemoryThatGoesBad) {
  const Totals totals = RunSeeds("MemoryThatGoesBad", 1, 300, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.bad_copies = 3;
    scenario.one_at_a_time = true;
    scenario.faults = 0;
    scenario.goes_back = 0;
    scenario.workers = std::max(scenario.workers, 5);
    scenario.parallel.mirrors = 2;
    scenario.checkpoint.every_steps = static_cast<int64_t>(1 + seed % 10);
    scenario.digest_every = static_cast<int64_t>(1 + seed % 25);
    scenario.patience = scenario.validate_every = 0;
    scenario.steps = 150;
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_GT(totals.copies_differ, totals.finished);
    EXPECT_GT(4 * totals.rewinds, totals.finished);
  }
}

// Nearly all cells of such a model are empty, and whoever held one of these may go without loss.
TEST(Simulation, AModelOfThreeChunks) {
  const Totals totals = RunSeeds("AModelOfThreeChunks", 1, 500, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.num_chunks = 3;
    scenario.workers = std::max(scenario.workers, 5);  // so that some hold nothing but such
    scenario.parallel.sharding = Sharding::kFullShard;
    return scenario;
  });
  EXPECT_GT(totals.finished, totals.lost + totals.stopped);
}

// A step begins before its mirrors are there. Whoever is killed then, no step is lost that somebody has, and no mirror
// counts that never came.
TEST(Simulation, FailuresWhileMirrorsAreFilled) {
  const Totals totals = RunSeeds("FailuresWhileMirrorsAreFilled", 1, 500, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.crashes_only = true;
    scenario.strikes_at_mirrors = 0.7;
    scenario.steps = 60;
    scenario.workers = std::max(scenario.workers, 4);
    scenario.parallel.sharding = Sharding::kFullShard;
    scenario.checkpoint.every_steps = static_cast<int64_t>(1 + seed % 5);
    return scenario;
  });
  EXPECT_GT(totals.mirrors_missing, totals.mirrors_complete) << "nobody was killed while mirrors were filled";
  EXPECT_GT(totals.mirrors_complete, totals.finished);
  EXPECT_GT(totals.rewinds, 0);
}

TEST(Simulation, ManyCrashes) {
  const Totals totals = RunSeeds("ManyCrashes", 1, 300, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.crashes_only = true;
    scenario.faults = 40;
    scenario.steps = 100;
    scenario.parallel.mirrors = 3;
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_GT(4 * totals.finished, totals.lost);
    EXPECT_GT(totals.worlds, 3 * (totals.finished + totals.lost));
  }
}

TEST(Simulation, AThousandWorkers) {
  const Totals totals = RunSeeds("AThousandWorkers", 2, 1, [](uint64_t seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.workers = 1000;
    scenario.spares = 8;
    scenario.nodes = 125;
    scenario.num_chunks = 1024;
    scenario.steps = 25;
    scenario.faults = 8;
    scenario.elastic.min_workers = scenario.workers / 2;
    scenario.elastic.max_workers = 0;
    return scenario;
  });
  if (totals.as_usual) {
    EXPECT_EQ(totals.finished, 1);
    EXPECT_GT(totals.worlds, 1);
  }
}

// --- planted bugs --------------------------------------------------------------------------------------------------

// Seeds until the rules notice; -1 = never.
int64_t SeedsToCatch(Planted planted, int64_t most, const std::string& expected, bool with_digests = true) {
  for (int64_t seed = 1; seed <= most; ++seed) {
    Scenario scenario = Scenario::FromSeed(static_cast<uint64_t>(seed));
    scenario.planted = planted;
    if (!with_digests) scenario.digest_every = 0;
    const Result result = Simulation(scenario).Run();
    if (result.violation.empty()) continue;
    EXPECT_NE(result.violation.find(expected), std::string::npos) << result.violation;
    std::cout << "seed " << seed << ": " << result.violation << "\n";
    return seed;
  }
  return -1;
}

// Without digests, whose comparison may notice it first.
TEST(PlantedBug, VoteOfAStaleGenerationIsCaught) {
  EXPECT_GT(SeedsToCatch(Planted::kStaleVote, 5000, "has not prepared it", /*with_digests=*/false), 0);
}
TEST(PlantedBug, CommitWithAMissingVoteIsCaught) { EXPECT_GT(SeedsToCatch(Planted::kForgedVote, 100, ""), 0); }
TEST(PlantedBug, DroppedUpdateIsCaught) { EXPECT_GT(SeedsToCatch(Planted::kDroppedUpdate, 100, ""), 0); }
TEST(PlantedBug, GenerationUsedTwiceIsCaught) {
  EXPECT_GT(SeedsToCatch(Planted::kForgottenGeneration, 200, "generation"), 0);
}
TEST(PlantedBug, CommitBeforeItsRecordIsCaught) {
  EXPECT_GT(SeedsToCatch(Planted::kUnrecordedCommit, 100, "before it is recorded"), 0);
}

TEST(PlantedBug, ACoordinatorOfYesterdayIsCaught) { EXPECT_GT(SeedsToCatch(Planted::kIgnoredLock, 200, ""), 0); }

int64_t LeaseSeedsToCatch(Planted planted, const std::string& expected) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Scenario scenario = WithLeases(seed);
    scenario.planted = planted;
    const Result result = Simulation(scenario).Run();
    if (result.violation.empty()) continue;
    EXPECT_NE(result.violation.find(expected), std::string::npos) << result.violation;
    std::cout << "seed " << seed << ": " << result.violation << "\n";
    return static_cast<int64_t>(seed);
  }
  return -1;
}
TEST(PlantedBug, AStoreThatIgnoresVersionsIsCaught) { EXPECT_GT(LeaseSeedsToCatch(Planted::kIgnoredVersion, ""), 0); }
TEST(PlantedBug, ALeaseThatIsTakenTooSoonIsCaught) {
  EXPECT_GT(LeaseSeedsToCatch(Planted::kTakenTooSoon, "two have the lease"), 0);
}
TEST(PlantedBug, ALeaseCountedFromItsAnswerIsCaught) {
  EXPECT_GT(LeaseSeedsToCatch(Planted::kCountedFromAnswer, "two have the lease"), 0);
}
TEST(PlantedBug, ALeaseCountedByAClockThatStopsIsCaught) {
  EXPECT_GT(LeaseSeedsToCatch(Planted::kStoppedClock, "two have the lease"), 0);
}
TEST(PlantedBug, ALeaderThatDoesNotLookAtItsLeaseIsCaught) {
  EXPECT_GT(LeaseSeedsToCatch(Planted::kIgnoredTerm, "lost the lease before it looked"), 0);
}

TEST(PlantedBug, ARecordThatIsNotSyncedIsCaught) {
  EXPECT_GT(SeedsToCatch(Planted::kUnsyncedRecord, 100, "was told to workers"), 0);
}

}  // namespace
}  // namespace holdfast::sim
