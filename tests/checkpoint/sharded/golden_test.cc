// Checkpoints of format versions 1 and 4, each written once in November 2026 and never again, must load for ever: their
// values follow a formula that is part of this file. They were made, on three shards, two of them compressed, by
//   test_checkpoint_sharded --gtest_also_run_disabled_tests --gtest_filter=GoldenWriter.DISABLED_Write
// which refuses to replace what is there and writes the newest version. Their HDF5 files, mostly empty at this size,
// are kept compressed (NAME.zst).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/commit.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/shard_writer.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"
#include "framework/storage/local_storage.h"
#include "tests/checkpoint/sharded/three_planes.h"
#include "tests/framework/storage/test_directory.h"
#include "tests/framework/tensor/copy_of.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr int kNewest = 4;
const std::map<int, uint64_t> kStateDigests{{1, 0x7c27076cfd9f0f10}, {kNewest, 0x9b4518e98b31f81d}};  // by version
const CheckpointName kGoldenName{.step = 3, .generation = 2};

// Exact in fp32, and repetitive, so that the files stay small.
float GoldenValue(int tensor, int kind, int64_t element) {
  return static_cast<float>((element * 37 + tensor * 11 + kind * 5) % 256 - 128) / 64.0f;
}

std::string GoldenDirectory(int version) { return absl::StrCat(SourceDir(), "/tests/golden/checkpoint_v", version); }

ParameterLayout GoldenLayout() {
  std::vector<ParameterSpec> specs;
  specs.push_back({.name = "matrix.weight", .shape = {150, 600}});  // two chunks: 109 rows and 41
  specs.push_back({.name = "cube.weight", .shape = {2, 3, 4}});
  specs.push_back({.name = "norm.weight", .shape = {300}});
  return {std::move(specs), {"unit"}};
}

/// Of version 4 the planes of a matrix and of other tensors differ.
StateLayout GoldenPlanes(const ParameterLayout& layout, int version) {
  if (version == 1) return ThreePlanes(layout);
  const std::vector<Plane> vectors = {{"weight"}, {"exp_avg"}, {"exp_avg_sq"}, {"ema"}};
  return {layout, {{{"weight"}, {"momentum"}, {"ema"}}, vectors, vectors}};
}

std::vector<std::byte> GoldenBytes(const StateLayout& planes, int index) {
  const ParameterLayout& layout = planes.parameters();
  const Chunk& chunk = layout.chunks()[static_cast<size_t>(index)];
  const int64_t first = chunk.offset - layout.parameters()[static_cast<size_t>(chunk.parameter)].offset;
  std::vector<float> values;
  for (int kind = 0; kind < static_cast<int>(planes.NumPlanes(chunk)); ++kind) {
    for (int64_t e = 0; e < chunk.elements; ++e) values.push_back(GoldenValue(chunk.parameter, kind, first + e));
  }
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// All but what committing fills in.
Manifest GoldenManifest(int version) {
  const ParameterLayout layout = GoldenLayout();
  Manifest manifest;
  manifest.name = kGoldenName;
  manifest.config = "run:\n  name: golden\n";
  manifest.config_digest = 0x0123456789abcdef;
  manifest.samples = 24;
  manifest.world_size = 3;
  manifest.sharding = "full_shard";
  manifest.time = 1795250000.5;
  manifest.validation_loss = 2.75;
  manifest.tensors = StoredTensorsOf(GoldenPlanes(layout, version));
  return manifest;
}

absl::StatusOr<StoredShard> WriteShard(Storage& storage, int shard, const std::vector<int>& chunks) {
  const ParameterLayout layout = GoldenLayout();
  const StateLayout planes = GoldenPlanes(layout, kNewest);
  const Compression compression = shard < 2 ? Compression::kZstd : Compression::kNone;
  ASSIGN_OR_RETURN(
      auto writer,
      ShardWriter::Create(
          storage,
          {.checkpoint = kGoldenName, .shard = shard, .num_shards = 3, .compression = compression, .level = 19}, planes,
          chunks));
  for (const int c : chunks) {
    const std::vector<std::byte> bytes = GoldenBytes(planes, c);
    RETURN_IF_ERROR(writer->Add({.chunk = c, .bytes = CopyOf(bytes), .digest = DigestBytes(bytes)}));
  }
  ASSIGN_OR_RETURN(const ShardReport report, writer->Commit());
  return report.shard;
}

std::string Compress(const std::string& contents) {
  std::string out(ZSTD_compressBound(contents.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), contents.data(), contents.size(), 19));
  return out;
}

std::string Decompress(const std::string& contents) {
  std::string out(ZSTD_getFrameContentSize(contents.data(), contents.size()), '\0');
  EXPECT_EQ(ZSTD_decompress(out.data(), out.size(), contents.data(), contents.size()), out.size());
  return out;
}

// Copies the checkpoint's files from one directory to another; their contents and names go through `convert`.
template <typename Convert>
void CopyCheckpoint(const std::string& from, const std::string& to, Convert convert) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    std::string name = entry.path().filename();
    absl::StatusOr<std::string> contents = ReadFile(entry.path(), 1 << 20);
    ASSERT_TRUE(contents.ok()) << contents.status();
    convert(&name, &*contents);
    const absl::Status written = WriteFileAtomically(to + "/" + name, *contents);
    ASSERT_TRUE(written.ok()) << written;
  }
}

TEST(GoldenWriter, DISABLED_Write) {
  ASSERT_FALSE(std::filesystem::exists(GoldenDirectory(kNewest))) << "a golden checkpoint is written once";
  const TestDirectory directory;
  const auto storage = OpenLocalStorage(directory.path());
  ASSERT_TRUE(storage.ok()) << storage.status();
  Manifest manifest = GoldenManifest(kNewest);
  const std::vector<std::vector<int>> chunks = {{0}, {1, 2}, {3}};
  for (int s = 0; s < 3; ++s) {
    const auto shard = WriteShard(**storage, s, chunks[static_cast<size_t>(s)]);
    ASSERT_TRUE(shard.ok()) << shard.status();
    manifest.shards.push_back(*shard);
  }
  const auto fence = Fence::Claim(**storage, "golden");
  ASSERT_TRUE(fence.ok()) << fence.status();
  const auto committed = CommitCheckpoint(**storage, **fence, manifest);
  ASSERT_TRUE(committed.ok()) << committed.status();
  CopyCheckpoint(directory / kGoldenName.ToString(), GoldenDirectory(kNewest) + "/" + kGoldenName.ToString(),
                 [](std::string* name, std::string* contents) {
                   if (!name->ends_with(".h5")) return;
                   *contents = Compress(*contents);
                   *name += ".zst";
                 });
  std::printf("state digest %016llx\n", static_cast<unsigned long long>(committed->state_digest));
}

class GoldenCheckpoint : public testing::TestWithParam<int> {  // of a version
 protected:
  void SetUp() override {
    CopyCheckpoint(GoldenDirectory(GetParam()) + "/" + kGoldenName.ToString(),
                   directory_ / ("store/" + kGoldenName.ToString()), [](std::string* name, std::string* contents) {
                     if (!name->ends_with(".zst")) return;
                     *contents = Decompress(*contents);
                     name->resize(name->size() - 4);
                   });
    auto storage = OpenLocalStorage(directory_ / "store");
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = std::move(*storage);
    auto reader = CheckpointReader::Open(*storage_, kGoldenName);
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = std::move(*reader);
  }

  TestDirectory directory_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<CheckpointReader> reader_;
};

TEST_P(GoldenCheckpoint, SaysWhatItIs) {
  const auto catalog = ScanCheckpoints(*storage_);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->valid.size(), 1u);
  EXPECT_TRUE(catalog->rejected.empty());
  Manifest expected = GoldenManifest(GetParam());
  const Manifest& manifest = reader_->manifest();
  expected.state_digest = kStateDigests.at(GetParam());
  expected.shards = manifest.shards;
  expected.model = manifest.model;
  EXPECT_TRUE(manifest == expected);
  EXPECT_TRUE(catalog->valid[0].manifest == manifest);
  EXPECT_EQ(manifest.shards.size(), 3u);
  const ParameterLayout layout = GoldenLayout();
  EXPECT_TRUE(reader_->CheckState(GoldenPlanes(layout, GetParam())).ok());
  EXPECT_THAT(*reader_->Verify({}), testing::IsEmpty());
  EXPECT_TRUE(reader_->chunks()[0][0].pieces[0].compressed);
  EXPECT_FALSE(reader_->chunks()[2][0].pieces[0].compressed);
}

TEST_P(GoldenCheckpoint, HoldsItsValues) {
  const ParameterLayout layout = GoldenLayout();
  std::vector<int> wanted;
  for (size_t c = 0; c < layout.chunks().size(); ++c) wanted.push_back(static_cast<int>(c));
  std::mutex mutex;
  std::set<int> seen;
  const absl::Status read = reader_->ReadChunks(layout, wanted, {}, [&](int c, absl::Span<const std::byte> bytes) {
    const std::lock_guard lock(mutex);
    seen.insert(c);
    const std::vector<std::byte> expected = GoldenBytes(GoldenPlanes(layout, GetParam()), c);
    EXPECT_TRUE(bytes == absl::MakeConstSpan(expected)) << "chunk " << c;
    return absl::OkStatus();
  });
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(seen, std::set<int>(wanted.begin(), wanted.end()));
  std::vector<float> rows(2 * 600);  // over the border of two chunks
  ASSERT_TRUE(reader_->ReadRows(0, kExpAvgSq, 108, absl::MakeSpan(rows)).ok());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i], GoldenValue(0, 2, 108 * 600 + static_cast<int64_t>(i)));
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenCheckpoint, testing::Values(1, kNewest),
                         [](const auto& version) { return "V" + std::to_string(version.param); });

}  // namespace
}  // namespace holdfast
