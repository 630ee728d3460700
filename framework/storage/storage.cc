#include "framework/storage/storage.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxComponentBytes = 200;  // leaves room for what a temporary name adds, below NAME_MAX
constexpr size_t kMaxNameBytes = 500;       // leaves room for a prefix, below the 1,024 bytes of an S3 key

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// What is wrong with a component; empty if nothing is.
std::string ComponentProblem(absl::string_view component) {
  if (component.empty()) return "has an empty component";
  if (component.front() == '.') return "has a component that begins with \".\"";
  if (component.size() > kMaxComponentBytes) return absl::StrCat("has a component over ", kMaxComponentBytes, " bytes");
  if (!std::all_of(component.begin(), component.end(), IsNameByte)) return "has bytes other than [A-Za-z0-9._-]";
  return "";
}

class OpenObjectOfStorage final : public RandomAccessFile {
 public:
  OpenObjectOfStorage(Storage& storage, const std::string& name, uint64_t size)
      : storage_(storage), name_(name), path_(absl::StrCat(storage.Describe(), "/", name)), size_(size) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    return Annotate(storage_.ReadAt(name_, offset, out), absl::StrCat("at byte ", offset));
  }

 private:
  Storage& storage_;
  const std::string name_, path_;
  const uint64_t size_;
};

}  // namespace

absl::Status CheckObjectName(absl::string_view name) {
  std::string problem = name.size() > kMaxNameBytes ? absl::StrCat("is over ", kMaxNameBytes, " bytes") : "";
  for (const absl::string_view component : absl::StrSplit(name, '/')) {
    if (problem.empty()) problem = ComponentProblem(component);
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("object name \"", absl::CHexEscape(name.substr(0, kMaxNameBytes)), "\" ", problem));
}

absl::Status Storage::ReadInto(const std::string& name, uint64_t offset,
                               absl::Span<const absl::Span<std::byte>> places) {
  if (places.size() == 1) return ReadAt(name, offset, places[0]);
  size_t bytes = 0;
  for (const absl::Span<std::byte> place : places) bytes += place.size();
  std::vector<std::byte> whole(bytes);
  RETURN_IF_ERROR(ReadAt(name, offset, absl::MakeSpan(whole)));
  const std::byte* next = whole.data();
  for (const absl::Span<std::byte> place : places) {
    std::copy_n(next, place.size(), place.data());
    next += place.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> Storage::Open(const std::string& name) {
  ASSIGN_OR_RETURN(const uint64_t size, Size(name));
  return std::make_unique<OpenObjectOfStorage>(*this, name, size);
}

absl::StatusOr<std::string> ReadObject(Storage& storage, const std::string& name, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const uint64_t size, storage.Size(name));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(storage.Describe(), "/", name, ": ", size, " bytes; at most ", max_bytes, " are accepted"));
  }
  std::string contents(size, '\0');
  RETURN_IF_ERROR(
      storage.ReadAt(name, 0, absl::MakeSpan(reinterpret_cast<std::byte*>(contents.data()), contents.size())));
  return contents;
}

}  // namespace holdfast
