// What was stored in any grid by any number of writers comes back in every other, bit for bit; damage of any byte is
// found and named, by loading as by verifying; malicious contents are refused at once and in little memory.

#include "checkpoint/sharded/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/stored_files.h"
#include "checkpoint/sharded/verify_plan.h"
#include "tests/checkpoint/sharded/flat_checkpoint.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const CheckpointName kName{.step = 12, .generation = 3};

class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReaderTest() : storage_(MakeMemoryStorage(directory_.path())) {}

  std::unique_ptr<CheckpointReader> Open() {
    auto reader = CheckpointReader::Open(*storage_, kName);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? std::move(*reader) : nullptr;
  }
  absl::Status OpenStatus() { return CheckpointReader::Open(*storage_, kName).status(); }

  /// Stores a checkpoint; what was there is gone.
  void Store(FlatCheckpoint& checkpoint) {
    storage_ = MakeMemoryStorage(directory_.path());
    const absl::Status status = checkpoint.Store(*storage_);
    ASSERT_TRUE(status.ok()) << status;
  }

  /// Reads `wanted` and compares every byte; then again, into memory of our own where that is possible.
  static absl::Status Load(const CheckpointReader& reader, const ParameterLayout& layout,
                           const std::vector<int>& wanted, int threads) {
    const absl::Status given = LoadOnce(reader, layout, wanted, threads, nullptr, nullptr);
    std::mutex mutex;
    std::map<int, std::vector<std::byte>> memory;
    const auto place = [&](int chunk) -> ChunkPlaces {
      const size_t kind = static_cast<size_t>(layout.chunks()[static_cast<size_t>(chunk)].elements) * sizeof(float);
      const std::lock_guard lock(mutex);
      const auto [at, is_new] = memory.try_emplace(chunk, 3 * kind + 2);  // with a gap before the last
      EXPECT_TRUE(is_new) << "asked twice for chunk " << chunk;
      std::byte* const data = at->second.data();
      return {absl::MakeSpan(data, kind), absl::MakeSpan(data + kind, kind), absl::MakeSpan(data + 2 * kind + 2, kind)};
    };
    const absl::Status placed = LoadOnce(reader, layout, wanted, threads, place, &memory);
    EXPECT_EQ(placed, given);
    return given;
  }

  static absl::Status LoadOnce(const CheckpointReader& reader, const ParameterLayout& layout,
                               const std::vector<int>& wanted, int threads, const PlaceFn& place,
                               std::map<int, std::vector<std::byte>>* memory) {
    std::mutex mutex;
    std::set<int> seen;
    const std::vector<StoredTensor>& tensors = reader.manifest().tensors;
    const absl::Status status = reader.ReadChunks(
        layout, wanted, {.threads = threads, .place = place}, [&](int chunk, absl::Span<const std::byte> bytes) {
          const Chunk& c = layout.chunks()[static_cast<size_t>(chunk)];
          const std::lock_guard lock(mutex);
          std::vector<std::byte> joined;
          if (bytes.empty() && memory != nullptr) {
            joined = memory->at(chunk);
            const size_t kind = (joined.size() - 2) / 3;
            joined.erase(joined.begin() + static_cast<ptrdiff_t>(2 * kind),
                         joined.begin() + static_cast<ptrdiff_t>(2 * kind + 2));
            bytes = joined;
          }
          EXPECT_TRUE(seen.insert(chunk).second) << "chunk " << chunk << " came twice";
          EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float), 0u);
          EXPECT_TRUE(std::ranges::equal(
              bytes, TestBytes(tensors, {.tensor = c.parameter, .first_row = c.first_row, .rows = c.num_rows})))
              << "chunk " << chunk;
          return absl::OkStatus();
        });
    EXPECT_TRUE(!status.ok() || seen == std::set<int>(wanted.begin(), wanted.end()));
    return status;
  }

  static std::vector<int> AllOf(const ParameterLayout& layout) {
    std::vector<int> all;
    for (size_t i = 0; i < layout.chunks().size(); ++i) all.push_back(static_cast<int>(i));
    return all;
  }

  TestDirectory directory_;
  std::unique_ptr<Storage> storage_;
};

// Several chunks of the layout's grid in two of the tensors.
std::vector<StoredTensor> SmallModel() {
  return {{"embedding.weight", {150, 701}},
          {"norm.weight", {701}},
          {"one.row", {1, 33}},
          {"experts.w", {3, 40, 700}},
          {"column", {9, 1}}};
}

TEST_F(CheckpointReaderTest, AnyWorldToAnyOther) {
  const std::vector<StoredTensor> tensors = SmallModel();
  const ParameterLayout layout = LayoutOf(tensors);
  for (int writers = 1; writers <= 9; ++writers) {
    std::mt19937_64 random(static_cast<uint64_t>(writers));
    FlatCheckpoint checkpoint =
        FlatCheckpoint::Make(kName, tensors, writers % 2 == 0 ? GridOf(layout) : RandomGrid(random, tensors, 60),
                             {.shards = writers,
                              .compressed = writers % 3 == 0,
                              .scattered = writers > 6,
                              .shuffled = writers > 4,
                              .seed = static_cast<uint64_t>(writers)});
    ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
    const auto reader = Open();
    ASSERT_NE(reader, nullptr);
    EXPECT_TRUE(reader->manifest() == checkpoint.manifest);
    for (int readers = 1; readers <= 9; ++readers) {
      SCOPED_TRACE(absl::StrCat(writers, " to ", readers));
      const std::vector<int> all = AllOf(layout);
      for (int r = 0; r < readers; ++r) {
        const auto part = [&](int i) { return all.begin() + static_cast<ptrdiff_t>(all.size()) * i / readers; };
        ASSERT_TRUE(Load(*reader, layout, {part(r), part(r + 1)}, 1 + r % 3).ok());
      }
    }
    EXPECT_THAT(*reader->Verify({.threads = 3}), IsEmpty());
  }
}

TEST_F(CheckpointReaderTest, ManySmallTensors) {
  std::mt19937_64 random(5);
  const std::vector<StoredTensor> tensors = RandomTensors(random, 300, 2000);
  const ParameterLayout layout = LayoutOf(tensors);
  for (const bool scattered : {false, true}) {
    FlatCheckpoint checkpoint =
        FlatCheckpoint::Make(kName, tensors, RandomGrid(random, tensors, 50),
                             {.shards = 4, .compressed = scattered, .scattered = scattered, .shuffled = scattered});
    ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
    const auto reader = Open();
    ASSERT_NE(reader, nullptr);
    EXPECT_TRUE(Load(*reader, layout, AllOf(layout), 2).ok());
    EXPECT_TRUE(Load(*reader, layout, {}, 2).ok());
    EXPECT_THAT(*reader->Verify({}), IsEmpty());
  }
}

TEST_F(CheckpointReaderTest, RowsOfOneKind) {
  std::mt19937_64 random(6);
  const std::vector<StoredTensor> tensors = SmallModel();
  FlatCheckpoint checkpoint = FlatCheckpoint::Make(kName, tensors, RandomGrid(random, tensors, 30),
                                                   {.shards = 3, .compressed = true, .scattered = true});
  ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  for (int round = 0; round < 200; ++round) {
    const int tensor = static_cast<int>(random() % tensors.size());
    const int64_t rows = tensors[static_cast<size_t>(tensor)].rows();
    const int64_t cols = tensors[static_cast<size_t>(tensor)].cols();
    const auto kind = static_cast<StateKind>(random() % 3);
    const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    const int64_t count = static_cast<int64_t>(random() % static_cast<uint64_t>(rows - first + 1));
    std::vector<float> out(static_cast<size_t>(count * cols));
    ASSERT_TRUE(reader->ReadRows(tensor, kind, first, absl::MakeSpan(out)).ok());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], TestValue(tensor, static_cast<int>(kind), first * cols + static_cast<int64_t>(i)));
    }
  }
  std::vector<float> out(701 * 2);
  EXPECT_TRUE(absl::IsInvalidArgument(reader->ReadRows(0, kWeight, 149, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsInvalidArgument(reader->ReadRows(0, kWeight, -1, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsInvalidArgument(reader->ReadRows(0, kWeight, 0, absl::MakeSpan(out).first(700))));
}

TEST_F(CheckpointReaderTest, AnotherModelIsRefusedByName) {
  const std::vector<StoredTensor> tensors = {{"a", {4, 5}}, {"b", {6}}};
  FlatCheckpoint checkpoint = FlatCheckpoint::Make(kName, tensors, GridOf(LayoutOf(tensors)), {});
  ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(reader->CheckLayout(LayoutOf(tensors)).ok());
  const auto refusal = [&](const std::vector<StoredTensor>& other) {
    const absl::Status status = reader->CheckLayout(LayoutOf(other));
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_EQ(reader->ReadChunks(LayoutOf(other), {}, {}, [](int, auto) { return absl::OkStatus(); }), status);
    return std::string(status.message());
  };
  const ParameterLayout layout = LayoutOf(tensors);
  EXPECT_TRUE(reader->CheckState(ThreePlanes(layout)).ok());
  const absl::Status planes =
      reader->CheckState({layout, {{{"weight"}, {"exp_avg"}, {"exp_avg_sq"}}, {{"weight"}, {"exp_avg"}, {"ema"}}}});
  EXPECT_TRUE(absl::IsInvalidArgument(planes));
  EXPECT_THAT(std::string(planes.message()),
              HasSubstr("of b it has weight, exp_avg, exp_avg_sq, this run's optimizer keeps weight, exp_avg, ema"));
  EXPECT_THAT(refusal({{"a", {4, 5}}, {"c", {6}}}), HasSubstr("tensor 1 is b, the model's is c"));
  EXPECT_THAT(refusal({{"a", {5, 4}}, {"b", {6}}}), HasSubstr("a is [4, 5], the model's is [5, 4]"));
  EXPECT_THAT(refusal({{"a", {4, 5}}, {"b", {1, 6}}}), HasSubstr("b is [6], the model's is [1, 6]"));
  EXPECT_THAT(refusal({{"a", {4, 5}}}), HasSubstr("the model lacks b"));
  EXPECT_THAT(refusal({{"a", {4, 5}}, {"b", {6}}, {"c", {1}}}), HasSubstr("it lacks c"));
}

TEST_F(CheckpointReaderTest, PlainChunksAreReadToWhereTheyBelong) {
  const std::vector<StoredTensor> tensors = {{"w", {2000, 700}}, {"v", {5}}};
  const ParameterLayout layout = LayoutOf(tensors);
  for (const bool compressed : {false, true}) {
    FlatCheckpoint checkpoint =
        FlatCheckpoint::Make(kName, tensors, GridOf(layout), {.shards = 2, .compressed = compressed});
    ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
    const auto reader = Open();
    ASSERT_NE(reader, nullptr);
    std::vector<std::vector<std::byte>> memory(layout.chunks().size());
    const auto place = [&](int chunk) -> ChunkPlaces {
      const size_t kind = static_cast<size_t>(layout.chunks()[static_cast<size_t>(chunk)].elements) * sizeof(float);
      memory[static_cast<size_t>(chunk)].resize(3 * kind);
      std::byte* const data = memory[static_cast<size_t>(chunk)].data();
      return {absl::MakeSpan(data, kind), absl::MakeSpan(data + kind, kind), absl::MakeSpan(data + 2 * kind, kind)};
    };
    std::atomic<size_t> placed{0};
    const auto sink = [&](int, absl::Span<const std::byte> bytes) {
      placed += bytes.empty() ? 1 : 0;
      return absl::OkStatus();
    };
    ASSERT_TRUE(reader->ReadChunks(layout, AllOf(layout), {.place = place}, sink).ok());
    EXPECT_EQ(placed, compressed ? 1 : layout.chunks().size()) << "five values are too few to be compressed";
  }
}

TEST_F(CheckpointReaderTest, ProgressStopsAndErrorsOfTheSink) {
  const std::vector<StoredTensor> tensors = {{"w", {2000, 700}}};
  const ParameterLayout layout = LayoutOf(tensors);
  FlatCheckpoint checkpoint = FlatCheckpoint::Make(kName, tensors, GridOf(layout), {.shards = 2});
  ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  uint64_t all = 0;
  for (const StoredShard& shard : reader->manifest().shards) all += shard.data.size + shard.index.size;

  std::atomic<uint64_t> most{0};
  const auto on_progress = [&](uint64_t bytes) {
    for (uint64_t seen = most; seen < bytes && !most.compare_exchange_weak(seen, bytes);) {
    }
  };
  ASSERT_TRUE(
      reader
          ->ReadChunks(layout, AllOf(layout), {.on_progress = on_progress}, [](int, auto) { return absl::OkStatus(); })
          .ok());
  EXPECT_EQ(most, 2000u * 700 * 12);
  most = 0;
  EXPECT_THAT(*reader->Verify({.on_progress = on_progress}), IsEmpty());
  EXPECT_EQ(most, all + reader->manifest().model.size);

  std::stop_source stop;
  std::atomic<int> calls{0};
  const absl::Status stopped = reader->ReadChunks(layout, AllOf(layout), {.stop = stop.get_token()}, [&](int, auto) {
    ++calls;
    stop.request_stop();
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_LT(calls, static_cast<int>(layout.chunks().size()));
  EXPECT_TRUE(absl::IsCancelled(reader->Verify({.stop = stop.get_token()}).status()));
  EXPECT_TRUE(absl::IsUnavailable(
      reader->ReadChunks(layout, AllOf(layout), {}, [](int, auto) { return absl::UnavailableError("sink"); })));
}

TEST_F(CheckpointReaderTest, WithoutManifestThereIsNothing) {
  EXPECT_TRUE(absl::IsNotFound(OpenStatus()));
  const std::vector<StoredTensor> tensors = {{"a", {4, 5}}};
  FlatCheckpoint checkpoint =
      FlatCheckpoint::Make({.step = 13, .generation = 3}, tensors, GridOf(LayoutOf(tensors)), {});
  ASSERT_NO_FATAL_FAILURE(Store(checkpoint));
  EXPECT_TRUE(absl::IsNotFound(OpenStatus()));
  // Another checkpoint's manifest in this one's place.
  ASSERT_TRUE(storage_->Create(ObjectName(kName, kManifestName), FormatManifest(checkpoint.manifest)).ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenStatus()));
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("step-0000000013-g3"));
}

class DamageTest : public CheckpointReaderTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    std::mt19937_64 random(9);
    checkpoint_ = FlatCheckpoint::Make(kName, tensors_, RandomGrid(random, tensors_, 20),
                                       {.shards = 2, .compressed = GetParam(), .scattered = GetParam()});
    Store(checkpoint_);
  }
  std::vector<StoredTensor> tensors_ = {{"a", {40, 9}}, {"b", {17}}, {"c", {5, 6}}};
  FlatCheckpoint checkpoint_;
};

INSTANTIATE_TEST_SUITE_P(Plain, DamageTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Compressed, DamageTest, testing::Values(true));

TEST_P(DamageTest, EveryByteOfAnIndexIsGuarded) {
  const std::string name = ObjectName(kName, checkpoint_.manifest.shards[1].index.name);
  const std::string good = ObjectText(*storage_, name);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    ASSERT_NO_FATAL_FAILURE(ReplaceObject(*storage_, name, bad));
    const absl::Status status = OpenStatus();
    ASSERT_TRUE(absl::IsDataLoss(status)) << i << ": " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST_P(DamageTest, EveryByteOfAShardIsGuarded) {
  const ParameterLayout layout = LayoutOf(tensors_);
  const StoredShard& shard = checkpoint_.manifest.shards[1];
  const std::string name = ObjectName(kName, shard.data.name);
  const std::string good = ObjectText(*storage_, name);
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  std::vector<bool> holds_values(good.size());  // of what loading needs
  for (const StoredChunk& chunk : checkpoint_.chunks[1]) {
    const auto cols = static_cast<uint64_t>(tensors_[static_cast<size_t>(chunk.tensor)].cols());
    for (const StoredPiece& piece : chunk.pieces) {
      const uint64_t used = piece.compressed ? piece.size : static_cast<uint64_t>(chunk.rows) * cols * 4;
      for (uint64_t i = 0; i < used; ++i) holds_values[piece.offset + i] = !piece.compressed;
    }
  }
  for (size_t i = 0; i < good.size(); i += 1 + i % 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    ASSERT_NO_FATAL_FAILURE(ReplaceObject(*storage_, name, bad));
    const auto problems = reader->Verify({.threads = 2});
    ASSERT_TRUE(problems.ok()) << problems.status();
    ASSERT_THAT(*problems, testing::Contains(absl::StrCat(name, ": its contents do not have the manifest's digest")))
        << i;
    const absl::Status status =
        reader->ReadChunks(layout, AllOf(layout), {}, [](int, auto) { return absl::OkStatus(); });
    if (!holds_values[i]) continue;  // a bit of a zstd frame may be of no consequence; values are compared below
    ASSERT_TRUE(absl::IsDataLoss(status)) << i;
    ASSERT_THAT(std::string(status.message()), HasSubstr(name + ": "));
    ASSERT_EQ(problems->size(), 2u) << "the chunk and the file";
    ASSERT_THAT(*problems, testing::Contains(std::string(status.message())));
  }
}

// Whatever happens to a shard's bytes, what is given to the sink is what was captured.
TEST_P(DamageTest, WrongValuesAreNeverHandedOut) {
  const ParameterLayout layout = LayoutOf(tensors_);
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  std::mt19937_64 random(4);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string name = ObjectName(kName, checkpoint_.manifest.shards[round % 2].data.name);
    const std::string good = ObjectText(*storage_, name);
    std::string bad = good;
    for (size_t flips = 1 + random() % 20; flips > 0; --flips) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    ASSERT_NO_FATAL_FAILURE(ReplaceObject(*storage_, name, bad));
    const absl::Status status = Load(*reader, layout, AllOf(layout), 2);
    ASSERT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    found += !status.ok();
    ASSERT_NO_FATAL_FAILURE(ReplaceObject(*storage_, name, good));
  }
  EXPECT_GT(found, 200);
}

TEST_P(DamageTest, MissingAndCutFilesAreNamed) {
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  for (const StoredFile& file : {checkpoint_.manifest.shards[0].data, checkpoint_.manifest.shards[1].index}) {
    const std::string name = ObjectName(kName, file.name);
    const std::string good = ObjectText(*storage_, name);
    ASSERT_TRUE(storage_->Delete(name).ok());
    EXPECT_TRUE(absl::IsDataLoss(OpenStatus()));
    EXPECT_EQ(OpenStatus().message(), absl::StrCat(kName.ToString(), ": ", file.name, " is missing"));
    EXPECT_THAT(*reader->Verify({}), ElementsAre(absl::StrCat(name, " is missing")));
    ASSERT_TRUE(storage_->Create(name, good.substr(1)).ok());
    EXPECT_THAT(std::string(OpenStatus().message()),
                HasSubstr(absl::StrCat(file.name, " has ", good.size() - 1, " bytes")));
    EXPECT_EQ(reader->Verify({})->size(), 1u);
    ASSERT_NO_FATAL_FAILURE(ReplaceObject(*storage_, name, good));
  }
  // The model file is for people: nothing is loaded from it, but its loss is told.
  const std::string model = ObjectName(kName, kModelName);
  ASSERT_TRUE(storage_->Delete(model).ok());
  EXPECT_TRUE(OpenStatus().ok());
  EXPECT_THAT(*reader->Verify({}), ElementsAre(model + " is missing"));
}

TEST_P(DamageTest, ManifestAndIndexesThatDisagreeAreRefused) {
  const auto refusal = [&](auto&& change) {
    FlatCheckpoint bad = checkpoint_;
    change(bad);
    Store(bad);
    const absl::Status status = OpenStatus();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.manifest.state_digest ^= 1; }), HasSubstr("state digest"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.manifest.tensors[0].shape[0] = 41; }),
              HasSubstr("a: rows 40 to 40 are stored nowhere"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) {
                c.manifest.tensors[0].shape = {int64_t{1} << 40, 9};
              }),
              HasSubstr("a: rows 40 to 1099511627775"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) {
                c.manifest.tensors.push_back({"d", {1}});
              }),
              HasSubstr("d: rows 0 to 0 are stored nowhere"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.chunks[0].erase(c.chunks[0].begin()); }), HasSubstr("stored nowhere"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) {
                c.chunks[1] = c.chunks[0];
                c.data[1] = c.data[0];
              }),
              HasSubstr("stored twice"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.chunks[0][0].pieces[1] = c.chunks[0][0].pieces[0]; }),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.chunks[0][0].pieces[1].offset = 1ull << 40; }), HasSubstr("outside"));
  EXPECT_THAT(refusal([](FlatCheckpoint& c) { c.chunks[0][0].pieces[1].offset = UINT64_MAX - 1; }),
              HasSubstr("outside"));
}

// A few bytes that say they were gigabytes: the limit on a piece is known before anything is decompressed, and a frame
// that holds something else than the index says is refused by its header.
TEST_F(CheckpointReaderTest, CompressedBombsAreRefused) {
  const std::vector<StoredTensor> tensors = {{"w", {int64_t{1} << 20, 1024}}};
  FlatCheckpoint bomb = FlatCheckpoint::Make(kName, {{"w", {1024, 1024}}},
                                             {{.tensor = 0, .first_row = 0, .rows = 1024}}, {.compressed = true});
  bomb.manifest.tensors = tensors;
  bomb.chunks[0][0].rows = tensors[0].rows();
  for (StoredPiece& piece : bomb.chunks[0][0].pieces) piece.compressed = true;
  ASSERT_NO_FATAL_FAILURE(Store(bomb));
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("too large"));

  bomb.manifest.tensors = {{"w", {16 * 1024, 1024}}};  // just what is allowed
  bomb.chunks[0][0].rows = 16 * 1024;
  bomb.manifest.state_digest = StateDigestOf(bomb.chunks, OrderByRow(bomb.chunks));
  ASSERT_NO_FATAL_FAILURE(Store(bomb));
  const auto reader = Open();
  ASSERT_NE(reader, nullptr);
  const ParameterLayout layout = LayoutOf(bomb.manifest.tensors);
  const absl::Status status = reader->ReadChunks(layout, AllOf(layout), {}, [](int, auto) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("w, rows 0 to 16383"));
}

TEST(VerifyPlanTest, SegmentsCoverFilesAndHoldTheirChunks) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const std::vector<StoredTensor> tensors = RandomTensors(random, 20, 100);
    TestDirectory directory;
    const auto storage = MakeMemoryStorage(directory.path());
    FlatCheckpoint checkpoint =
        FlatCheckpoint::Make(kName, tensors, RandomGrid(random, tensors, 10),
                             {.shards = 3, .scattered = seed % 2 == 0, .shuffled = seed % 3 == 0, .seed = seed});
    ASSERT_TRUE(checkpoint.Store(*storage).ok());
    const VerifyPlan plan = PlanVerify(checkpoint.manifest, checkpoint.chunks, 1 + random() % 3000);
    size_t chunks = plan.scattered.size();
    size_t next = 0;
    for (size_t f = 0; f < plan.files.size(); ++f) {
      uint64_t end = 0;
      for (int number = 0; next < plan.segments.size() && plan.segments[next].file == static_cast<int>(f); ++number) {
        const VerifySegment& segment = plan.segments[next++];
        ASSERT_EQ(segment.number, number);
        ASSERT_EQ(segment.offset, end);
        end += segment.size;
        chunks += segment.chunks.size();
        for (const ChunkRef ref : segment.chunks) {
          ASSERT_EQ(ref.shard, static_cast<int>(f));
          for (const StoredPiece& piece : checkpoint.chunks[f][static_cast<size_t>(ref.chunk)].pieces) {
            ASSERT_GE(piece.offset, segment.offset);
            ASSERT_LE(piece.offset + piece.size, end);
          }
        }
      }
      ASSERT_EQ(end, plan.files[f].size);
    }
    ASSERT_EQ(next, plan.segments.size());
    size_t all = 0;
    for (const auto& shard : checkpoint.chunks) all += shard.size();
    ASSERT_EQ(chunks, all);
    ASSERT_TRUE(seed % 2 == 0 || plan.scattered.size() < all) << "pieces that lie together are read once";
  }
}

}  // namespace
}  // namespace holdfast
