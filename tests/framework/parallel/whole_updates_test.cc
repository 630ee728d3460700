// Proves that matrices are given to ranks evenly, and to the optimizer at aligned places in any world. That the updates
// have the bits of a world of one in any other is tests/framework/train/world_test.cc's.

#include "framework/parallel/whole_updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

ParameterLayout Blocks(int count) {
  std::vector<ParameterSpec> parameters;
  parameters.push_back({.name = "embedding", .shape = {1000, 64}});
  for (int i = 0; i < count; ++i) {
    for (const auto& [name, rows, cols] : {std::tuple<const char*, int64_t, int64_t>{"qkv", 192, 64},
                                           {"out", 64, 64},
                                           {"up", 256, 64},
                                           {"down", 64, 256}}) {
      parameters.push_back({.name = std::to_string(i) + name, .shape = {rows, cols}, .hidden = true});
    }
    parameters.push_back({.name = std::to_string(i) + "norm", .shape = {64}});
  }
  return {std::move(parameters), {"unit"}};
}

TEST(WholeUpdates, MatricesAreSpreadEvenly) {
  const ParameterLayout layout = Blocks(12);
  const auto muon = MakeOptimizer({.name = OptimizerKind::kMuon});
  for (int size = 1; size <= 9; ++size) {
    const std::vector<int> owners = OwnersOfMatrices(layout, *muon, size);
    std::vector<int64_t> elements(static_cast<size_t>(size));
    for (size_t p = 0; p < owners.size(); ++p) {
      EXPECT_EQ(owners[p] >= 0, layout.parameters()[p].hidden);
      if (owners[p] >= 0) elements[static_cast<size_t>(owners[p])] += layout.parameters()[p].shape.elements();
    }
    const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
    EXPECT_LE(*most - *least, 2 * 256 * 64) << size;
  }
}

TEST(WholeUpdates, OfAdamWThereAreNone) {
  const ParameterLayout layout = Blocks(2);
  const auto adamw = MakeOptimizer({});
  for (const int owner : OwnersOfMatrices(layout, *adamw, 3)) EXPECT_EQ(owner, -1);
  EXPECT_EQ(WholeUpdateBytes(layout, *adamw, 3, 0.5), 0);
}

/// Takes hidden matrices whole. A matrix's update is what was contributed to it: its gradient.
class Copying final : public Optimizer {
 public:
  std::vector<Plane> PlanesOf(const ParameterSpec& p) const override { return adamw_->PlanesOf(p); }
  bool TakesWhole(const ParameterSpec& p) const override { return p.hidden; }
  void Contribute(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars&, float* out) const override {
    ops.Copy(out, range.gradient, static_cast<size_t>(range.n) * sizeof(float));
  }
  absl::Status MakeUpdate(Device&, Stream&, const ParameterSpec& p, float* matrix, float*) const override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix) % 64, 0u) << p.name;  // as CPU memory is allocated
    EXPECT_TRUE(made_.insert(p.name).second) << p.name;
    return absl::OkStatus();
  }
  void Apply(kernels::Ops&, const PlaneRange&, const UpdateScalars&, uint16_t*) const override {}

  size_t made() const { return made_.size(); }

 private:
  const std::unique_ptr<Optimizer> adamw_ = MakeOptimizer({});
  mutable std::mutex mutex_;
  mutable std::set<std::string> made_;
};

ParameterLayout OddMatrices() {
  std::vector<ParameterSpec> parameters;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{5, 3}, {700, 901}, {7, 7}, {1, 9}, {900, 701}, {3, 1}}) {
    const std::string name = std::to_string(rows);
    parameters.push_back({.name = name, .shape = {rows, cols}, .hidden = true});
    parameters.push_back({.name = name + "bias", .shape = {rows}});
  }
  return {std::move(parameters), {"unit"}};
}

TEST(WholeUpdates, MatricesBeginAlignedInAnyWorld) {
  const ParameterLayout layout = OddMatrices();
  std::vector<float> gradient(static_cast<size_t>(layout.elements()));
  std::iota(gradient.begin(), gradient.end(), 0.0f);
  const GradientPiece all{0, {0, std::ssize(layout.chunks())}, {0, layout.elements()}, 0, gradient.data()};
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(size);
    const Copying optimizer;
    const StateLayout planes = LayoutOf(optimizer, layout);
    std::vector<std::string> hosts;
    for (int rank = 0; rank < size; ++rank) hosts.push_back(std::to_string(rank));
    const Placement placement(hosts, {});
    const ShardMap map(layout, DType::kF32, placement);
    const auto world = MakeInProcessWorld(size, 1);
    const auto prepare = [&](Communicator& comm) {
      const auto device = MakeCpuDevice(1);
      const auto stream = device->CreateStream().value();
      const ShardedState state =
          ShardedState::Create(map, planes, {.rank = comm.rank(), .cpu = {}}, *device, *stream).value();
      StepProgress progress;
      const auto updates = WholeUpdates::Create({.optimizer = &optimizer,
                                                 .state = &state,
                                                 .rank = comm.rank(),
                                                 .world = size == 1 ? nullptr : &comm,
                                                 .device = device.get(),
                                                 .stream = stream.get(),
                                                 .progress = &progress,
                                                 .timeout = std::chrono::minutes(5)})
                               .value();
      const absl::Status prepared = updates->Prepare({all}, {}, {});
      ASSERT_TRUE(prepared.ok()) << prepared;
      for (int chunk = 0; chunk < std::ssize(layout.chunks()); ++chunk) {
        const Chunk& what = layout.chunks()[static_cast<size_t>(chunk)];
        const float* const update = updates->updates()[static_cast<size_t>(chunk)];
        const bool due = state.Holds(chunk) && layout.parameters()[static_cast<size_t>(what.parameter)].hidden;
        ASSERT_EQ(update != nullptr, due);
        if (!due) continue;
        EXPECT_TRUE(std::equal(update, update + what.elements, &gradient[static_cast<size_t>(what.offset)])) << chunk;
      }
    };
    std::vector<std::thread> ranks;
    for (const auto& member : world) ranks.emplace_back([&] { prepare(*member); });
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(optimizer.made(), 6u);
  }
}

}  // namespace
}  // namespace holdfast
