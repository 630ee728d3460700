// What an expert layer costs beside dense products of the same FLOPs, and what of it is not products. The two of a pair
// take turns, so that a busy machine slows both; counters are medians.
//
//   taskset -c 0 build/release/tests/kernels_experts_bench --benchmark_filter='products/.*even'
//
// On one processor times are the thread's own, which a busy machine disturbs less than the wall's clock.
//
// products: ExpertGemm and ExpertGradient of the gate and up projections (d -> 2f) against one product of all rows with
// the matrix of one expert. of_dense is what part of the dense product's speed the grouped one has.
// layer: forward and backward without the router's own products; *_share are parts of its time.
// cost: forward and backward of a layer, all of it, over those of a dense SwiGLU layer of the same FLOPs a token, whose
// width is that of a token's experts together. *_ms are parts of the expert layer's time.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "framework/base/aligned_memory.h"
#include "framework/base/processors.h"
#include "framework/base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/bench/operand.h"

namespace holdfast::kernels {
namespace {

/// Of one thread's processor where the process may use one only (taskset), else of the wall's clock.
double Seconds() {
  static const bool alone = AvailableProcessors() == 1;
  timespec now = {};
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

template <typename Call>
double Time(Call&& call) {
  const double start = Seconds();
  call();
  return Seconds() - start;
}

double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Case {
  const char* name;
  int64_t experts, chosen, hidden, width;
  bool even;  // rows of experts: all 128; else from none to some 400
  DType dtype;
  Arithmetic arithmetic;

  int64_t rows() const { return 128 * experts / chosen; }
};

/// An expert layer whose choices are made by logits: of even cases so that all experts have 128 rows.
struct Layer {
  Layer(const Case& c, int64_t tokens)
      : shape{.num_experts = c.experts, .chosen = c.chosen},
        logits(DType::kF32, tokens, c.experts),
        d_logits(DType::kF32, tokens, c.experts),
        scores(static_cast<size_t>(tokens * c.experts)),
        weights(static_cast<size_t>(tokens * c.chosen)),
        d_weights(weights.size()),
        lse(static_cast<size_t>(tokens)),
        experts(weights.size()),
        offsets(static_cast<size_t>(c.experts) + 1),
        choices(weights.size()),
        slot_of(weights.size()) {
    std::mt19937 random(1);
    auto* at = static_cast<float*>(logits.view.data);
    std::normal_distribution<float> normal(0, c.even ? 0.0f : 1.0f);
    std::vector<float> liked(static_cast<size_t>(c.experts));
    for (float& x : liked) x = normal(random);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 0; e < c.experts; ++e) at[t * c.experts + e] = liked[static_cast<size_t>(e)] + normal(random);
      if (!c.even) continue;
      for (int64_t j = 0; j < c.chosen; ++j) at[t * c.experts + (t * c.chosen + j) % c.experts] = 3;
    }
  }

  RouterOut routed() { return {scores.data(), experts.data(), weights.data(), lse.data()}; }
  ExpertRows rows() const {
    return {.num_experts = shape.num_experts,
            .chosen = shape.chosen,
            .slots = static_cast<int64_t>(choices.size()),
            .offsets = offsets.data(),
            .choices = choices.data(),
            .slot_of = slot_of.data()};
  }
  void Route(Ops& ops) { ops.RouterForward(routed(), logits.view, shape); }
  void Sort(Ops& ops) {
    ops.SortChoices({offsets.data(), choices.data(), slot_of.data()}, experts.data(), weights.data(), logits.view.rows,
                    shape);
  }

  RouterShape shape;
  Operand logits, d_logits;
  std::vector<float> scores, weights, d_weights, lse;
  std::vector<int32_t> experts, offsets, choices, slot_of;
};

enum class Pass { kForward, kInputGradient, kWeightGradient };

void BenchProducts(benchmark::State& state, ThreadPool& pool, const Case& c, Pass pass) {
  CpuOps ops(pool, c.arithmetic);
  Layer layer(c, c.rows());
  layer.Route(ops);
  layer.Sort(ops);
  const ExpertRows rows = layer.rows();
  const int64_t wide = 2 * c.width, step = wide * c.hidden;
  Operand x(c.dtype, rows.slots, c.hidden), y(c.dtype, rows.slots, wide);
  const bool gradient = pass == Pass::kWeightGradient;
  Operand matrices(gradient ? DType::kF32 : c.dtype, c.experts * wide, c.hidden);
  Matrix one = matrices.view;
  one.rows = wide;
  const auto dense = [&] {
    if (gradient) return ops.Gemm({.a = y.view, .transpose_a = true, .b = x.view, .c = one});
    if (pass == Pass::kForward) return ops.Gemm({.a = x.view, .b = one, .transpose_b = true, .c = y.view});
    ops.Gemm({.a = y.view, .b = one, .c = x.view});
  };
  const auto grouped = [&] {
    if (gradient) return ops.ExpertGradient({.a = y.view, .b = x.view, .c = one, .c_step = step}, rows);
    const bool forward = pass == Pass::kForward;
    ops.ExpertGemm({.a = forward ? x.view : y.view,
                    .b = one,
                    .transpose_b = forward,
                    .b_step = step,
                    .c = forward ? y.view : x.view},
                   rows);
  };
  dense();
  grouped();
  std::vector<double> dense_times, grouped_times;
  for (auto _ : state) {
    dense_times.push_back(Time(dense));
    grouped_times.push_back(Time(grouped));
    state.SetIterationTime(grouped_times.back());
  }
  const double flops = 2.0 * static_cast<double>(rows.slots) * static_cast<double>(step);
  state.counters["GFLOPS"] = flops / Median(grouped_times) / 1e9;
  state.counters["dense_GFLOPS"] = flops / Median(dense_times) / 1e9;
  state.counters["of_dense"] = Median(dense_times) / Median(grouped_times);
}

void BenchLayer(benchmark::State& state, ThreadPool& pool, const Case& c) {
  CpuOps ops(pool, c.arithmetic);
  Layer layer(c, c.rows());
  const int64_t wide = 2 * c.width, slots = c.rows() * c.chosen;
  Operand x(c.dtype, c.rows(), c.hidden), by_slot(c.dtype, slots, c.hidden);
  Operand gate_up(c.dtype, slots, wide), act(c.dtype, slots, c.width);
  Operand up(c.dtype, c.experts * wide, c.hidden), down(c.dtype, c.experts * c.hidden, c.width);
  Operand d_up(DType::kF32, c.experts * wide, c.hidden), d_down(DType::kF32, c.experts * c.hidden, c.width);
  const auto first = [](const Operand& o, int64_t rows) {
    Matrix one = o.view;
    one.rows = rows;
    return one;
  };
  const int64_t up_step = wide * c.hidden, down_step = c.hidden * c.width;
  std::vector<double> route, sort, gather, combine, swiglu, products;
  for (auto _ : state) {
    double gathered = 0, combined = 0, multiplied = 0, activated = 0;
    route.push_back(Time([&] { layer.Route(ops); }));
    sort.push_back(Time([&] { layer.Sort(ops); }));
    const ExpertRows rows = layer.rows();
    const auto gemm = [&](const Operand& a, const Matrix& b, bool transpose_b, int64_t step, const Operand& to) {
      multiplied += Time([&] {
        ops.ExpertGemm({.a = a.view, .b = b, .transpose_b = transpose_b, .b_step = step, .c = to.view}, rows);
      });
    };
    const auto gradient = [&](const Operand& a, const Operand& b, const Matrix& to, int64_t step) {
      multiplied += Time([&] { ops.ExpertGradient({.a = a.view, .b = b.view, .c = to, .c_step = step}, rows); });
    };
    gathered += Time([&] { ops.GatherRows(by_slot.view, x.view, rows); });
    gemm(by_slot, first(up, wide), true, up_step, gate_up);
    activated += Time([&] { ops.ExpertSwigluForward(act.view, gate_up.view, layer.weights.data(), 0, rows); });
    gemm(act, first(down, c.hidden), true, down_step, by_slot);
    combined += Time([&] { ops.CombineRows(x.view, by_slot.view, {}, rows); });

    gathered += Time([&] { ops.GatherRows(by_slot.view, x.view, rows); });
    gradient(by_slot, act, first(d_down, c.hidden), down_step);
    gemm(by_slot, first(down, c.hidden), false, down_step, act);
    activated += Time([&] {
      ops.ExpertSwigluBackward(gate_up.view, layer.d_weights.data(), act.view, gate_up.view, layer.weights.data(), 0,
                               rows);
    });
    gathered += Time([&] { ops.GatherRows(by_slot.view, x.view, rows); });
    gradient(gate_up, by_slot, first(d_up, wide), up_step);
    gemm(gate_up, first(up, wide), false, up_step, by_slot);
    combined += Time([&] { ops.CombineRows(x.view, by_slot.view, {}, rows); });
    route.back() += Time([&] {
      ops.RouterBackward({.d_logits = layer.d_logits.view,
                          .logits = layer.logits.view,
                          .forward = layer.routed(),
                          .d_weights = layer.d_weights.data()},
                         layer.shape);
    });
    gather.push_back(gathered);
    combine.push_back(combined);
    swiglu.push_back(activated);
    products.push_back(multiplied);
    state.SetIterationTime(route.back() + sort.back() + gathered + combined + activated + multiplied);
    // What the layer adds up must not grow.
    std::fill_n(static_cast<float*>(x.view.data), static_cast<size_t>(c.rows() * c.hidden) * SizeOf(c.dtype) / 4,
                0.001f);
  }
  const double all =
      Median(route) + Median(sort) + Median(gather) + Median(combine) + Median(swiglu) + Median(products);
  state.counters["router_share"] = Median(route) / all;
  state.counters["sort_share"] = Median(sort) / all;
  state.counters["gather_share"] = Median(gather) / all;
  state.counters["combine_share"] = Median(combine) / all;
  state.counters["swiglu_share"] = Median(swiglu) / all;
}

struct CostCase {
  const char* name;
  int64_t experts, chosen, hidden, width, tokens;
};

/// What a SwiGLU layer computes, apart from how its rows are chosen.
struct Swiglu {
  Swiglu(DType dtype, int64_t matrices, int64_t rows, int64_t hidden, int64_t width)
      : gate_up(dtype, rows, 2 * width),
        act(dtype, rows, width),
        up(dtype, matrices * 2 * width, hidden),
        down(dtype, matrices * hidden, width),
        d_up(DType::kF32, matrices * 2 * width, hidden),
        d_down(DType::kF32, matrices * hidden, width) {}
  Operand gate_up, act, up, down, d_up, d_down;
};

void BenchCost(benchmark::State& state, ThreadPool& pool, const CostCase& c, DType dtype, Arithmetic arithmetic) {
  CpuOps ops(pool, arithmetic);
  Layer layer({c.name, c.experts, c.chosen, c.hidden, c.width, false, dtype, arithmetic}, c.tokens);
  const int64_t slots = c.tokens * c.chosen, wide = 2 * c.width;
  Operand x(dtype, c.tokens, c.hidden), y(dtype, c.tokens, c.hidden), d_y(dtype, c.tokens, c.hidden);
  Operand d_x(dtype, c.tokens, c.hidden), by_slot(dtype, slots, c.hidden);
  Operand router(DType::kF32, c.experts, c.hidden), d_router(DType::kF32, c.experts, c.hidden);
  Operand logits(DType::kF32, c.tokens, c.experts), rest(DType::kF32, c.tokens, c.hidden);
  Swiglu dense(dtype, 1, c.tokens, c.hidden, c.width * c.chosen), grouped(dtype, c.experts, slots, c.hidden, c.width);
  const auto of_one = [](const Operand& o, int64_t rows) {
    Matrix one = o.view;
    one.rows = rows;
    return one;
  };
  const auto run_dense = [&] {
    Swiglu& s = dense;
    ops.Gemm({.a = x.view, .b = s.up.view, .transpose_b = true, .c = s.gate_up.view});
    ops.GatedForward(s.act.view, s.gate_up.view, GateKind::kSilu);
    ops.Gemm({.a = s.act.view, .b = s.down.view, .transpose_b = true, .c = y.view});
    ops.Gemm({.a = d_y.view, .transpose_a = true, .b = s.act.view, .c = s.d_down.view});
    ops.Gemm({.a = d_y.view, .b = s.down.view, .c = s.act.view});
    ops.GatedBackward(s.gate_up.view, s.act.view, s.gate_up.view, GateKind::kSilu);
    ops.Gemm({.a = s.gate_up.view, .transpose_a = true, .b = x.view, .c = s.d_up.view});
    ops.Gemm({.a = s.gate_up.view, .b = s.up.view, .c = d_x.view});
  };
  double products = 0, rows_moved = 0, routed = 0;
  const auto timed = [&](double& part, auto&& call) { part += Time(call); };
  const auto run_experts = [&] {
    Swiglu& s = grouped;
    const Matrix up = of_one(s.up, wide), down = of_one(s.down, c.hidden), d_up = of_one(s.d_up, wide),
                 d_down = of_one(s.d_down, c.hidden);
    const int64_t up_step = wide * c.hidden, down_step = c.hidden * c.width;
    const ExpertRows rows = layer.rows();
    timed(routed, [&] {
      ops.Gemm({.a = x.view, .b = router.view, .transpose_b = true, .c = logits.view});
      layer.Route(ops);
      layer.Sort(ops);
    });
    timed(rows_moved, [&] { ops.GatherRows(by_slot.view, x.view, rows); });
    timed(products, [&] {
      ops.ExpertGemm({.a = by_slot.view, .b = up, .transpose_b = true, .b_step = up_step, .c = s.gate_up.view}, rows);
      ops.ExpertSwigluForward(s.act.view, s.gate_up.view, layer.weights.data(), 0, rows);
      ops.ExpertGemm({.a = s.act.view, .b = down, .transpose_b = true, .b_step = down_step, .c = by_slot.view}, rows);
    });
    timed(rows_moved, [&] {
      ops.CombineRows(y.view, by_slot.view, {}, rows);
      ops.GatherRows(by_slot.view, d_y.view, rows);
    });
    timed(products, [&] {
      ops.ExpertGradient({.a = by_slot.view, .b = s.act.view, .c = d_down, .c_step = down_step}, rows);
      ops.ExpertGemm({.a = by_slot.view, .b = down, .b_step = down_step, .c = s.act.view}, rows);
      ops.ExpertSwigluBackward(s.gate_up.view, layer.d_weights.data(), s.act.view, s.gate_up.view, layer.weights.data(),
                               0, rows);
    });
    timed(rows_moved, [&] { ops.GatherRows(by_slot.view, x.view, rows); });
    timed(products, [&] {
      ops.ExpertGradient({.a = s.gate_up.view, .b = by_slot.view, .c = d_up, .c_step = up_step}, rows);
      ops.ExpertGemm({.a = s.gate_up.view, .b = up, .b_step = up_step, .c = by_slot.view}, rows);
    });
    timed(routed, [&] {
      ops.RouterBackward({.d_logits = layer.d_logits.view,
                          .logits = layer.logits.view,
                          .forward = layer.routed(),
                          .d_weights = layer.d_weights.data()},
                         layer.shape);
      ops.Gemm({.a = layer.d_logits.view, .transpose_a = true, .b = x.view, .c = d_router.view});
      ops.Gemm({.a = layer.d_logits.view, .b = router.view, .c = rest.view});
    });
    timed(rows_moved, [&] {
      if (dtype == DType::kBF16) {
        ops.CastToBf16(static_cast<uint16_t*>(d_x.view.data), static_cast<float*>(rest.view.data), c.tokens * c.hidden);
      }
      ops.CombineRows(d_x.view, by_slot.view, dtype == DType::kBF16 ? d_x.view : rest.view, rows);
    });
  };
  run_dense();
  run_experts();
  std::vector<double> dense_times, expert_times, ratios;
  products = rows_moved = routed = 0;
  for (auto _ : state) {
    dense_times.push_back(Time(run_dense));
    expert_times.push_back(Time(run_experts));
    ratios.push_back(expert_times.back() / dense_times.back());
    state.SetIterationTime(expert_times.back());
  }
  const double milliseconds = 1e3 / static_cast<double>(ratios.size());
  state.counters["cost"] = Median(ratios);
  state.counters["dense_ms"] = 1e3 * Median(dense_times);
  state.counters["products_ms"] = milliseconds * products;
  state.counters["rows_ms"] = milliseconds * rows_moved;
  state.counters["router_ms"] = milliseconds * routed;
}

void RegisterCost(ThreadPool& pool, const char* variant, DType dtype, Arithmetic arithmetic) {
  for (const CostCase& c :
       {CostCase{"8x1024x1024", 8, 2, 1024, 1024, 2048}, CostCase{"16x512x512", 16, 4, 512, 512, 1024},
        CostCase{"16x512x512", 16, 4, 512, 512, 4096}, CostCase{"32x768x768", 32, 4, 768, 768, 2048},
        CostCase{"64x512x512", 64, 8, 512, 512, 1024}, CostCase{"64x1024x512", 64, 8, 1024, 512, 4096}}) {
    benchmark::RegisterBenchmark(
        (std::string("cost/") + c.name + "/" + std::to_string(c.tokens) + "/" + variant).c_str(),
        [&pool, c, dtype, arithmetic](benchmark::State& state) { BenchCost(state, pool, c, dtype, arithmetic); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void Register(ThreadPool& pool) {
  const struct {
    const char* name;
    DType dtype;
    Arithmetic arithmetic;
  } variants[] = {{"fp32", DType::kF32, Arithmetic::kPortable}, {"bf16_native", DType::kBF16, FastestArithmetic()}};
  for (const auto& v : variants) {
    RegisterCost(pool, v.name, v.dtype, v.arithmetic);
    for (Case c : {Case{"8x768x2048", 8, 2, 768, 2048, true, v.dtype, v.arithmetic},
                   Case{"64x512x512", 64, 8, 512, 512, true, v.dtype, v.arithmetic}}) {
      for (const bool even : {true, false}) {
        c.even = even;
        const std::string suffix = std::string(c.name) + (even ? "/even/" : "/uneven/") + v.name;
        for (const auto& [name, pass] :
             {std::pair{"forward", Pass::kForward}, {"dx", Pass::kInputGradient}, {"dw", Pass::kWeightGradient}}) {
          benchmark::RegisterBenchmark(
              (std::string("products/") + name + "/" + suffix).c_str(),
              [&pool, c, pass = pass](benchmark::State& state) { BenchProducts(state, pool, c, pass); })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
        benchmark::RegisterBenchmark(("layer/" + suffix).c_str(),
                                     [&pool, c](benchmark::State& state) { BenchLayer(state, pool, c); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels

int main(int argc, char** argv) {
  holdfast::ThreadPool pool(holdfast::AvailableProcessors());
  holdfast::kernels::Register(pool);
  benchmark::AddCustomContext("instruction_set", holdfast::kernels::CpuInstructionSets().front());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
