// Proves that shard files are HDF5 files that say what FORMAT.md says, by reading them with the library itself (its own
// filters, its own driver) and with h5dump, and that its errors become statuses and are never printed.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/hdf5_driver.h"
#include "checkpoint/sharded/hdf5_filter.h"
#include "checkpoint/sharded/hdf5_library.h"
#include "checkpoint/sharded/shard_ranges.h"
#include "tests/checkpoint/sharded/directory_storage.h"
#include "tests/checkpoint/sharded/sample_state.h"

namespace holdfast {
namespace {

constexpr CheckpointName kHdf5Checkpoint{.step = 40, .generation = 3};

class Hdf5Test : public testing::TestWithParam<Compression> {
 protected:
  // Chunks 1, 2, 4, 5, 7, ...: runs with and without a rest, tensors with several.
  Hdf5Test() {
    for (int c = 0; c < static_cast<int>(layout_.chunks().size()); ++c) {
      if (c % 3 != 0) chunks_.push_back(c);
    }
  }

  std::string WriteShard() {
    const ShardWriterOptions options{
        .checkpoint = kHdf5Checkpoint, .shard = 2, .num_shards = 5, .compression = GetParam(), .level = 3};
    const auto report = WriteSampleShard(storage_, options, layout_, chunks_);
    EXPECT_TRUE(report.ok()) << report.status();
    const std::string directory = kHdf5Checkpoint.ToString();
    auto index = ReadObject(storage_, directory + "/shard-2-of-5.index", size_t{1} << 20);
    stored_ = *ParseShardIndex(*index, report->shard.data.size);
    return storage_.PathOf(directory + "/shard-2-of-5.h5");
  }

  const ParameterLayout layout_ = SampleLayout();
  std::vector<int> chunks_;
  std::vector<StoredChunk> stored_;
  ScratchDirectory scratch_;
  DirectoryStorage storage_{scratch_.path()};
};

INSTANTIATE_TEST_SUITE_P(Compression, Hdf5Test, testing::Values(Compression::kNone, Compression::kZstd),
                         [](const auto& param) { return param.param == Compression::kNone ? "None" : "Zstd"; });

std::vector<int64_t> ReadAttribute(hid_t object, const char* name) {
  const Hdf5Attribute attribute(H5Aopen(object, name, H5P_DEFAULT));
  EXPECT_TRUE(attribute.valid()) << name;
  const Hdf5Space space(H5Aget_space(attribute.get()));
  std::vector<int64_t> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space.get())));
  EXPECT_GE(H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()), 0);
  return values;
}

TEST_P(Hdf5Test, LibraryReadsEveryDataset) {
  const std::string path = WriteShard();
  const Hdf5Lock lock;
  const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  ASSERT_TRUE(file.valid()) << lock.Error("open");
  EXPECT_EQ(ReadAttribute(file.get(), "holdfast_format_version"), std::vector<int64_t>{1});
  EXPECT_EQ(ReadAttribute(file.get(), "step"), std::vector<int64_t>{40});
  EXPECT_EQ(ReadAttribute(file.get(), "generation"), std::vector<int64_t>{3});
  EXPECT_EQ(ReadAttribute(file.get(), "shard"), std::vector<int64_t>{2});
  EXPECT_EQ(ReadAttribute(file.get(), "num_shards"), std::vector<int64_t>{5});
  const std::vector<StoredTensor> tensors = TensorsOf(layout_);
  const std::vector<ShardRange> runs = PlanRanges(stored_);
  EXPECT_TRUE(std::any_of(runs.begin(), runs.end(), [](const ShardRange& run) { return !run.only; }));
  for (const ShardRange& run : runs) {
    const auto tensor = static_cast<size_t>(run.tensor);
    for (size_t k = 0; k < kStateKinds; ++k) {
      const std::string name = absl::StrCat("/", kStateKindNames[k], "/", DatasetName(tensors[tensor].name, run));
      const Hdf5Dataset dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
      ASSERT_TRUE(dataset.valid()) << name;
      EXPECT_EQ(ReadAttribute(dataset.get(), "first_row"), std::vector<int64_t>{run.first_row});
      EXPECT_EQ(ReadAttribute(dataset.get(), "shape"), tensors[tensor].shape);
      const std::vector<float> whole = WholeTensor(layout_, run.tensor, static_cast<StateKind>(k));
      const int64_t cols = tensors[tensor].cols();
      std::vector<float> values(static_cast<size_t>(run.rows * cols));
      ASSERT_GE(H5Dread(dataset.get(), H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0)
          << lock.Error(name);
      EXPECT_EQ(std::memcmp(values.data(), whole.data() + run.first_row * cols, values.size() * sizeof(float)), 0)
          << name;
    }
  }
}

// Where our driver saw the chunks go is where the library says they are.
TEST_P(Hdf5Test, PlacesInTheIndexAreThoseOfTheLibrary) {
  const std::string path = WriteShard();
  const Hdf5Lock lock;
  const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const std::vector<StoredTensor> tensors = TensorsOf(layout_);
  int compressed = 0;
  for (const ShardRange& run : PlanRanges(stored_)) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const std::string name =
          absl::StrCat("/", kStateKindNames[k], "/", DatasetName(tensors[static_cast<size_t>(run.tensor)].name, run));
      const Hdf5Dataset dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
      ASSERT_TRUE(dataset.valid()) << name;
      for (size_t i = run.first_chunk; i < run.first_chunk + run.count; ++i) {
        const std::array<hsize_t, 2> at{static_cast<hsize_t>(stored_[i].first_row - run.first_row), 0};
        unsigned mask = 0;
        haddr_t address = 0;
        hsize_t size = 0;
        ASSERT_GE(H5Dget_chunk_info_by_coord(dataset.get(), at.data(), &mask, &address, &size), 0);
        EXPECT_EQ(address, stored_[i].pieces[k].offset);
        EXPECT_EQ(size, stored_[i].pieces[k].size);
        const bool filtered = GetParam() == Compression::kZstd && mask == 0;
        EXPECT_EQ(filtered, stored_[i].pieces[k].compressed);
        compressed += filtered;
      }
    }
  }
  EXPECT_EQ(compressed > 10, GetParam() == Compression::kZstd);
}

TEST_P(Hdf5Test, FilterIsDeclaredAndOptional) {
  const std::string path = WriteShard();
  const Hdf5Lock lock;
  const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const Hdf5Dataset dataset(H5Dopen2(file.get(), "/weight/scale", H5P_DEFAULT));
  const Hdf5Properties properties(H5Dget_create_plist(dataset.get()));
  if (GetParam() == Compression::kNone) {
    EXPECT_EQ(H5Pget_nfilters(properties.get()), 0);
    return;
  }
  ASSERT_EQ(H5Pget_nfilters(properties.get()), 2);
  unsigned flags = 0, value = 0, config = 0;
  size_t values = 1;
  EXPECT_EQ(H5Pget_filter2(properties.get(), 0, &flags, &values, &value, 0, nullptr, &config), H5Z_FILTER_SHUFFLE);
  values = 1;
  EXPECT_EQ(H5Pget_filter2(properties.get(), 1, &flags, &values, &value, 0, nullptr, &config), kZstdFilter);
  EXPECT_EQ(flags & H5Z_FLAG_OPTIONAL, static_cast<unsigned>(H5Z_FLAG_OPTIONAL));
  EXPECT_EQ(value, 3u) << "the level, for the record";
}

// Times would make two files of one state differ.
TEST_P(Hdf5Test, NoTimesAreStored) {
  const std::string path = WriteShard();
  const Hdf5Lock lock;
  const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  for (const char* name : {"/", "/weight", "/exp_avg_sq", "/weight/scale", "/exp_avg/even"}) {
    H5O_info_t info{};
    ASSERT_GE(H5Oget_info_by_name2(file.get(), name, &info, H5O_INFO_TIME, H5P_DEFAULT), 0) << name;
    EXPECT_EQ(info.mtime, 0) << name;
  }
}

TEST_P(Hdf5Test, H5dumpReadsHeaders) {
  if (std::system("command -v h5dump >/dev/null 2>&1") != 0) GTEST_SKIP() << "h5dump (hdf5-tools) is not installed";
  const std::string path = WriteShard(), output = scratch_.path() + "/dump.txt";
  ASSERT_EQ(std::system(absl::StrCat("h5dump -H -p ", path, " > ", output, " 2>&1").c_str()), 0);
  std::ifstream stream(output);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(absl::StrContains(text, "DATASET \"embedding.weight@85\"") ||
              absl::StrContains(text, "DATASET \"embedding.weight\""))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "GROUP \"exp_avg_sq\""));
  EXPECT_TRUE(absl::StrContains(text, "H5T_IEEE_F32LE"));
  EXPECT_EQ(absl::StrContains(text, "FILTER_ID 32015"), GetParam() == Compression::kZstd);
}

TEST(Hdf5Filter, BothDirectionsThroughTheLibrary) {
  const Hdf5Lock lock;
  ScratchDirectory scratch;
  const std::string path = scratch.path() + "/file.h5";
  const Hdf5File file(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT));
  const hsize_t size = 5000, chunk = 1000;
  const unsigned level = 5;
  const Hdf5Space space(H5Screate_simple(1, &size, nullptr));
  const Hdf5Properties properties(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_chunk(properties.get(), 1, &chunk);
  ASSERT_GE(H5Pset_filter(properties.get(), kZstdFilter, H5Z_FLAG_MANDATORY, 1, &level), 0);
  std::vector<float> values(size), back(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i / 10);
  {
    const Hdf5Dataset dataset(
        H5Dcreate2(file.get(), "d", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT));
    ASSERT_GE(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  const Hdf5Dataset dataset(H5Dopen2(file.get(), "d", H5P_DEFAULT));
  EXPECT_LT(H5Dget_storage_size(dataset.get()), size * sizeof(float) / 4);
  ASSERT_GE(H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back.data()), 0);
  EXPECT_EQ(values, back);

  const char garbage[] = "this is no zstd frame at all";
  const hsize_t at = 0;
  ASSERT_GE(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, &at, sizeof garbage, garbage), 0);
  H5Dflush(dataset.get());
  const Hdf5Dataset again(H5Dopen2(file.get(), "d", H5P_DEFAULT));
  EXPECT_LT(H5Dread(again.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back.data()), 0);
}

TEST(Hdf5Library, ErrorsAreStatusesAndNotPrinted) {
  testing::internal::CaptureStderr();
  {
    const Hdf5Lock lock;
    ASSERT_LT(H5Fopen("/does/not/exist.h5", H5F_ACC_RDONLY, H5P_DEFAULT), 0);
    const absl::Status status = lock.Error("opening it");
    EXPECT_TRUE(absl::IsInternal(status));
    EXPECT_TRUE(absl::StrContains(status.message(), "opening it: HDF5: ")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "No such file")) << status;
    ASSERT_LT(H5Gopen2(-1, "x", H5P_DEFAULT), 0);
    EXPECT_FALSE(absl::StrContains(lock.Error("again").message(), "No such file")) << "an old error";
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Hdf5Library, PrintingIsAsBeforeAfterwards) {
  H5E_auto2_t before = nullptr, after = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data);
  { const Hdf5Lock lock; }
  H5Eget_auto2(H5E_DEFAULT, &after, &data);
  EXPECT_EQ(before, after);
  EXPECT_NE(after, nullptr);
}

// A disk without space: the library writes and closes as if all were fine, and leaves nothing open; we know better.
TEST(Hdf5Driver, ErrorsOfTheDiskAreKept) {
  auto sink = Hdf5Sink::Open("/dev/full");
  ASSERT_TRUE(sink.ok()) << sink.status();
  {
    const Hdf5Lock lock;
    const auto file = (*sink)->CreateFile(lock);
    ASSERT_TRUE(file.ok()) << "nothing has been written as yet: " << file.status();
    const std::vector<float> values(100'000);
    const hsize_t size = values.size();
    const Hdf5Space space(H5Screate_simple(1, &size, nullptr));
    const Hdf5Dataset dataset(
        H5Dcreate2(file->get(), "d", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    EXPECT_GE(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    EXPECT_TRUE(absl::IsResourceExhausted((*sink)->status())) << (*sink)->status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted((*sink)->Finish())) << (*sink)->Finish();
  const Hdf5Lock lock;
  EXPECT_EQ(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

TEST(Hdf5Driver, ReservedSpaceBehindTheEndIsGivenBack) {
  ScratchDirectory scratch;
  const std::string path = scratch.path() + "/file.h5";
  std::ofstream(path).flush();
  ASSERT_EQ(std::system(absl::StrCat("fallocate -n -l 4194304 ", path, " 2>/dev/null || true").c_str()), 0);
  auto sink = Hdf5Sink::Open(path);
  ASSERT_TRUE(sink.ok());
  {
    const Hdf5Lock lock;
    auto file = (*sink)->CreateFile(lock);
    ASSERT_TRUE(file.ok()) << file.status();
  }
  ASSERT_TRUE((*sink)->Finish().ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_GT(info.st_size, 0);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);
}

}  // namespace
}  // namespace holdfast
