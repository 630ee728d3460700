#include "tests/framework/storage/fault_storage.h"

#include <cerrno>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Matched = std::optional<StorageFaultRule>;

absl::Status StatusOf(StorageFault fault, const std::string& what) {
  switch (fault) {
    case StorageFault::kIoError:
      return ErrnoToStatus(EIO, absl::StrCat(what, " (injected)"));
    case StorageFault::kShortRead:
      return absl::DataLossError(absl::StrCat(what, ": too short (injected)"));
    case StorageFault::kNoSpace:
      return ErrnoToStatus(ENOSPC, absl::StrCat(what, " (injected)"));
    case StorageFault::kNoPermission:
      return ErrnoToStatus(EACCES, absl::StrCat(what, " (injected)"));
    case StorageFault::kUnavailable:
    case StorageFault::kLostAnswer:
      return absl::UnavailableError(absl::StrCat(what, ": no answer (injected)"));
    case StorageFault::kSlow:
    case StorageFault::kBitFlip:
      break;
  }
  return absl::OkStatus();
}

// The error instead of the call, if there is one.
absl::Status Before(const Matched& fault, const std::string& what) {
  if (!fault || fault->fault == StorageFault::kLostAnswer) return absl::OkStatus();
  if (fault->fault == StorageFault::kSlow) std::this_thread::sleep_for(fault->delay);
  return StatusOf(fault->fault, what);
}

// The error in spite of the call, if there is one.
absl::Status After(const Matched& fault, const std::string& what) {
  return fault && fault->fault == StorageFault::kLostAnswer ? StatusOf(fault->fault, what) : absl::OkStatus();
}

void FlipBit(absl::Span<std::byte> bytes, uint64_t bit) {
  if (bytes.empty()) return;
  std::byte& byte = bytes[bit / 8 % bytes.size()];
  byte ^= std::byte{1} << static_cast<int>(bit % 8);
}

}  // namespace

class FaultStorage::Script {
 public:
  void Add(const StorageFaultRule& rule) {
    const std::lock_guard lock(mutex_);
    rules_.push_back(rule);
  }
  void ClearRules() {
    const std::lock_guard lock(mutex_);
    rules_.clear();
  }
  std::vector<StorageCall> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  // Notes the call. The first rule that matches and is not used up decides; those before it have counted the call.
  Matched Pass(StorageCall call) {
    const std::lock_guard lock(mutex_);
    Matched fault;
    for (StorageFaultRule& rule : rules_) {
      if (fault || rule.operation != call.operation || !absl::StrContains(call.name, rule.name)) continue;
      if (rule.skip > 0) {
        --rule.skip;
      } else if (rule.count > 0) {
        --rule.count;
        fault = rule;
      }
    }
    if (fault) call.fault = fault->fault;
    calls_.push_back(std::move(call));
    return fault;
  }

  // A call of kReadAt, which `read` serves.
  absl::Status Read(const std::string& name, uint64_t offset, absl::Span<std::byte> out,
                    absl::FunctionRef<absl::Status(absl::Span<std::byte>)> read) {
    const Matched fault =
        Pass({.operation = StorageOperation::kReadAt, .name = name, .offset = offset, .bytes = out.size()});
    if (fault && fault->fault == StorageFault::kShortRead) RETURN_IF_ERROR(read(out.subspan(0, out.size() / 2)));
    RETURN_IF_ERROR(Before(fault, absl::StrCat(name, " at byte ", offset)));
    RETURN_IF_ERROR(read(out));
    if (fault && fault->fault == StorageFault::kBitFlip) FlipBit(out, fault->bit);
    return After(fault, name);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<StorageFaultRule> rules_;
  std::vector<StorageCall> calls_;
};

class FaultStorage::Staged : public StagedFile {
 public:
  Staged(std::unique_ptr<StagedFile> inner, std::shared_ptr<Script> script, std::string name)
      : inner_(std::move(inner)), script_(std::move(script)), name_(std::move(name)) {}
  const std::string& path() const override { return inner_->path(); }
  absl::Status Reserve(uint64_t bytes) override {
    const Matched fault = script_->Pass({.operation = StorageOperation::kReserve, .name = name_, .bytes = bytes});
    RETURN_IF_ERROR(Before(fault, name_));
    RETURN_IF_ERROR(inner_->Reserve(bytes));
    return After(fault, name_);
  }
  absl::Status Commit() override {
    const Matched fault = script_->Pass({.operation = StorageOperation::kCommit, .name = name_});
    RETURN_IF_ERROR(Before(fault, name_));
    RETURN_IF_ERROR(inner_->Commit());
    return After(fault, name_);
  }

 private:
  std::unique_ptr<StagedFile> inner_;
  std::shared_ptr<Script> script_;
  std::string name_;
};

class FaultStorage::File : public RandomAccessFile {
 public:
  File(std::unique_ptr<RandomAccessFile> inner, std::shared_ptr<Script> script, std::string name)
      : inner_(std::move(inner)), script_(std::move(script)), name_(std::move(name)) {}
  const std::string& path() const override { return inner_->path(); }
  uint64_t size() const override { return inner_->size(); }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    return script_->Read(name_, offset, out,
                         [&](absl::Span<std::byte> place) { return inner_->ReadAt(offset, place); });
  }

 private:
  const std::unique_ptr<RandomAccessFile> inner_;
  const std::shared_ptr<Script> script_;
  const std::string name_;
};

FaultStorage::FaultStorage(Storage& inner) : inner_(inner), script_(std::make_shared<Script>()) {}

void FaultStorage::Inject(const StorageFaultRule& rule) { script_->Add(rule); }

void FaultStorage::ClearFaults() { script_->ClearRules(); }

std::vector<StorageCall> FaultStorage::Calls() const { return script_->calls(); }

int64_t FaultStorage::CallsOf(StorageOperation operation) const {
  int64_t count = 0;
  for (const StorageCall& call : Calls()) count += call.operation == operation ? 1 : 0;
  return count;
}

absl::StatusOr<std::vector<StoredObject>> FaultStorage::List(absl::string_view prefix) {
  const std::string name(prefix);
  const Matched fault = script_->Pass({.operation = StorageOperation::kList, .name = name});
  RETURN_IF_ERROR(Before(fault, absl::StrCat("list of ", name)));
  ASSIGN_OR_RETURN(std::vector<StoredObject> objects, inner_.List(prefix));
  RETURN_IF_ERROR(After(fault, absl::StrCat("list of ", name)));
  return objects;
}

absl::StatusOr<uint64_t> FaultStorage::Size(const std::string& name) {
  const Matched fault = script_->Pass({.operation = StorageOperation::kSize, .name = name});
  RETURN_IF_ERROR(Before(fault, name));
  ASSIGN_OR_RETURN(const uint64_t size, inner_.Size(name));
  RETURN_IF_ERROR(After(fault, name));
  return size;
}

absl::Status FaultStorage::ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) {
  return script_->Read(name, offset, out,
                       [&](absl::Span<std::byte> place) { return inner_.ReadAt(name, offset, place); });
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FaultStorage::Open(const std::string& name) {
  const Matched fault = script_->Pass({.operation = StorageOperation::kSize, .name = name});
  RETURN_IF_ERROR(Before(fault, name));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, inner_.Open(name));
  RETURN_IF_ERROR(After(fault, name));
  return std::make_unique<File>(std::move(file), script_, name);
}

absl::Status FaultStorage::Create(const std::string& name, absl::string_view contents) {
  const Matched fault = script_->Pass({.operation = StorageOperation::kCreate, .name = name, .bytes = contents.size()});
  RETURN_IF_ERROR(Before(fault, name));
  RETURN_IF_ERROR(inner_.Create(name, contents));
  return After(fault, name);
}

absl::StatusOr<std::unique_ptr<StagedFile>> FaultStorage::Stage(const std::string& name, uint64_t bytes) {
  const Matched fault = script_->Pass({.operation = StorageOperation::kStage, .name = name, .bytes = bytes});
  RETURN_IF_ERROR(Before(fault, name));
  ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file, inner_.Stage(name, bytes));
  RETURN_IF_ERROR(After(fault, name));
  return std::make_unique<Staged>(std::move(file), script_, name);
}

absl::Status FaultStorage::Delete(const std::string& name) {
  const Matched fault = script_->Pass({.operation = StorageOperation::kDelete, .name = name});
  RETURN_IF_ERROR(Before(fault, name));
  RETURN_IF_ERROR(inner_.Delete(name));
  return After(fault, name);
}

absl::Status FaultStorage::Sweep() {
  const Matched fault = script_->Pass({.operation = StorageOperation::kSweep, .name = ""});
  RETURN_IF_ERROR(Before(fault, "sweep"));
  RETURN_IF_ERROR(inner_.Sweep());
  return After(fault, "sweep");
}

}  // namespace holdfast
