#include "models/observing_device.h"

#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "kernels/forwarding_ops.h"

namespace holdfast {
namespace {

class ObservingOps final : public kernels::ForwardingOps {
 public:
  ObservingOps(Stream& stream, ObservingDevice& device) : stream_(stream), device_(device) {}

  void EmbeddingForward(kernels::Matrix out, const int32_t* tokens, kernels::ConstMatrix token_table,
                        kernels::ConstMatrix position_table, const kernels::Positions& positions,
                        const kernels::Dropout& dropout, float scale) override {
    stream_.ops().EmbeddingForward(out, tokens, token_table, position_table, positions, dropout, scale);
    branches_ = 0;
    Show(Observed::kEmbedding, out);
  }

  // Branches enter the stream after attention and after the MLP in turn: in a norm, or where none follows by
  // themselves.
  void NormForward(kernels::Matrix out, kernels::Matrix residual_out, const kernels::NormStats& stats,
                   kernels::ConstMatrix residual, kernels::ConstMatrix branch, const kernels::NormParams& params,
                   const kernels::Dropout& dropout) override {
    stream_.ops().NormForward(out, residual_out, stats, residual, branch, params, dropout);
    if (branch.data != nullptr) ShowBranch(branch, residual_out);
  }

  void AddDropout(kernels::Matrix sum, kernels::ConstMatrix in, const kernels::Dropout& dropout) override {
    stream_.ops().AddDropout(sum, in, dropout);
    ShowBranch(in, sum);
  }

  void SoftmaxCrossEntropy(float* losses, kernels::Matrix d_logits, kernels::ConstMatrix logits, const int32_t* targets,
                           float grad_scale) override {
    Show(Observed::kLogits, logits);  // their gradient may take their memory
    stream_.ops().SoftmaxCrossEntropy(losses, d_logits, logits, targets, grad_scale);
  }

 private:
  void Forward(std::function<void(kernels::Ops&)> call) override { call(stream_.ops()); }

  void ShowBranch(kernels::ConstMatrix branch, kernels::ConstMatrix stream) {
    Show(branches_++ % 2 == 0 ? Observed::kAttention : Observed::kMlp, branch);
    Show(Observed::kStream, stream);
  }

  void Show(Observed what, kernels::ConstMatrix values) {
    if (device_.observer() == nullptr) return;
    HOLDFAST_CHECK(values.dtype == kernels::DType::kF32);
    if (!stream_.Synchronize().ok()) return;  // whoever waits for the pass is told
    std::vector<float> rows(static_cast<size_t>((values.rows - 1) * values.stride + values.cols)), all;
    device_.CopyToCpu(rows.data(), values.data, rows.size() * sizeof(float));
    for (int64_t r = 0; r < values.rows; ++r) {
      const auto begin = rows.begin() + r * values.stride;
      all.insert(all.end(), begin, begin + values.cols);
    }
    device_.observer()(what, all);
  }

  Stream& stream_;
  ObservingDevice& device_;
  int64_t branches_ = 0;  // of the pass at hand
};

class ObservingStream final : public Stream {
 public:
  ObservingStream(std::unique_ptr<Stream> inner, ObservingDevice& device)
      : inner_(std::move(inner)), ops_(*inner_, device) {}
  kernels::Ops& ops() override { return ops_; }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  std::shared_ptr<Event> Record() override { return inner_->Record(); }
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override { inner_->CopyToCpu(cpu, device, bytes); }
  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }

 private:
  std::unique_ptr<Stream> inner_;
  ObservingOps ops_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> ObservingDevice::CreateStream(StreamKind kind) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> inner, inner_.CreateStream(kind));
  return std::make_unique<ObservingStream>(std::move(inner), *this);
}

}  // namespace holdfast
