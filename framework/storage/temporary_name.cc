#include "framework/storage/temporary_name.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "framework/base/status.h"
#include "framework/storage/storage.h"

namespace holdfast {
namespace {

constexpr absl::string_view kMark = ".tmp-";
constexpr int kDigits = 12;
constexpr size_t kTailBytes = kMark.size() + kDigits;

std::string TemporaryName(const std::string& leaf, uint64_t id) {
  return absl::StrFormat(".%s%s%0*x", leaf, kMark, kDigits, id);
}

bool HasTemporaryForm(absl::string_view file_name) {
  if (file_name.size() <= 1 + kTailBytes || file_name.front() != '.') return false;
  const absl::string_view tail = file_name.substr(file_name.size() - kTailBytes);
  return tail.substr(0, kMark.size()) == kMark &&
         tail.find_first_not_of("0123456789abcdef", kMark.size()) == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<std::string> RandomTemporaryName(const std::string& leaf) {
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) return ErrnoToStatus(errno, "getrandom");
  id &= (uint64_t{1} << (4 * kDigits)) - 1;
  return TemporaryName(leaf, std::max<uint64_t>(id, 1));
}

std::string ClaimName(const std::string& leaf) { return TemporaryName(leaf, 0); }

bool IsTemporaryName(absl::string_view file_name) {
  return HasTemporaryForm(file_name) && CheckObjectName(NameOfTemporary(file_name)).ok();
}

bool IsTemporaryNameOf(absl::string_view file_name, const std::string& leaf) {
  return HasTemporaryForm(file_name) && NameOfTemporary(file_name) == leaf && file_name != ClaimName(leaf);
}

absl::string_view NameOfTemporary(absl::string_view temporary) {
  return temporary.substr(1, temporary.size() - 1 - kTailBytes);
}

}  // namespace holdfast
