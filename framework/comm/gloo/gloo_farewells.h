#pragma once
// Why a connection ended. No member closes without a reason: one that leaves, fails or is aborted sends it to the
// others, on connections of their own, where no large message is in the way. So an end without a reason is a crash, a
// failure is reported with its first reason, and a survivor that closed because it noticed earlier is not blamed.
//
// All members of a world are connected; every communicator is a channel, read by the members of its group only.
// Thread-safe.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/gloo/gloo_transfers.h"

namespace holdfast {

class GlooFarewells final : private GlooLoop::Listener {
 public:
  /// `groups[channel]` lists the ranks of a channel. The mesh, of the loop, is connected.
  GlooFarewells(std::shared_ptr<GlooLoop> loop, std::unique_ptr<GlooMesh> mesh, uint64_t generation,
                const std::vector<std::vector<int>>& groups);
  ~GlooFarewells() override;

  /// Posts the receives for the others' farewells and waits until all have posted theirs; ends when `check` fails.
  absl::Status Start(absl::FunctionRef<absl::Status()> check);

  enum class Kind : uint32_t { kNone, kLeft, kFailed };
  /// Once per channel.
  void Say(int channel, Kind kind, const std::string& text);

  struct News {
    std::vector<int> crashed;  // ranks whose connection ended without a reason
    std::string reason;        // the first that a member gave for a failure, or empty
  };
  News Read(int channel);
  bool HasLeft(int channel, int rank);

 private:
  struct Message {
    Kind kind = Kind::kNone;
    char text[500] = {};
    uint32_t complete = 0;  // arrives last
  };
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  struct Peer {
    int rank = 0;
    Message message;  // written by Gloo until it is complete
    Buffer receive;
    Kind received = Kind::kNone;  // under mutex_
    std::string reason;           // under mutex_
  };
  struct Channel {
    std::vector<std::unique_ptr<Peer>> peers;
    Message outgoing;
    Buffer send;
  };

  void OnTick() override;
  void LookAt(size_t rank);
  void PostReceives();
  bool ConnectionEnded(int rank);

  std::shared_ptr<GlooLoop> loop_;  // goes after all buffers
  const uint64_t generation_;
  // A receive that never completes: Gloo fails it when its connection ends.
  std::vector<std::byte> never_;
  std::vector<Buffer> alive_;  // by rank
  std::vector<Channel> channels_;
  std::vector<std::vector<Peer*>> peers_of_;  // by rank, in all channels
  size_t next_rank_ = 0;                      // to be looked at in the next tick
  std::unique_ptr<GlooMesh> mesh_;            // closed before the memory above goes

  std::mutex mutex_;
  std::vector<bool> gone_;  // by rank: its connection has ended
};

}  // namespace holdfast
