// Proves promise 1 and recovery from memory, with ranks as threads: whatever the number of ranks, the sharding
// strategy, replicas, mirrors, and however microbatches are spread, loss bits, gradient-norm bits and state digests are
// those of the world of one; and when ranks die, what is left has every bit of the state.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "framework/config/enums.h"
#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/comm/wrapped_communicator.h"
#include "tests/framework/parallel/device_only_communicator.h"
#include "tests/framework/train/deferred_device.h"
#include "tests/framework/train/digest_of.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 16, kBatch = 2, kMicrobatches = 5, kSteps = 6;

/// Experts in the first and the last of three layers, and one that is shared. Of five each has biases, and attention
/// has sinks.
void AddExperts(int64_t num_experts, ModelConfig* m) {
  m->activation = ActivationKind::kSwiglu;
  m->bias = false;
  m->num_experts = num_experts;
  m->experts_per_token = 2;
  m->expert_intermediate_size = 24;
  m->expert_layer_step = 2;
  m->shared_expert_intermediate_size = 16;
  m->shared_expert_gate = true;
  m->router_bias = true;
  m->router_bias_rate = 0.02;  // changes who is chosen within a few steps
  m->expert_capacity = num_experts == 7 ? 0.75 : 0;
  m->router_jitter = num_experts == 7 ? 0.2 : 0;
  m->expert_bias = m->attention_sinks = num_experts == 5;
  m->swiglu_limit = num_experts == 5 ? 1 : 0;  // which gates and ups are beyond that begin with biases of about 1
}

/// `wide`: matrices of several chunks, tall and wide.
ModelConfig TinyModel(bool tied, double dropout, bool wide) {
  ModelConfig m = TinyTransformer(kVocab, kSequence);
  m.num_layers = 3;
  if (wide) {
    m.num_layers = 2;
    m.hidden_size = 64;
    m.head_dim = 16;
    m.intermediate_size = 1152;
  }
  m.tie_embeddings = tied;
  m.dropout = dropout;
  return m;
}

/// Sequences of several documents, of which a part is not learned, of some microbatches all but one token.
void InDocuments(std::mt19937& random, Microbatch* m) {
  m->document_begins.resize(m->inputs.size());
  m->document_ends.resize(m->inputs.size());
  for (size_t i = 0; i < m->inputs.size();) {
    const size_t place = i % kSequence, length = std::min<size_t>(1 + random() % 9, kSequence - place);
    for (size_t j = i; j < i + length; ++j) {
      m->document_begins[j] = static_cast<int32_t>(place);
      m->document_ends[j] = static_cast<int32_t>(place + length);
      if (m->step % 2 == 0 ? j > 0 : j == i || random() % 3 == 0) m->targets[j] = -1;
    }
    i += length;
  }
}

absl::StatusOr<Microbatch> MakeMicrobatch(int64_t step, int64_t index) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + index));
  Microbatch m{.batch = kBatch, .sequence = kSequence, .inputs = {}, .targets = {}};
  m.step = static_cast<uint32_t>(step);
  m.index = static_cast<uint32_t>(index);
  for (int64_t i = 0; i < kBatch * kSequence; ++i) {
    m.inputs.push_back(static_cast<int32_t>(random() % kVocab));
    m.targets.push_back(static_cast<int32_t>(random() % kVocab));
  }
  if (index % 2 == 1) InDocuments(random, &m);
  return m;
}

/// What of the model is trained.
enum class Part { kAll, kTop, kVectors, kMatrices, kAdapters, kAdaptersWithDropout };
constexpr Part kParts[] = {Part::kTop, Part::kVectors, Part::kMatrices, Part::kAdapters, Part::kAdaptersWithDropout};

bool IsFrozen(Part part, const ParameterSpec& spec) {
  switch (part) {
    case Part::kAll:
      return false;
    case Part::kTop:  // no unit below the last block
      return !spec.name.starts_with("blocks.2.") && !spec.name.starts_with("final_norm");
    case Part::kVectors:
      return spec.is_matrix();
    case Part::kMatrices:  // not all of any block, nothing of the experts, and of a tied table all
      return !spec.is_matrix() || spec.name.find(".experts.") != std::string::npos ||
             spec.name.starts_with("embedding.tokens") || spec.name.find(".up.") != std::string::npos;
    case Part::kAdapters:
    case Part::kAdaptersWithDropout:
      return !spec.adapter;
  }
  return false;
}

struct Setting {
  DType dtype = DType::kBF16;
  bool tied = true;
  bool recompute = false;
  int64_t sum_block = 0;  // microbatches of a block of chains; 0 = the tree
  ParallelConfig parallel = {};
  bool deferred = false;  // on a device that works later, like a GPU
  OptimizerConfig optimizer = {.lr = 3e-3};
  bool wide = false;
  int64_t num_experts = 0;
  bool norms_after = false;
  bool in_parts = false;  // experts are computed where they lie
  bool turns = false;     // where two passes of a rank take turns
  int64_t microbatches = kMicrobatches;
  bool ties = false;       // in the first step all experts are alike to the router, so all tokens go to the first ones
  Part part = Part::kAll;  // is trained
  bool rates = false;      // parameters have rates and decay of their own
  bool completep = false;  // of a base that is narrower and has one layer
  bool device_only = false;  // and with communicators that take no other memory than its, like NCCL's
};

/// With Setting::rates. Matrices and vectors, of every block.
bool HasOwnRate(const std::string& name) { return name.size() % 3 == 0; }

/// Arbitrary weights, but zero for routers.
ReadWeightsFn WithoutRouters(const ParameterLayout& layout) {
  return [&layout](int64_t first, absl::Span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      const auto p = std::find_if(layout.parameters().begin(), layout.parameters().end(),
                                  [&](const ParameterSpec& spec) { return at < spec.offset + spec.shape.elements(); });
      const float noise = static_cast<float>(at * 2654435761 % 1000) / 1000 - 0.5f;
      out[i] = p->name.find("router") != std::string::npos ? 0 : p->is_matrix() ? 0.1f * noise : 1 + 0.1f * noise;
    }
    return absl::OkStatus();
  };
}

/// One rank's process, so to speak.
struct Process {
  explicit Process(const Setting& setting)
      : device(setting.deferred ? std::make_unique<DeferredDevice>() : MakeCpuDevice(1)) {
    ModelConfig config = TinyModel(setting.tied, 0.1, setting.wide);
    if (setting.num_experts > 0) AddExperts(setting.num_experts, &config);
    if (setting.norms_after) config.norm_position = NormPosition::kAfter;
    if (setting.completep) {
      config.parametrization = Parametrization::kCompleteP;
      config.base_hidden_size = 8;
      config.base_num_layers = 1;
    }
    TransformerOptions transformer{
        .compute_dtype = setting.dtype, .recompute_blocks = setting.recompute, .cut_at_experts = setting.in_parts};
    transformer.frozen = [part = setting.part](const ParameterSpec& spec) { return IsFrozen(part, spec); };
    transformer.optimizer = setting.optimizer.name;
    if (setting.rates) {
      transformer.set_rates = [](ParameterSpec& spec) {
        if (!HasOwnRate(spec.name)) return;
        spec.lr_factor = 0.3f;
        spec.decay = false;
      };
    }
    const bool adapters = setting.part == Part::kAdapters || setting.part == Part::kAdaptersWithDropout;
    if (adapters) {
      transformer.lora = {.rank = 3, .scale = 1.5f, .query = true, .value = true, .output = true, .up = true};
      const bool mixture = setting.num_experts > 0, dropout = setting.part == Part::kAdaptersWithDropout;
      transformer.lora.down = transformer.lora.gate = mixture;
      transformer.lora.shared_expert = transformer.lora.shared_expert_gate = mixture;
      transformer.lora.experts = transformer.lora.router = mixture && !dropout;
      transformer.lora.dropout = dropout ? 0.2f : 0;
    }
    model = MakeTransformer(config, transformer, *device).value();
    const PassPlan training = PlanTraining(*model, kBatch, kSequence);
    TrainerOptions options;
    options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = setting.microbatches};
    if (setting.sum_block > 0) {
      options.batch.gradient_sum = GradientSumKind::kChains;
      options.batch.gradient_sum_block = setting.sum_block;
    }
    options.optimizer = setting.optimizer;
    options.parallel = setting.parallel;
    options.total_steps = 1000;
    options.seed = 7;
    options.arena_bytes = training.arena_bytes;
    options.training_schedule = training.schedule;
    options.evaluation_schedule = PlanEvaluation(*model, kBatch, kSequence).schedule;
    if (setting.in_parts) {
      const PassPlan in_parts = PlanTraining(*model, kBatch, kSequence, setting.in_parts);
      options.in_parts = {.arena_bytes = in_parts.arena_bytes,
                          .training_schedule = in_parts.schedule,
                          .evaluation_schedule = PlanEvaluation(*model, kBatch, kSequence, true).schedule,
                          .second_arena_bytes = setting.turns ? in_parts.arena_bytes : 0};
    }
    if (setting.ties || setting.part != Part::kAll) options.initial_weights = WithoutRouters(model->layout());
    options.begins_random = adapters;
    trainer = Trainer::Create(*model, *device, options).value();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<Trainer> trainer;
};

/// What mirrors are filled over, once somebody opens it.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;

  void Open() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

class GatedCommunicator final : public WrappedCommunicator {
 public:
  GatedCommunicator(std::unique_ptr<Communicator> inner, Gate& gate)
      : WrappedCommunicator(std::move(inner)), gate_(gate) {}
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    std::unique_lock lock(gate_.mutex);
    if (!gate_.changed.wait_until(lock, deadline, [&] { return gate_.open; })) {
      return absl::DeadlineExceededError("nobody has begun the step");
    }
    lock.unlock();
    return WrappedCommunicator::AllToAllV(input, output, deadline);
  }

 private:
  Gate& gate_;
};

/// Calls a function in each exchange.
class WatchedCommunicator final : public WrappedCommunicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, std::function<void()> on_exchange)
      : WrappedCommunicator(std::move(inner)), on_exchange_(std::move(on_exchange)) {}
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    on_exchange_();
    return WrappedCommunicator::AllToAllV(input, output, deadline);
  }

 private:
  std::function<void()> on_exchange_;
};

/// What it hears from rank 0 in words of 64 bits is another number.
class GarblingCommunicator final : public WrappedCommunicator {
 public:
  GarblingCommunicator(std::unique_ptr<Communicator> inner, int64_t word)
      : WrappedCommunicator(std::move(inner)), word_(word) {}
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override {
    RETURN_IF_ERROR(WrappedCommunicator::Broadcast(root, data, deadline));
    if (rank() != root && data.size() == sizeof(word_)) std::memcpy(data.data(), &word_, sizeof(word_));
    return absl::OkStatus();
  }

 private:
  const int64_t word_;
};

/// Members of a world, by rank, and what each step of it gave.
class TestWorld {
 public:
  struct Step {
    uint32_t loss = 0, norm = 0;
    uint64_t digest = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };

  TestWorld(std::vector<Process*> members, std::vector<std::string> nodes, const Setting& setting)
      : members_(std::move(members)),
        nodes_(std::move(nodes)),
        device_only_(setting.device_only),
        in_parts_(setting.in_parts),
        microbatches_(setting.microbatches),
        parallel_(setting.parallel),
        placement_(nodes_, setting.parallel),
        mirrored_(std::make_shared<std::vector<std::atomic<bool>>>(members_.size())) {}

  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Process*>& members() const { return members_; }
  const Placement& placement() const { return placement_; }
  void SetPlacement(Placement placement) { placement_ = std::move(placement); }
  /// Called with the rank in each of its exchanges of rows of a unit that is computed in parts. Before Enter.
  void SetOnExchange(std::function<void(int rank)> on_exchange) { on_exchange_ = std::move(on_exchange); }
  /// What all other ranks hear instead of a word of 64 bits of rank 0. Before Enter.
  void SetGarbledWord(int64_t word) { garbled_word_ = word; }
  /// Mirrors are filled when it opens.
  void SetGate(Gate* gate) { gate_ = gate; }
  bool mirrored(int rank) const { return (*mirrored_)[static_cast<size_t>(rank)]; }
  Trainer& trainer(int rank) { return *members_[static_cast<size_t>(rank)]->trainer; }

  template <typename Program>
  void Run(Program&& program) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { program(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  /// By the placement that follows from that of `source`, or by the first one (`anew`), or by `placement`.
  void Enter(const TestWorld* source, bool source_is_entered = false, bool anew = false,
             const std::function<absl::Status(ShardedState&, std::stop_token)>& load = nullptr) {
    TrainerWorld world;
    world.load = load;
    world.source_is_entered = source_is_entered;
    if (source != nullptr) {
      world.source = source->placement_;
      for (Process* old : source->members_) {
        const auto at = std::find(members_.begin(), members_.end(), old);
        world.source_ranks.push_back(at == members_.end() ? -1 : static_cast<int>(at - members_.begin()));
      }
      if (!anew) placement_ = Placement(nodes_, parallel_, 0, source->placement_, world.source_ranks);
    }
    world.placement = Placement::FromTable(nodes_, parallel_, 0, placement_.Table()).value();  // as it travels
    std::vector<WorldCommunicators> communicators = Connect(/*for_mirrors=*/source != nullptr);
    Run([&](int rank) {
      TrainerWorld mine = world;
      mine.rank = rank;
      mine.on_mirrored = [mirrored = mirrored_, rank] { (*mirrored)[static_cast<size_t>(rank)] = true; };
      const auto entered = trainer(rank).EnterWorld(mine, std::move(communicators[static_cast<size_t>(rank)]));
      EXPECT_TRUE(entered.ok()) << entered.status();
    });
  }

  /// Prepares a step on all ranks; `commits[r]`: rank r hears of the commit.
  Step Advance(int64_t step, const std::vector<int64_t>& microbatches, const std::vector<bool>& commits,
               std::vector<StepResult>* results = nullptr) {
    std::vector<StepResult> prepared(members_.size());
    std::vector<std::map<int, uint64_t>> digests(members_.size());
    Run([&](int rank) {
      const auto source = [&](int64_t index) { return MakeMicrobatch(step, index); };
      const auto result = trainer(rank).Prepare({step, microbatches}, source, {});
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_TRUE(trainer(rank).AwaitMirrors().ok());
      prepared[static_cast<size_t>(rank)] = *result;
      digests[static_cast<size_t>(rank)] = trainer(rank).DigestsAfter(*result);
      if (commits[static_cast<size_t>(rank)]) trainer(rank).Commit(*result);
    });
    std::map<int, uint64_t> all;
    for (int r = 0; r < size(); ++r) {
      all.insert(digests[static_cast<size_t>(r)].begin(), digests[static_cast<size_t>(r)].end());
      EXPECT_EQ(prepared[static_cast<size_t>(r)].loss, prepared[0].loss);
      EXPECT_EQ(prepared[static_cast<size_t>(r)].grad_norm, prepared[0].grad_norm);
    }
    std::vector<uint64_t> ordered;
    for (const auto& [chunk, digest] : all) ordered.push_back(digest);
    if (results != nullptr) *results = prepared;
    return {std::bit_cast<uint32_t>(prepared[0].loss), std::bit_cast<uint32_t>(prepared[0].grad_norm),
            StateDigest(ordered)};
  }
  Step Advance(int64_t step) {
    return Advance(step, EvenMicrobatches(microbatches_, size()), std::vector<bool>(members_.size(), true));
  }

  /// Each microbatch goes to a rank by lot: some may have none.
  Step AdvanceUnevenly(int64_t step, std::mt19937& random) {
    std::vector<int64_t> microbatches(members_.size());
    for (int64_t i = 0; i < microbatches_; ++i) ++microbatches[random() % microbatches.size()];
    return Advance(step, microbatches, std::vector<bool>(members_.size(), true));
  }

 private:
  std::vector<WorldCommunicators> Connect(bool for_mirrors) {
    std::vector<WorldCommunicators> result(members_.size());
    if (size() == 1) return result;
    auto all = MakeInProcessWorld(size(), 1);
    for (size_t r = 0; r < all.size(); ++r) {
      result[r].world = Restrict(std::move(all[r]), r);
      if (!garbled_word_.has_value()) continue;
      result[r].world = std::make_unique<GarblingCommunicator>(std::move(result[r].world), *garbled_word_);
    }
    if (for_mirrors && placement_.num_mirrors() > 0) {
      auto again = MakeInProcessWorld(size(), 1);
      for (size_t r = 0; r < again.size(); ++r) {
        result[r].mirrors = Restrict(std::move(again[r]), r);
        if (gate_ != nullptr) {
          result[r].mirrors = std::make_unique<GatedCommunicator>(std::move(result[r].mirrors), *gate_);
        }
      }
    }
    for (int g = 0; g < placement_.num_groups(); ++g) {
      const std::vector<int> group = placement_.Group(g);
      if (group.size() == 1) continue;
      auto members = MakeInProcessWorld(static_cast<int>(group.size()), 1);
      for (size_t i = 0; i < group.size(); ++i) {
        const auto r = static_cast<size_t>(group[i]);
        result[r].group = Restrict(std::move(members[i]), r);
      }
      if (!in_parts_) continue;
      auto again = MakeInProcessWorld(static_cast<int>(group.size()), 1);
      for (size_t i = 0; i < group.size(); ++i) {
        const auto r = static_cast<size_t>(group[i]);
        result[r].parts = Restrict(std::move(again[i]), r);
        if (on_exchange_ == nullptr) continue;
        result[r].parts = std::make_unique<WatchedCommunicator>(
            std::move(result[r].parts), [on_exchange = on_exchange_, rank = group[i]] { on_exchange(rank); });
      }
    }
    return result;
  }

  std::unique_ptr<Communicator> Restrict(std::unique_ptr<Communicator> communicator, size_t rank) {
    if (!device_only_) return communicator;
    return std::make_unique<DeviceOnlyCommunicator>(std::move(communicator), *members_[rank]->device);
  }

  std::vector<Process*> members_;
  std::vector<std::string> nodes_;
  bool device_only_, in_parts_;
  int64_t microbatches_;
  ParallelConfig parallel_;
  Placement placement_;
  Gate* gate_ = nullptr;
  std::optional<int64_t> garbled_word_;
  std::function<void(int rank)> on_exchange_;
  // By rank: its missing mirrors have come. Shared with the threads that fill them, which a world may not live to see.
  std::shared_ptr<std::vector<std::atomic<bool>>> mirrored_;
};

class Fleet {
 public:
  explicit Fleet(const Setting& setting) : setting_(setting) {}
  Process* Start() { return processes_.emplace_back(std::make_unique<Process>(setting_)).get(); }
  std::vector<Process*> Start(int n) {
    std::vector<Process*> started;
    for (int i = 0; i < n; ++i) started.push_back(Start());
    return started;
  }

 private:
  Setting setting_;
  std::vector<std::unique_ptr<Process>> processes_;
};

std::vector<std::string> Nodes(int size, int per_node) {
  std::vector<std::string> nodes;
  for (int r = 0; r < size; ++r) nodes.push_back("node" + std::to_string(r / per_node));
  return nodes;
}

std::vector<TestWorld::Step> Undisturbed(const Setting& setting) {
  Setting solo = setting;
  solo.parallel = {};
  solo.deferred = false;
  Fleet fleet(solo);
  TestWorld world(fleet.Start(1), {"one"}, solo);
  world.Enter(nullptr);
  std::vector<TestWorld::Step> steps;
  for (int64_t step = 1; step <= kSteps; ++step) {
    steps.push_back(world.Advance(step));
    EXPECT_EQ(steps.back().digest, DigestOf(world.trainer(0)));  // the digest foretold is the one that comes
  }
  return steps;
}

struct Case {
  int size;
  Sharding sharding;
  int64_t replicas, mirrors;
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const char* names[] = {"NoShard", "ShardGradOp", "FullShard"};
  return std::string(names[static_cast<int>(info.param.sharding)]) + "N" + std::to_string(info.param.size) + "R" +
         std::to_string(info.param.replicas) + "M" + std::to_string(info.param.mirrors);
}

class EveryWorld : public testing::TestWithParam<Case> {};

TEST_P(EveryWorld, HasTheBitsOfTheWorldOfOne) {
  const Case& c = GetParam();
  for (const bool variant : {false, true}) {
    Setting setting{.dtype = variant ? DType::kF32 : DType::kBF16,
                    .tied = !variant,
                    .recompute = variant,
                    .sum_block = variant ? 2 : 0};
    setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    Fleet fleet(setting);
    TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
    world.Enter(nullptr);
    std::mt19937 random(3);
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(world.AdvanceUnevenly(step, random), expected[static_cast<size_t>(step - 1)]) << "step " << step;
    }
  }
}

/// Those whose state or step is another than AdamW's, which all other tests have.
std::vector<OptimizerConfig> Optimizers() {
  return {{.lr = 3e-3, .ema_decay = 0.9},
          {.name = OptimizerKind::kLion, .lr = 1e-3},
          {.name = OptimizerKind::kMuon, .lr = 3e-3, .ema_decay = 0.5}};
}

/// As after many losses and joins: what a rank serves is many runs.
Placement Scattered(const std::vector<std::string>& nodes, const ParallelConfig& parallel, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> now = nodes;
  Placement placement(now, parallel);
  for (int change = 0; change < 12 || now.size() != nodes.size(); ++change) {
    std::vector<int> ranks(now.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    if (now.size() > 1 && (now.size() > nodes.size() || random() % 2 == 0)) {
      const auto lost = static_cast<std::ptrdiff_t>(random() % now.size());
      now.erase(now.begin() + lost);
      for (int& rank : ranks) rank = rank == lost ? -1 : rank - (rank > lost ? 1 : 0);
    } else {
      now.push_back("later" + std::to_string(change));
    }
    placement = Placement(now, parallel, 0, placement, ranks);
  }
  std::vector<int> ranks(nodes.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return Placement(nodes, parallel, 0, placement, ranks);
}

TEST_P(EveryWorld, HasThemWhereverTheStateLies) {
  const Case& c = GetParam();
  for (const bool deferred : {false, true}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      Setting setting{.dtype = seed == 0 ? DType::kF32 : DType::kBF16, .sum_block = seed};
      setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
      setting.deferred = setting.device_only = deferred;
      const std::vector<TestWorld::Step> expected = Undisturbed(setting);
      Fleet fleet(setting);
      TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
      world.SetPlacement(Scattered(Nodes(c.size, 2), setting.parallel, seed));
      world.Enter(nullptr);
      for (int64_t step = 1; step <= kSteps; ++step) {
        EXPECT_EQ(world.Advance(step), expected[static_cast<size_t>(step - 1)]) << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST_P(EveryWorld, HasThemWithEveryOptimizer) {
  const Case& c = GetParam();
  for (const OptimizerConfig& optimizer : Optimizers()) {
    const std::vector<TestWorld::Step> expected =
        Undisturbed({.optimizer = optimizer, .wide = true, .rates = true, .completep = true});
    for (const bool deferred : {false, true}) {  // then with mirrors on the CPU, and state anywhere
      Setting setting{.deferred = deferred, .optimizer = optimizer, .wide = true, .rates = true, .completep = true};
      setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
      if (deferred) setting.parallel.mirrors_on = MirrorPlace::kCpu;
      Fleet fleet(setting);
      TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
      if (deferred) world.SetPlacement(Scattered(Nodes(c.size, 2), setting.parallel, 1));
      world.Enter(nullptr);
      for (int64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(world.Advance(step), expected[static_cast<size_t>(step - 1)])
            << Name(optimizer.name) << " deferred " << deferred << " step " << step;
      }
    }
  }
}

// Of 5 and 7 experts, which no number of ranks divides, and with more ranks than experts.
TEST_P(EveryWorld, HasThemWithExperts) {
  const Case& c = GetParam();
  for (const int64_t num_experts : {5, 7}) {
    const bool variant = num_experts == 7;
    Setting setting{.dtype = variant ? DType::kF32 : DType::kBF16,
                    .recompute = variant,
                    .deferred = variant,
                    .optimizer = {.name = variant ? OptimizerKind::kMuon : OptimizerKind::kAdamW, .lr = 3e-3},
                    .num_experts = num_experts,
                    .norms_after = variant};
    Setting kept = setting;
    kept.recompute = false;
    const std::vector<TestWorld::Step> expected = Undisturbed(kept);
    setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
    for (const auto& [in_parts, turns] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
      setting.in_parts = in_parts;
      setting.turns = turns;
      Fleet fleet(setting);
      TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
      // In bf16 an expert with biases has tensors of both dtypes, and those of a rank do not follow each other.
      if (variant || in_parts) world.SetPlacement(Scattered(Nodes(c.size, 2), setting.parallel, 1));
      world.Enter(nullptr);
      for (int64_t step = 1; step <= kSteps; ++step) {
        EXPECT_EQ(world.Advance(step), expected[static_cast<size_t>(step - 1)])
            << num_experts << " in parts " << in_parts << " turns " << turns << " step " << step;
      }
    }
  }
}

// Two passes of a rank take turns: of seven microbatches, so that in worlds of up to six some rank has two, spread by
// lot, so that waves have ranks with two passes, with one, and with none, and there are waves without a partner; in
// both orders of sums.
TEST_P(EveryWorld, HasThemWhereMicrobatchesTakeTurns) {
  const Case& c = GetParam();
  for (const bool variant : {false, true}) {
    Setting setting{.dtype = variant ? DType::kF32 : DType::kBF16,
                    .tied = !variant,
                    .recompute = variant,
                    .sum_block = variant ? 2 : 0,
                    .deferred = variant,
                    .num_experts = 5,
                    .in_parts = true,
                    .microbatches = 7};
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
    setting.turns = true;
    setting.device_only = variant;
    Fleet fleet(setting);
    TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
    world.Enter(nullptr);
    EXPECT_EQ(world.trainer(0).TwoAtATime(world.placement()),
              c.size < setting.microbatches && world.placement().num_groups() < c.size);
    std::mt19937 random(variant ? 11 : 7);
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(world.AdvanceUnevenly(step, random), expected[static_cast<size_t>(step - 1)])
          << "variant " << variant << " step " << step;
    }
  }
}

// More rows come to one rank than it has room for, and ranks without a microbatch serve those with.
TEST_P(EveryWorld, HasThemWithAllTokensOnAFewExperts) {
  const Case& c = GetParam();
  Setting setting{.num_experts = 6, .in_parts = true, .ties = true};
  const std::vector<TestWorld::Step> expected = Undisturbed(setting);
  setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
  for (const bool turns : {false, true}) {
    setting.turns = turns;
    Fleet fleet(setting);
    TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
    world.Enter(nullptr);
    std::mt19937 random(5);
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(world.AdvanceUnevenly(step, random), expected[static_cast<size_t>(step - 1)])
          << "turns " << turns << " step " << step;
    }
  }
}

TEST_P(EveryWorld, HasThemWithAPartOfTheModel) {
  const Case& c = GetParam();
  for (const Part part : kParts) {
    for (const int64_t num_experts : {0, 5}) {
      const bool variant = part == Part::kVectors || part == Part::kAdapters;
      Setting setting{.dtype = variant ? DType::kF32 : DType::kBF16,
                      .tied = part != Part::kAdapters,
                      .deferred = variant,
                      .num_experts = num_experts,
                      .part = part};
      const std::vector<TestWorld::Step> expected = Undisturbed(setting);
      setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
      setting.recompute = !variant;
      Fleet fleet(setting);
      TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
      world.Enter(nullptr);
      for (int64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(world.Advance(step), expected[static_cast<size_t>(step - 1)])
            << "part " << static_cast<int>(part) << " experts " << num_experts << " step " << step;
      }
    }
  }
}

/// Of a world of one after `steps` steps.
std::map<std::string, std::vector<float>> WeightsAfter(const Setting& setting, int64_t steps) {
  Fleet fleet(setting);
  TestWorld world(fleet.Start(1), {"one"}, setting);
  world.Enter(nullptr);
  for (int64_t step = 1; step <= steps; ++step) world.Advance(step);
  std::map<std::string, std::vector<float>> weights;
  const absl::Status status = world.trainer(0).WithWeights([&](const ReadWeightsFn& read) {
    for (const ParameterSpec& spec : world.members()[0]->model->layout().parameters()) {
      std::vector<float>& values = weights[spec.name];
      values.resize(static_cast<size_t>(spec.shape.elements()));
      RETURN_IF_ERROR(read(spec.offset, absl::MakeSpan(values)));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return weights;
}

// The step of what is trained has the bits that it has in a step of all, and the rest has those it began with.
TEST(World, APartIsTrainedAsItIsInTheWhole) {
  for (const int64_t num_experts : {0, 5}) {
    for (const Part part : {Part::kTop, Part::kVectors, Part::kMatrices}) {
      Setting setting{.optimizer = {.lr = 3e-3, .grad_clip_norm = 0}, .num_experts = num_experts, .part = part};
      const auto before = WeightsAfter(setting, 0), after = WeightsAfter(setting, 1);
      setting.part = Part::kAll;
      setting.ties = true;  // the same beginning
      const auto whole = WeightsAfter(setting, 1);
      int trained = 0, frozen = 0;
      for (const auto& [name, values] : after) {
        const bool changes = values != before.at(name);
        ++(changes ? trained : frozen);
        EXPECT_TRUE(values == (changes ? whole.at(name) : before.at(name))) << name;
      }
      EXPECT_GT(trained, 3);
      EXPECT_GT(frozen, 3);
    }
  }
}

// What a parameter's own rate and decay change is that parameter.
TEST(World, RatesOfParametersAreTheirOwn) {
  for (OptimizerConfig optimizer : Optimizers()) {
    optimizer.grad_clip_norm = 0;
    Setting setting{.optimizer = optimizer};
    const auto as_is = WeightsAfter(setting, 1);
    setting.rates = true;
    int own = 0, others = 0;
    for (const auto& [name, values] : WeightsAfter(setting, 1)) {
      ++(HasOwnRate(name) ? own : others);
      EXPECT_EQ(values != as_is.at(name), HasOwnRate(name)) << Name(optimizer.name) << " " << name;
    }
    EXPECT_GT(own, 3);
    EXPECT_GT(others, 3);
  }
}

/// Of worlds on a device that works later: communicators of its memory only, and where mirrors are.
constexpr std::pair<bool, MirrorPlace> kDeferredVariants[] = {
    {false, MirrorPlace::kDevice}, {true, MirrorPlace::kDevice}, {false, MirrorPlace::kCpu}};

TEST_P(EveryWorld, HasThemOnADeviceThatWorksLater) {
  const Case& c = GetParam();
  for (const auto& [device_only, place] : kDeferredVariants) {
    Setting setting{.sum_block = device_only ? 2 : place == MirrorPlace::kCpu ? 1 : 0};
    setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors, .mirrors_on = place};
    setting.deferred = true;
    setting.device_only = device_only;
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    Fleet fleet(setting);
    TestWorld world(fleet.Start(c.size), Nodes(c.size, 2), setting);
    world.Enter(nullptr);
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(world.Advance(step), expected[static_cast<size_t>(step - 1)]) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryWorld,
                         testing::Values(Case{1, Sharding::kFullShard, 1, 1}, Case{2, Sharding::kFullShard, 1, 1},
                                         Case{3, Sharding::kFullShard, 1, 0}, Case{4, Sharding::kFullShard, 1, 2},
                                         Case{7, Sharding::kFullShard, 1, 1}, Case{4, Sharding::kFullShard, 2, 1},
                                         Case{7, Sharding::kFullShard, 3, 1}, Case{3, Sharding::kFullShard, 2, 1},
                                         Case{5, Sharding::kFullShard, 9, 1}, Case{2, Sharding::kShardGradOp, 1, 1},
                                         Case{5, Sharding::kShardGradOp, 1, 1}, Case{5, Sharding::kShardGradOp, 2, 2},
                                         Case{2, Sharding::kNoShard, 1, 1}, Case{3, Sharding::kNoShard, 1, 0},
                                         Case{7, Sharding::kNoShard, 1, 1}),
                         CaseName);

void ComeAndGo(const Setting& setting) {
  const std::vector<TestWorld::Step> expected = Undisturbed(setting);
  Fleet fleet(setting);
  const std::vector<Process*> p = fleet.Start(4);
  TestWorld first({p[0], p[1], p[2], p[3]}, Nodes(4, 1), setting);
  first.Enter(nullptr);
  EXPECT_EQ(first.Advance(1), expected[0]);
  TestWorld second({p[1], p[2], p[3]}, Nodes(3, 1), setting);
  second.Enter(&first);
  second.Run([&](int rank) { EXPECT_TRUE(second.trainer(rank).AwaitMirrors().ok()); });  // as whoever is a source has
  TestWorld third({p[1], p[3]}, Nodes(2, 1), setting);  // of the first's holders two neighbours are gone now
  third.Enter(&second, /*source_is_entered=*/true);
  EXPECT_EQ(third.Advance(2), expected[1]);
  TestWorld fourth({p[3]}, Nodes(1, 1), setting);
  fourth.Enter(&third);
  EXPECT_EQ(fourth.Advance(3), expected[2]);
}

TEST(World, AWorldInWhichNothingWasDoneIsASourceToo) { ComeAndGo({}); }

TEST(World, ComesAndGoesWithExperts) {
  for (const bool in_parts : {false, true}) ComeAndGo({.num_experts = 7, .in_parts = in_parts});
}

TEST(World, ComesAndGoesWithAPartOfTheModel) {
  for (const Part part : kParts) {
    ComeAndGo({.part = part});
    ComeAndGo({.num_experts = 5, .part = part});
  }
}

TEST(World, ComesAndGoesWithEveryOptimizer) {
  for (const OptimizerConfig& optimizer : Optimizers()) ComeAndGo({.optimizer = optimizer, .wide = true});
}

// Mirrors included: what all holders of a chunk have after a step is what they foretold, and the same.
TEST(World, HoldersAgreeWithEveryOptimizer) {
  for (const OptimizerConfig& optimizer : Optimizers()) {
    for (const MirrorPlace place : {MirrorPlace::kDevice, MirrorPlace::kCpu}) {
      Setting setting{.deferred = true, .optimizer = optimizer, .wide = true};
      if (place == MirrorPlace::kCpu) setting.num_experts = 5;
      setting.parallel = {.mirrors = 2, .mirrors_on = place};
      Fleet fleet(setting);
      TestWorld world(fleet.Start(4), Nodes(4, 1), setting);
      world.Enter(nullptr);
      for (int64_t step = 1; step <= 2; ++step) world.Advance(step);
      const ParameterLayout& layout = world.members()[0]->model->layout();
      for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
        std::set<uint64_t> digests;
        for (int r = 0; r < world.size(); ++r) {
          const ShardedState& state = world.trainer(r).state();
          if (state.Holds(chunk)) digests.insert(state.ChunkDigest(chunk));
        }
        EXPECT_EQ(digests.size(), 1u) << Name(optimizer.name) << " chunk " << chunk;
      }
    }
  }
}

TEST(World, GoesOnFromACheckpointInAnotherWorldWithEveryOptimizer) {
  for (const OptimizerConfig& optimizer : Optimizers()) {
    const Setting setting{.optimizer = optimizer, .wide = true};
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    for (const auto& [before, after] : {std::pair{3, 2}, std::pair{1, 5}, std::pair{4, 1}}) {
      Fleet fleet(setting);
      TestWorld first(fleet.Start(before), Nodes(before, 1), setting);
      first.Enter(nullptr);
      for (int64_t step = 1; step <= 3; ++step) EXPECT_EQ(first.Advance(step), expected[static_cast<size_t>(step - 1)]);
      std::map<int, std::vector<std::byte>> stored;
      for (int r = 0; r < before; ++r) {
        ShardedState& state = first.trainer(r).state();
        for (int chunk = 0; chunk < static_cast<int>(state.map().layout().chunks().size()); ++chunk) {
          if (!state.Holds(chunk)) continue;
          stored[chunk].resize(state.layout().ChunkBytes(state.map().layout().chunks()[static_cast<size_t>(chunk)]));
          state.ReadChunk(chunk, stored[chunk].data());
        }
      }
      TestWorld second(fleet.Start(after), Nodes(after, 1), setting);
      second.Enter(nullptr, false, false, [&](ShardedState& state, const std::stop_token&) {
        for (const auto& [chunk, bytes] : stored) {
          if (state.Holds(chunk)) state.WriteChunk(chunk, bytes.data());
        }
        return absl::OkStatus();
      });
      for (int64_t step = 4; step <= kSteps; ++step)
        EXPECT_EQ(second.Advance(step), expected[static_cast<size_t>(step - 1)]);
    }
  }
}

TEST(World, ComesAndGoesOnADeviceThatWorksLater) {
  for (const auto& [device_only, place] : kDeferredVariants) {
    Setting setting;
    setting.parallel.mirrors_on = place;
    setting.deferred = true;
    setting.device_only = device_only;
    ComeAndGo(setting);
  }
}

void EvaluateAndGiveWeights(Setting setting) {
  std::vector<float> expected;
  double expected_loss = 0;
  for (const Case& c :
       {Case{1, Sharding::kFullShard, 1, 1}, Case{3, Sharding::kFullShard, 1, 1}, Case{5, Sharding::kFullShard, 2, 1},
        Case{2, Sharding::kShardGradOp, 1, 0}, Case{4, Sharding::kNoShard, 1, 1}}) {
    setting.parallel = {.sharding = c.sharding, .replicas = c.replicas, .mirrors = c.mirrors};
    setting.deferred = setting.device_only = c.size == 5;
    Fleet fleet(setting);
    TestWorld world(fleet.Start(c.size), Nodes(c.size, 1), setting);
    world.Enter(nullptr);
    for (int64_t step = 1; step <= 2; ++step) world.Advance(step);
    std::vector<double> losses(static_cast<size_t>(c.size));
    std::vector<float> weights(static_cast<size_t>(world.members()[0]->model->layout().elements()));
    world.Run([&](int rank) {
      const auto source = [&](int64_t index) { return MakeMicrobatch(100, index); };
      losses[static_cast<size_t>(rank)] = world.trainer(rank).Evaluate(7, source, {}).value();
      const absl::Status status = world.trainer(rank).WithWeights([&](const ReadWeightsFn& read) {
        const size_t half = weights.size() / 2;
        const absl::Status first = read(0, absl::MakeSpan(weights).first(half));
        return first.ok() ? read(static_cast<int64_t>(half), absl::MakeSpan(weights).subspan(half)) : first;
      });
      EXPECT_TRUE(status.ok()) << status;
    });
    if (expected.empty()) {
      expected = weights;
      expected_loss = losses[0];
    }
    EXPECT_TRUE(weights == expected);
    for (const double loss : losses) EXPECT_EQ(loss, expected_loss);
    const TestWorld::Step after = world.Advance(3);  // and training goes on as if nothing had been
    EXPECT_EQ(after, Undisturbed(setting)[2]);
  }
}

// As from a rank 0 with broken memory.
TEST(World, AQuestionForAChunkThatThereIsNotIsRefused) {
  for (const int64_t word : {int64_t{-3}, int64_t{1} << 20, int64_t{1} << 32}) {  // the last one is 0 in 32 bits
    const Setting setting;
    Fleet fleet(setting);
    TestWorld world(fleet.Start(2), Nodes(2, 1), setting);
    world.SetGarbledWord(word);
    world.Enter(nullptr);
    world.Run([&](int rank) {
      const absl::Status status = world.trainer(rank).WithWeights([&](const ReadWeightsFn& read) {
        std::vector<float> weights(static_cast<size_t>(world.members()[0]->model->layout().elements()));
        return read(0, absl::MakeSpan(weights));
      });
      if (rank == 0) return;  // what it gets depends on who answers
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_NE(status.message().find(absl::StrCat("asks for chunk ", word, " of a model of ")), std::string::npos);
      world.trainer(rank).Abort("as a worker does that has failed");
    });
  }
}

// As a model that is written slowly: the other ranks would take it for lost and leave.
TEST(World, OtherRanksHearOfOneThatIsBusyWithTheWeights) {
  const Setting setting;
  Fleet fleet(setting);
  TestWorld world(fleet.Start(3), Nodes(3, 1), setting);
  world.Enter(nullptr);
  world.Run([&](int rank) {
    const absl::Status status = world.trainer(rank).WithWeights([&](const ReadWeightsFn& read) {
      std::vector<float> weights(static_cast<size_t>(world.members()[0]->model->layout().elements()));
      RETURN_IF_ERROR(read(0, absl::MakeSpan(weights)));
      const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
      for (int other = 1; other < 3; ++other) {
        for (const uint64_t before = world.trainer(other).progress().count;
             world.trainer(other).progress().count < before + 2;) {
          if (std::chrono::steady_clock::now() > end) return absl::DeadlineExceededError("nothing was said");
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      }
      return read(0, absl::MakeSpan(weights));
    });
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST(World, EvaluatesAndGivesItsWeightsAlike) { EvaluateAndGiveWeights({}); }

TEST(World, EvaluatesAlikeWithAPartOfTheModel) {
  for (const Part part : kParts) EvaluateAndGiveWeights({.part = part});
}

// Of 7 microbatches some ranks have none in the last pass, and serve those that have.
TEST(World, EvaluatesAlikeWithExpertsInParts) {
  EvaluateAndGiveWeights({.num_experts = 5, .in_parts = true, .turns = true});
}

// Where they need nobody's weights, either. The slow one would be taken for lost when the others wait for its losses.
TEST(World, NoRankIsPassesAheadInValidation) {
  Setting setting;
  setting.parallel.sharding = Sharding::kNoShard;
  Fleet fleet(setting);
  TestWorld world(fleet.Start(2), Nodes(2, 1), setting);
  world.Enter(nullptr);
  std::array<std::atomic<int64_t>, 2> begun{};
  world.Run([&](int rank) {
    const auto source = [&](int64_t index) {
      const int64_t pass = begun[static_cast<size_t>(rank)]++;
      EXPECT_GE(begun[static_cast<size_t>(1 - rank)], pass);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return MakeMicrobatch(100, index);
    };
    const auto loss = world.trainer(rank).Evaluate(10, source, {});
    EXPECT_TRUE(loss.ok()) << loss.status();
  });
}

// Ranks die and join at random between and during steps; some that die have heard of a commit that others have not.
void DieAndJoin(Setting setting) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    setting.dtype = seed % 3 == 0 ? DType::kF32 : DType::kBF16;
    setting.parallel = {.sharding = static_cast<Sharding>(random() % 3),
                        .replicas = 1 + static_cast<int64_t>(random() % 3),
                        .mirrors = 1 + static_cast<int64_t>(random() % 2)};
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    Fleet fleet(setting);
    const int start = 2 + static_cast<int>(random() % 4);
    auto world = std::make_unique<TestWorld>(fleet.Start(start), Nodes(start, 2), setting);
    world->Enter(nullptr);
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Prepared by all, heard by some.
      std::vector<bool> heard;
      for (int r = 0; r < world->size(); ++r) heard.push_back(random() % 2 == 0);
      std::vector<StepResult> results;
      const std::vector<int64_t> microbatches = EvenMicrobatches(kMicrobatches, world->size());
      EXPECT_EQ(world->Advance(step, microbatches, heard, &results), expected[static_cast<size_t>(step - 1)])
          << "seed " << seed << " step " << step;
      // Some die, as long as no cell loses its last holder.
      std::vector<bool> alive(static_cast<size_t>(world->size()), true);
      for (size_t r = 0; r < alive.size(); ++r) {
        alive[r] = random() % 3 != 0;
        if (!alive[r] && !world->placement().LostCells(alive).empty()) alive[r] = true;
      }
      std::vector<Process*> next;
      for (int r = 0; r < world->size(); ++r) {
        if (!alive[static_cast<size_t>(r)]) continue;
        if (!heard[static_cast<size_t>(r)]) world->trainer(r).Commit(results[static_cast<size_t>(r)]);
        next.push_back(world->members()[static_cast<size_t>(r)]);
      }
      for (auto joins = random() % 3; joins > 0 && next.size() < 6; --joins) {
        next.insert(next.begin() + static_cast<std::ptrdiff_t>(random() % (next.size() + 1)), fleet.Start());
      }
      const auto size = static_cast<int>(next.size());
      if (random() % 3 == 0) {  // a world that comes to nothing: the state stays where it was
        TestWorld failed(next, Nodes(size, 1), setting);
        failed.Enter(world.get());
      }
      auto entered = std::make_unique<TestWorld>(next, Nodes(size, 2), setting);
      entered->Enter(world.get(), /*source_is_entered=*/false, /*anew=*/random() % 4 == 0);
      world = std::move(entered);
    }
  }
}

TEST(World, WhatIsLeftHasEveryBit) { DieAndJoin({}); }

TEST(World, WhatIsLeftHasEveryBitOfAdapters) { DieAndJoin({.part = Part::kAdaptersWithDropout}); }

TEST(World, WhatIsLeftHasEveryBitOfExpertsThatAreComputedWhereTheyLie) {
  for (const bool turns : {false, true}) DieAndJoin({.num_experts = 6, .in_parts = true, .turns = turns});
}

/// What each rank says of its copies before a step, by chunk.
std::map<int, std::map<int, uint64_t>> CopiesOf(TestWorld& world, int64_t step, bool all) {
  std::map<int, std::map<int, uint64_t>> said;  // chunk -> rank -> digest
  std::mutex mutex;
  world.Run([&](int rank) {
    const auto source = [&](int64_t index) { return MakeMicrobatch(step, index); };
    const std::vector<int64_t> microbatches = EvenMicrobatches(kMicrobatches, world.size());
    const StepResult result = world.trainer(rank).Prepare({step, microbatches}, source, {}).value();
    EXPECT_TRUE(world.trainer(rank).AwaitMirrors().ok());
    std::map<int, uint64_t> mine = world.trainer(rank).DigestsOfCopiesAfter(result, all);
    if (all) mine.merge(world.trainer(rank).DigestsAfter(result));
    const std::lock_guard lock(mutex);
    for (const auto& [chunk, digest] : mine) said[chunk][rank] = digest;
    world.trainer(rank).Commit(result);
  });
  return said;
}

// A bit that flips in the memory of an owner, a mirror or a replica shows in the digests of its holders, and only
// there.
TEST(World, AFlippedBitShowsAmongTheHoldersOfItsChunk) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.mirrors = 1}, ParallelConfig{.mirrors = 2}, ParallelConfig{.replicas = 2, .mirrors = 1},
        ParallelConfig{.sharding = Sharding::kNoShard}}) {
    for (const bool owner : {true, false}) {
      const Setting setting{.parallel = parallel};
      Fleet fleet(setting);
      TestWorld world(fleet.Start(4), Nodes(4, 1), setting);
      world.Enter(nullptr);
      for (const auto& [chunk, digests] : CopiesOf(world, 1, /*all=*/true)) {
        for (const auto& [rank, digest] : digests) EXPECT_EQ(digest, digests.begin()->second) << chunk << " " << rank;
      }
      const ParameterLayout& layout = world.members()[0]->model->layout();
      const ShardMap map(layout, DType::kBF16, world.placement());
      const int chunk = static_cast<int>(layout.chunks().size()) / 2;
      const std::vector<int> holders = map.Holders(chunk);
      const int victim = owner ? holders.front() : holders.back();
      ShardedState& state = world.trainer(victim).state();
      std::vector<std::byte> bytes(state.layout().ChunkBytes(layout.chunks()[static_cast<size_t>(chunk)]));
      state.ReadChunk(chunk, bytes.data());
      bytes[bytes.size() / 2] ^= std::byte{4};  // of the first moment
      state.WriteChunk(chunk, bytes.data());
      for (const auto& [c, digests] : CopiesOf(world, 2, /*all=*/true)) {
        ASSERT_EQ(digests.size(), holders.size());
        for (const auto& [rank, digest] : digests) {
          const int other = rank == victim ? (rank == holders.front() ? holders.back() : holders.front()) : -1;
          if (c == chunk && other >= 0) {
            EXPECT_NE(digest, digests.at(other)) << "the flip does not show";
          }
          if (c != chunk) {
            EXPECT_EQ(digest, digests.begin()->second) << "chunk " << c << " of rank " << rank;
          }
        }
      }
    }
  }
}

// The sample of each step is the same on all holders, and in 256 steps every chunk has its turn.
TEST(World, EveryChunkIsComparedInItsTurn) {
  const Setting setting;
  Fleet fleet(setting);
  TestWorld world(fleet.Start(2), Nodes(2, 1), setting);
  world.Enter(nullptr);
  const size_t chunks = world.members()[0]->model->layout().chunks().size();
  std::set<int> compared;
  for (int64_t step = 1; step <= 256; ++step) {
    for (const auto& [chunk, digests] : CopiesOf(world, step, /*all=*/false)) {
      EXPECT_EQ(digests.size(), 2u);
      EXPECT_TRUE(compared.insert(chunk).second);
    }
  }
  EXPECT_EQ(compared.size(), chunks);
}

// Mirrors cannot come before somebody's first microbatch is asked for: if a step waited for them, it would never begin.
TEST(World, AStepBeginsBeforeItsMirrorsAreThere) {
  const Setting setting;
  const std::vector<TestWorld::Step> expected = Undisturbed(setting);
  Fleet fleet(setting);
  const std::vector<Process*> p = fleet.Start(4);
  TestWorld first(p, Nodes(4, 1), setting);
  first.Enter(nullptr);
  EXPECT_EQ(first.Advance(1), expected[0]);
  Gate gate;
  TestWorld second({p[0], p[1], p[3]}, Nodes(3, 1), setting);
  second.SetGate(&gate);
  second.Enter(&first);
  std::atomic<int> lacking = 0;
  std::barrier all_have_looked(3);
  second.Run([&](int rank) {
    lacking += second.trainer(rank).mirror_bytes_to_come() > 0 ? 1 : 0;
    EXPECT_FALSE(second.mirrored(rank));
    all_have_looked.arrive_and_wait();
    const auto source = [&](int64_t index) {
      gate.Open();
      return MakeMicrobatch(2, index);
    };
    const auto result = second.trainer(rank).Prepare({2, {2, 2, 1}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    const absl::Status mirrored = second.trainer(rank).AwaitMirrors();
    ASSERT_TRUE(mirrored.ok()) << mirrored;
    EXPECT_TRUE(second.mirrored(rank));
    EXPECT_EQ(std::bit_cast<uint32_t>(result->loss), expected[1].loss);
    second.trainer(rank).Commit(*result);
  });
  EXPECT_GT(lacking, 0);
  TestWorld third({p[0], p[3]}, Nodes(2, 1), setting);  // of what the mirrors got
  third.Enter(&second);
  EXPECT_EQ(third.Advance(3), expected[2]);
}

// Somebody goes while mirrors are filled: the step fails everywhere, and the state is still where it was.
TEST(World, AFailureWhileMirrorsAreFilledLosesNothing) {
  for (const int goes : {0, 1, 2, 3}) {
    const Setting setting{.parallel = {.mirrors = 2}};
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    Fleet fleet(setting);
    const std::vector<Process*> p = fleet.Start(5);
    TestWorld first(p, Nodes(5, 1), setting);
    first.Enter(nullptr);
    EXPECT_EQ(first.Advance(1), expected[0]);
    Gate gate;
    TestWorld second({p[0], p[1], p[2], p[4]}, Nodes(4, 1), setting);
    second.SetGate(&gate);
    second.Enter(&first);
    second.Run([&](int rank) {
      const auto source = [&](int64_t index) {
        if (rank == goes) second.trainer(rank).Abort("it is killed");
        gate.Open();
        return MakeMicrobatch(2, index);
      };
      const auto result = second.trainer(rank).Prepare({2, {2, 1, 1, 1}}, source, {});
      const absl::Status mirrored = second.trainer(rank).AwaitMirrors();
      EXPECT_FALSE(result.ok() && mirrored.ok());
    });
    std::vector<Process*> left = second.members();
    left.erase(left.begin() + goes);
    TestWorld third(left, Nodes(3, 1), setting);
    third.Enter(&first);
    EXPECT_EQ(third.Advance(2), expected[1]);
    EXPECT_EQ(third.Advance(3), expected[2]);
  }
}

// One rank's communication is cut in the middle of a step: everybody's Prepare ends, and the step is done again.
void AbortAStep(Setting setting) {
  for (const Sharding sharding : {Sharding::kFullShard, Sharding::kShardGradOp, Sharding::kNoShard}) {
    setting.parallel.sharding = sharding;
    const std::vector<TestWorld::Step> expected = Undisturbed(setting);
    Fleet fleet(setting);
    const std::vector<Process*> members = fleet.Start(3);
    TestWorld first(members, Nodes(3, 1), setting);
    first.Enter(nullptr);
    EXPECT_EQ(first.Advance(1), expected[0]);
    first.Run([&](int rank) {
      const auto source = [&](int64_t index) {
        if (rank == 1) first.trainer(1).Abort("rank 1 is cut off");
        return MakeMicrobatch(2, index);
      };
      EXPECT_FALSE(first.trainer(rank).Prepare({2, {2, 2, 1}}, source, {}).ok());
    });
    TestWorld second({members[2], members[0]}, Nodes(2, 1), setting);
    second.Enter(&first);
    EXPECT_EQ(second.Advance(2), expected[1]);
  }
}

TEST(World, AnAbortedStepLeavesNoTrace) { AbortAStep({}); }

TEST(World, AnAbortedExchangeOfTokensLeavesNoTrace) {
  for (const bool turns : {false, true}) AbortAStep({.num_experts = 5, .in_parts = true, .turns = turns});
}

// In every exchange of a step in turn, of each layer, forward and backward, there, from node to node and back: the
// others do the step again without the rank that is lost there.
void LoseARankInEachExchange(const Setting& setting) {
  constexpr int kLost = 1, kExchangesAtLeast = 40;
  const std::vector<TestWorld::Step> expected = Undisturbed(setting);
  int64_t strike = 0;
  for (bool struck = true; struck; ++strike) {
    Fleet fleet(setting);
    const std::vector<Process*> members = fleet.Start(4);
    TestWorld first(members, Nodes(4, 2), setting);
    std::atomic<int64_t> to_come{-1};
    first.SetOnExchange([&](int rank) {
      if (rank == kLost && to_come-- == 0) first.trainer(rank).Abort("it is lost");
    });
    first.Enter(nullptr);
    EXPECT_EQ(first.Advance(1), expected[0]);
    to_come = strike;
    std::atomic<int> ended = 0;
    first.Run([&](int rank) {
      const auto source = [&](int64_t index) { return MakeMicrobatch(2, index); };
      if (first.trainer(rank).Prepare({2, EvenMicrobatches(kMicrobatches, 4)}, source, {}).ok()) ++ended;
    });
    struck = to_come < 0;
    EXPECT_EQ(ended, struck ? 0 : 4) << "exchange " << strike;
    TestWorld second({members[2], members[0], members[3]}, {"node1", "node0", "node1"}, setting);
    second.Enter(&first);
    EXPECT_EQ(second.Advance(2), expected[1]) << "exchange " << strike;
    EXPECT_EQ(second.Advance(3), expected[2]) << "exchange " << strike;
  }
  EXPECT_GT(strike, kExchangesAtLeast);
}

TEST(World, ALossInAnyExchangeOfTokensLeavesNoTrace) { LoseARankInEachExchange({.num_experts = 5, .in_parts = true}); }

TEST(World, ALossInAnyExchangeLeavesNoTraceWhereMicrobatchesTakeTurns) {
  LoseARankInEachExchange({.num_experts = 5, .in_parts = true, .turns = true});
}

// A pass of one rank ends with an error of its own, the first or the second of two that take turns, or one that is
// alone: the step ends with it, and with an error of all others once they hear of it.
TEST(World, AMicrobatchThatCannotBeReadEndsTheStepWhereTwoTakeTurns) {
  const Setting setting{.num_experts = 5, .in_parts = true, .turns = true};
  const std::vector<TestWorld::Step> expected = Undisturbed(setting);
  for (int64_t unread = 0; unread < kMicrobatches; ++unread) {
    Fleet fleet(setting);
    const std::vector<Process*> members = fleet.Start(3);
    TestWorld first(members, Nodes(3, 1), setting);
    first.Enter(nullptr);
    EXPECT_EQ(first.Advance(1), expected[0]);
    std::atomic<int> by_reading = 0;
    first.Run([&](int rank) {
      const auto source = [&](int64_t index) -> absl::StatusOr<Microbatch> {
        if (index == unread) return absl::DataLossError("a test");
        return MakeMicrobatch(2, index);
      };
      const auto result = first.trainer(rank).Prepare({2, {3, 1, 1}}, source, {});
      EXPECT_FALSE(result.ok());
      if (absl::IsDataLoss(result.status())) ++by_reading;
      first.trainer(rank).Abort("its step has failed");
    });
    EXPECT_EQ(by_reading, 1) << "microbatch " << unread;
    TestWorld second({members[2], members[0]}, Nodes(2, 1), setting);
    second.Enter(&first);
    EXPECT_EQ(second.Advance(2), expected[1]) << "microbatch " << unread;
  }
}

}  // namespace
}  // namespace holdfast
