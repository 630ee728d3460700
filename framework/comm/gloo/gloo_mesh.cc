#include "framework/comm/gloo/gloo_mesh.h"

#include <gloo/common/error.h>

#include <future>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"
#include "framework/comm/gloo/gloo_pair.h"

namespace holdfast {

namespace {

/// Runs something on the loop's thread, once.
class OnLoop final : private GlooLoop::Listener {
 public:
  static absl::Status Run(GlooLoop& loop, absl::FunctionRef<void()> call) {
    OnLoop once(loop, call);
    loop.CallSoon(&once);
    once.done_.get_future().wait();
    return once.status_;
  }

 private:
  OnLoop(GlooLoop& loop, absl::FunctionRef<void()> call) : loop_(loop), call_(call) {}
  ~OnLoop() override { loop_.Unlisten(this); }

  void OnTick() override {
    status_ = GlooCall(call_);
    done_.set_value();
  }

  GlooLoop& loop_;
  absl::FunctionRef<void()> call_;
  absl::Status status_;
  std::promise<void> done_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Make(std::shared_ptr<GlooLoop> loop, int rank,
                                                         std::vector<Connection> connections) {
  const auto size = static_cast<int>(connections.size());
  auto mesh = std::unique_ptr<GlooMesh>(new GlooMesh(std::move(loop), rank, size));
  RETURN_IF_ERROR(OnLoop::Run(*mesh->loop_, [&] {
    gloo::transport::Device& device = *mesh->loop_->device();
    mesh->context_ = device.createContext(rank, size);
    mesh->context_->setTimeout(gloo::kNoTimeout);
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      mesh->context_->getPair(r) =
          MakeGlooPair(*mesh->context_, device, r, std::move(connections[static_cast<size_t>(r)]));
    }
  }));
  return mesh;
}

GlooMesh::~GlooMesh() {
  if (context_ != nullptr) Close();
}

bool GlooMesh::WhileOpen(absl::FunctionRef<void()> post) {
  const std::lock_guard lock(mutex_);
  if (open_) post();
  return open_;
}

void GlooMesh::Close() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(open_, false)) return;
  }
  const GlooLoop::Ticks ticks(*loop_, GlooLoop::Pace::kConnecting);
  // The destructor of a pair, unlike close(), lets the kernel deliver what was written.
  for (int r = 0; r < size_; ++r) context_->getPair(r).reset();
}

}  // namespace holdfast
