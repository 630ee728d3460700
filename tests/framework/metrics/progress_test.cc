// Proves the formats, that a log gets plain whole lines only, and that a terminal gets one line, no wider than it is,
// drawn over itself, and pictures that are no wider either. The terminal is a pseudo-terminal.
#include "framework/metrics/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <regex>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Format, Duration) {
  EXPECT_EQ(FormatDuration(0.04), "0.0 s");
  EXPECT_EQ(FormatDuration(3.24), "3.2 s");
  EXPECT_EQ(FormatDuration(9.96), "10 s");
  EXPECT_EQ(FormatDuration(12), "12 s");
  EXPECT_EQ(FormatDuration(59.6), "1 min 00 s");
  EXPECT_EQ(FormatDuration(200), "3 min 20 s");
  EXPECT_EQ(FormatDuration(3720), "1 h 02 min");
  EXPECT_EQ(FormatDuration(86400 * 2 + 3 * 3600), "2 d 03 h");
  EXPECT_EQ(FormatDuration(86400.0 * 729), "729 d 00 h");
  EXPECT_EQ(FormatDuration(86400.0 * 1469662), "4026 years");
  EXPECT_EQ(FormatDuration(-1), "?");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "?");
}

TEST(Format, Count) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(3.14159), "3.14");
  EXPECT_EQ(FormatCount(31.4159), "31.4");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(999.6), "1.00 K");
  EXPECT_EQ(FormatCount(999600), "1.00 M");
  EXPECT_EQ(FormatCount(1234567), "1.23 M");
  EXPECT_EQ(FormatCount(124439808), "124 M");
  EXPECT_EQ(FormatCount(1.1e9), "1.10 B");
  EXPECT_EQ(FormatCount(-1500), "-1.50 K");
  EXPECT_EQ(FormatCount(5e18), "5000000 T");
}

class TemporaryFile {
 public:
  TemporaryFile() : file_(std::tmpfile()) {}
  ~TemporaryFile() { std::fclose(file_); }
  std::FILE* get() { return file_; }
  std::string text() {
    std::rewind(file_);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(ProgressInALog, OneLineAtTheEndOfSomethingShort) {
  TemporaryFile log;
  {
    Progress progress("training", 1000, "steps", log.get());
    for (int i = 1; i <= 1000; ++i) progress.Update(i, "loss 2.31");
    progress.Clear();
    progress.Finish();
    progress.Finish();
    progress.Update(1000);
  }
  EXPECT_TRUE(std::regex_match(
      log.text(),
      std::regex("training: 100%, 1000/1000 steps, [0-9.]+( [KMBT])? steps/s, took [0-9.]+ s, loss 2.31\n")))
      << log.text();
}

TEST(ProgressInALog, NothingIfItEndsBeforeItsTime) {
  TemporaryFile log;
  { Progress("packing", 10, "B", log.get()).Update(3); }
  EXPECT_EQ(log.text(), "");
}

// A run that was stopped, or had failed, before its first step said "0%, 0/700 steps, 7.80 steps/s", also one that had
// resumed after step 600.
TEST(ProgressInALog, NothingIfNothingWasDone) {
  TemporaryFile log;
  Progress progress("training", 700, "steps", log.get());
  progress.Finish();
  EXPECT_EQ(log.text(), "");
}

TEST(ProgressInALog, WithoutAUnitThePercentageAlone) {
  TemporaryFile log;
  Progress progress("budget", 1000, "", log.get());
  progress.Update(222, "2 trials done");
  progress.Finish();
  EXPECT_TRUE(std::regex_match(log.text(), std::regex("(budget: 22%, 2 trials done\n)?"
                                                      "budget: 22%, took [0-9.]+ s, 2 trials done\n")))
      << log.text();
}

TEST(ProgressInALog, WhatIsNotNeededIsNotDone) {
  TemporaryFile log;
  Progress progress("sampling", 300, "tokens", log.get());
  progress.Update(20);
  progress.ReduceTotal(80);
  progress.Update(50);
  progress.ReduceTotal(170);
  progress.Finish();
  EXPECT_THAT(log.text(), HasSubstr("sampling: 100%, 50/50 tokens, "));
}

TEST(ProgressInALog, BytesAndUnknownTotal) {
  TemporaryFile log;
  Progress progress("packing", 0, "B", log.get());
  progress.Update(12'345'678);
  progress.Finish();
  EXPECT_THAT(log.text(), StartsWith("packing: 11.8 MiB, "));
  EXPECT_THAT(log.text(), Not(HasSubstr("%")));
}

TEST(ProgressInALog, BillionsOfBytesAreGibibytes) {
  TemporaryFile log;
  Progress progress("verifying", 24'691'356'000, "B", log.get());
  progress.Update(12'345'678'000);
  progress.Finish();
  EXPECT_THAT(log.text(), HasSubstr(", 11.5 GiB/23.0 GiB, "));
}

/// What a program that writes to a terminal of `columns` columns puts on it.
class Terminal {
 public:
  explicit Terminal(int columns) {
    setenv("TERM", "xterm", 1);
    unsetenv("COLUMNS");
    leader_ = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(leader_);
    unlockpt(leader_);
    const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
    ioctl(leader_, TIOCSWINSZ, &size);
    out_ = fdopen(open(ptsname(leader_), O_RDWR | O_NOCTTY), "w");
  }
  ~Terminal() {
    std::fclose(out_);
    close(leader_);
  }
  std::FILE* out() { return out_; }
  /// What was written since the last call. The kernel passes it on a little later, so a mark is written behind it.
  std::string text() {
    constexpr char kMark = '\1';
    std::fputc(kMark, out_);
    std::fflush(out_);
    std::string text;
    while (text.empty() || text.back() != kMark) {
      char block[4096];
      const ssize_t count = read(leader_, block, sizeof(block));
      if (count <= 0) break;
      text.append(block, static_cast<size_t>(count));
    }
    text.pop_back();
    return text;
  }

 private:
  int leader_;
  std::FILE* out_;
};

TEST(Pictures, AreNoWiderThanTheTerminal) {
  EXPECT_EQ(PictureColumns(Terminal(40).out(), 78), 40);
  EXPECT_EQ(PictureColumns(Terminal(200).out(), 78), 78);
  setenv("COLUMNS", "40", 1);  // says nothing of a file
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(PictureColumns(file, 78), 78);
  std::fclose(file);
  unsetenv("COLUMNS");
}

TEST(ProgressOnATerminal, DrawsOneLineOverItself) {
  Terminal terminal(100);
  Progress progress("training", 200, "steps", terminal.out());
  const auto begin = std::chrono::steady_clock::now();
  progress.Update(50, "loss 2.31");
  progress.Update(60);  // too soon after the last
  EXPECT_THAT(terminal.text(), ::testing::MatchesRegex("\rtraining \\[=======> *\\]  25%  50/200 steps, loss 2.31.*"));
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  progress.Update(100);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const std::string second = terminal.text();
  EXPECT_THAT(second, StartsWith("\rtraining [====="));
  EXPECT_THAT(second, HasSubstr("50%  100/200 steps"));
  ASSERT_THAT(second, HasSubstr("ETA "));
  const double eta = std::stod(second.substr(second.find("ETA ") + 4));  // 50 steps took `elapsed`, 100 are left
  EXPECT_GE(eta, 2 * 0.12 - 0.1);
  EXPECT_LE(eta, 2 * elapsed.count() + 0.5);
  EXPECT_THAT(second, Not(HasSubstr("\n")));
  progress.Update(200);
  progress.Finish();
  const std::string end = terminal.text();
  EXPECT_THAT(end, HasSubstr("100%  200/200 steps"));
  EXPECT_THAT(end, ::testing::EndsWith("\n"));
}

TEST(ProgressOnATerminal, NeverWraps) {
  for (const int columns : {10, 40, 60, 80, 200}) {
    Terminal terminal(columns);
    Progress progress("a label that is rather long", 1'000'000, "microbatches", terminal.out());
    progress.Update(123456, "loss 2.3184, gradient norm 0.1234, – ünïcödé");
    const std::string text = terminal.text();
    const size_t begin = text.find('\r') + 1, end = text.find("\033[K");
    ASSERT_NE(end, std::string::npos);
    int characters = 0;
    for (size_t i = begin; i < end; ++i) characters += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    EXPECT_LT(characters, columns);
    EXPECT_GE(characters, std::min(columns - 1, 60));
  }
}

TEST(ProgressOnATerminal, ClearMakesRoomForALine) {
  Terminal terminal(80);
  Progress progress("training", 10, "steps", terminal.out());
  progress.Clear();
  progress.Update(1);
  progress.Clear();
  progress.Update(2);
  const std::string text = terminal.text();
  const size_t cleared = text.find("\r\033[K");
  ASSERT_NE(cleared, std::string::npos);
  EXPECT_THAT(text.substr(0, cleared), HasSubstr("1/10"));
  EXPECT_THAT(text.substr(cleared), HasSubstr("2/10"));
}

TEST(ProgressOnATerminal, ColumnsOfTheEnvironmentWin) {
  Terminal terminal(200);
  setenv("COLUMNS", "50", 1);
  Progress progress("training", 10, "steps", terminal.out());
  progress.Update(1, std::string(100, 'x'));
  unsetenv("COLUMNS");
  EXPECT_EQ(terminal.text().find("\033[K"), 50u);
}

TEST(ProgressOnATerminal, DumbTerminalIsALog) {
  Terminal terminal(80);
  setenv("TERM", "dumb", 1);
  Progress progress("training", 10, "steps", terminal.out());
  progress.Update(10);
  progress.Finish();
  setenv("TERM", "xterm", 1);
  EXPECT_THAT(terminal.text(), StartsWith("training: 100%, 10/10 steps"));
}

}  // namespace
}  // namespace holdfast
