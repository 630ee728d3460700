#pragma once
// The state that in-process communicators share: which ranks have called with which memory, and until when it is read.
//
// A collective is a round. Every rank puts its arguments there and waits for the others (this can fail); once the round
// is full, every rank copies what it wants out of the others' memory without a lock, and leaves when all have copied
// (this cannot fail and takes no longer than the copies), so nobody's memory is read after its call returned. A rank
// can be at most one round ahead of another, so two rounds are enough.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace holdfast {

class InProcessRendezvous {
 public:
  enum class Kind : uint8_t { kAllGatherV, kAllToAllV, kBroadcast, kBarrier };

  /// What one rank brings to a round.
  struct Arguments {
    Kind kind = Kind::kBarrier;
    int root = 0;
    RankSlices<ConstBytes> input;  // all-gather, broadcast: bytes only
    RankSlices<Bytes> output;      // broadcast: bytes only
  };

  InProcessRendezvous(int size, uint64_t generation);

  int size() const { return size_; }
  uint64_t generation() const { return generation_; }

  absl::Status Join(int rank);
  void Leave(int rank);
  void Abort(const std::string& reason);

  /// `sequence` counts the rounds of this rank from 0.
  absl::Status Collective(int rank, uint64_t sequence, const Arguments& arguments, Deadline deadline);
  absl::Status Send(int from, int to, uint32_t tag, ConstBytes data, Deadline deadline);
  absl::Status Receive(int from, int to, uint32_t tag, Bytes data, Deadline deadline);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Round {
    uint64_t sequence = ~uint64_t{0};
    std::vector<const Arguments*> arguments;  // by rank; null = has not arrived
    int arrived = 0, copied = 0;
    bool full() const { return arrived == static_cast<int>(arguments.size()); }
  };

  struct Message {
    int from, to;
    uint32_t tag;
    ConstBytes data;
    enum { kOffered, kTaken, kDone } state = kOffered;
  };

  absl::Status WaitUntilFull(Lock& lock, int rank, Round& round, Deadline deadline);
  /// Sleeps until `ready` or failure. `missing` lists the ranks waited for now.
  absl::Status Wait(Lock& lock, Deadline deadline, const std::string& what, const std::function<bool()>& ready,
                    const std::function<std::vector<int>()>& missing);
  absl::Status CheckAgreement(const Round& round) const;
  void Copy(const Round& round, int rank) const;
  Message* FindOffer(int from, int to, uint32_t tag);
  absl::Status Fail(const absl::Status& status);

  const int size_;
  const uint64_t generation_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  absl::Status failure_;  // what later calls return
  std::vector<bool> joined_, left_;
  Round rounds_[2];
  std::list<Message*> offers_;  // each owned by a call of Send that is under way
};

}  // namespace holdfast
