#include "elastic/coordinator/leader_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace holdfast {

std::string LeaderWords::Line() const {
  if (!exit_code.has_value()) return absl::StrCat("beat ", beat, "\n");
  return absl::StrCat("ended ", *exit_code, " ", absl::StrReplaceAll(reason, {{"\n", " "}}), "\n");
}

std::optional<LeaderWords> LeaderWords::Read(const std::string& line) {
  const size_t end = line.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(line.substr(0, end), absl::MaxSplits(' ', 2));
  LeaderWords words;
  int exit_code = 0;
  if (parts.size() == 2 && parts[0] == "beat" && absl::SimpleAtoi(parts[1], &words.beat)) return words;
  if (parts.size() < 3 || parts[0] != "ended" || !absl::SimpleAtoi(parts[1], &exit_code)) return std::nullopt;
  words.exit_code = exit_code;
  words.reason = parts[2];
  return words;
}

bool LeaderWatch::IsSilent(Instant now, const LockText& text) {
  const bool looked_away = !looked_.has_value() || now - *looked_ > lease_ / 2;
  if (looked_away || text != text_) since_ = now;
  looked_ = now;
  text_ = text;
  const auto words = LeaderWords::Read(text.words);
  return words.has_value() && !words->exit_code.has_value() && now - since_ >= lease_;
}

bool SaysSomethingNew(const Notices& then, const Notices& now) {
  return std::any_of(now.begin(), now.end(), [&](const auto& notice) {
    const auto before = then.find(notice.first);
    return before == then.end() || before->second != notice.second;
  });
}

}  // namespace holdfast
