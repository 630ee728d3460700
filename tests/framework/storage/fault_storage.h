#pragma once
// A storage that hands everything on to another one, and fails where a test wants it to.
//
//   FaultStorage storage(inner);
//   storage.Inject({.operation = StorageOperation::kCreate, .fault = StorageFault::kNoSpace, .name = "manifest.json"});
//   storage.Inject({.operation = StorageOperation::kReadAt, .fault = StorageFault::kBitFlip, .skip = 3, .bit = 17});
//   ...
//   EXPECT_EQ(storage.CallsOf(StorageOperation::kDelete), 0);
//
// Thread-safe, as the inner one is; its faults are counted over all threads.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/storage/storage.h"

namespace holdfast {

enum class StorageOperation : uint8_t { kList, kSize, kReadAt, kCreate, kStage, kReserve, kCommit, kDelete, kSweep };

enum class StorageFault : uint8_t {
  kIoError,       // Unavailable, as EIO
  kShortRead,     // DataLoss; the second half is not filled (ReadAt)
  kNoSpace,       // ResourceExhausted
  kNoPermission,  // PermissionDenied
  kUnavailable,   // Unavailable, as a server that does not answer
  kLostAnswer,    // Unavailable, though it was done
  kSlow,          // done, after a delay
  kBitFlip,       // done, with one bit of what is read changed (ReadAt)
};

struct StorageFaultRule {
  StorageOperation operation;
  StorageFault fault;
  std::string name = {};                                // part of the object's name (of the prefix, for List); "" = any
  int64_t skip = 0;                                     // so many matching calls pass first
  int64_t count = std::numeric_limits<int64_t>::max();  // so many fail then
  std::chrono::milliseconds delay{0};                   // kSlow
  uint64_t bit = 0;                                     // kBitFlip: which of the range, modulo its size
};

/// What was done, in order of its beginning.
struct StorageCall {
  StorageOperation operation;
  std::string name = {};
  uint64_t offset = 0, bytes = 0;  // ReadAt: the range; Create, Stage: the size
  std::optional<StorageFault> fault = std::nullopt;
};

class FaultStorage : public Storage {
 public:
  /// `inner` must outlive it.
  explicit FaultStorage(Storage& inner);

  void Inject(const StorageFaultRule& rule);
  void ClearFaults();
  std::vector<StorageCall> Calls() const;
  int64_t CallsOf(StorageOperation operation) const;

  std::string Describe() const override { return inner_.Describe(); }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override;
  absl::StatusOr<uint64_t> Size(const std::string& name) override;
  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override;
  /// A call of kSize; reading the open object, calls of kReadAt.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& name) override;
  absl::Status Create(const std::string& name, absl::string_view contents) override;
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) override;
  absl::Status Delete(const std::string& name) override;
  absl::Status Sweep() override;

 private:
  class Script;
  class Staged;
  class File;

  Storage& inner_;
  std::shared_ptr<Script> script_;  // staged files may outlive the storage
};

}  // namespace holdfast
