// Proves that rows hold every document once and whole, each in the row it fits best, that what is free repeats them and
// nobody learns it, and that memory is bounded.

#include "framework/data/row_packer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "framework/data/token_file.h"

namespace holdfast {
namespace {

using Row = std::vector<uint32_t>;

/// `length` tokens of this id.
Row Document(uint32_t id, int64_t length) {
  Row tokens(static_cast<size_t>(length), id);
  tokens[0] |= kDocumentStart;
  return tokens;
}

struct Collected {
  std::vector<Row> rows;
  auto taker() {
    return [this](absl::Span<const uint32_t> row) {
      rows.emplace_back(row.begin(), row.end());
      return absl::OkStatus();
    };
  }
};

TEST(RowPacker, ADocumentGoesWhereItFitsBest) {
  Collected collected;
  RowPacker packer({.row_tokens = 6});
  for (const auto& [id, length] : {std::pair(1U, 3), std::pair(2U, 4), std::pair(3U, 2), std::pair(4U, 3)}) {
    ASSERT_TRUE(packer.Add(Document(id, length), collected.taker()).ok());
  }
  constexpr uint32_t kFirst = kDocumentStart;
  // The third went beside the second, though the first has room; that left the first's for the fourth.
  EXPECT_EQ(collected.rows,
            (std::vector<Row>{{2 | kFirst, 2, 2, 2, 3 | kFirst, 3}, {1 | kFirst, 1, 1, 4 | kFirst, 4, 4}}));
  ASSERT_TRUE(packer.Add(Document(5, 4), collected.taker()).ok());
  ASSERT_TRUE(packer.Finish(collected.taker()).ok());
  EXPECT_EQ(collected.rows[2], (Row{5 | kFirst, 5, 5, 5, 5 | kFirst | kNotLearned, 5 | kNotLearned}));
  EXPECT_EQ(packer.rows(), 3);
  EXPECT_EQ(packer.tokens(), 16);
}

// So a router of experts sees text there, not one token over and over.
TEST(RowPacker, WhatIsFreeRepeatsTheRowsDocuments) {
  constexpr uint32_t kFirst = kDocumentStart, kNot = kNotLearned;
  Collected collected;
  RowPacker packer({.row_tokens = 12});
  ASSERT_TRUE(packer.Add(Row{1 | kFirst | kNot, 2, 3 | kNot}, collected.taker()).ok());
  ASSERT_TRUE(packer.Add(Row{4 | kFirst, 5}, collected.taker()).ok());
  ASSERT_TRUE(packer.Finish(collected.taker()).ok());
  const auto free = [](Row tokens) {
    for (uint32_t& token : tokens) token |= kNot;
    return tokens;
  };
  const Row documents{1 | kFirst | kNot, 2, 3 | kNot, 4 | kFirst, 5};
  Row row = documents;
  for (const Row& next : {free(documents), free({1 | kFirst, 2})}) row.insert(row.end(), next.begin(), next.end());
  EXPECT_EQ(collected.rows, std::vector<Row>{row});
  EXPECT_EQ(packer.tokens(), 5);
}

TEST(RowPacker, EveryDocumentIsInOneRowAndFewAreFree) {
  std::mt19937 random(7);
  Collected collected;
  RowPacker packer({.row_tokens = 512, .open_rows = 64});
  std::map<uint32_t, int64_t> lengths;
  for (uint32_t id = 1; id <= 20000; ++id) {
    lengths[id] = 1 + static_cast<int64_t>(random() % (id % 10 == 0 ? 512 : 200));
    ASSERT_TRUE(packer.Add(Document(id, lengths[id]), collected.taker()).ok());
    EXPECT_LE(packer.open_rows(), 64);
  }
  ASSERT_TRUE(packer.Finish(collected.taker()).ok());
  for (const Row& row : collected.rows) {
    ASSERT_EQ(row.size(), 512u);
    for (size_t i = 0; i < row.size();) {
      ASSERT_NE(row[i] & kDocumentStart, 0u);
      const uint32_t id = row[i] & kTokenBits;
      size_t end = i + 1;
      while (end < row.size() && (row[end] & kDocumentStart) == 0) ++end;
      if ((row[i] & kNotLearned) == 0) {
        ASSERT_EQ(lengths[id], static_cast<int64_t>(end - i));
        lengths.erase(id);
      }
      i = end;
    }
  }
  EXPECT_TRUE(lengths.empty());
  EXPECT_GT(static_cast<double>(packer.tokens()), 0.97 * 512 * static_cast<double>(packer.rows()));
}

TEST(RowPacker, AnErrorOfWhoTakesRowsEndsIt) {
  RowPacker packer({.row_tokens = 2});
  const auto full = [](absl::Span<const uint32_t>) { return absl::ResourceExhaustedError("disk full"); };
  EXPECT_TRUE(absl::IsResourceExhausted(packer.Add(Document(1, 2), full)));
}

}  // namespace
}  // namespace holdfast
