#pragma once
// One connection between every two members of a group.
//
// Example (every member):
//   auto mesh = GlooMesh::Make(loop, rank, size);                 // listens once for every other member
//   ... tell member r the address (*mesh)->AddressFor(r), learn the address that r has for us ...
//   for (int r : others) HF_RETURN_IF_ERROR((*mesh)->Connect(r, address_from[r]));

#include <gloo/transport/context.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "framework/comm/gloo/gloo_loop.h"

namespace holdfast {

class GlooMesh {
 public:
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Make(std::shared_ptr<GlooLoop> loop, int rank, int size);
  ~GlooMesh();

  int rank() const { return rank_; }
  int size() const { return size_; }
  GlooLoop& loop() { return *loop_; }

  /// Where this rank listens for member `peer`; opaque bytes.
  std::string AddressFor(int peer);
  /// Blocks until connected. Unavailable if nobody listens at `address`, Aborted after Interrupt.
  absl::Status Connect(int peer, const std::string& address);
  /// From another thread: ends Connect, and all later ones.
  void Interrupt();

  /// Closes all connections and returns when Gloo touches no buffer any more. What was written before still arrives at
  /// the peers. From any thread, also while buffers are waited for.
  void Close();
  /// Runs `post`, which posts messages, unless closed.
  bool WhileOpen(absl::FunctionRef<void()> post);

  std::unique_ptr<gloo::transport::UnboundBuffer> Buffer(void* data, size_t size) {
    return context_->createUnboundBuffer(data, size);
  }

 private:
  GlooMesh(std::shared_ptr<GlooLoop> loop, int rank, int size) : loop_(std::move(loop)), rank_(rank), size_(size) {}

  std::shared_ptr<GlooLoop> loop_;  // shared with the other meshes of this world; goes after the context
  int rank_, size_;
  std::shared_ptr<gloo::transport::Context> context_;  // shared with its buffers

  std::mutex mutex_;  // never held while waiting for the loop
  bool open_ = true;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace holdfast
