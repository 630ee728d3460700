#pragma once
// The CPU's operations, each run once on every instruction set that the processor has, from the same memory: a test
// failure names the operation that wrote other bits. So every kernel test compares instruction sets, too.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace holdfast::kernels {

class ComparingOps final : public Ops {
 public:
  explicit ComparingOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  void Gemm(const GemmArgs& args) override {
    Compare("Gemm", {Of(args.c), Of(args.pre_gelu), Of(args.a_sums, args.c.rows)}, [&] { ops_->Gemm(args); });
  }
  void ColumnSum(float* out, ConstMatrix in) override {
    Compare("ColumnSum", {Of(out, in.cols)}, [&] { ops_->ColumnSum(out, in); });
  }
  void EmbeddingForward(Matrix out, const int32_t* tokens, ConstMatrix token_table, ConstMatrix position_table,
                        const Positions& positions, const Dropout& dropout, float scale) override {
    Compare("EmbeddingForward", {Of(out)},
            [&] { ops_->EmbeddingForward(out, tokens, token_table, position_table, positions, dropout, scale); });
  }
  void EmbeddingBackward(Matrix d_token_table, Matrix d_position_table, const int32_t* tokens, ConstMatrix d_out,
                         const Positions& positions, const Dropout& dropout, float scale) override {
    Compare("EmbeddingBackward", {Of(d_token_table), Of(d_position_table)}, [&] {
      ops_->EmbeddingBackward(d_token_table, d_position_table, tokens, d_out, positions, dropout, scale);
    });
  }
  void NormForward(Matrix out, Matrix residual_out, const NormStats& stats, ConstMatrix residual, ConstMatrix branch,
                   const NormParams& params, const Dropout& dropout) override {
    const int64_t rows = out.rows;
    Compare("NormForward", {Of(out), Of(residual_out), Of(stats.mean, rows), Of(stats.rstd, rows * params.groups)},
            [&] { ops_->NormForward(out, residual_out, stats, residual, branch, params, dropout); });
  }
  void NormBackward(Matrix d_input, float* d_weight, float* d_bias, ConstMatrix d_residual, ConstMatrix d_out,
                    ConstMatrix input, const NormStats& stats, const NormParams& params) override {
    Compare("NormBackward", {Of(d_input), Of(d_weight, input.cols / params.groups), Of(d_bias, input.cols)},
            [&] { ops_->NormBackward(d_input, d_weight, d_bias, d_residual, d_out, input, stats, params); });
  }
  void ApplyDropout(Matrix out, ConstMatrix in, const Dropout& dropout) override {
    Compare("ApplyDropout", {Of(out)}, [&] { ops_->ApplyDropout(out, in, dropout); });
  }
  void AddDropout(Matrix sum, ConstMatrix in, const Dropout& dropout) override {
    Compare("AddDropout", {Of(sum)}, [&] { ops_->AddDropout(sum, in, dropout); });
  }
  void Rope(Matrix x, const float* cos_sin, const RotaryHeads& heads, const Positions& positions,
            bool inverse) override {
    Compare("Rope", {Of(x)}, [&] { ops_->Rope(x, cos_sin, heads, positions, inverse); });
  }
  void AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) override {
    Compare("AttentionForward", {Of(out), Of(lse, shape.batch * shape.num_heads * shape.sequence)},
            [&] { ops_->AttentionForward(out, lse, qkv, shape); });
  }
  void AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                         const AttentionShape& shape) override {
    Compare("AttentionBackward", {Of(d_qkv)}, [&] { ops_->AttentionBackward(d_qkv, d_out, out, lse, qkv, shape); });
  }
  void CachedAttention(const CachedAttentionArgs& args) override {
    const size_t element = SizeOf(args.qkv.dtype);
    const auto kept = static_cast<size_t>(args.sequences * args.num_kv_heads * args.capacity * args.head_dim) * element;
    Compare("CachedAttention",
            {Of(args.out), Bytes{args.keys, kept, element}, Bytes{args.values, kept, element},
             Of(args.lse, args.qkv.rows * args.num_heads)},
            [&] { ops_->CachedAttention(args); });
  }
  void SinkForward(Matrix out, float* lse, const float* sinks, const AttentionShape& shape) override {
    Compare("SinkForward", {Of(out), Of(lse, out.rows * shape.num_heads)},
            [&] { ops_->SinkForward(out, lse, sinks, shape); });
  }
  void SinkBackward(float* d_sinks, ConstMatrix d_out, ConstMatrix out, const float* lse, const float* sinks,
                    const AttentionShape& shape) override {
    Compare("SinkBackward", {Of(d_sinks, shape.num_heads)},
            [&] { ops_->SinkBackward(d_sinks, d_out, out, lse, sinks, shape); });
  }
  void Clip(Matrix out, ConstMatrix in, float limit) override {
    Compare("Clip", {Of(out)}, [&] { ops_->Clip(out, in, limit); });
  }
  void ClipBackward(Matrix d, ConstMatrix in, float limit) override {
    Compare("ClipBackward", {Of(d)}, [&] { ops_->ClipBackward(d, in, limit); });
  }
  void GeluForward(Matrix out, ConstMatrix in) override {
    Compare("GeluForward", {Of(out)}, [&] { ops_->GeluForward(out, in); });
  }
  void GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) override {
    Compare("GeluBackward", {Of(d_in)}, [&] { ops_->GeluBackward(d_in, d_out, in); });
  }
  void GatedForward(Matrix out, ConstMatrix gate_up, GateKind kind) override {
    Compare("GatedForward", {Of(out)}, [&] { ops_->GatedForward(out, gate_up, kind); });
  }
  void GatedBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up, GateKind kind) override {
    Compare("GatedBackward", {Of(d_gate_up)}, [&] { ops_->GatedBackward(d_gate_up, d_out, gate_up, kind); });
  }
  void RouterForward(const RouterOut& out, ConstMatrix logits, const RouterShape& shape) override {
    const int64_t rows = logits.rows, choices = rows * shape.chosen;
    Compare("RouterForward",
            {Of(out.scores, rows * shape.num_experts), Bytes{out.experts, static_cast<size_t>(choices) * 4},
             Of(out.weights, choices), Of(out.lse, rows)},
            [&] { ops_->RouterForward(out, logits, shape); });
  }
  void RouterBackward(const RouterBackwardArgs& args, const RouterShape& shape) override {
    Compare("RouterBackward", {Of(args.d_logits)}, [&] { ops_->RouterBackward(args, shape); });
  }
  void RouterReport(const RouterReportArgs& args, const RouterShape& shape) override {
    ops_->RouterReport(args, shape);
  }
  void SortChoices(const SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                   const RouterShape& shape) override {
    ops_->SortChoices(out, experts, weights, rows, shape);
  }
  void Jitter(Matrix out, ConstMatrix in, float range, const RandomKey& key) override {
    Compare("Jitter", {Of(out)}, [&] { ops_->Jitter(out, in, range, key); });
  }
  void GatherRows(Matrix out, ConstMatrix in, const ExpertRows& rows) override {
    Compare("GatherRows", {Of(out)}, [&] { ops_->GatherRows(out, in, rows); });
  }
  void CombineRows(Matrix out, ConstMatrix in, ConstMatrix last, const ExpertRows& rows) override {
    Compare("CombineRows", {Of(out)}, [&] { ops_->CombineRows(out, in, last, rows); });
  }
  void ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) override {
    Compare("ExpertGemm", {Of(args.c)}, [&] { ops_->ExpertGemm(args, rows); });
  }
  void ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) override {
    Matrix all = args.c;  // of all experts, and what lies between them
    all.rows = ((rows.num_experts - 1) * args.c_step) / all.stride + all.rows;
    Compare("ExpertGradient", {Of(all)}, [&] { ops_->ExpertGradient(args, rows); });
  }
  void ExpertBiasBackward(const ExpertBiasBackwardArgs& args, const ExpertRows& rows) override {
    const int64_t biases = (rows.num_experts - 1) * args.d_bias_step + args.d_out.cols;
    Compare("ExpertBiasBackward", {Of(args.d_bias, biases), Of(args.d_weights, rows.slots)},
            [&] { ops_->ExpertBiasBackward(args, rows); });
  }
  void ExpertSwigluForward(Matrix out, ConstMatrix gate_up, const float* weights, float limit,
                           const ExpertRows& rows) override {
    Compare("ExpertSwigluForward", {Of(out)}, [&] { ops_->ExpertSwigluForward(out, gate_up, weights, limit, rows); });
  }
  void ExpertSwigluBackward(Matrix d_gate_up, float* d_weights, ConstMatrix d_out, ConstMatrix gate_up,
                            const float* weights, float limit, const ExpertRows& rows) override {
    Compare("ExpertSwigluBackward", {Of(d_gate_up), Of(d_weights, rows.slots)},
            [&] { ops_->ExpertSwigluBackward(d_gate_up, d_weights, d_out, gate_up, weights, limit, rows); });
  }
  void SoftmaxCrossEntropy(float* losses, Matrix d_logits, ConstMatrix logits, const int32_t* targets,
                           float grad_scale) override {
    Matrix all = d_logits;  // its memory may be that of logits, which then is longer
    if (d_logits.data == logits.data) {
      all = {d_logits.data, logits.dtype, logits.rows, logits.cols, logits.stride};
    }
    Compare("SoftmaxCrossEntropy", {Of(losses, logits.rows), Of(all)},
            [&] { ops_->SoftmaxCrossEntropy(losses, d_logits, logits, targets, grad_scale); });
  }
  void AdamW(const AdamWArgs& a) override {
    Compare("AdamW",
            {Of(a.weight, a.n), Of(a.exp_avg, a.n), Of(a.exp_avg_sq, a.n),
             Bytes{a.weight_bf16, a.weight_bf16 == nullptr ? 0 : static_cast<size_t>(a.n) * 2, 2}},
            [&] { ops_->AdamW(a); });
  }
  void Lion(const LionArgs& a) override {
    Compare("Lion",
            {Of(a.weight, a.n), Of(a.exp_avg, a.n),
             Bytes{a.weight_bf16, a.weight_bf16 == nullptr ? 0 : static_cast<size_t>(a.n) * 2, 2}},
            [&] { ops_->Lion(a); });
  }
  void ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) override {
    Compare("ChunkSumSquares", {Bytes{sums, static_cast<size_t>(num_chunks) * sizeof(double), sizeof(double)}},
            [&] { ops_->ChunkSumSquares(sums, x, offsets, num_chunks); });
  }
  void ChunkDigests(const ChunkDigestsArgs& a) override {
    const int64_t chunks = (a.n + a.chunk - 1) / a.chunk;
    Compare("ChunkDigests", {Bytes{a.digests, static_cast<size_t>(chunks) * sizeof(uint64_t), sizeof(uint64_t)}},
            [&] { ops_->ChunkDigests(a); });
  }
  void Add(float* a, const float* b, int64_t n) override {
    Compare("Add", {Of(a, n)}, [&] { ops_->Add(a, b, n); });
  }
  void Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) override {
    Compare("Axpby", {Of(out, n)}, [&] { ops_->Axpby(out, alpha, x, beta, y, n); });
  }
  void Zero(void* data, size_t bytes) override { ops_->Zero(data, bytes); }
  void Copy(void* out, const void* in, size_t bytes) override { ops_->Copy(out, in, bytes); }
  void CastToBf16(uint16_t* out, const float* in, int64_t n) override {
    Compare("CastToBf16", {Bytes{out, static_cast<size_t>(n) * 2, 2}}, [&] { ops_->CastToBf16(out, in, n); });
  }
  void FillNormal(float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) override {
    Compare("FillNormal", {Of(out, n)}, [&] { ops_->FillNormal(out, n, first, stddev, key); });
  }

 private:
  /// What an operation writes; nothing if the data is null. `element`: bytes of each value.
  struct Bytes {
    void* data;
    size_t size, element = 4;
  };
  static Bytes Of(float* data, int64_t n) { return {data, data == nullptr ? 0 : static_cast<size_t>(n) * 4}; }
  static Bytes Of(const Matrix& m) {
    if (m.data == nullptr || m.rows <= 0 || m.cols <= 0) return {nullptr, 0};
    const size_t element = SizeOf(m.dtype);
    return {m.data, static_cast<size_t>((m.rows - 1) * m.stride + m.cols) * element, element};
  }
  static std::vector<char> Save(const std::vector<Bytes>& outputs) {
    std::vector<char> saved;
    for (const Bytes& b : outputs) {
      const char* from = static_cast<const char*>(b.data);
      saved.insert(saved.end(), from, from + b.size);
    }
    return saved;
  }
  static void Restore(const std::vector<char>& saved, const std::vector<Bytes>& outputs) {
    const char* from = saved.data();
    for (const Bytes& b : outputs) {
      if (b.size > 0) std::memcpy(b.data, from, b.size);
      from += b.size;
    }
  }

  static bool IsNan(const char* value, size_t element) {
    uint16_t upper;  // sign, exponent and the upper mantissa of an fp32 or bf16 value
    std::memcpy(&upper, value + element - 2, 2);
    return element <= 4 && (upper & 0x7f80) == 0x7f80 && (upper & 0x7f) != 0;
  }

  /// Equal bits, but for which NaN it is: that depends on which operand an instruction takes first.
  static bool Same(const std::vector<char>& a, const std::vector<char>& b, const std::vector<Bytes>& outputs) {
    size_t at = 0;
    for (const Bytes& output : outputs) {
      for (const size_t end = at + output.size; at < end; at += output.element) {
        if (std::memcmp(&a[at], &b[at], output.element) == 0) continue;
        if (!IsNan(&a[at], output.element) || !IsNan(&b[at], output.element)) return false;
      }
    }
    return true;
  }

  /// Leaves what the best instruction set writes.
  template <typename Call>
  void Compare(const char* name, const std::vector<Bytes>& outputs, const Call& call) {
    const std::vector<char> before = Save(outputs);
    const std::vector<std::string> sets = CpuInstructionSets();
    std::vector<char> expected;
    for (size_t i = sets.size(); i-- > 0;) {
      Restore(before, outputs);
      ASSERT_TRUE(UseCpuInstructionSet(sets[i]));
      call();
      const std::vector<char> written = Save(outputs);
      if (expected.empty()) expected = written;
      EXPECT_TRUE(Same(written, expected, outputs))
          << name << " writes other bits on " << sets[i] << " than on " << sets.back();
    }
    ASSERT_TRUE(UseCpuInstructionSet(""));
  }

  std::unique_ptr<Ops> ops_;
};

}  // namespace holdfast::kernels
