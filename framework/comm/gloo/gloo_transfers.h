#pragma once
// The messages of one call: all are posted at once, then waited for. The wait looks around at every tick of the loop,
// so it can end for any reason, and notices a broken connection whichever message it is on.
//
// Gloo matches messages by slot. The size is part of ours: Gloo would end the process if a message were longer than
// the memory it is received into; this way messages of different sizes are not matched.

#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "framework/comm/gloo/gloo_mesh.h"

namespace holdfast {

/// A slot for messages of `size` bytes, identified by two numbers.
uint64_t GlooSlot(uint64_t space, uint64_t number, size_t size);

class GlooTransfers final : private GlooLoop::Listener {
 public:
  explicit GlooTransfers(GlooMesh& mesh) : mesh_(mesh) {}
  ~GlooTransfers() override;

  /// Memory must stay until Run has returned OK, or the mesh was closed.
  void AddSend(int peer, uint64_t slot, const void* data, size_t size);
  void AddReceive(int peer, uint64_t slot, void* data, size_t size);

  /// Posts all and returns when all are done, or `check` fails, which is asked at every tick. Unavailable and
  /// `broken_peer()`: a connection broke.
  absl::Status Run(absl::FunctionRef<absl::Status()> check);
  /// From any thread: asks `check` soon.
  void Interrupt();

  int broken_peer() const { return broken_peer_; }
  /// The ranks that some message is still to come from or to go to, sorted; looks at every message again.
  std::vector<int> Missing();

 private:
  struct Transfer {
    int peer = 0;
    uint64_t slot = 0;
    bool receive = false, done = false;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  void OnTick() override;
  void Post();
  /// Until done or the next tick.
  absl::Status WaitBriefly(Transfer& transfer);

  GlooMesh& mesh_;
  std::vector<Transfer> transfers_;
  int broken_peer_ = -1;

  std::mutex mutex_;
  Transfer* current_ = nullptr;  // what Run waits for
  bool posted_ = false;
  int unreachable_peer_ = -1;  // its connection was found broken when a message was posted
};

}  // namespace holdfast
