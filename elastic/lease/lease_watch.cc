#include "elastic/lease/lease_watch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/clip_text.h"

namespace holdfast {
namespace {

using Step = LeaseDecision::Step;

// Of a lease in which it says something new five times.
constexpr double kSilenceOfTheDead = 0.3;

// A lock is read up to 1,000 bytes, of which its owner takes up to some 330.
constexpr size_t kReasonBytes = 500;

/// One line of at most kReasonBytes, cut between characters.
std::string Shortened(const std::string& reason) {
  std::string line = absl::StrReplaceAll(reason, {{"\n", " "}});
  if (line.size() <= kReasonBytes) return line;
  constexpr char kMore[] = "...";
  return ClipText(line, kReasonBytes - sizeof(kMore) + 1) + kMore;
}

}  // namespace

std::string LeaderWords::Line() const {
  if (has_left) return "left\n";
  if (!exit_code.has_value()) return absl::StrCat("beat ", beat, "\n");
  return absl::StrCat("ended ", *exit_code, " ", Shortened(reason), "\n");
}

std::optional<LeaderWords> LeaderWords::Read(const std::string& line) {
  const size_t end = line.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(line.substr(0, end), absl::MaxSplits(' ', 2));
  LeaderWords words;
  int exit_code = 0;
  words.has_left = parts.size() == 1 && parts[0] == "left";
  if (words.has_left) return words;
  if (parts.size() == 2 && parts[0] == "beat" && absl::SimpleAtoi(parts[1], &words.beat)) return words;
  if (parts.size() < 3 || parts[0] != "ended" || !absl::SimpleAtoi(parts[1], &exit_code)) return std::nullopt;
  words.exit_code = exit_code;
  words.reason = parts[2];
  return words;
}

LeaseWatch::Instant LeaseWatch::Silence(Instant now, const LeaseSight& sight) {
  const bool looked_away = !looked_.has_value() || now - *looked_ > lease_ / 2;
  const bool is_news = sight.text != text_ || sight.version != version_;
  if (is_news && !text_.owner.empty() && text_.owner != me_) follows_ = true;
  if (looked_away || is_news) since_ = now;
  looked_ = now;
  text_ = sight.text;
  version_ = sight.version;
  return now - since_;
}

LeaseDecision LeaseWatch::Take(const std::string& what) const {
  if (!follows_) return {.step = Step::kTake};
  return {.step = Step::kTake, .from = absl::StrCat(last_.empty() ? "another process" : last_, " ", what)};
}

LeaseDecision LeaseWatch::Decide(Instant now, const LeaseSight& sight) {
  const bool is_first = !looked_.has_value();
  const Instant silence = Silence(now, sight);
  const bool is_silent = silence >= lease_;
  if (sight.text.owner.empty()) return !follows_ || is_silent ? Take("has gone") : LeaseDecision{};
  if (!me_.empty() && sight.text.owner == me_) return Take("has gone");
  last_ = sight.text.Name();
  const auto words = LeaderWords::Read(sight.text.words);
  const bool is_over = words.has_value() && (words->exit_code.has_value() || words->has_left);
  // Who holds the lock may say last words and still be there.
  if (sight.owner == LeaseSight::Owner::kThere) follows_ = true;
  if (is_over && sight.owner == LeaseSight::Owner::kThere) return {};
  if (is_over && words->exit_code.has_value() && follows_) return {.step = Step::kEnd, .end = *words};
  if (is_over) return Take("has left it");
  const bool may_be_dead = silence >= std::chrono::duration_cast<Instant>(lease_ * kSilenceOfTheDead);
  if (sight.owner == LeaseSight::Owner::kGone) {
    return sight.version.empty() || may_be_dead ? Take("has ended") : LeaseDecision{};
  }
  if (!words.has_value()) return {};
  if (is_silent) {
    follows_ = true;  // it may live: the run is taken over, and not begun anew
    return Take(absl::StrCat("has been silent for ", lease_ / std::chrono::milliseconds(1), " ms"));
  }
  return {.step = (is_first || may_be_dead) && sight.owner == LeaseSight::Owner::kUnknown ? Step::kAsk : Step::kWait};
}

bool SaysSomethingNew(const Notices& then, const Notices& now) {
  return std::any_of(now.begin(), now.end(), [&](const auto& notice) {
    const auto before = then.find(notice.first);
    return before == then.end() || before->second != notice.second;
  });
}

}  // namespace holdfast
