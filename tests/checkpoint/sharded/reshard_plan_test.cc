// For random models written in any grid by 1 to 9 writers and wanted in any other by 1 to 9 readers, a plan copies
// every wanted row exactly once from where it is stored, reads every piece it needs and little else, and keeps its
// bounds; coverage with a hole or an overlap planted is refused by name.

#include "checkpoint/sharded/reshard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "tests/checkpoint/sharded/flat_checkpoint.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

struct Model {
  std::vector<StoredTensor> tensors;
  StoredChunks chunks;
};

int64_t PlainBytes(const Model& model, const StoredChunk& chunk) {
  return PieceBytes(model.tensors[static_cast<size_t>(chunk.tensor)], chunk);
}

// Chunks of a random grid in `writers` shards, contiguous parts or dealt out at random, pieces anywhere in the files.
Model RandomModel(std::mt19937_64& random, int writers) {
  Model model;
  model.tensors = RandomTensors(random, 1 + static_cast<int>(random() % 12), 400);
  const std::vector<WantedRows> grid = RandomGrid(random, model.tensors, 1 + static_cast<int64_t>(random() % 40));
  const bool dealt = random() % 2 == 0;
  model.chunks.resize(static_cast<size_t>(writers));
  for (size_t i = 0; i < grid.size(); ++i) {
    const size_t shard = dealt ? random() % model.chunks.size() : i * model.chunks.size() / grid.size();
    model.chunks[shard].push_back({.tensor = grid[i].tensor,
                                   .first_row = grid[i].first_row,
                                   .rows = grid[i].rows,
                                   .pieces = StoredPieces(kStateKinds)});
  }
  const bool scattered = random() % 2 == 0;
  for (std::vector<StoredChunk>& shard : model.chunks) {
    std::vector<StoredPiece*> pieces;
    for (StoredChunk& chunk : shard) {
      chunk.padding_rows = scattered ? static_cast<int64_t>(random() % 3) : 0;
      for (StoredPiece& piece : chunk.pieces) {
        piece.compressed = random() % 3 == 0;
        const auto plain = static_cast<uint64_t>(PlainBytes(model, chunk));
        piece.size = piece.compressed ? 1 + random() % plain : plain;
        pieces.push_back(&piece);
      }
    }
    if (scattered) std::shuffle(pieces.begin(), pieces.end(), random);
    uint64_t offset = random() % 1000;
    for (StoredPiece* piece : pieces) {
      piece->offset = offset;
      offset += piece->size + (scattered ? random() % 5000 : 0);
    }
  }
  return model;
}

uint64_t UsedBytes(const Model& model, const std::vector<ReadBatch>& batches) {
  uint64_t bytes = 0;
  for (const ReadBatch& batch : batches) {
    for (const ChunkRead& read : batch.reads) {
      for (const StoredPiece& piece :
           model.chunks[static_cast<size_t>(read.stored.shard)][static_cast<size_t>(read.stored.chunk)].pieces) {
        bytes += piece.size;
      }
    }
  }
  return bytes;
}

void ExpectRangesHoldPieces(const Model& model, const ReadBatch& batch) {
  for (size_t i = 1; i < batch.ranges.size(); ++i) {
    const FileRange& a = batch.ranges[i - 1];
    const FileRange& b = batch.ranges[i];
    ASSERT_TRUE(a.shard < b.shard || (a.shard == b.shard && a.offset + a.size < b.offset));
  }
  for (const ChunkRead& read : batch.reads) {
    const StoredChunk& chunk =
        model.chunks[static_cast<size_t>(read.stored.shard)][static_cast<size_t>(read.stored.chunk)];
    for (const StoredPiece& piece : chunk.pieces) {
      ASSERT_EQ(std::count_if(batch.ranges.begin(), batch.ranges.end(),
                              [&](const FileRange& range) {
                                return range.shard == read.stored.shard && range.offset <= piece.offset &&
                                       piece.offset + piece.size <= range.offset + range.size;
                              }),
                1);
    }
  }
}

// Carries the copies out on row numbers instead of rows.
void ExpectRowsArrive(const Model& model, const std::vector<ReadBatch>& batches,
                      const std::vector<WantedRows>& wanted) {
  std::set<int> seen;
  for (const ReadBatch& batch : batches) {
    std::vector<std::vector<int64_t>> rows;
    for (const WantedRows& want : batch.wanted) {
      ASSERT_TRUE(seen.insert(want.id).second) << want.id << " is in two batches";
      rows.emplace_back(static_cast<size_t>(want.rows), -1);
    }
    for (const ChunkRead& read : batch.reads) {
      const StoredChunk& chunk =
          model.chunks[static_cast<size_t>(read.stored.shard)][static_cast<size_t>(read.stored.chunk)];
      ASSERT_FALSE(read.copies.empty());
      for (const RowCopy& copy : read.copies) {
        ASSERT_EQ(batch.wanted[static_cast<size_t>(copy.wanted)].tensor, chunk.tensor);
        ASSERT_LE(copy.from_row + copy.rows, chunk.rows);
        for (int64_t i = 0; i < copy.rows; ++i) {
          int64_t& row = rows[static_cast<size_t>(copy.wanted)].at(static_cast<size_t>(copy.to_row + i));
          ASSERT_EQ(row, -1) << "copied twice";
          row = chunk.first_row + copy.from_row + i;
        }
      }
    }
    for (size_t w = 0; w < rows.size(); ++w) {
      for (size_t i = 0; i < rows[w].size(); ++i) {
        ASSERT_EQ(rows[w][i], batch.wanted[w].first_row + static_cast<int64_t>(i));
      }
    }
  }
  ASSERT_EQ(seen.size(), wanted.size());
}

TEST(ReshardPlanTest, AnyGridFromAnyWorldToAnyOther) {
  for (int writers = 1; writers <= 9; ++writers) {
    for (int readers = 1; readers <= 9; ++readers) {
      for (int round = 0; round < 8; ++round) {
        const uint64_t seed = static_cast<uint64_t>((writers * 10 + readers) * 10 + round);
        SCOPED_TRACE(absl::StrCat("seed ", seed));
        std::mt19937_64 random(seed);
        const Model model = RandomModel(random, writers);
        ASSERT_TRUE(CheckCoverage(model.tensors, model.chunks).ok()) << CheckCoverage(model.tensors, model.chunks);
        const std::vector<ChunkRef> by_row = OrderByRow(model.chunks);
        std::vector<WantedRows> grid = RandomGrid(random, model.tensors, 1 + static_cast<int64_t>(random() % 40));
        if (random() % 2 == 0) std::shuffle(grid.begin(), grid.end(), random);
        const ReadLimits limits{.batch_bytes = static_cast<int64_t>(random() % 20'000), .gap_bytes = random() % 4000};
        for (size_t r = 0; r < static_cast<size_t>(readers); ++r) {
          const auto n = static_cast<size_t>(readers);
          const std::vector<WantedRows> mine(grid.begin() + static_cast<ptrdiff_t>(grid.size() * r / n),
                                             grid.begin() + static_cast<ptrdiff_t>(grid.size() * (r + 1) / n));
          const auto batches = PlanReads(model.tensors, model.chunks, by_row, mine, limits);
          ASSERT_NO_FATAL_FAILURE(ExpectRowsArrive(model, batches, mine));
          uint64_t read = 0;
          for (const ReadBatch& batch : batches) {
            ASSERT_NO_FATAL_FAILURE(ExpectRangesHoldPieces(model, batch));
            int64_t decoded = 0;
            for (const ChunkRead& c : batch.reads) {
              decoded +=
                  3 *
                  PlainBytes(model,
                             model.chunks[static_cast<size_t>(c.stored.shard)][static_cast<size_t>(c.stored.chunk)]);
            }
            // More than the limit only for one wanted chunk, or for several that lie in the same stored chunks.
            if (decoded > limits.batch_bytes) {
              const auto first = FindChunks(model.chunks, by_row, batch.wanted[0]);
              ASSERT_EQ(first.size(), batch.reads.size());
            }
            for (const FileRange& range : batch.ranges) read += range.size;
          }
          ASSERT_LE(read, 2 * UsedBytes(model, batches)) << "gaps";
        }
      }
    }
  }
}

TEST(ReshardPlanTest, TheSameGridIsReadOnceInTheOrderOfTheFile) {
  std::mt19937_64 random(1);
  Model model = RandomModel(random, 3);
  std::vector<WantedRows> wanted;
  for (const ChunkRef ref : OrderByRow(model.chunks)) {
    const StoredChunk& chunk = model.chunks[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
    wanted.push_back({.id = static_cast<int>(wanted.size()),
                      .tensor = chunk.tensor,
                      .first_row = chunk.first_row,
                      .rows = chunk.rows});
  }
  std::shuffle(wanted.begin(), wanted.end(), random);
  const auto batches =
      PlanReads(model.tensors, model.chunks, OrderByRow(model.chunks), wanted, {.batch_bytes = 500, .gap_bytes = 0});
  EXPECT_GT(batches.size(), 3u);
  std::set<std::pair<int, int>> read;
  std::pair<int, uint64_t> last{-1, 0};
  for (const ReadBatch& batch : batches) {
    for (const ChunkRead& r : batch.reads) {
      EXPECT_TRUE(read.emplace(r.stored.shard, r.stored.chunk).second) << "read twice";
      const auto& pieces =
          model.chunks[static_cast<size_t>(r.stored.shard)][static_cast<size_t>(r.stored.chunk)].pieces;
      const std::pair<int, uint64_t> place{r.stored.shard,
                                           std::min({pieces[0].offset, pieces[1].offset, pieces[2].offset})};
      EXPECT_LT(last, place);
      last = place;
    }
  }
  EXPECT_EQ(read.size(), wanted.size());
}

// Rows that one stored chunk of any size holds are put together from it without reading it again for each.
TEST(ReshardPlanTest, LargeStoredChunksAreReadOnce) {
  Model model;
  model.tensors = {{"w", {1000, 100}}};
  model.chunks = {{{.tensor = 0, .first_row = 0, .rows = 1000}}};
  for (size_t k = 0; k < 3; ++k) model.chunks[0][0].pieces.push_back({.offset = k * 400'000, .size = 400'000});
  std::vector<WantedRows> wanted;
  for (int i = 0; i < 100; ++i) wanted.push_back({.id = i, .tensor = 0, .first_row = i * 10, .rows = 10});
  const auto batches =
      PlanReads(model.tensors, model.chunks, OrderByRow(model.chunks), wanted, {.batch_bytes = 1000, .gap_bytes = 0});
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].ranges, (std::vector<FileRange>{{0, 0, 1'200'000}}));
}

TEST(ReshardPlanTest, GapsNeverCostMoreThanThePieces) {
  std::vector<FileRange> pieces;
  for (uint64_t i = 0; i < 1000; ++i) pieces.push_back({.shard = 0, .offset = i * 1000, .size = 4});
  uint64_t bytes = 0;
  for (const FileRange& range : JoinRanges(pieces, 1 << 20)) bytes += range.size;
  EXPECT_LE(bytes, 8000u);
  EXPECT_EQ(JoinRanges({{0, 100, 100}, {0, 0, 90}, {1, 0, 5}}, 10), (std::vector<FileRange>{{0, 0, 200}, {1, 0, 5}}));
  EXPECT_EQ(JoinRanges({{0, 100, 100}, {0, 0, 90}}, 9).size(), 2u);
  EXPECT_TRUE(JoinRanges({}, 9).empty());
}

class CoverageTest : public testing::Test {
 protected:
  std::string Refusal() {
    const absl::Status status = CheckCoverage(model_.tensors, model_.chunks);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  StoredChunk Chunk(int tensor, int64_t first_row, int64_t rows) {
    StoredChunk chunk{.tensor = tensor, .first_row = first_row, .rows = rows, .pieces = StoredPieces(kStateKinds)};
    const int64_t cols = model_.tensors[static_cast<size_t>(tensor)].cols();
    for (StoredPiece& piece : chunk.pieces) piece.size = static_cast<uint64_t>(rows * cols) * 4;
    return chunk;
  }
  Model model_{.tensors = {{"a", {10, 4}}, {"b", {7}}, {"c", {3, 2, 5}}}, .chunks = {}};
  void SetUp() override {
    model_.chunks = {{Chunk(0, 0, 4), Chunk(2, 0, 6)}, {Chunk(0, 4, 6), Chunk(1, 0, 1)}};
    ASSERT_TRUE(CheckCoverage(model_.tensors, model_.chunks).ok());
  }
};

TEST_F(CoverageTest, HolesAreNamed) {
  model_.chunks[1][0] = Chunk(0, 5, 5);
  EXPECT_EQ(Refusal(), "a: rows 4 to 4 are stored nowhere");
  model_.chunks[1][0] = Chunk(0, 4, 3);
  EXPECT_EQ(Refusal(), "a: rows 7 to 9 are stored nowhere");
  model_.chunks[1].erase(model_.chunks[1].begin());
  EXPECT_EQ(Refusal(), "a: rows 4 to 9 are stored nowhere");
  model_.chunks[0].pop_back();
  model_.chunks[1].push_back(Chunk(0, 4, 6));
  EXPECT_EQ(Refusal(), "c: rows 0 to 5 are stored nowhere");
}

TEST_F(CoverageTest, OverlapsAreNamed) {
  model_.chunks[1][0] = Chunk(0, 3, 7);
  EXPECT_EQ(Refusal(), "a: rows 3 to 3 are stored twice, in shards 0 and 1");
  model_.chunks[1][0] = Chunk(0, 4, 6);
  model_.chunks[0].push_back(Chunk(1, 0, 1));
  EXPECT_EQ(Refusal(), "b: rows 0 to 0 are stored twice, in shards 0 and 1");
}

TEST_F(CoverageTest, WhatDoesNotFitItsTensorIsNamed) {
  const auto with = [&](auto&& change) {
    const Model before = model_;
    change(model_.chunks[1][0]);
    std::string refusal = Refusal();
    model_ = before;
    return refusal;
  };
  EXPECT_THAT(with([](StoredChunk& c) { c.tensor = 3; }), HasSubstr("shard 1: there is no tensor 3"));
  EXPECT_THAT(with([](StoredChunk& c) { c.tensor = -1; }), HasSubstr("no tensor -1"));
  EXPECT_THAT(with([](StoredChunk& c) { c.first_row = 5; }), HasSubstr("a: 6 rows from 5 on are not inside"));
  EXPECT_THAT(with([](StoredChunk& c) { c.first_row = -1; }), HasSubstr("are not inside"));
  EXPECT_THAT(with([](StoredChunk& c) { c.rows = 0; }), HasSubstr("are not inside"));
  EXPECT_THAT(with([](StoredChunk& c) { c.rows = INT64_MAX; }), HasSubstr("are not inside"));
  EXPECT_THAT(with([](StoredChunk& c) { c.pieces.pop_back(); }), HasSubstr("has 2 planes instead of 3"));
  EXPECT_THAT(with([](StoredChunk& c) { c.pieces[2].size -= 4; }), HasSubstr("has 92 bytes instead of 96"));
  EXPECT_THAT(with([](StoredChunk& c) { c.padding_rows = INT64_MAX; }), HasSubstr("too large"));
  EXPECT_THAT(with([](StoredChunk& c) { c.padding_rows = int64_t{kMaxPieceBytes} / 16; }), HasSubstr("too large"));
  // A compressed piece is never larger than a plain one, so that what is read is bounded by what is decoded.
  EXPECT_THAT(with([](StoredChunk& c) { c.pieces[0] = {.offset = 0, .size = 97, .compressed = true}; }),
              HasSubstr("has 97 bytes"));
}

TEST_F(CoverageTest, PlantedDamageIsAlwaysFound) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    model_ = RandomModel(random, 1 + static_cast<int>(random() % 9));
    ASSERT_TRUE(CheckCoverage(model_.tensors, model_.chunks).ok());
    std::vector<StoredChunk>* shard = nullptr;
    do shard = &model_.chunks[random() % model_.chunks.size()];
    while (shard->empty());
    const size_t victim = random() % shard->size();
    const auto at = shard->begin() + static_cast<ptrdiff_t>(victim);
    const std::string name = model_.tensors[static_cast<size_t>(at->tensor)].name;
    if (random() % 2 == 0) {
      shard->erase(at);
    } else {
      model_.chunks[random() % model_.chunks.size()].push_back(StoredChunk(*at));
    }
    EXPECT_THAT(Refusal(), HasSubstr(name + ": rows "));
  }
}

}  // namespace
}  // namespace holdfast
