#include "elastic/wire/coordinator_addresses.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "elastic/wire/address.h"
#include "framework/base/files.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

constexpr size_t kMaxFileBytes = 1000;

bool IsLoopbackAddress(const std::string& address) {
  const auto parts = SplitHostAndPort(WithDefaultPort(address));
  return parts.ok() && IsLoopbackHost(parts->first);
}

}  // namespace

CoordinatorAddresses::CoordinatorAddresses(const std::string& given, std::string file, LeaderFinder find)
    : given_(absl::StrSplit(given, ',', absl::SkipWhitespace())), file_(std::move(file)), find_(std::move(find)) {
  for (std::string& address : given_) absl::StripAsciiWhitespace(&address);
}

std::string CoordinatorAddresses::Noted() const {
  if (find_ != nullptr) return find_().value_or("");
  if (file_.empty()) return "";
  const absl::StatusOr<std::string> text = ReadFile(file_, kMaxFileBytes);
  if (!text.ok() || text->empty() || text->find('\n') + 1 != text->size()) return "";
  std::string address = text->substr(0, text->size() - 1);
  return SplitHostAndPort(address).ok() ? address : "";
}

std::vector<std::string> CoordinatorAddresses::With(const std::string& noted) const {
  std::vector<std::string> all = given_;
  if (noted.empty() || std::count(all.begin(), all.end(), noted) > 0) return all;
  if (!all.empty() && IsLoopbackAddress(noted) && std::none_of(all.begin(), all.end(), IsLoopbackAddress)) return all;
  all.insert(all.begin(), noted);
  return all;
}

std::string CoordinatorAddresses::Next() {
  const std::string noted = Noted();
  const std::vector<std::string> all = With(noted);
  if (all.empty()) return "";
  if (!noted.empty() && noted != noted_) {
    const auto found = std::find(all.begin(), all.end(), noted);
    next_ = found == all.end() ? 0 : static_cast<size_t>(found - all.begin());
    noted_ = noted;
  }
  const size_t now = next_ % all.size();
  next_ = now + 1;
  used_ = all[now];
  return used_;
}

std::vector<std::string> CoordinatorAddresses::All() const { return With(Noted()); }

bool CoordinatorAddresses::HasMoved() {
  const std::string noted = Noted();
  if (noted == used_) noted_ = noted;  // it was reached before this machine saw it noted
  return !noted.empty() && noted != noted_;
}

}  // namespace holdfast
