#pragma once
// One connection between every two members of a group, for Gloo's transport to move bytes over.
//
// Example (every member):
//   auto mesh = GlooMesh::Make(loop, rank, connections);  // by rank, connected to the other members (connector.h)

#include <gloo/transport/context.h>

#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "framework/comm/gloo/connection.h"
#include "framework/comm/gloo/gloo_loop.h"

namespace holdfast {

class GlooMesh {
 public:
  /// `connections` by rank; this rank's own is none.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Make(std::shared_ptr<GlooLoop> loop, int rank,
                                                        std::vector<Connection> connections);
  ~GlooMesh();

  int rank() const { return rank_; }
  int size() const { return size_; }
  GlooLoop& loop() { return *loop_; }

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
};

}  // namespace holdfast
