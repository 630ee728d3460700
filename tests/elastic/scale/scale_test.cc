// Runs of a thousand and of two thousand workers grow, lose a node, lose their coordinator and shrink, with messages
// as they are in production: every one goes through its bytes and its limits, addresses are those of Gloo's backend,
// and whoever lets too much wait is cut. No message is refused, nobody is cut, no rule of the simulation is broken
// (tests/elastic/control/sim_truth.h), and no message of a step grows with the world.

#include <gtest/gtest.h>

#include <iostream>

#include "tests/elastic/control/simulation.h"
#include "tests/elastic/scale/wire_codec.h"

namespace holdfast::sim {
namespace {

Scenario GrowAndShrink(int most, const Codec& codec) {
  using Then = Stage::Then;
  Scenario scenario;
  scenario.seed = 3;
  scenario.workers = most;
  scenario.nodes = most / 8;
  scenario.num_chunks = most;
  scenario.steps = 10'000;
  scenario.parallel.sharding = Sharding::kFullShard;
  scenario.parallel.mirrors = 1;
  scenario.elastic.min_workers = most / 8;
  scenario.elastic.max_workers = most;
  scenario.elastic.rebalance = false;
  scenario.goes_back = 0;
  scenario.stages = {{most / 8, Then::kNothing}, {most, Then::kNodeLost},      {most, Then::kCoordinatorDies},
                     {most, Then::kNodesCut},    {most - 8, Then::kLinksHeal}, {most, Then::kNothing},
                     {most / 2, Then::kNothing}};
  scenario.codec = &codec;
  scenario.blob = GlooBlob;
  return scenario;
}

void ExpectGrowsAndShrinks(int most) {
  const Codec codec = WireCodec();
  const Result result = Simulation(GrowAndShrink(most, codec)).Run();
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.exit_code, 128 + 15) << result.end_reason;
  EXPECT_EQ(result.stages, 7u);
  EXPECT_EQ(result.coordinator_lives, 2);
  EXPECT_EQ(result.state_lost, 0);
  const Traffic& traffic = result.traffic;
  EXPECT_EQ(traffic.refused, 0);
  EXPECT_EQ(traffic.cut, 0);
  const auto workers = static_cast<size_t>(most);
  EXPECT_LT(traffic.largest_down, 140 * workers);  // a world, where the state lies, and who holds what in both
  EXPECT_LT(traffic.largest_up, 100 * workers);    // a world, from the one who is asked
  EXPECT_LT(traffic.largest_claim, 400u);
  EXPECT_LT(traffic.largest_commit, 32u);
  EXPECT_GT(traffic.probe_bytes, 0);
  EXPECT_LT(traffic.probe_bytes, int64_t{most} * most);  // an address for each pair would be 25 times that
  std::cout << most << " workers: " << result.worlds << " worlds, " << result.committed << " steps; up "
            << traffic.messages_up << " messages, " << (traffic.bytes_up >> 20) << " MiB, the largest "
            << traffic.largest_up << " bytes; down " << traffic.messages_down << " messages, "
            << (traffic.bytes_down >> 20) << " MiB, the largest " << traffic.largest_down << ", most in a queue "
            << traffic.largest_queue << "; the links are tried with " << (traffic.probe_bytes >> 10) << " KiB\n";
}

TEST(Scale, AThousandWorkersGrowAndShrink) { ExpectGrowsAndShrinks(1024); }
TEST(Scale, TwoThousandWorkersGrowAndShrink) { ExpectGrowsAndShrinks(2048); }

// That a limit of the old kind would be noticed.
TEST(Scale, AddressesThatGrowWithTheWorldAreNoticed) {
  const Codec codec = WireCodec();
  Scenario scenario = GrowAndShrink(256, codec);
  scenario.steps = 20;
  scenario.blob = [](int) { return std::string(3 * 140 * 255, 'a'); };
  const Result result = Simulation(scenario).Run();
  EXPECT_GT(result.traffic.refused, 0);
  EXPECT_LT(result.stages, 2u);
}

}  // namespace
}  // namespace holdfast::sim
