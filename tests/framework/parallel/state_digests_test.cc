// Proves that the digests of chunks after an update are those that the chunks have when it was applied, for any number
// of chunks in any order, and that taking them changes no state: on CPUs of one and of more threads and on a device
// that does everything later, with mirrors there and in CPU memory, of every optimizer; that a process that ends
// because its device has failed says with what; and that no more CPU memory is pinned for them than they take.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "framework/parallel/placement.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/sharded_state.h"
#include "tests/framework/train/deferred_device.h"

namespace holdfast {
namespace {

struct DigestCase {
  std::string name;
  int threads = 1;
  bool deferred = false, mirrors_on_cpu = false;
  OptimizerConfig optimizer = {};
};

std::vector<DigestCase> DigestCases() {
  std::vector<DigestCase> cases{{.name = "Cpu"},
                                {.name = "CpuOfFourThreads", .threads = 4},
                                {.name = "Deferred", .threads = 3, .deferred = true},
                                {.name = "MirrorsOnCpu", .threads = 3, .deferred = true, .mirrors_on_cpu = true}};
  for (const OptimizerKind kind : {OptimizerKind::kLion, OptimizerKind::kMuon}) {
    for (const bool mirrors_on_cpu : {false, true}) {
      cases.push_back({.name = std::string(kind == OptimizerKind::kLion ? "Lion" : "Muon") +
                               (mirrors_on_cpu ? "WithMirrorsOnCpu" : ""),
                       .threads = 2,
                       .deferred = true,
                       .mirrors_on_cpu = mirrors_on_cpu,
                       .optimizer = {.name = kind, .ema_decay = 0.9}});
    }
  }
  return cases;
}

// More chunks than are digested together; the last of each matrix has fewer rows.
ParameterLayout LayoutToDigest() {
  std::vector<ParameterSpec> parameters;
  for (int unit = 0; unit < 2; ++unit) {
    parameters.push_back(
        {.name = "vector" + std::to_string(unit), .shape = {77}, .init = InitKind::kConstant, .unit = unit});
    parameters.push_back({.name = "matrix" + std::to_string(unit),
                          .shape = {6000, 500},
                          .init = InitKind::kNormal,
                          .init_std = 0.02f,
                          .decay = true,
                          .hidden = true,
                          .unit = unit});
  }
  return {std::move(parameters), {"a", "b"}};
}

class StateDigests : public testing::TestWithParam<DigestCase> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(state_.ok()) << state_.status();
    state_->Initialize(1);
    const auto elements = static_cast<size_t>(layout_.elements());
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(elements);
    for (Buffer* buffer : {&gradient_, &update_}) {
      for (float& value : values) value = normal(random);
      *buffer = Buffer::Allocate(*device_, elements * sizeof(float), "tests").value();
      device_->CopyFromCpu(buffer->data(), values.data(), elements * sizeof(float));
    }
    for (const Chunk& chunk : layout_.chunks()) updates_.push_back(update_.as<float>() + chunk.offset);
    Update();  // so that no plane is zero
  }
  UpdateArguments Arguments() {
    return {.optimizer = optimizer_.get(),
            .scalars = {.grad_scale = 0.3f, .lr = 0.01f, .bias_correction1 = 0.1f, .bias_correction2_sqrt = 0.2f},
            .updates = updates_};
  }
  void Update() {
    for (const Unit& unit : layout_.units()) {
      state_->Update({unit.first_chunk, unit.first_chunk + unit.num_chunks}, gradient_.as<float>() + unit.offset,
                     Arguments());
    }
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
  std::map<int, uint64_t> DigestsNow() {
    std::map<int, uint64_t> digests;
    for (int c = 0; c < std::ssize(layout_.chunks()); ++c) digests[c] = state_->ChunkDigest(c);
    return digests;
  }

  const ParameterLayout layout_ = LayoutToDigest();
  const std::unique_ptr<Optimizer> optimizer_ = MakeOptimizer(GetParam().optimizer);
  const std::unique_ptr<Device> cpu_device_ = MakeCpuDevice(GetParam().threads);
  const std::unique_ptr<Stream> cpu_stream_ = cpu_device_->CreateStream().value();
  const std::unique_ptr<Device> device_ =
      GetParam().deferred ? std::make_unique<DeferredDevice>() : MakeCpuDevice(GetParam().threads);
  const std::unique_ptr<Stream> stream_ = device_->CreateStream(StreamKind::kCompute).value();
  const Placement placement_{{"a", "b"}, {.mirrors = 1}};  // both ranks hold everything
  const ShardMap map_{layout_, DType::kBF16, placement_};
  const StateLayout planes_ = LayoutOf(*optimizer_, layout_);
  absl::StatusOr<ShardedState> state_ = ShardedState::Create(
      map_, planes_,
      {.whole_units = true, .cpu = {cpu_device_.get(), cpu_stream_.get()}, .mirrors_on_cpu = GetParam().mirrors_on_cpu},
      *device_, *stream_);
  Buffer gradient_, update_;
  std::vector<const float*> updates_;
};

TEST_P(StateDigests, AreThoseAfterTheUpdate) {
  const std::map<int, uint64_t> before = DigestsNow();
  std::vector<ChunkGradient> all;
  for (int c = 0; c < std::ssize(layout_.chunks()); ++c) {
    all.push_back({c, gradient_.as<float>() + layout_.chunks()[static_cast<size_t>(c)].offset});
  }
  ASSERT_GT(all.size(), 2 * (43u + 1));             // of 768 KiB in 32 MiB
  std::map<size_t, std::map<int, uint64_t>> after;  // by how many chunks were asked for
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{44}, size_t{45}, all.size() - 1}) {
    after[count] = state_->DigestsAfter(absl::MakeSpan(all).first(count), Arguments());
  }
  std::shuffle(all.begin(), all.begin() + std::ssize(all) / 2, std::mt19937(3));
  // Those of chunks behind each other do not lie behind each other.
  const size_t bytes = static_cast<size_t>(layout_.elements()) * sizeof(float);
  const Buffer odd = Buffer::Allocate(*device_, bytes, "tests").value();
  std::vector<float> values(static_cast<size_t>(layout_.elements())), odd_values(values.size(), 9.0f);
  device_->CopyToCpu(values.data(), gradient_.data(), bytes);
  std::vector<float> even_values = odd_values;
  for (int c = 0; c < std::ssize(layout_.chunks()); ++c) {
    const Chunk& chunk = layout_.chunks()[static_cast<size_t>(c)];
    std::copy_n(values.begin() + chunk.offset, chunk.elements,
                (c % 2 ? odd_values : even_values).begin() + chunk.offset);
  }
  device_->CopyFromCpu(odd.data(), odd_values.data(), bytes);
  device_->CopyFromCpu(gradient_.data(), even_values.data(), bytes);
  for (ChunkGradient& of : all) {
    if (of.chunk % 2) of.gradient = odd.as<float>() + (of.gradient - gradient_.as<float>());
  }
  after[all.size()] = state_->DigestsAfter(all, Arguments());
  device_->CopyFromCpu(gradient_.data(), values.data(), bytes);
  EXPECT_EQ(DigestsNow(), before);
  Update();
  const std::map<int, uint64_t> expected = DigestsNow();
  for (const auto& [chunk, digest] : expected) EXPECT_NE(digest, before.at(chunk));
  for (const auto& [count, digests] : after) {
    EXPECT_EQ(digests.size(), count);
    for (const auto& [chunk, digest] : digests) EXPECT_EQ(digest, expected.at(chunk)) << chunk << " of " << count;
  }
}

/// Notes the largest block of CPU memory that it is asked for, which a GPU would pin.
class PinningDevice final : public DeferredDevice {
 public:
  absl::StatusOr<void*> AllocateCpu(size_t bytes) override {
    most_pinned = std::max(most_pinned, bytes);
    return DeferredDevice::AllocateCpu(bytes);
  }
  size_t most_pinned = 0;
};

TEST(StateDigestsMemory, IsPinnedForTheDigestsAlone) {
  const ParameterLayout layout = LayoutToDigest();
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer({});
  PinningDevice device;
  const std::unique_ptr<Stream> stream = device.CreateStream(StreamKind::kCompute).value();
  const Placement placement{{"a"}, {.mirrors = 0}};
  const ShardMap map(layout, DType::kBF16, placement);
  const StateLayout planes = LayoutOf(*optimizer, layout);
  ShardedState state = ShardedState::Create(map, planes, {.whole_units = true}, device, *stream).value();
  state.Initialize(1);
  const size_t bytes = static_cast<size_t>(layout.chunks()[0].elements) * sizeof(float);
  const Buffer gradient = Buffer::Allocate(device, bytes, "tests").value();
  stream->ops().Zero(gradient.data(), bytes);
  const std::vector<ChunkGradient> chunks{{0, gradient.as<float>()}};
  EXPECT_EQ(state.DigestsAfter(chunks, {.optimizer = optimizer.get(), .scalars = {}}).size(), 1u);
  EXPECT_LE(device.most_pinned, layout.chunks().size() * sizeof(uint64_t));
}

/// A GPU's after a kernel has failed.
class FailedStream final : public Stream {
 public:
  explicit FailedStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}
  kernels::Ops& ops() override { return inner_->ops(); }
  absl::Status Synchronize() override { return failed ? absl::InternalError("AdamW failed on it") : absl::OkStatus(); }
  std::shared_ptr<Event> Record() override { return inner_->Record(); }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override { inner_->CopyToCpu(cpu, device, bytes); }
  size_t scratch_bytes() const override { return 0; }

  bool failed = false;

 private:
  std::unique_ptr<Stream> inner_;
};

TEST(StateDigestsDeathTest, SayWhatHasFailed) {
  const ParameterLayout layout = LayoutToDigest();
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer({});
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  FailedStream stream(device->CreateStream().value());
  const Placement placement{{"a"}, {.mirrors = 0}};
  const ShardMap map(layout, DType::kBF16, placement);
  const StateLayout planes = LayoutOf(*optimizer, layout);
  ShardedState state = ShardedState::Create(map, planes, {.whole_units = true}, *device, stream).value();
  state.Initialize(1);
  const std::vector<float> gradient(static_cast<size_t>(layout.chunks()[0].elements));
  const std::vector<ChunkGradient> chunks{{0, gradient.data()}};
  stream.failed = true;
  EXPECT_DEATH(state.DigestsAfter(chunks, {.optimizer = optimizer.get(), .scalars = {}}), "AdamW failed on it");
}

INSTANTIATE_TEST_SUITE_P(Of, StateDigests, testing::ValuesIn(DigestCases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace holdfast
