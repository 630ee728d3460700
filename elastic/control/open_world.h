#pragma once
// The world that is at work, and how far its members have come in it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/ballot.h"
#include "elastic/control/messages.h"

namespace holdfast {

struct OpenWorld {
  using Instant = std::chrono::nanoseconds;

  World world;
  Purpose purpose = Purpose::kTrain;
  std::vector<int64_t> microbatches;  // by rank

  struct Rank {
    bool has_blob = false, recovered = false, mirrored = false, failed = false, finished = false;
  };
  std::vector<Rank> ranks;
  std::vector<std::string> blobs;  // by rank, until all are there
  int blob_count = 0, recovered_count = 0, mirrored_count = 0, finished_count = 0;
  Ballot ballot;  // of the next step

  std::string reason;
  Instant published{0};
  Instant all_recovered{0};
  Instant last_commit{0};
  std::optional<Instant> failed_since;   // the first report of a failure
  std::string unheard;                   // members with lesser names have shown since then that they live
  std::optional<Instant> unsaved_since;  // all are done, but there is no room for the last checkpoint
  bool reported_recovered = false, reported_no_progress = false;
  bool links_are_known = false;  // they were tried since the last commit
  int64_t link_rounds = 0;       // in which they were since then, because nobody got on
  int64_t commits = 0;
  bool validates = false;  // members were seen at it since the last commit
  // The slowest member's, and all bytes; detection is from the last sign of life of who was lost.
  double detect_seconds = 0, abort_seconds = 0, rendezvous_seconds = 0, transfer_seconds = 0;
  int64_t bytes = 0, mirror_bytes = 0;
  bool reported_mirrors_missing = false;

  int size() const { return world.size(); }
  Rank& rank(int r) { return ranks[static_cast<size_t>(r)]; }
  bool recovered() const { return recovered_count == size(); }
  /// The coordinator itself was away for so long: members waited for it, and what they report is unread.
  void Forgive(Instant gap) {
    published += gap;
    if (failed_since.has_value()) *failed_since += gap;
    last_commit += gap;
  }
  /// Everything is held as often as it should be.
  bool mirrored() const { return mirrored_count == size(); }
};

}  // namespace holdfast
