// A descriptor is closed once, by its last owner; reads and writes finish, or name the file and the offset.

#include "framework/base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, IsClosedOnceByItsLastOwner) {
  FileDescriptor first = OpenFile("/dev/null", O_RDONLY), second = OpenFile("/dev/null", O_RDONLY);
  ASSERT_TRUE(first.ok() && second.ok());
  const int one = first.get(), two = second.get();
  EXPECT_NE(fcntl(one, F_GETFD) & FD_CLOEXEC, 0);
  first = std::move(second);
  EXPECT_FALSE(IsOpen(one)) << "what was held before is closed at once";
  EXPECT_EQ(first.get(), two);
  EXPECT_FALSE(second.ok());
  { const FileDescriptor third(std::move(first)); }
  EXPECT_FALSE(IsOpen(two));
  FileDescriptor fourth = OpenFile("/dev/null", O_RDONLY);
  const int left = fourth.Release();
  fourth = FileDescriptor();
  EXPECT_TRUE(IsOpen(left));
  close(left);
}

// Of a disk here it is lost: tests/framework/storage/syscalls_test.cc.
TEST(ReadExactly, AnErrorOfAnUnknownFileSystemMayPass) {
  std::array<std::byte, 4> bytes;
  const FileDescriptor memory = OpenFile("/proc/self/mem", O_RDONLY);  // nothing is mapped at byte 0
  const absl::Status status = ReadExactly(memory.get(), 0, {absl::Span<std::byte>(bytes)}, "m");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "Input/output error")) << status;
}

TEST(ReadExactly, FillsSeveralPlacesAndNamesWhereTheFileEnds) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "f") << "0123456789";
  const FileDescriptor file = OpenFile(dir / "f", O_RDONLY);
  std::array<std::byte, 4> a{};
  std::array<std::byte, 3> b{};
  const std::array<absl::Span<std::byte>, 3> places = {absl::MakeSpan(a), {}, absl::MakeSpan(b)};
  ASSERT_TRUE(ReadExactly(file.get(), 2, places, "f").ok());
  EXPECT_EQ(static_cast<char>(a[0]), '2');
  EXPECT_EQ(static_cast<char>(b[2]), '8');
  const absl::Status status = ReadExactly(file.get(), 4, places, "the file");
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "the file: became shorter")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "byte 10")) << status;
}

TEST(ReadToEnd, PutsTogetherWhatAPipeGivesInPieces) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const FileDescriptor out(ends[0]);
  std::thread writer([in = FileDescriptor(ends[1])]() mutable {
    for (const char* piece : {"a", "bc", "def"}) EXPECT_TRUE(WriteAll(in.get(), piece, "pipe").ok());
  });
  std::array<char, 16> bytes{};
  const auto got = ReadToEnd(out.get(), absl::MakeSpan(bytes), "pipe");
  writer.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::string(bytes.data(), *got), "abcdef");
}

TEST(WriteAll, AFullDiskIsResourceExhausted) {
  const FileDescriptor full = OpenFile("/dev/full", O_WRONLY);
  const absl::Status status = WriteAll(full.get(), "x", "/dev/full");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/dev/full: write")) << status;
}

TEST(RegularFileSize, RefusesEverythingElse) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "f") << "12345";
  EXPECT_EQ(*RegularFileSize(OpenFile(dir / "f", O_RDONLY), "f"), 5u);
  EXPECT_TRUE(absl::IsInvalidArgument(RegularFileSize(OpenFile(dir.path(), O_RDONLY), "d").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RegularFileSize(OpenFile("/dev/null", O_RDONLY), "n").status()));
  EXPECT_TRUE(absl::IsNotFound(RegularFileSize(OpenFile(dir / "none", O_RDONLY), "none").status()));
}

// Standard input may be a pipe that another program has made non-blocking.
TEST(FileDescriptor, WhatDoesNotBlockIsWaitedForAlsoByWhoCannotBeStopped) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const FileDescriptor reader(ends[0]);
  const std::jthread writer([end = FileDescriptor(ends[1])] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time in which it could be read from too early
    EXPECT_EQ(write(end.get(), "x", 1), 1);
  });
  ASSERT_TRUE(WaitToRead(reader.get(), {}).ok());
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), 1) << "nothing was there yet";
}

}  // namespace
}  // namespace holdfast
