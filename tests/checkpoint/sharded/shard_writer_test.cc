// Proves that a shard holds exactly what was added, by reading it back through its index; that it is whole or not there
// at all, by failing every step on the way; and that damage between capture and commit is found.

#include "checkpoint/sharded/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/shard_index.h"
#include "checkpoint/sharded/shard_read_back.h"
#include "tests/checkpoint/sharded/directory_storage.h"
#include "tests/checkpoint/sharded/sample_state.h"

namespace holdfast {
namespace {

constexpr CheckpointName kCheckpoint{.step = 40, .generation = 3};

class ShardWriterTest : public testing::Test {
 protected:
  ShardWriterOptions Options(Compression compression = Compression::kNone) const {
    return {.checkpoint = kCheckpoint, .compression = compression, .threads = 2, .queue_bytes = size_t{4} << 20};
  }
  std::vector<int> AllChunks() const {
    return Distribute(layout_, 1, [](int) { return 0; })[0];
  }
  std::string Contents(const std::string& file) {
    auto contents = ReadObject(storage_, absl::StrCat(kCheckpoint.ToString(), "/", file), size_t{1} << 30);
    return contents.ok() ? *contents : std::string(contents.status().message());
  }
  size_t NumObjects() { return storage_.List("")->size(); }

  // Every chunk of the shard, from its files.
  void ExpectHolds(const ShardReport& report, const std::vector<int>& chunks) {
    const std::string data = Contents(report.shard.data.name), index = Contents(report.shard.index.name);
    EXPECT_EQ(data.size(), report.shard.data.size);
    EXPECT_EQ(DigestFile(data), report.shard.data.digest);
    EXPECT_EQ(index.size(), report.shard.index.size);
    EXPECT_EQ(DigestFile(index), report.shard.index.digest);
    const auto stored = ParseShardIndex(index, data.size());
    ASSERT_TRUE(stored.ok()) << stored.status();
    ASSERT_EQ(stored->size(), chunks.size());
    ASSERT_EQ(report.shard.chunks, static_cast<int64_t>(chunks.size()));
    for (size_t i = 0; i < chunks.size(); ++i) ExpectHolds(data, (*stored)[i], chunks[i]);
  }

  void ExpectHolds(const std::string& data, const StoredChunk& stored, int c) {
    const CapturedChunk captured = SampleChunk(layout_, c);
    const Chunk& chunk = layout_.chunks()[static_cast<size_t>(c)];
    EXPECT_EQ(stored.tensor, chunk.parameter);
    EXPECT_EQ(stored.first_row, chunk.first_row);
    EXPECT_EQ(stored.rows, chunk.num_rows);
    EXPECT_EQ(stored.padding_rows, 0);
    EXPECT_EQ(stored.digest, captured.digest);
    std::vector<std::byte> bytes(captured.bytes.size());
    const size_t piece_bytes = bytes.size() / kStateKinds;
    PieceDecoder decoder;
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StoredPiece& piece = stored.pieces[k];
      const auto* at = reinterpret_cast<const std::byte*>(data.data()) + piece.offset;
      const absl::Status status = decoder.Decode(absl::MakeConstSpan(at, piece.size), piece.compressed, piece_bytes,
                                                 absl::MakeSpan(bytes).subspan(k * piece_bytes, piece_bytes));
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(absl::MakeConstSpan(bytes) == absl::MakeConstSpan(captured.bytes)) << "chunk " << c;
  }

  const ParameterLayout layout_ = SampleLayout();
  ScratchDirectory scratch_;
  DirectoryStorage storage_{scratch_.path()};
};

TEST_F(ShardWriterTest, HoldsWhatWasAdded) {
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    for (const int threads : {1, 3}) {
      ShardWriterOptions options = Options(compression);
      options.threads = threads;
      options.checkpoint.step = kCheckpoint.step;
      const auto report = WriteSampleShard(storage_, options, layout_, AllChunks());
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->shard.data.name, "shard-0-of-1.h5");
      EXPECT_EQ(report->shard.index.name, "shard-0-of-1.index");
      EXPECT_EQ(report->raw_bytes, layout_.elements() * 12);
      EXPECT_EQ(report->stored_bytes == report->raw_bytes, compression == Compression::kNone);
      EXPECT_LE(report->shard.data.size, storage_.reserved_bytes) << "an upper bound was promised";
      ExpectHolds(*report, AllChunks());
      ASSERT_EQ(NumObjects(), 2u);
      std::filesystem::remove_all(storage_.PathOf(kCheckpoint.ToString()));
    }
  }
}

TEST_F(ShardWriterTest, CompressesWhatPaysOnly) {
  const auto report = WriteSampleShard(storage_, Options(Compression::kZstd), layout_, AllChunks());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LT(report->stored_bytes, report->raw_bytes * 9 / 10);
  const auto stored = ParseShardIndex(Contents("shard-0-of-1.index"), report->shard.data.size);
  ASSERT_TRUE(stored.ok());
  EXPECT_TRUE((*stored)[0].pieces[1].compressed) << "zeros";
  EXPECT_FALSE((*stored)[0].pieces[2].compressed) << "random bits";
}

// Where a rank's chunks are no run, each run is a dataset of its own, and so is a shorter chunk.
TEST_F(ShardWriterTest, ShardsWithHolesAndRests) {
  const auto shards = Distribute(layout_, 4, [](int c) { return c * 7 % 4; });
  for (int r = 0; r < 4; ++r) {
    ShardWriterOptions options = Options(r % 2 == 0 ? Compression::kNone : Compression::kZstd);
    options.shard = r;
    options.num_shards = 4;
    const auto report = WriteSampleShard(storage_, options, layout_, shards[static_cast<size_t>(r)]);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->shard.data.name, absl::StrCat("shard-", r, "-of-4.h5"));
    ExpectHolds(*report, shards[static_cast<size_t>(r)]);
  }
}

TEST_F(ShardWriterTest, EmptyShard) {
  const auto report = WriteSampleShard(storage_, Options(), layout_, {});
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectHolds(*report, {});
}

// Several ranks in one process, each with threads of its own, around HDF5's lock.
TEST_F(ShardWriterTest, RanksAsThreads) {
  constexpr int kRanks = 6;
  const auto shards = Distribute(layout_, kRanks, [](int c) { return c % kRanks; });
  std::vector<absl::StatusOr<ShardReport>> reports(kRanks, absl::UnknownError("not written"));
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      ShardWriterOptions options = Options(Compression::kZstd);
      options.shard = r;
      options.num_shards = kRanks;
      reports[static_cast<size_t>(r)] = WriteSampleShard(storage_, options, layout_, shards[static_cast<size_t>(r)]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_TRUE(reports[r].ok()) << reports[r].status();
    ExpectHolds(*reports[r], shards[r]);
  }
}

TEST_F(ShardWriterTest, SmallQueueStillMoves) {
  ShardWriterOptions options = Options(Compression::kZstd);
  options.queue_bytes = 1;
  const auto report = WriteSampleShard(storage_, options, layout_, AllChunks());
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectHolds(*report, AllChunks());
}

TEST_F(ShardWriterTest, SameChunksInOneOrderGiveTheSameFile) {
  ShardWriterOptions options = Options();
  options.threads = 1;
  std::set<std::string> digests;
  for (int i = 0; i < 3; ++i) {
    const auto report = WriteSampleShard(storage_, options, layout_, AllChunks());
    ASSERT_TRUE(report.ok()) << report.status();
    digests.insert(report->shard.data.digest);
    std::filesystem::remove_all(storage_.PathOf(kCheckpoint.ToString()));
  }
  EXPECT_EQ(digests.size(), 1u) << "no times, no uninitialised bytes";
}

TEST_F(ShardWriterTest, ChangedAfterCaptureIsFound) {
  auto writer = ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), AllChunks());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Add(SampleChunk(layout_, 0)).ok());
  CapturedChunk chunk = SampleChunk(layout_, 1);
  chunk.bytes[12345] ^= std::byte{0x10};
  const absl::Status status = (*writer)->Add(std::move(chunk));
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "step-0000000040-g3/shard-0-of-1.h5")) << status;
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Add(SampleChunk(layout_, 2)))) << "what failed stays failed";
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Commit().status()));
  writer->reset();
  EXPECT_EQ(NumObjects(), 0u);
}

TEST_F(ShardWriterTest, MisuseIsRefused) {
  const auto add = [&](CapturedChunk chunk) {
    auto writer = ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), {0, 2, 3});
    EXPECT_TRUE((*writer)->Add(SampleChunk(layout_, 0)).ok());
    return (*writer)->Add(std::move(chunk));
  };
  EXPECT_TRUE(absl::IsInvalidArgument(add(SampleChunk(layout_, 0)))) << "twice";
  EXPECT_TRUE(absl::IsInvalidArgument(add(SampleChunk(layout_, 1)))) << "another shard's";
  EXPECT_TRUE(absl::IsInvalidArgument(add({.chunk = -1, .bytes = {}})));
  CapturedChunk cut = SampleChunk(layout_, 2);
  cut.bytes = CpuBytes(cut.bytes.size() - 12);
  EXPECT_TRUE(absl::IsInvalidArgument(add(cut)));

  auto writer = ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), {0});
  EXPECT_TRUE(absl::IsFailedPrecondition((*writer)->Commit().status())) << "a chunk is missing";
  ASSERT_TRUE((*writer)->Add(SampleChunk(layout_, 0)).ok());
  ASSERT_TRUE((*writer)->Commit().ok()) << "and may still come";
  EXPECT_TRUE(absl::IsFailedPrecondition((*writer)->Commit().status())) << "twice";

  const auto create = [&](std::vector<int> chunks, int shard, int num_shards) {
    ShardWriterOptions options = Options();
    options.shard = shard;
    options.num_shards = num_shards;
    return ShardWriter::Create(storage_, options, ThreePlanes(layout_), std::move(chunks)).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(create({2, 1}, 0, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(create({1, 1}, 0, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(create({1000000}, 0, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(create({-1}, 0, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(create({0}, 2, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(create({0}, -1, 2)));
}

TEST_F(ShardWriterTest, NamesThatAreNoDatasets) {
  for (const char* name : {"", "a/b", ".", "/", "a@3", "line\nbreak"}) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = Shape({4});
    const ParameterLayout layout({spec}, {"model"});
    EXPECT_TRUE(absl::IsInvalidArgument(ShardWriter::Create(storage_, Options(), ThreePlanes(layout), {0}).status()))
        << name;
  }
  EXPECT_EQ(NumObjects(), 0u);
}

TEST_F(ShardWriterTest, RowOfTooManyBytes) {
  ParameterSpec spec;
  spec.name = "huge";
  spec.shape = Shape({2, int64_t{1} << 25});
  const ParameterLayout layout({spec}, {"model"});
  EXPECT_TRUE(absl::IsInvalidArgument(ShardWriter::Create(storage_, Options(), ThreePlanes(layout), {0, 1}).status()));
}

TEST_F(ShardWriterTest, AbandonedLeavesNothing) {
  for (const size_t added : {0, 1, 5}) {
    auto writer = ShardWriter::Create(storage_, Options(Compression::kZstd), ThreePlanes(layout_), AllChunks());
    ASSERT_TRUE(writer.ok());
    for (size_t i = 0; i < added; ++i) ASSERT_TRUE((*writer)->Add(SampleChunk(layout_, AllChunks()[i])).ok());
    writer->reset();
    EXPECT_EQ(NumObjects(), 0u);
  }
}

TEST_F(ShardWriterTest, FailingStorageLeavesNothing) {
  storage_.before_commit = [](const std::string&) { return absl::UnavailableError("commit"); };
  EXPECT_TRUE(absl::IsUnavailable(WriteSampleShard(storage_, Options(), layout_, AllChunks()).status()));
  EXPECT_EQ(NumObjects(), 0u);
  storage_.before_commit = [](const std::string&) { return absl::OkStatus(); };
  storage_.before_create = [](const std::string&) { return absl::ResourceExhaustedError("create"); };
  EXPECT_TRUE(absl::IsResourceExhausted(WriteSampleShard(storage_, Options(), layout_, AllChunks()).status()));
  EXPECT_EQ(NumObjects(), 0u) << "data without an index";
}

TEST_F(ShardWriterTest, SecondWriterChangesNothing) {
  ASSERT_TRUE(WriteSampleShard(storage_, Options(), layout_, AllChunks()).ok());
  const std::string before = Contents("shard-0-of-1.h5");
  EXPECT_TRUE(absl::IsAlreadyExists(WriteSampleShard(storage_, Options(), layout_, {0}).status()));
  EXPECT_EQ(Contents("shard-0-of-1.h5"), before);
  EXPECT_EQ(NumObjects(), 2u);
}

// Of a model of 0.1 million parameters, 2.6 MiB were wanted without a word of why.
TEST_F(ShardWriterTest, WhatIsWantedOfADiskIsExplained) {
  storage_.free_bytes = 1 << 20;
  const absl::Status status = WriteSampleShard(storage_, Options(), layout_, AllChunks()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      testing::MatchesRegex(".*shard-0-of-1.h5: no space left; this shard is [0-9.]+ [KM]iB of weights and "
                            "optimizer state, and structures of the file, for which 2.[0-9] MiB are set aside"));
  EXPECT_EQ(NumObjects(), 0u);
}

TEST_F(ShardWriterTest, FullDisk) {
  storage_.staging_path = "/dev/full";
  for (int round = 0; round < 3; ++round) {  // the library survives it
    const absl::Status status = WriteSampleShard(storage_, Options(), layout_, AllChunks()).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_EQ(NumObjects(), 0u);
  }
  storage_.staging_path.clear();
  const auto report = WriteSampleShard(storage_, Options(), layout_, AllChunks());
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectHolds(*report, AllChunks());
}

// The limit on the size of files fails writes at any place: in chunks, and in what HDF5 writes when it closes.
TEST_F(ShardWriterTest, DiskThatFillsUpAnywhere) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto whole = WriteSampleShard(storage_, Options(), layout_, AllChunks());
  ASSERT_TRUE(whole.ok());
  std::filesystem::remove_all(storage_.PathOf(kCheckpoint.ToString()));
  const rlim_t size = whole->shard.data.size;
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, size / 7, size / 2, size - 100'000, size - 1}) {
    rlimit small = before;
    small.rlim_cur = limit;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const absl::Status status = WriteSampleShard(storage_, Options(), layout_, AllChunks()).status();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(status.ok()) << "limit " << limit;
    EXPECT_TRUE(absl::StrContains(status.message(), "File too large")) << status;
    EXPECT_EQ(NumObjects(), 0u);
  }
  EXPECT_TRUE(WriteSampleShard(storage_, Options(), layout_, AllChunks()).ok());
}

// Somebody else's bytes in our file between write and commit.
TEST_F(ShardWriterTest, DamageBeforeCommitIsFound) {
  std::string contents = "0123456789abcdefghij";
  const auto digest = [&](size_t at, size_t n) {
    return DigestBytes(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(contents.data()) + at, n));
  };
  const std::vector<ExpectedPiece> pieces{{10, 5, digest(10, 5)}, {2, 6, digest(2, 6)}};
  for (size_t i = 0; i <= contents.size(); ++i) {
    std::string damaged = contents;
    if (i < contents.size()) damaged[i] ^= 1;
    const std::string path = scratch_.path() + "/file";
    std::ofstream(path, std::ios::binary) << damaged;
    FILE* file = std::fopen(path.c_str(), "rb");
    const auto read = ReadBack(fileno(file), pieces);
    std::fclose(file);
    const bool in_a_piece = (i >= 2 && i < 8) || (i >= 10 && i < 15);
    EXPECT_EQ(absl::IsDataLoss(read.status()), in_a_piece) << i;
    if (!in_a_piece) {
      ASSERT_TRUE(read.ok());
      EXPECT_EQ(read->digest, DigestFile(damaged));
    }
  }
}

TEST_F(ShardWriterTest, ReadBackAcrossBlocks) {
  const size_t kSize = 3'000'001;
  std::string contents(kSize, 'x');
  for (size_t i = 0; i < kSize; ++i) contents[i] = static_cast<char>(i * 2654435761u >> 13);
  std::vector<ExpectedPiece> pieces;
  for (size_t at = 17; at + 700'000 < kSize; at += 700'123) {
    pieces.push_back(
        {at, 700'000, DigestBytes(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&contents[at]), 700'000))});
  }
  const std::string path = scratch_.path() + "/file";
  const auto read = [&](size_t size) {
    std::ofstream(path, std::ios::binary) << contents.substr(0, size);
    FILE* file = std::fopen(path.c_str(), "rb");
    auto result = ReadBack(fileno(file), pieces);
    std::fclose(file);
    return result;
  };
  const auto whole = read(kSize);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->size, kSize);
  EXPECT_EQ(whole->digest, DigestFile(contents));
  EXPECT_TRUE(absl::IsDataLoss(read(2'000'000).status())) << "cut";
  contents[1'500'000] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(read(kSize).status()));
}

// The same, through the writer: the staged file is changed behind its back.
TEST_F(ShardWriterTest, DamageInTheStagedFileIsFound) {
  auto writer = ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), AllChunks());
  ASSERT_TRUE(writer.ok());
  const std::string path = storage_.PathOf(kCheckpoint.ToString() + "/shard-0-of-1.h5.tmp");
  for (const int c : AllChunks()) ASSERT_TRUE((*writer)->Add(SampleChunk(layout_, c)).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (std::filesystem::file_size(path) < 4'000'000 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(500'000);
    file << "ten bytes!";
  }
  const absl::Status status = (*writer)->Commit().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  writer->reset();
  EXPECT_EQ(NumObjects(), 0u);
}

TEST_F(ShardWriterTest, StagedFileMustBeEmptyAndNoLink) {
  storage_.staging_path = scratch_.path() + "/target";
  std::ofstream(storage_.staging_path) << "x";
  EXPECT_TRUE(absl::IsFailedPrecondition(ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), {0}).status()));
  const std::string target = storage_.staging_path;
  std::ofstream(target, std::ios::trunc).flush();
  storage_.staging_path = scratch_.path() + "/link";
  std::filesystem::create_symlink(target, storage_.staging_path);
  EXPECT_FALSE(ShardWriter::Create(storage_, Options(), ThreePlanes(layout_), {0}).ok());
  EXPECT_EQ(std::filesystem::file_size(target), 0u);
}

}  // namespace
}  // namespace holdfast
