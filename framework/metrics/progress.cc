#include "framework/metrics/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/format_bytes.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kLogInterval = std::chrono::seconds(10);
constexpr int kBarWidth = 30;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

bool IsTerminal(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(out)) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

int Columns(std::FILE* out) {
  int columns = 0;
  const char* variable = std::getenv("COLUMNS");
  if (variable != nullptr && absl::SimpleAtoi(variable, &columns) && columns > 0) return columns;
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

/// The first `width` characters of UTF-8 text: a line that wraps could not be drawn over.
std::string Clip(const std::string& text, int width) {
  size_t end = 0;
  for (int characters = 0; end < text.size(); ++end) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts_character && ++characters > width) break;
  }
  return text.substr(0, end);
}

/// "[=====>    ]", or nothing where there is no room for a bar.
std::string Bar(double fraction, int width) {
  if (width < 6) return "";
  const int cells = width - 2;
  const int full = static_cast<int>(fraction * cells);
  std::string inside(static_cast<size_t>(full), '=');
  if (full < cells) inside += '>';
  inside.resize(static_cast<size_t>(cells), ' ');
  return absl::StrCat("[", inside, "]");
}

std::string Amount(double count, const std::string& unit) {
  return unit == "B" ? FormatBytes(count) : absl::StrFormat("%.0f", count);
}

std::string Rate(double per_second, const std::string& unit) {
  if (unit == "B") return absl::StrCat(Amount(per_second, unit), "/s");
  return absl::StrCat(FormatCount(per_second), " ", unit, "/s");
}

}  // namespace

int PictureColumns(std::FILE* out, int most) { return isatty(fileno(out)) == 1 ? std::min(most, Columns(out)) : most; }

Progress::Progress(std::string label, int64_t total, std::string unit, std::FILE* out)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      out_(out),
      terminal_(IsTerminal(out)),
      start_(Clock::now()),
      first_update_(start_),
      last_draw_(start_ - (terminal_ ? Clock::duration(kTerminalInterval) : Clock::duration::zero())) {}

Progress::~Progress() {
  if (terminal_ && drawn_ && !finished_) std::fputs("\n", out_);
}

void Progress::Update(int64_t done, const std::string& detail) {
  const Clock::time_point now = Clock::now();
  if (first_done_ < 0) {
    first_done_ = done;
    first_update_ = now;
  }
  recent_.Add(now, done);
  last_done_ = done;
  last_detail_ = detail;
  const Clock::duration interval = terminal_ ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval);
  if (!finished_ && now - last_draw_ >= interval) Draw(done, detail, /*last=*/false);
}

void Progress::Clear() {
  if (!terminal_ || !drawn_) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
  drawn_ = false;
  last_draw_ = start_ - kTerminalInterval;
}

void Progress::Finish() {
  if (!finished_ && first_done_ >= 0) Draw(last_done_, last_detail_, /*last=*/true);
  finished_ = true;
}

std::string Progress::Numbers(int64_t done, const std::string& detail, bool last) const {
  std::vector<std::string> parts;
  if (!unit_.empty()) {
    std::string count = Amount(static_cast<double>(done), unit_);
    if (total_ > 0) count += absl::StrCat("/", Amount(static_cast<double>(total_), unit_));
    if (unit_ != "B") count += " " + unit_;
    parts.push_back(std::move(count));
  }
  double rate = last ? 0 : recent_.PerSecond(last_draw_);
  const double measured = Seconds(last_draw_ - first_update_), elapsed = Seconds(last_draw_ - start_);
  if (rate == 0 && done > first_done_ && measured > 0) rate = static_cast<double>(done - first_done_) / measured;
  if (rate == 0 && last && elapsed > 0) rate = static_cast<double>(done) / elapsed;
  if (rate > 0 && !unit_.empty()) parts.push_back(Rate(rate, unit_));
  if (last) {
    parts.push_back("took " + FormatDuration(elapsed));
  } else if (total_ > 0 && rate > 0) {
    parts.push_back("ETA " + FormatDuration(static_cast<double>(std::max<int64_t>(total_ - done, 0)) / rate));
  }
  if (!detail.empty()) parts.push_back(detail);
  return absl::StrJoin(parts, ", ");
}

void Progress::Draw(int64_t done, const std::string& detail, bool last) {
  last_draw_ = Clock::now();
  drawn_ = true;
  const double fraction =
      total_ > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0) : 0;
  const std::string percent = total_ > 0 ? absl::StrFormat("%.0f%%", std::floor(100 * fraction)) : "";
  const std::string numbers = Numbers(done, detail, last);
  if (terminal_) {
    const int room = Columns(out_) - 1;  // the last column makes some terminals wrap
    std::string line = label_;
    if (total_ > 0) {
      const int used = static_cast<int>(label_.size() + numbers.size()) + 8;
      const std::string bar = Bar(fraction, std::min(kBarWidth, room - used));
      line += absl::StrFormat("%s%s %4s", bar.empty() ? "" : " ", bar, percent);
    }
    absl::FPrintF(out_, "\r%s\033[K%s", Clip(absl::StrCat(line, "  ", numbers), room), last ? "\n" : "");
  } else {
    absl::FPrintF(out_, "%s: %s%s%s\n", label_, percent, percent.empty() || numbers.empty() ? "" : ", ", numbers);
  }
  std::fflush(out_);
}

}  // namespace holdfast
