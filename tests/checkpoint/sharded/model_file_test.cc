// Proves that model.h5 shows whole tensors in their shapes, whoever wrote which rows, by reading it with the library,
// with h5dump and h5ls, and (where tools/test_peers.sh has installed them) with h5py and hdf5plugin.

#include "checkpoint/sharded/model_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/hdf5_library.h"
#include "checkpoint/sharded/shard_index.h"
#include "tests/checkpoint/sharded/directory_storage.h"
#include "tests/checkpoint/sharded/sample_state.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr CheckpointName kModelCheckpoint{.step = 1, .generation = 1};

class ModelFileTest : public testing::Test {
 protected:
  // Shards of all chunks, the even ones compressed, and the model file over them.
  template <typename Owner>
  void Write(int num_shards, Owner owner) {
    std::filesystem::remove_all(storage_.PathOf(kModelCheckpoint.ToString()));
    manifest_ = {};
    manifest_.name = kModelCheckpoint;
    manifest_.tensors = TensorsOf(layout_);
    indexes_.clear();
    const auto shards = Distribute(layout_, num_shards, owner);
    for (int r = 0; r < num_shards; ++r) {
      const ShardWriterOptions options{.checkpoint = kModelCheckpoint,
                                       .shard = r,
                                       .num_shards = num_shards,
                                       .compression = r % 2 == 0 ? Compression::kZstd : Compression::kNone};
      const auto report = WriteSampleShard(storage_, options, layout_, shards[static_cast<size_t>(r)]);
      ASSERT_TRUE(report.ok()) << report.status();
      manifest_.shards.push_back(report->shard);
      const std::string name = kModelCheckpoint.ToString() + "/" + report->shard.index.name;
      const auto index = ReadObject(storage_, name, kMaxShardIndexBytes);
      indexes_.push_back(*ParseShardIndex(*index, report->shard.data.size));
    }
    const auto file = WriteModelFile(storage_, manifest_, indexes_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->name, "model.h5");
    const auto contents = ReadObject(storage_, kModelCheckpoint.ToString() + "/model.h5", size_t{16} << 20);
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(file->size, contents->size());
    EXPECT_EQ(file->digest, DigestFile(*contents));
  }

  std::string ModelPath() const { return storage_.PathOf(kModelCheckpoint.ToString() + "/model.h5"); }

  // Empty if it cannot be read.
  std::vector<float> ReadTensor(int parameter, StateKind kind) {
    const Hdf5Lock lock;
    const StoredTensor& tensor = manifest_.tensors[static_cast<size_t>(parameter)];
    const Hdf5File file(H5Fopen(ModelPath().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    const std::string name = absl::StrCat("/", kStateKindNames[static_cast<size_t>(kind)], "/", tensor.name);
    const Hdf5Dataset dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
    if (!dataset.valid()) return {};
    const Hdf5Space space(H5Dget_space(dataset.get()));
    std::vector<hsize_t> sizes(static_cast<size_t>(H5Sget_simple_extent_ndims(space.get())));
    H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    EXPECT_EQ(std::vector<int64_t>(sizes.begin(), sizes.end()), tensor.shape);
    std::vector<float> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space.get())));
    if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) return {};
    return values;
  }

  void ExpectWholeTensors() {
    for (int p = 0; p < static_cast<int>(manifest_.tensors.size()); ++p) {
      for (const StateKind kind : {kWeight, kExpAvg, kExpAvgSq}) {
        const std::vector<float> expected = WholeTensor(layout_, p, kind), values = ReadTensor(p, kind);
        ASSERT_EQ(values.size(), expected.size()) << manifest_.tensors[static_cast<size_t>(p)].name;
        EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)), 0)
            << manifest_.tensors[static_cast<size_t>(p)].name << " " << static_cast<int>(kind);
      }
    }
  }

  std::string Run(const std::string& command) {
    const std::string output = scratch_.path() + "/output.txt";
    EXPECT_EQ(std::system(absl::StrCat(command, " > '", output, "' 2>&1").c_str()), 0) << command;
    std::ifstream stream(output);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  const ParameterLayout layout_ = SampleLayout();
  Manifest manifest_;
  std::vector<std::vector<StoredChunk>> indexes_;
  ScratchDirectory scratch_;
  DirectoryStorage storage_{scratch_.path()};
};

TEST_F(ModelFileTest, OneShard) {
  Write(1, [](int) { return 0; });
  ExpectWholeTensors();
}

// Runs that begin and end inside an expert, so one source covers several blocks of a tensor.
TEST_F(ModelFileTest, ContiguousShards) {
  const int chunks = static_cast<int>(layout_.chunks().size());
  for (const int shards : {2, 3, 5}) {
    Write(shards, [&](int c) { return c * shards / chunks; });
    ExpectWholeTensors();
  }
}

TEST_F(ModelFileTest, ScatteredShards) {
  Write(3, [](int c) { return c * 2 % 3; });
  ExpectWholeTensors();
  Write(4, [](int c) { return c / 2 % 4; });
  ExpectWholeTensors();
}

TEST_F(ModelFileTest, WorksFromAnyDirectoryAndAfterAMove) {
  Write(2, [](int c) { return c % 2; });
  const std::string moved = scratch_.path() + "/elsewhere";
  std::filesystem::rename(storage_.PathOf(kModelCheckpoint.ToString()), moved);
  std::filesystem::create_directory(storage_.PathOf(kModelCheckpoint.ToString()));
  std::filesystem::remove(storage_.PathOf(kModelCheckpoint.ToString()));
  std::filesystem::rename(moved, storage_.PathOf(kModelCheckpoint.ToString()));
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  ExpectWholeTensors();
  std::filesystem::current_path(before);
}

TEST_F(ModelFileTest, MissingShardShowsAsNan) {
  Write(2, [](int c) { return c % 2; });
  std::filesystem::remove(storage_.PathOf(kModelCheckpoint.ToString() + "/shard-1-of-2.h5"));
  const std::vector<float> expected = WholeTensor(layout_, 0, kWeight);
  const std::vector<float> values = ReadTensor(0, kWeight);
  ASSERT_EQ(values.size(), expected.size());
  const size_t chunk = 85 * 768;
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), chunk * sizeof(float)), 0);
  for (size_t i = chunk; i < 2 * chunk; ++i) ASSERT_TRUE(std::isnan(values[i])) << i;
}

TEST_F(ModelFileTest, ClaimsThatCannotBeAreRefused) {
  Write(2, [](int c) { return c % 2; });
  const auto refused = [&](auto forge) {
    auto indexes = indexes_;
    Manifest manifest = manifest_;
    manifest.name.step = 2;
    forge(manifest, indexes);
    return absl::IsInvalidArgument(WriteModelFile(storage_, manifest, indexes).status());
  };
  EXPECT_TRUE(refused([](auto&, auto& i) { i.pop_back(); }));
  EXPECT_TRUE(refused([](auto&, auto& i) { i[0].back().tensor = 1000; }));
  EXPECT_TRUE(refused([](auto&, auto& i) { i[0].front().tensor = -1; }));
  EXPECT_TRUE(refused([](auto&, auto& i) { i[0].front().first_row = 300; }));
  EXPECT_TRUE(refused([](auto&, auto& i) { i[0].front().rows = INT64_MAX; }));
  EXPECT_TRUE(refused([](auto& m, auto&) { m.tensors[0].name = "a/../../b"; }));
}

TEST_F(ModelFileTest, FullDisk) {
  Write(1, [](int) { return 0; });
  storage_.staging_path = "/dev/full";
  manifest_.name.step = 2;
  EXPECT_FALSE(WriteModelFile(storage_, manifest_, indexes_).ok());
}

TEST_F(ModelFileTest, ToolsOfHdf5ShowTensors) {
  if (std::system("command -v h5dump >/dev/null && command -v h5ls >/dev/null") != 0) {
    GTEST_SKIP() << "h5dump and h5ls (hdf5-tools) are not installed";
  }
  Write(2, [](int c) { return c % 2; });
  const std::string list = Run("h5ls -r '" + ModelPath() + "'");
  EXPECT_TRUE(absl::StrContains(list, "/exp_avg/experts.up")) << list;
  EXPECT_TRUE(absl::StrContains(list, "Dataset {3, 50, 1000}")) << list;
  EXPECT_TRUE(absl::StrContains(list, "Dataset {300, 768}")) << list;
  // chunk 5, odd, is in the shard that is not compressed
  const int scale = layout_.Find("scale");
  const std::string dump = Run("h5dump -d /weight/scale -m %.9g '" + ModelPath() + "'");
  EXPECT_TRUE(absl::StrContains(dump, absl::StrFormat("(0): %.9g\n", WholeTensor(layout_, scale, kWeight)[0]))) << dump;
}

// Another library, another zstd, another program.
TEST_F(ModelFileTest, H5pyReadsEveryBit) {
  const std::string python = SourceDir() + "/build/peers/bin/python";
  if (std::system((python + " -c 'import h5py, hdf5plugin, numpy' >/dev/null 2>&1").c_str()) != 0) {
    GTEST_SKIP() << "h5py and hdf5plugin are not installed: tools/test_peers.sh";
  }
  const int chunks = static_cast<int>(layout_.chunks().size());
  Write(3, [&](int c) { return c * 3 / chunks; });
  for (int p = 0; p < static_cast<int>(manifest_.tensors.size()); ++p) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const std::vector<float> values = WholeTensor(layout_, p, static_cast<StateKind>(k));
      std::ofstream(absl::StrCat(scratch_.path(), "/", p, "-", k, ".raw"), std::ios::binary)
          .write(reinterpret_cast<const char*>(values.data()), static_cast<long>(values.size() * sizeof(float)));
    }
  }
  std::ofstream(scratch_.path() + "/check.py") << R"(
import sys, h5py, hdf5plugin, numpy
model, raw, names = sys.argv[1], sys.argv[2], sys.argv[3:]
with h5py.File(model, "r") as file:
    for p, name in enumerate(names):
        for k, kind in enumerate(["weight", "exp_avg", "exp_avg_sq"]):
            values = file[kind][name][...]
            expected = numpy.fromfile(f"{raw}/{p}-{k}.raw", dtype="<u4").reshape(values.shape)
            assert values.dtype == numpy.dtype("<f4"), values.dtype
            assert (values.view("<u4") == expected).all(), (kind, name)
            print(kind, name, values.shape)
)";
  std::string names;
  for (const StoredTensor& tensor : manifest_.tensors) absl::StrAppend(&names, " '", tensor.name, "'");
  const std::string output =
      Run(absl::StrCat(python, " ", scratch_.path(), "/check.py '", ModelPath(), "' ", scratch_.path(), names));
  EXPECT_TRUE(absl::StrContains(output, "exp_avg_sq experts.up (3, 50, 1000)")) << output;
}

}  // namespace
}  // namespace holdfast
