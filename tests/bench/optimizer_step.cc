// The update of a step through Optimizer and ShardedState, for every optimizer, on a model of GPT-2's matrices; AdamW
// in turn, every other round in the opposite order, with the kernel alone on the same memory, in one call for each
// parameter, which is the least that it can take.
//
//   optimizer_step LAYERS HIDDEN ROUNDS [THREADS]      e.g. optimizer_step 12 768 15

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/config/enums.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/whole_updates.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

ParameterLayout LayoutLikeGpt2(int64_t layers, int64_t hidden) {
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> units = {"embedding"};
  parameters.push_back({.name = "embedding", .shape = {50304, hidden}, .decay = true});
  for (int64_t layer = 0; layer < layers; ++layer) {
    units.push_back("blocks." + std::to_string(layer));
    const auto add = [&](const std::string& name, Shape shape) {
      const bool matrix = shape.rank() == 2;
      parameters.push_back({.name = units.back() + name,
                            .shape = shape,
                            .decay = matrix,
                            .hidden = matrix,
                            .unit = static_cast<int>(layer) + 1});
    };
    add(".qkv", {3 * hidden, hidden});
    add(".out", {hidden, hidden});
    add(".up", {4 * hidden, hidden});
    add(".down", {hidden, 4 * hidden});
    add(".norm", {hidden});
  }
  return {std::move(parameters), std::move(units)};
}

/// "median [least-most]".
std::string Spread(std::vector<double> values, int digits) {
  std::sort(values.begin(), values.end());
  return absl::StrFormat("%.*f [%.*f-%.*f]", digits, values[values.size() / 2], digits, values.front(), digits,
                         values.back());
}

template <typename Work>
double Milliseconds(Work&& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// One optimizer's state in a world of one, with a gradient.
struct Bench {
  Bench(const ParameterLayout& layout, const OptimizerConfig& config, int threads)
      : optimizer(MakeOptimizer(config)),
        planes(LayoutOf(*optimizer, layout)),
        device(MakeCpuDevice(threads)),
        stream(device->CreateStream().value()),
        map(layout, DType::kBF16, placement),
        state(ShardedState::Create(map, planes, {.whole_units = true, .cpu = {}}, *device, *stream).value()),
        updates(WholeUpdates::Create({.optimizer = optimizer.get(),
                                      .state = &state,
                                      .device = device.get(),
                                      .stream = stream.get(),
                                      .progress = &progress})
                    .value()),
        gradient(
            Buffer::Allocate(*device, static_cast<size_t>(layout.elements()) * sizeof(float), "gradient").value()) {
    state.Initialize(1);
    stream->ops().FillNormal(gradient.as<float>(), layout.elements(), 0, 1e-3f, {.seed = 2});
    for (int u = 0; u < layout.num_units(); ++u) {
      const Unit& unit = layout.units()[static_cast<size_t>(u)];
      pieces.push_back({u,
                        {unit.first_chunk, unit.first_chunk + unit.num_chunks},
                        {0, unit.elements},
                        0,
                        gradient.as<float>() + unit.offset});
    }
  }

  void Prepare() { CheckOk(updates->Prepare(pieces, scalars, {})); }
  void Update() {
    const UpdateArguments arguments{.optimizer = optimizer.get(), .scalars = scalars, .updates = updates->updates()};
    for (const GradientPiece& piece : pieces) state.Update(piece.chunks, piece.gradient, arguments);
  }
  static void CheckOk(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  const UpdateScalars scalars{.lr = 1e-4f, .bias_correction1 = 0.5f, .bias_correction2_sqrt = 0.5f};
  std::unique_ptr<Optimizer> optimizer;
  StateLayout planes;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Placement placement{{"local"}, {}};
  ShardMap map;
  ShardedState state;
  StepProgress progress;
  std::unique_ptr<WholeUpdates> updates;
  Buffer gradient;
  std::vector<GradientPiece> pieces;
};

/// The kernel on the state's own memory.
void KernelAlone(Bench& bench) {
  const ParameterLayout& layout = bench.planes.parameters();
  for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size());) {
    const Chunk& first = layout.chunks()[static_cast<size_t>(chunk)];
    const ParameterSpec& p = layout.parameters()[static_cast<size_t>(first.parameter)];
    const ShardedState::Places places = bench.state.ChunkMemory(chunk);
    auto* const weights = bench.state.ComputeWeights(p.unit) + bench.map.ComputeWeightOffset(first.parameter);
    bench.stream->ops().AdamW({.n = p.shape.elements(),
                               .weight = reinterpret_cast<float*>(places[0].data()),
                               .exp_avg = reinterpret_cast<float*>(places[1].data()),
                               .exp_avg_sq = reinterpret_cast<float*>(places[2].data()),
                               .grad = bench.gradient.as<float>() + p.offset,
                               .weight_bf16 = p.is_matrix() ? reinterpret_cast<uint16_t*>(weights) : nullptr,
                               .lr = 1e-4f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = 1e-8f,
                               .weight_decay = p.decay ? 0.1f : 0.0f,
                               .bias_correction1 = 0.5f,
                               .bias_correction2_sqrt = 0.5f});
    while (chunk < static_cast<int>(layout.chunks().size()) &&
           layout.chunks()[static_cast<size_t>(chunk)].parameter == first.parameter) {
      ++chunk;
    }
  }
}

void Run(int64_t layers, int64_t hidden, int rounds, int threads) {
  const ParameterLayout layout = LayoutLikeGpt2(layers, hidden);
  std::printf("%lld parameters, %d rounds, median [least-most] in ms\n", static_cast<long long>(layout.elements()),
              rounds);
  {
    Bench adamw(layout, {}, threads);
    std::vector<double> alone, whole, ratio;
    for (int i = 0; i < rounds + 1; ++i) {
      double kernel = 0, update = 0;
      for (const bool is_alone : {i % 2 == 0, i % 2 != 0}) {
        (is_alone ? kernel : update) = Milliseconds([&] { is_alone ? KernelAlone(adamw) : adamw.Update(); });
      }
      if (i == 0) continue;  // memory is touched first
      alone.push_back(kernel);
      whole.push_back(update);
      ratio.push_back(update / kernel);
    }
    std::printf("adamw        kernel alone %s, update %s, ratio %s\n", Spread(alone, 1).c_str(),
                Spread(whole, 1).c_str(), Spread(ratio, 3).c_str());
  }
  for (const OptimizerConfig& config :
       {OptimizerConfig{.ema_decay = 0.999}, OptimizerConfig{.name = OptimizerKind::kLion},
        OptimizerConfig{.name = OptimizerKind::kMuon}}) {
    Bench bench(layout, config, threads);
    std::vector<double> prepare, update;
    for (int i = 0; i < rounds + 1; ++i) {
      const double prepared = Milliseconds([&] { bench.Prepare(); });
      const double updated = Milliseconds([&] { bench.Update(); });
      if (i == 0) continue;
      prepare.push_back(prepared);
      update.push_back(updated);
    }
    std::printf("%-12s prepare %s, update %s\n",
                (std::string(Name(config.name)) + (config.ema_decay > 0 ? " + ema" : "")).c_str(),
                Spread(prepare, 1).c_str(), Spread(update, 1).c_str());
  }
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: optimizer_step LAYERS HIDDEN ROUNDS [THREADS]\n");
    return 2;
  }
  holdfast::Run(std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3]), argc > 4 ? std::atoi(argv[4]) : 0);
  return 0;
}
