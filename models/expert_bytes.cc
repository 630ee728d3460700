#include "models/expert_bytes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "models/expert_mlp.h"
#include "models/expert_routes.h"

namespace holdfast {
namespace {

/// That none of `here` experts is among the `chosen` ones of all `experts`.
double ChanceOfNone(int64_t here, int64_t experts, int64_t chosen) {
  double chance = 1;
  for (int64_t i = 0; i < chosen; ++i) {
    chance *= std::max(0.0, static_cast<double>(experts - here - i)) / static_cast<double>(experts - i);
  }
  return chance;
}

}  // namespace

ExpectedBytes ExpectedTokenBytes(const ExpertGroup& group) {
  const int64_t experts = std::accumulate(group.experts.begin(), group.experts.end(), int64_t{0});
  const ExpertRoutes routes(group.nodes, group.homes);
  const auto some = [&](int64_t here) { return 1 - ChanceOfNone(here, experts, group.chosen); };
  // Vectors there: x in both passes, d_y. Of each choice a vector back in both, a weight and a number there in both,
  // and the weight's gradient back.
  const double there = 3 * group.vector_bytes, choice = 2 * group.vector_bytes + 5 * sizeof(float);
  const double listed = 2 * sizeof(int32_t);  // in both passes
  ExpectedBytes bytes;
  for (const int home : group.homes) {
    for (int node = 0; node < routes.num_nodes(); ++node) {
      const int relay = routes.RelayOf(home, node);
      double& straight = node == routes.NodeOf(home) ? bytes.in_node : bytes.between_nodes;
      int64_t of_node = 0;
      double handed_on = 0;
      for (const int member : routes.Members(node)) {
        const int64_t here = group.experts[static_cast<size_t>(member)];
        of_node += here;
        handed_on += some(here);
        if (member != relay) bytes.in_node += there * some(here);
        if (member == home) continue;
        straight += choice * static_cast<double>(group.chosen * here) / static_cast<double>(experts);
      }
      if (relay != home) bytes.between_nodes += there * some(of_node) + listed * handed_on;
    }
  }
  bytes.in_node /= static_cast<double>(group.homes.size());
  bytes.between_nodes /= static_cast<double>(group.homes.size());
  return bytes;
}

ExpertBytes ExpertBytesOf(const Config& config) {
  const ModelConfig& c = config.model;
  const double element = config.train.compute_dtype == ComputeDType::kBF16 ? 2 : 4;
  const auto matrices = static_cast<double>(c.num_experts * ExpertMatrixElements(c));
  const auto biases = static_cast<double>(c.num_experts * ExpertBiasElements(c));
  const int64_t groups = std::max<int64_t>(1, config.parallel.replicas);
  const int64_t workers = std::max<int64_t>(2, (config.elastic.workers + groups - 1) / groups);
  std::vector<int64_t> experts;
  std::vector<int> nodes(static_cast<size_t>(workers)), homes(nodes.size());
  std::iota(homes.begin(), homes.end(), 0);
  for (int64_t i = 0; i < workers; ++i) {
    experts.push_back((i + 1) * c.num_experts / workers - i * c.num_experts / workers);
  }
  const ExpectedBytes token = ExpectedTokenBytes({.chosen = c.experts_per_token,
                                                  .experts = experts,
                                                  .nodes = nodes,
                                                  .homes = homes,
                                                  .vector_bytes = element * static_cast<double>(c.hidden_size)});
  const double elsewhere = static_cast<double>(workers - 1) / static_cast<double>(workers);
  return {.workers = workers,
          .gather = ((2 * element + 4) * matrices + (2 * 4 + 4) * biases) * elsewhere,
          .move = token.total() * static_cast<double>(config.batch.microbatch_tokens())};
}

}  // namespace holdfast
