#include "tests/bench/gpu/kernel_cases.h"

#include <algorithm>
#include <utility>

namespace holdfast::kernels {
namespace {

// In parts of what the device could do at most; see "One H200" in tests/bench/NOTES.md.
constexpr Expected kProducts{0.73, 0.83}, kNarrowProducts{0.70, 0.80};
constexpr Expected kAttentionForward[] = {{0.30, 0.42}, {0.38, 0.52}};  // heads of 64, of 128
constexpr Expected kAttentionBackward[] = {{0.18, 0.28}, {0.22, 0.34}};
constexpr Expected kMemory{0.75, 0.92};
constexpr Expected kReadTwice{0.45, 0.75};  // a row of logits that is too long for shared memory
constexpr Expected kShortLaunch{0.40, 0.80};
constexpr Expected kExperts{0.30, 0.50};

constexpr DType kBf16 = DType::kBF16, kF32 = DType::kF32;

struct Model {
  const char* name;
  int64_t rows, hidden, qkv, gate_up, inner;  // columns of the projections; `inner` is the down projection's input
  bool gelu;
  Expected expected;
};
constexpr Model kModels[] = {
    {"gpt2_124m", 32 * 1024, 768, 3 * 768, 3072, 3072, true, kNarrowProducts},
    {"gpt2_1558m", 8 * 1024, 1600, 3 * 1600, 6400, 6400, true, kProducts},
    {"llama_1b", 8 * 1024, 2048, (32 + 2 * 8) * 64, 2 * 8192, 8192, false, kProducts},
};

std::string Times(int64_t a, int64_t b) { return std::to_string(a) + "x" + std::to_string(b); }

double Product(int64_t a, int64_t b, int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

// --- matrix products -------------------------------------------------------------------------------------------------

/// x (R, in) -> y (R, out).
struct Projection {
  std::string name;
  int64_t rows, in, out;
  Expected expected;
};

enum class Extra : uint8_t { kNone, kBias, kGelu, kGeluGradient };

KernelCase Forward(const Projection& p, Extra extra) {
  const double written = extra == Extra::kGelu ? 2.0 : 1.0;
  return {.name = "product/forward/" + p.name,
          .flops = 2 * Product(p.rows, p.in, p.out),
          .bytes = 2 * (Product(p.rows, p.in) + Product(p.in, p.out) + written * Product(p.rows, p.out)),
          .expected = p.expected,
          .prepare = [=](Operands& operands) -> Prepared {
            GemmArgs args;
            args.a = operands.New(kBf16, p.rows, p.in);
            args.b = operands.New(kBf16, p.out, p.in);
            args.transpose_b = true;
            args.c = operands.New(kBf16, p.rows, p.out);
            if (extra != Extra::kNone) args.bias = operands.NewVector(p.out);
            args.gelu = extra == Extra::kGelu;
            if (args.gelu) args.pre_gelu = operands.New(kBf16, p.rows, p.out);
            return {.call = [=](Ops& ops) { ops.Gemm(args); }};
          }};
}

KernelCase InputGradient(const Projection& p, Extra extra) {
  const double read = extra == Extra::kGeluGradient ? 2.0 : 1.0;
  return {.name = "product/input_gradient/" + p.name,
          .flops = 2 * Product(p.rows, p.in, p.out),
          .bytes = 2 * (Product(p.rows, p.out) + Product(p.in, p.out) + read * Product(p.rows, p.in)),
          .expected = p.expected,
          .prepare = [=](Operands& operands) -> Prepared {
            GemmArgs args;
            args.a = operands.New(kBf16, p.rows, p.out);
            args.b = operands.New(kBf16, p.out, p.in);
            args.c = operands.New(kBf16, p.rows, p.in);
            if (extra == Extra::kGeluGradient) args.gelu_input = operands.New(kBf16, p.rows, p.in);
            return {.call = [=](Ops& ops) { ops.Gemm(args); }};
          }};
}

KernelCase WeightGradient(const Projection& p, Extra extra) {
  return {.name = "product/weight_gradient/" + p.name,
          .flops = 2 * Product(p.rows, p.in, p.out),
          .bytes = 2 * (Product(p.rows, p.out) + Product(p.rows, p.in)) + 4 * Product(p.in, p.out),
          .expected = p.expected,
          .prepare = [=](Operands& operands) -> Prepared {
            GemmArgs args;
            args.a = operands.New(kBf16, p.rows, p.out);
            args.transpose_a = true;
            args.b = operands.New(kBf16, p.rows, p.in);
            args.c = operands.New(kF32, p.out, p.in);
            if (extra == Extra::kBias) args.a_sums = operands.NewVector(p.out);
            return {.call = [=](Ops& ops) { ops.Gemm(args); }};
          }};
}

void AddProducts(std::vector<KernelCase>& cases, const Model& m, int64_t shrink) {
  const auto projection = [&](const char* name, int64_t in, int64_t out) {
    return Projection{std::string(m.name) + "/" + name, m.rows / shrink, in, out, m.expected};
  };
  const Extra bias = m.gelu ? Extra::kBias : Extra::kNone;
  const Projection all[] = {projection("qkv", m.hidden, m.qkv), projection("out", m.hidden, m.hidden),
                            projection("up", m.hidden, m.gate_up), projection("down", m.inner, m.hidden)};
  for (const Projection& p : all) {
    const bool up = &p == &all[2], down = &p == &all[3];
    cases.push_back(Forward(p, m.gelu && up ? Extra::kGelu : bias));
    cases.push_back(InputGradient(p, m.gelu && down ? Extra::kGeluGradient : Extra::kNone));
    cases.push_back(WeightGradient(p, bias));
  }
}

/// The head works in runs of 4096 rows, whose logits are fp32 with rows of whole cache lines.
void AddHead(std::vector<KernelCase>& cases, int64_t vocabulary, int64_t hidden, int64_t shrink) {
  const int64_t rows = 4096 / shrink, v = vocabulary / shrink, stride = (v + 15) / 16 * 16;
  const std::string shape = Times(rows, vocabulary) + "x" + std::to_string(hidden);
  const Expected expected = hidden == 768 ? kNarrowProducts : kProducts;
  const double flops = 2 * Product(rows, v, hidden), weights = Product(v, hidden);
  cases.push_back({.name = "head/logits/" + shape,
                   .flops = flops,
                   .bytes = 2 * Product(rows, hidden) + 2 * weights + 4 * Product(rows, v),
                   .expected = expected,
                   .prepare = [=](Operands& operands) -> Prepared {
                     GemmArgs args;
                     args.a = operands.New(kBf16, rows, hidden);
                     args.b = operands.New(kBf16, v, hidden);
                     args.transpose_b = true;
                     args.c = operands.New(kF32, rows, v, stride);
                     return {.call = [=](Ops& ops) { ops.Gemm(args); }};
                   }});
  cases.push_back({.name = "head/input_gradient/" + shape,
                   .flops = flops,
                   .bytes = 2 * (Product(rows, v) + weights + Product(rows, hidden)),
                   .expected = expected,
                   .prepare = [=](Operands& operands) -> Prepared {
                     GemmArgs args;
                     args.a = operands.New(kBf16, rows, v, 2 * stride);
                     args.b = operands.New(kBf16, v, hidden);
                     args.c = operands.New(kBf16, rows, hidden);
                     return {.call = [=](Ops& ops) { ops.Gemm(args); }};
                   }});
  cases.push_back({.name = "head/weight_gradient/" + shape,
                   .flops = flops,
                   .bytes = 2 * (Product(rows, v) + Product(rows, hidden)) + 8 * weights,
                   .expected = expected,
                   .prepare = [=](Operands& operands) -> Prepared {
                     GemmArgs args;
                     args.a = operands.New(kBf16, rows, v, 2 * stride);
                     args.transpose_a = true;
                     args.b = operands.New(kBf16, rows, hidden);
                     args.c = operands.New(kF32, v, hidden);
                     args.accumulate = true;
                     return {.call = [=](Ops& ops) { ops.Gemm(args); }};
                   }});
  cases.push_back({.name = "cross_entropy/" + Times(rows, vocabulary),
                   .bytes = 6 * Product(rows, v),
                   .expected = vocabulary <= 56 << 10 ? kMemory : kReadTwice,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const Matrix logits = operands.New(kF32, rows, v, stride);
                     const Matrix d_logits = operands.New(kBf16, rows, v, stride);
                     float* const losses = operands.NewVector(rows);
                     std::vector<int32_t> next;
                     for (int64_t r = 0; r < rows; ++r) next.push_back(static_cast<int32_t>(r * 7919 % v));
                     const int32_t* const targets = operands.Copy(next);
                     return {
                         .call = [=](Ops& ops) { ops.SoftmaxCrossEntropy(losses, d_logits, logits, targets, 1.0f); }};
                   }});
}

// --- attention -------------------------------------------------------------------------------------------------------

struct AttentionCase {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  int64_t document = 0;  // length of documents; 0 = each sequence is one

  std::string Name() const {
    return "d" + std::to_string(head_dim) + "/" + Times(batch, sequence) + "/" + Times(heads, kv_heads) +
           (document > 0 ? "/documents" + std::to_string(document) : "");
  }
  int64_t rows() const { return batch * sequence; }
  int64_t width() const { return heads * head_dim; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Of one of attention's products, under the causal mask.
  double ProductFlops() const {
    const int64_t length = document > 0 ? document : sequence;
    return Product(rows(), length, width());
  }
  AttentionShape Shape(Operands& operands) const {
    AttentionShape shape;
    shape.batch = batch, shape.sequence = sequence;
    shape.num_heads = heads, shape.num_kv_heads = kv_heads, shape.head_dim = head_dim;
    if (document == 0) return shape;
    std::vector<int32_t> begin, end;
    for (int64_t r = 0; r < rows(); ++r) {
      const int64_t first = r % sequence / document * document;
      begin.push_back(static_cast<int32_t>(first));
      end.push_back(static_cast<int32_t>(std::min(first + document, sequence)));
    }
    shape.documents = {operands.Copy(begin), operands.Copy(end)};
    return shape;
  }
};

void AddAttention(std::vector<KernelCase>& cases, const AttentionCase& c) {
  const double in = 2 * Product(c.rows(), c.qkv_width()), out = 2 * Product(c.rows(), c.width());
  const double lse = 4 * Product(c.rows(), c.heads);
  const auto expected_of = [&](const Expected(&by_head)[2]) {
    return c.document == 0 ? std::optional(by_head[c.head_dim / 128]) : std::nullopt;
  };
  cases.push_back({.name = "attention/forward/" + c.Name(),
                   .flops = 2 * c.ProductFlops(),
                   .bytes = in + out + lse,
                   .expected = expected_of(kAttentionForward),
                   .prepare = [=](Operands& operands) -> Prepared {
                     const AttentionShape shape = c.Shape(operands);
                     const Matrix qkv = operands.New(kBf16, c.rows(), c.qkv_width());
                     const Matrix y = operands.New(kBf16, c.rows(), c.width());
                     float* const sums = operands.NewVector(c.rows() * c.heads);
                     return {.call = [=](Ops& ops) { ops.AttentionForward(y, sums, qkv, shape); }};
                   }});
  cases.push_back({.name = "attention/backward/" + c.Name(),
                   .flops = 5 * c.ProductFlops(),
                   .bytes = 2 * in + 2 * out + lse,
                   .expected = expected_of(kAttentionBackward),
                   .prepare = [=](Operands& operands) -> Prepared {
                     const AttentionShape shape = c.Shape(operands);
                     const Matrix qkv = operands.New(kBf16, c.rows(), c.qkv_width());
                     const Matrix d_qkv = operands.New(kBf16, c.rows(), c.qkv_width());
                     const Matrix y = operands.New(kBf16, c.rows(), c.width());
                     const Matrix d_y = operands.New(kBf16, c.rows(), c.width());
                     float* const sums = operands.NewVector(c.rows() * c.heads);
                     return {.call = [=](Ops& ops) { ops.AttentionBackward(d_qkv, d_y, y, sums, qkv, shape); },
                             .before = [=](Ops& ops) { ops.AttentionForward(y, sums, qkv, shape); }};
                   }});
}

void AddSinks(std::vector<KernelCase>& cases, const AttentionCase& c) {
  const double matrix = 2 * Product(c.rows(), c.width()), lse = 4 * Product(c.rows(), c.heads);
  cases.push_back({.name = "attention_sinks/forward/" + c.Name(),
                   .bytes = 2 * matrix + 2 * lse,
                   .expected = std::nullopt,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const AttentionShape shape = c.Shape(operands);
                     const Matrix y = operands.New(kBf16, c.rows(), c.width());
                     float* const sums = operands.NewVector(c.rows() * c.heads);
                     const float* const sinks = operands.NewVector(c.heads);
                     return {.call = [=](Ops& ops) { ops.SinkForward(y, sums, sinks, shape); }};
                   }});
  cases.push_back({.name = "attention_sinks/backward/" + c.Name(),
                   .bytes = 2 * matrix + lse,
                   .expected = std::nullopt,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const AttentionShape shape = c.Shape(operands);
                     const Matrix y = operands.New(kBf16, c.rows(), c.width());
                     const Matrix d_y = operands.New(kBf16, c.rows(), c.width());
                     const float* const sums = operands.NewVector(c.rows() * c.heads);
                     const float* const sinks = operands.NewVector(c.heads);
                     float* const d_sinks = operands.NewVector(c.heads);
                     return {.call = [=](Ops& ops) { ops.SinkBackward(d_sinks, d_y, y, sums, sinks, shape); }};
                   }});
}

// --- experts ---------------------------------------------------------------------------------------------------------

/// Slots of experts, which have `even` rows each, or from half to one and a half times as many.
ExpertRows RowsOfExperts(Operands& operands, int64_t experts, int64_t rows, bool even) {
  std::vector<int32_t> offsets{0}, choices;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t here = even ? rows : e % 2 == 0 ? rows / 2 : rows + rows / 2;
    offsets.push_back(offsets.back() + static_cast<int32_t>(here));
  }
  for (int32_t i = 0; i < offsets.back(); ++i) choices.push_back(i);
  const int32_t* const in_order = operands.Copy(choices);
  return {.num_experts = experts,
          .chosen = 1,
          .slots = offsets.back(),
          .offsets = operands.Copy(offsets),
          .choices = in_order,
          .slot_of = in_order};
}

struct ExpertsCase {
  int64_t experts, rows, in, out;
};

void AddExperts(std::vector<KernelCase>& cases, const ExpertsCase& c) {
  const int64_t slots = c.experts * c.rows;
  const double flops = 2 * Product(slots, c.in, c.out), weights = Product(c.in, c.out, c.experts);
  const double moved = 2 * (Product(slots, c.in) + Product(slots, c.out));
  const std::string size = Times(c.in, c.out);
  for (const bool even : {true, false}) {
    const std::string shape = Times(c.experts, c.rows) + (even ? "" : "uneven") + "/" + size;
    for (const bool forward : {true, false}) {
      cases.push_back({.name = (forward ? "experts/forward/" : "experts/input_gradient/") + shape,
                       .flops = flops,
                       .bytes = moved + 2 * weights,
                       .expected = kExperts,
                       .prepare = [=](Operands& operands) -> Prepared {
                         const ExpertRows rows = RowsOfExperts(operands, c.experts, c.rows, even);
                         ExpertGemmArgs args;
                         args.a = operands.New(kBf16, slots, forward ? c.in : c.out);
                         args.b = operands.New(kBf16, c.experts * c.out, c.in);
                         args.b.rows = c.out;
                         args.transpose_b = forward;
                         args.b_step = c.out * c.in;
                         args.c = operands.New(kBf16, slots, forward ? c.out : c.in);
                         return {.call = [=](Ops& ops) { ops.ExpertGemm(args, rows); }};
                       }});
    }
    cases.push_back({.name = "experts/weight_gradient/" + shape,
                     .flops = flops,
                     .bytes = moved + 4 * weights,
                     .expected = kExperts,
                     .prepare = [=](Operands& operands) -> Prepared {
                       const ExpertRows rows = RowsOfExperts(operands, c.experts, c.rows, even);
                       ExpertGradientArgs args;
                       args.a = operands.New(kBf16, slots, c.out);
                       args.b = operands.New(kBf16, slots, c.in);
                       args.c = operands.New(kF32, c.experts * c.out, c.in);
                       args.c.rows = c.out;
                       args.c_step = c.out * c.in;
                       return {.call = [=](Ops& ops) { ops.ExpertGradient(args, rows); }};
                     }});
  }
  const Projection dense{"dense_beside_experts/" + Times(slots, 1) + "/" + size, slots, c.in, c.out, kProducts};
  cases.push_back(Forward(dense, Extra::kNone));
  cases.push_back(InputGradient(dense, Extra::kNone));
  cases.push_back(WeightGradient(dense, Extra::kNone));
}

/// A projection with biases, and their gradients. `weighted`: as of the projection down, whose biases are weighed.
void AddExpertBiases(std::vector<KernelCase>& cases, const ExpertsCase& c, bool weighted) {
  const int64_t slots = c.experts * c.rows;
  const std::string shape = Times(c.experts, c.rows) + "/" + Times(c.in, c.out);
  const double product = 2 * (Product(slots, c.in) + Product(c.in, c.out, c.experts));
  const double output = 2 * Product(slots, c.out), biases = 4 * Product(c.experts, c.out);
  cases.push_back({.name = "expert_bias/product/" + shape,
                   .flops = 2 * Product(slots, c.in, c.out),
                   .bytes = product + output + biases,
                   .expected = std::nullopt,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const ExpertRows rows = RowsOfExperts(operands, c.experts, c.rows, true);
                     ExpertGemmArgs args;
                     args.a = operands.New(kBf16, slots, c.in);
                     args.b = operands.New(kBf16, c.experts * c.out, c.in);
                     args.b.rows = c.out;
                     args.transpose_b = true;
                     args.b_step = c.out * c.in;
                     args.c = operands.New(kBf16, slots, c.out);
                     args.bias = operands.NewVector(c.experts * c.out), args.bias_step = c.out;
                     if (weighted) args.bias_weights = operands.NewVector(slots);
                     return {.call = [=](Ops& ops) { ops.ExpertGemm(args, rows); }};
                   }});
  cases.push_back({.name = "expert_bias/backward/" + shape,
                   .bytes = output + (weighted ? 2 : 1) * biases,
                   .expected = std::nullopt,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const ExpertRows rows = RowsOfExperts(operands, c.experts, c.rows, c.experts == 1);
                     ExpertBiasBackwardArgs args;
                     args.d_out = operands.New(kBf16, slots, c.out);
                     args.d_bias = operands.NewVector(c.experts * c.out), args.d_bias_step = c.out;
                     if (weighted) {
                       args.weights = operands.NewVector(slots), args.d_weights = operands.NewVector(slots);
                       args.bias = operands.NewVector(c.experts * c.out), args.bias_step = c.out;
                     }
                     return {.call = [=](Ops& ops) { ops.ExpertBiasBackward(args, rows); }};
                   }});
}

/// Of a layer of configs/moe_1b.yaml, whose microbatch has so many rows.
void AddRouterReport(std::vector<KernelCase>& cases, int64_t rows, int64_t experts) {
  cases.push_back({.name = "router_report/" + Times(rows, experts),
                   .bytes = 8 * Product(rows, experts) + 4 * Product(rows, 1),
                   .expected = std::nullopt,
                   .prepare = [=](Operands& operands) -> Prepared {
                     RouterReportArgs args;
                     args.logits = operands.New(kF32, rows, experts);
                     args.forward.scores = operands.NewVector(rows * experts);
                     args.forward.lse = operands.NewVector(rows);
                     args.counts = operands.Copy(std::vector<int32_t>(static_cast<size_t>(experts), 1));
                     args.slope = operands.NewVector(experts);
                     args.load = reinterpret_cast<int64_t*>(operands.NewVector(2 * experts));
                     auto* const losses = reinterpret_cast<double*>(operands.NewVector(6));
                     args.balance = losses, args.z = losses + 1, args.entropy = losses + 2;
                     const RouterShape shape{.num_experts = experts, .chosen = 8};
                     return {.call = [=](Ops& ops) { ops.RouterReport(args, shape); }};
                   }});
}

// --- what memory bounds ----------------------------------------------------------------------------------------------

void AddNorms(std::vector<KernelCase>& cases, NormKind kind, int64_t rows, int64_t cols) {
  const std::string shape = (kind == NormKind::kLayerNorm ? "layer_norm/" : "rms_norm/") + Times(rows, cols);
  const auto params_of = [=](Operands& operands) {
    NormParams params;
    params.kind = kind;
    params.weight = operands.NewVector(cols);
    if (kind == NormKind::kLayerNorm) params.bias = operands.NewVector(cols);
    return params;
  };
  cases.push_back({.name = "norm/forward/" + shape,
                   .bytes = 8 * Product(rows, cols),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const NormParams params = params_of(operands);
                     const NormStats stats{operands.NewVector(rows), operands.NewVector(rows)};
                     const Matrix y = operands.New(kBf16, rows, cols), sum = operands.New(kBf16, rows, cols);
                     const Matrix residual = operands.New(kBf16, rows, cols), branch = operands.New(kBf16, rows, cols);
                     return {.call = [=](Ops& ops) { ops.NormForward(y, sum, stats, residual, branch, params, {}); }};
                   }});
  cases.push_back(
      {.name = "norm/backward/" + shape,
       .bytes = 8 * Product(rows, cols),
       .expected = kMemory,
       .prepare = [=](Operands& operands) -> Prepared {
         const NormParams params = params_of(operands);
         const NormStats stats{operands.NewVector(rows), operands.NewVector(rows)};
         const Matrix x = operands.New(kBf16, rows, cols), y = operands.New(kBf16, rows, cols);
         const Matrix d_x = operands.New(kBf16, rows, cols), d_y = operands.New(kBf16, rows, cols);
         const Matrix d_residual = operands.New(kBf16, rows, cols);
         float* const d_weight = operands.NewVector(cols);
         float* const d_bias = kind == NormKind::kLayerNorm ? operands.NewVector(cols) : nullptr;
         return {.call = [=](Ops& ops) { ops.NormBackward(d_x, d_weight, d_bias, d_residual, d_y, x, stats, params); },
                 .before = [=](Ops& ops) { ops.NormForward(y, {}, stats, x, {}, params, {}); }};
       }});
}

void AddActivations(std::vector<KernelCase>& cases, int64_t shrink) {
  const int64_t rows = 32 * 1024 / shrink, inner = 3072, wide_rows = 8 * 1024 / shrink, wide = 8192;
  cases.push_back({.name = "activation/gelu_backward/" + Times(rows, inner),
                   .bytes = 6 * Product(rows, inner),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const Matrix x = operands.New(kBf16, rows, inner), d = operands.New(kBf16, rows, inner);
                     return {.call = [=](Ops& ops) { ops.GeluBackward(d, d, x); }};
                   }});
  cases.push_back({.name = "activation/swiglu_forward/" + Times(wide_rows, wide),
                   .bytes = 6 * Product(wide_rows, wide),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const Matrix x = operands.New(kBf16, wide_rows, 2 * wide);
                     const Matrix y = operands.New(kBf16, wide_rows, wide);
                     return {.call = [=](Ops& ops) { ops.GatedForward(y, x, GateKind::kSilu); }};
                   }});
  cases.push_back({.name = "activation/swiglu_backward/" + Times(wide_rows, wide),
                   .bytes = 10 * Product(wide_rows, wide),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const Matrix x = operands.New(kBf16, wide_rows, 2 * wide);
                     const Matrix d_x = operands.New(kBf16, wide_rows, 2 * wide);
                     const Matrix d_y = operands.New(kBf16, wide_rows, wide);
                     return {.call = [=](Ops& ops) { ops.GatedBackward(d_x, d_y, x, GateKind::kSilu); }};
                   }});
  cases.push_back({.name = "column_sum/" + Times(rows, inner),
                   .bytes = 2 * Product(rows, inner),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     const Matrix x = operands.New(kBf16, rows, inner);
                     float* const sums = operands.NewVector(inner);
                     return {.call = [=](Ops& ops) { ops.ColumnSum(sums, x); }};
                   }});
}

void AddVectors(std::vector<KernelCase>& cases, int64_t shrink) {
  const int64_t parameters = 124439808 / shrink;
  cases.push_back({.name = "adamw/124439808",
                   .bytes = 30 * Product(parameters, 1),
                   .expected = kMemory,
                   .prepare = [=](Operands& operands) -> Prepared {
                     AdamWArgs args;
                     args.n = parameters;
                     args.weight = operands.NewVector(parameters);
                     args.exp_avg = operands.NewVector(parameters);
                     args.exp_avg_sq = operands.NewVector(parameters);
                     args.grad = operands.NewVector(parameters);
                     args.weight_bf16 = static_cast<uint16_t*>(operands.New(kBf16, 1, parameters).data);
                     args.lr = 1e-4f, args.beta1 = 0.9f, args.beta2 = 0.95f, args.eps = 1e-8f;
                     return {.call = [=](Ops& ops) { ops.AdamW(args); }};
                   }});
  // A block of 124M, one of 1558M, and the token table of 124M, in chunks of 256 KiB.
  for (const int64_t whole : {int64_t{7087872}, int64_t{30740800}, int64_t{38597376}}) {
    const int64_t n = whole / shrink;
    cases.push_back({.name = "chunk_sum_squares/" + std::to_string(whole),
                     .bytes = 4 * Product(n, 1),
                     .expected = whole < 10000000 ? kShortLaunch : kMemory,
                     .prepare = [=](Operands& operands) -> Prepared {
                       std::vector<int64_t> offsets;
                       for (int64_t i = 0; i < n; i += 1 << 16) offsets.push_back(i);
                       const auto chunks = static_cast<int64_t>(offsets.size());
                       offsets.push_back(n);
                       const float* const x = operands.NewVector(n);
                       auto* const sums = reinterpret_cast<double*>(operands.NewVector(2 * chunks));
                       return {.call = [=](Ops& ops) { ops.ChunkSumSquares(sums, x, offsets.data(), chunks); }};
                     }});
  }
  // As many chunks of 768-wide rows, with AdamW's planes, as a digest of the state takes together.
  const int64_t chunk = 65280 / shrink, n = 42 * chunk;
  cases.push_back({.name = "chunk_digests/42x65280",
                   .bytes = 12 * Product(n, 1),
                   .expected = Expected{0.2, 0.4},  // each goes through 764 scrambled sums, one after the other
                   .prepare = [=](Operands& operands) -> Prepared {
                     ChunkDigestsArgs args{.num_planes = 3, .n = n, .chunk = chunk};
                     for (size_t plane = 0; plane < 3; ++plane) args.planes[plane] = operands.NewVector(n);
                     args.digests = reinterpret_cast<uint64_t*>(operands.NewVector(2 * 42));
                     return {.call = [=](Ops& ops) { ops.ChunkDigests(args); }};
                   }});
}

}  // namespace

std::vector<KernelCase> KernelCases(int64_t shrink) {
  std::vector<KernelCase> cases;
  for (const int64_t head_dim : {int64_t{64}, int64_t{128}}) {
    const int64_t heads = 768 / head_dim;
    AddAttention(cases, {32 / std::min<int64_t>(shrink, 32), 1024 / shrink, heads, heads, head_dim});
    AddAttention(cases, {8 / std::min<int64_t>(shrink, 8), 4096 / shrink, heads, heads, head_dim});
    AddAttention(cases, {8 / std::min<int64_t>(shrink, 8), 4096 / shrink, heads, heads, head_dim, 512 / shrink});
  }
  AddAttention(cases, {8 / std::min<int64_t>(shrink, 8), 1024 / shrink, 32, 8, 64});  // Llama 3.2 1B
  AddSinks(cases, {8 / std::min<int64_t>(shrink, 8), 1024 / shrink, 64, 8, 64});      // gpt-oss
  for (const Model& model : kModels) AddProducts(cases, model, shrink);
  AddHead(cases, 50257, 768, shrink);
  AddHead(cases, 128256, 2048, shrink);
  AddExperts(cases, {8, 2048 / shrink, 2048, 2048});
  AddExperts(cases, {64, 512 / shrink, 2048, 1024});
  const ExpertsCase up{32, 512 / shrink, 2880, 5760}, down{32, 512 / shrink, 2880, 2880};  // gpt-oss 20B, 4096 tokens
  AddExperts(cases, up);
  AddExperts(cases, down);
  AddExpertBiases(cases, up, false);
  AddExpertBiases(cases, down, true);
  AddExpertBiases(cases, {1, 32 * up.rows, up.in, up.out}, false);  // one expert has all rows
  AddRouterReport(cases, 8 * 2048 / shrink, 64);
  AddNorms(cases, NormKind::kLayerNorm, 32 * 1024 / shrink, 768);
  AddNorms(cases, NormKind::kLayerNorm, 8 * 1024 / shrink, 1600);
  AddNorms(cases, NormKind::kRmsNorm, 8 * 1024 / shrink, 2048);
  AddActivations(cases, shrink);
  AddVectors(cases, shrink);
  return cases;
}

std::vector<KernelCase> Filtered(std::vector<KernelCase> cases, const std::string& text) {
  std::erase_if(cases, [&](const KernelCase& c) { return c.name.find(text) == std::string::npos; });
  return cases;
}

}  // namespace holdfast::kernels
