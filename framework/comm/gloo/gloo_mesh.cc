#include "framework/comm/gloo/gloo_mesh.h"

#include <gloo/common/error.h>

#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Make(std::shared_ptr<GlooLoop> loop, int rank, int size) {
  auto mesh = std::unique_ptr<GlooMesh>(new GlooMesh(std::move(loop), rank, size));
  HF_RETURN_IF_ERROR(GlooCall([&] {
    mesh->context_ = mesh->loop_->device()->createContext(rank, size);
    mesh->context_->setTimeout(gloo::kNoTimeout);
    for (int r = 0; r < size; ++r) {
      if (r != rank) mesh->context_->createPair(r);
    }
  }));
  return mesh;
}

GlooMesh::~GlooMesh() {
  if (context_ != nullptr) Close();
}

std::string GlooMesh::AddressFor(int peer) {
  const std::vector<char> bytes = context_->getPair(peer)->address().bytes();
  return {bytes.begin(), bytes.end()};
}

absl::Status GlooMesh::Connect(int peer, const std::string& address) {
  HF_RETURN_IF_ERROR(GlooCall([&] { context_->getPair(peer)->connect({address.begin(), address.end()}); }));
  return interrupted_ ? absl::AbortedError("interrupted") : absl::OkStatus();
}

void GlooMesh::Interrupt() {
  interrupted_ = true;
  const GlooLoop::Ticks ticks(*loop_, GlooLoop::Pace::kConnecting);
  for (int r = 0; r < size_; ++r) {
    // A pair that cannot be closed is closed already.
    if (r != rank_) GlooCall([&] { context_->getPair(r)->close(); }).IgnoreError();
  }
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
