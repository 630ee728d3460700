// A process takes the processors it may use: of its mask, and of the time that control groups let it have; more threads
// than that are warned of. This program's own sched_getaffinity is used in place of the C library's, for a kernel with
// a longer mask.

#include "framework/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/framework/base/temporary_directory.h"

namespace {
size_t kernels_mask_bytes = 0;
}  // namespace

extern "C" int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* mask) noexcept {
  if (size < kernels_mask_bytes) {
    errno = EINVAL;
    return -1;
  }
  const long bytes = syscall(SYS_sched_getaffinity, pid, size, mask);
  if (bytes < 0) return -1;
  std::memset(reinterpret_cast<char*>(mask) + bytes, 0, size - static_cast<size_t>(bytes));
  return 0;
}

namespace holdfast {
namespace {

TEST(Processors, OfAMaskThatIsLongerThanCpuSet) {
  const int here = AvailableProcessors();
  kernels_mask_bytes = 3 * sizeof(cpu_set_t);
  EXPECT_EQ(AvailableProcessors(), here);
  kernels_mask_bytes = 0;
}

TEST(Processors, AtLeastOneAndNoMoreThanTheMaskHas) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_LE(AvailableProcessors(), CPU_COUNT(&mask));
}

TEST(Processors, MoreThreadsThanThereAreAreWarnedOf) {
  EXPECT_EQ(TooManyThreadsWarning("--threads", 64, 1, 2),
            "--threads is 64, more than the 2 processors here: threads that wait for each other make it slower, many "
            "threads far slower");
  EXPECT_EQ(TooManyThreadsWarning("train.threads", 2, 3, 4).rfind("train.threads is 2 for each of 3 workers, more", 0),
            0u);
  EXPECT_EQ(TooManyThreadsWarning("--threads", 2, 2, 4), "");
  EXPECT_EQ(TooManyThreadsWarning("--threads", 0, 9, 4), "") << "all that there are";
  EXPECT_EQ(TooManyThreadsWarning("--threads", 1, 9, 4), "") << "there cannot be fewer";
  EXPECT_EQ(TooManyThreadsWarning("--threads", AvailableProcessors()), "");
}

class CpuQuotaTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  double Quota(const std::string& membership) const {
    Write("membership", membership);
    return CpuQuota(dir_ / "membership", dir_ / "groups");
  }

  TemporaryDirectory dir_;
};

TEST_F(CpuQuotaTest, OfVersion2IsTheLeastOfTheGroupAndItsParents) {
  Write("groups/a/cpu.max", "250000 100000\n");
  Write("groups/a/b/cpu.max", "max 100000\n");
  Write("groups/a/b/c/cpu.max", "1600000 200000\n");
  EXPECT_EQ(Quota("0::/a/b/c\n"), 2.5);
  EXPECT_EQ(Quota("0::/a/b\n"), 2.5);
  EXPECT_EQ(Quota("0::/other\n"), kNoCpuQuota);
  Write("groups/cpu.max", "50000 100000\n");  // of a container, which sees its own group as the root
  EXPECT_EQ(Quota("0::/\n"), 0.5);
  EXPECT_EQ(Quota("0::/a/b/c\n"), 0.5);
}

TEST_F(CpuQuotaTest, OfVersion1) {
  Write("groups/cpu/a/cpu.cfs_quota_us", "300000\n");
  Write("groups/cpu/a/cpu.cfs_period_us", "100000\n");
  Write("groups/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  Write("groups/cpu/a/b/cpu.cfs_period_us", "100000\n");
  const std::string others = "5:memory:/a\n1:name=systemd:/\n";
  EXPECT_EQ(Quota(others + "4:cpu,cpuacct:/a/b\n0::/\n"), 3);
  EXPECT_EQ(Quota(others + "4:cpuset:/a/b\n"), kNoCpuQuota);
}

TEST_F(CpuQuotaTest, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(CpuQuota(dir_ / "none", dir_ / "none"), kNoCpuQuota);
  for (const char* text : {"", "\n", "max\n", "1 2 3\n", "0 100000\n", "x y\n", "100000 0\n", "nan 1\n"}) {
    Write("groups/cpu.max", text);
    EXPECT_EQ(Quota("0::/\n"), kNoCpuQuota) << text;
  }
  EXPECT_EQ(Quota("nonsense\n::\n:cpu\n"), kNoCpuQuota);
}

}  // namespace
}  // namespace holdfast
