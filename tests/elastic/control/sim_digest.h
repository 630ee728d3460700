#pragma once
// A digest of all that coordinators decide in a simulated run: a change that is to change no decision leaves the
// digests of all seeds as they were (tests/simulate.py --digests).

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/sharded/branch_json.h"
#include "elastic/control/coordinator.h"
#include "elastic/wire/convert.h"
#include "elastic/wire/holdfast.pb.h"
#include "xxhash.h"

namespace holdfast::sim {

class DecisionDigest {
 public:
  /// `event`: of a ReportAction, as text.
  void Add(Instant now, const CoordinatorAction& action, const std::string& event) {
    std::string text = absl::StrCat(now.count(), "\n", action.index(), "\n", event);
    std::visit([&](const auto& a) { Append(a, &text); }, action);
    digest_ = XXH3_64bits_withSeed(text.data(), text.size(), digest_);
  }
  uint64_t digest() const { return digest_; }

 private:
  static std::string Bytes(const CoordinatorMessage& message) {
    v1::FromCoordinator wire;
    ToWire(message, &wire);
    return wire.SerializeAsString();
  }
  static void Append(const SendAction& a, std::string* text) { absl::StrAppend(text, a.to, " ", Bytes(a.message)); }
  static void Append(const SendToAllAction& a, std::string* text) {
    absl::StrAppend(text, absl::StrJoin(a.to, " "), " ", Bytes(a.message));
  }
  static void Append(const CloseAction& a, std::string* text) { absl::StrAppend(text, a.connection); }
  static void Append(const PersistAction& a, std::string* text) {
    absl::StrAppend(text, a.generation, " ", ToJson(a.branch).dump());
  }
  static void Append(const RecordAction& a, std::string* text) {
    absl::StrAppend(text, a.step, " ", a.loss_bits, " ", a.grad_norm_bits, " ", a.generation, " ", a.world_size, " ",
                    a.digests.size());
  }
  static void Append(const CommitCheckpointAction& a, std::string* text) {
    absl::StrAppend(text, a.step, " ", a.generation, " ", a.shards.size(), " ", a.validation_loss.value_or(-1), " ",
                    a.data_digest, " ", a.kernel_digest, " ", a.state_digest);
  }
  static void Append(const RewindAction& a, std::string* text) { absl::StrAppend(text, a.step); }
  static void Append(const VerifyCheckpointAction& a, std::string* text) { absl::StrAppend(text, a.name); }
  static void Append(const MakeRoomAction& a, std::string* text) { absl::StrAppend(text, a.step, " ", a.generation); }
  static void Append(const ReportAction&, std::string*) {}
  static void Append(const EndAction& a, std::string* text) { absl::StrAppend(text, a.exit_code, " ", a.reason); }

  uint64_t digest_ = 0;
};

}  // namespace holdfast::sim
