// Proves that an index reads back as it was, that no changed byte and no cut goes unnoticed, and that one which was
// forged, digest and all, is refused for whatever it claims that cannot be. Also 200,000 forged at random. And that the
// examples in FORMAT.md are what it says they are.

#include "checkpoint/sharded/shard_index.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/manifest.h"
#include "tests/checkpoint/sharded/three_planes.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr size_t kDigestBytes = 32, kHeaderBytes = 24, kRecordBytes = 88;  // with three pieces
constexpr uint64_t kFileSize = 100'000;

// Three tensors; plain, compressed and padded pieces.
std::vector<StoredChunk> Sample() {
  std::vector<StoredChunk> chunks;
  uint64_t offset = 2048;
  const auto add = [&](int32_t tensor, int64_t first_row, int64_t rows, int64_t padding, uint64_t row_bytes) {
    StoredChunk chunk{.tensor = tensor,
                      .first_row = first_row,
                      .rows = rows,
                      .padding_rows = padding,
                      .digest = 0x0123456789abcdef + chunks.size()};
    for (size_t k = 0; k < kStateKinds; ++k) {
      const bool compressed = (chunks.size() + k) % 2 == 1;
      const uint64_t size = compressed ? 77 + k : static_cast<uint64_t>(rows + padding) * row_bytes;
      chunk.pieces.push_back({.offset = offset, .size = size, .compressed = compressed});
      offset += size + 5;
    }
    chunks.push_back(chunk);
  };
  add(0, 0, 10, 0, 40);
  add(0, 10, 10, 0, 40);
  add(0, 20, 3, 7, 40);
  add(2, 5, 1, 0, 3072);
  add(7, 100, 25, 0, 8);
  return chunks;
}

std::string ResealIndex(std::string index) {
  index.resize(index.size() - kDigestBytes);
  return index + DigestFile(index);
}

TEST(ShardIndex, RoundTrip) {
  const std::vector<StoredChunk> chunks = Sample();
  const std::string index = FormatShardIndex(chunks);
  EXPECT_EQ(index.size(), kHeaderBytes + chunks.size() * kRecordBytes + kDigestBytes);
  const auto parsed = ParseShardIndex(index, kFileSize);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, chunks);
  const auto empty = ParseShardIndex(FormatShardIndex({}), 0);
  ASSERT_TRUE(empty.ok()) << "a rank may have nothing to write";
  EXPECT_TRUE(empty->empty());
}

TEST(ShardIndex, EveryBitFlippedIsFound) {
  const std::string index = FormatShardIndex(Sample());
  for (size_t i = 0; i < index.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = index;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ASSERT_FALSE(ParseShardIndex(damaged, kFileSize).ok()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(ShardIndex, EveryCutAndEveryTailIsFound) {
  const std::string index = FormatShardIndex(Sample());
  for (size_t length = 0; length < index.size(); ++length) {
    ASSERT_FALSE(ParseShardIndex(index.substr(0, length), kFileSize).ok()) << length;
  }
  ASSERT_FALSE(ParseShardIndex(index + "x", kFileSize).ok());
  ASSERT_FALSE(ParseShardIndex(index + index, kFileSize).ok());
}

TEST(ShardIndex, LaterVersionIsNamed) {
  std::string index = FormatShardIndex(Sample());
  index[8] = 3;
  const absl::Status status = ParseShardIndex(ResealIndex(index), kFileSize).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("version 3"), absl::string_view::npos) << status;
}

TEST(ShardIndex, WrongCountsAreRefused) {
  for (const size_t position : {size_t{12}, size_t{16}, size_t{20}, size_t{23}}) {  // record size, count
    std::string index = FormatShardIndex(Sample());
    for (const char value : {'\x00', '\x04', '\x06', '\x7f', '\xff'}) {
      if (index[position] == value) continue;
      std::string forged = index;
      forged[position] = value;
      EXPECT_TRUE(absl::IsInvalidArgument(ParseShardIndex(ResealIndex(forged), kFileSize).status())) << position;
    }
  }
}

struct Forgery {
  const char* what;
  std::function<void(std::vector<StoredChunk>&)> forge;
};

TEST(ShardIndex, ImpossibleClaimsAreRefused) {
  const Forgery forgeries[] = {
      {"negative tensor", [](auto& c) { c[0].tensor = -1; }},
      {"tensors descend", [](auto& c) { std::swap(c[3].tensor, c[4].tensor); }},
      {"rows descend", [](auto& c) { std::swap(c[0].first_row, c[1].first_row); }},
      {"rows overlap", [](auto& c) { c[1].first_row = 9; }},
      {"the same rows twice", [](auto& c) { c[1].first_row = 0; }},
      {"negative row", [](auto& c) { c[0].first_row = -1; }},
      {"row that overflows", [](auto& c) { c[4].first_row = INT64_MAX - 3; }},
      {"no rows", [](auto& c) { c[0].rows = 0; }},
      {"negative rows", [](auto& c) { c[0].rows = -10; }},
      {"rows without end", [](auto& c) { c[0].rows = INT64_MAX; }},
      {"negative padding", [](auto& c) { c[2].padding_rows = -1; }},
      {"padding without end", [](auto& c) { c[2].padding_rows = INT64_MAX; }},
      {"empty piece", [](auto& c) { c[0].pieces[1].size = 0; }},
      {"huge piece", [](auto& c) { c[0].pieces[1].size = kMaxPieceBytes + 4; }},
      {"offset beyond the file", [](auto& c) { c[0].pieces[0].offset = kFileSize + 1; }},
      {"end beyond the file", [](auto& c) { c[4].pieces[2].offset = kFileSize - c[4].pieces[2].size + 1; }},
      {"offset that overflows", [](auto& c) { c[0].pieces[0].offset = UINT64_MAX - 3; }},
      {"pieces overlap", [](auto& c) { c[0].pieces[1].offset = c[0].pieces[0].offset + 1; }},
      {"pieces of two chunks overlap", [](auto& c) { c[4].pieces[0].offset = c[1].pieces[2].offset; }},
      {"plain size without whole rows", [](auto& c) { c[0].pieces[0].size -= 4; }},
      {"plain pieces of two sizes", [](auto& c) { c[0].pieces[2].size /= 2; }},
  };
  for (const Forgery& forgery : forgeries) {
    std::vector<StoredChunk> chunks = Sample();
    ASSERT_TRUE(ParseShardIndex(FormatShardIndex(chunks), kFileSize).ok());
    forgery.forge(chunks);
    const absl::Status status = ParseShardIndex(FormatShardIndex(chunks), kFileSize).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << forgery.what << ": " << status;
  }
}

TEST(ShardIndex, UnknownFlagsAreRefused) {
  std::string index = FormatShardIndex(Sample());
  index[kHeaderBytes + 4] = 8;
  EXPECT_TRUE(absl::IsInvalidArgument(ParseShardIndex(ResealIndex(index), kFileSize).status()));
}

TEST(ShardIndex, EndsWithTheFile) {
  std::vector<StoredChunk> chunks = Sample();
  uint64_t end = 0;
  for (const StoredChunk& chunk : chunks) {
    for (const StoredPiece& piece : chunk.pieces) end = std::max(end, piece.offset + piece.size);
  }
  EXPECT_TRUE(ParseShardIndex(FormatShardIndex(chunks), end).ok());
  EXPECT_FALSE(ParseShardIndex(FormatShardIndex(chunks), end - 1).ok());
}

// Whatever is accepted keeps the promises of the header.
void CheckPromises(const std::vector<StoredChunk>& chunks) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    ASSERT_GT(chunks[i].rows, 0);
    ASSERT_GE(chunks[i].padding_rows, 0);
    if (i > 0 && chunks[i].tensor == chunks[i - 1].tensor) {
      ASSERT_GE(chunks[i].first_row, chunks[i - 1].first_row + chunks[i - 1].rows);
    }
    for (const StoredPiece& piece : chunks[i].pieces) {
      ASSERT_LE(piece.offset, kFileSize);
      ASSERT_LE(piece.size, kFileSize - piece.offset);
    }
  }
}

TEST(ShardIndex, ForgedAtRandom) {
  constexpr unsigned kSeed = 20;
  std::mt19937_64 random(kSeed);
  const std::string index = FormatShardIndex(Sample());
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string forged = index;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t position = 8 + random() % (forged.size() - 8 - kDigestBytes);
      forged[position] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    const auto parsed = ParseShardIndex(ResealIndex(forged), kFileSize);
    if (!parsed.ok()) continue;
    ++accepted;
    CheckPromises(*parsed);
    ASSERT_EQ(FormatShardIndex(*parsed), ResealIndex(forged)) << "seed " << kSeed << " round " << round;
  }
  EXPECT_GT(accepted, 1000) << "digests of chunks may be anything";
}

// The first block of FORMAT.md that is marked with `language`.
std::string ExampleInFormatMd(const std::string& language) {
  std::ifstream file(SourceDir() + "/checkpoint/sharded/FORMAT.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string begin = "```" + language + "\n";
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  return text.substr(at + begin.size(), text.find("```\n", at + begin.size()) - at - begin.size());
}

// "00000010: 48 46 ... 0a  HF....": offset, bytes, two spaces, the same as text.
std::string ParseHexDump(const std::string& dump) {
  std::string bytes;
  std::istringstream lines(dump);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::stoul(line, nullptr, 16), bytes.size());
    std::istringstream digits(line.substr(10, line.find("  ") - 10));
    for (std::string byte; digits >> byte;) bytes.push_back(static_cast<char>(std::stoul(byte, nullptr, 16)));
  }
  return bytes;
}

TEST(FormatMd, IndexExample) {
  StoredChunk chunk{.tensor = 1, .first_row = 2, .rows = 3, .padding_rows = 1, .digest = 0x0123456789abcdef};
  chunk.pieces = {{.offset = 4096, .size = 64, .compressed = false},
                  {.offset = 4160, .size = 40, .compressed = true},
                  {.offset = 4200, .size = 64, .compressed = false}};
  const std::string example = ParseHexDump(ExampleInFormatMd("hex"));
  const auto parsed = ParseShardIndex(example, 4264);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, std::vector<StoredChunk>{chunk});
  EXPECT_EQ(FormatShardIndex({chunk}), example);
}

TEST(FormatMd, ManifestExample) {
  const std::string example = ExampleInFormatMd("json");
  const auto manifest = ParseManifest(example);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->name.ToString(), "step-0000001000-g7");
  EXPECT_EQ(manifest->tensors[1].shape, (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(FormatManifest(*manifest), example);
  const std::string index = ParseHexDump(ExampleInFormatMd("hex"));
  EXPECT_EQ(manifest->shards[0].index.digest, DigestFile(index)) << "the two examples belong together";
  EXPECT_EQ(manifest->shards[0].index.size, index.size());
}

}  // namespace
}  // namespace holdfast
