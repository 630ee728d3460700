#include "tests/checkpoint/sharded/flat_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

StoredFile FileOf(const std::string& name, const std::string& contents) {
  return {.name = name, .size = contents.size(), .digest = DigestFile(contents)};
}

// Appends one piece of a chunk to the shard's file and says where it is.
StoredPiece AppendPiece(absl::Span<const std::byte> values, bool compress, std::string* file) {
  PieceEncoder encoder(1);
  const absl::Span<const std::byte> small = compress ? encoder.Compress(values) : absl::Span<const std::byte>();
  const absl::Span<const std::byte> stored = small.empty() ? values : small;
  const StoredPiece piece{.offset = file->size(), .size = stored.size(), .compressed = !small.empty()};
  file->append(reinterpret_cast<const char*>(stored.data()), stored.size());
  return piece;
}

}  // namespace

float TestValue(int tensor, int kind, int64_t element) {
  if (kind == 2 && element % 7 != 0) return 0;
  const uint64_t mixed = (static_cast<uint64_t>(element) * 3 + static_cast<uint64_t>(tensor)) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(kind + 1) * (static_cast<float>(mixed >> 52) / 1024.0f - 1.5f);
}

std::vector<std::byte> TestBytes(const std::vector<StoredTensor>& tensors, const WantedRows& rows) {
  const int64_t cols = tensors[static_cast<size_t>(rows.tensor)].cols();
  std::vector<float> values;
  for (int kind = 0; kind < kStateKinds; ++kind) {
    for (int64_t e = rows.first_row * cols; e < (rows.first_row + rows.rows) * cols; ++e) {
      values.push_back(TestValue(rows.tensor, kind, e));
    }
  }
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<StoredTensor> RandomTensors(std::mt19937_64& random, int count, int64_t elements) {
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < count; ++i) {
    const int64_t size = Uniform(random, 1, elements);
    const int64_t cols = Uniform(random, 1, 1 + size / 2);
    const int64_t rows = std::max<int64_t>(1, size / cols);
    std::vector<int64_t> shape;
    switch (Uniform(random, 0, 5)) {
      case 0:
        shape = {size};
        break;
      case 1:
        shape = {1, size};
        break;
      case 2:
        shape = {size, 1};
        break;
      case 3:
        shape = {2, std::max<int64_t>(1, rows / 2), cols};
        break;
      default:
        shape = {rows, cols};
    }
    tensors.push_back({.name = absl::StrCat("blocks.", i, ".weight"), .shape = std::move(shape)});
  }
  return tensors;
}

ParameterLayout LayoutOf(const std::vector<StoredTensor>& tensors) {
  std::vector<ParameterSpec> specs;
  for (const StoredTensor& tensor : tensors) specs.push_back({.name = tensor.name, .shape = Shape(tensor.shape)});
  return {std::move(specs), {"unit"}};
}

std::vector<WantedRows> RandomGrid(std::mt19937_64& random, const std::vector<StoredTensor>& tensors,
                                   int64_t max_rows) {
  std::vector<WantedRows> grid;
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (int64_t row = 0; row < tensors[t].rows();) {
      const int64_t rows = std::min(Uniform(random, 1, max_rows), tensors[t].rows() - row);
      grid.push_back(
          {.id = static_cast<int>(grid.size()), .tensor = static_cast<int>(t), .first_row = row, .rows = rows});
      row += rows;
    }
  }
  return grid;
}

std::vector<WantedRows> GridOf(const ParameterLayout& layout) {
  std::vector<WantedRows> grid;
  for (const Chunk& chunk : layout.chunks()) {
    grid.push_back({.id = static_cast<int>(grid.size()),
                    .tensor = chunk.parameter,
                    .first_row = chunk.first_row,
                    .rows = chunk.num_rows});
  }
  return grid;
}

FlatCheckpoint FlatCheckpoint::Make(const CheckpointName& name, const std::vector<StoredTensor>& tensors,
                                    const std::vector<WantedRows>& grid, const FlatOptions& options) {
  std::mt19937_64 random(options.seed);
  FlatCheckpoint checkpoint;
  Manifest& m = checkpoint.manifest;
  m.name = name;
  m.config = "model: {}\n";
  m.config_digest = 7;
  m.samples = name.step * 8;
  m.world_size = options.shards;
  m.sharding = "full_shard";
  m.time = 1.7e9;
  m.tensors = tensors;
  const auto shards = static_cast<size_t>(options.shards);
  checkpoint.chunks.resize(shards);
  checkpoint.data.resize(shards, "file head");
  for (size_t i = 0; i < grid.size(); ++i) {
    const size_t shard = options.shuffled ? random() % shards : i * shards / grid.size();
    const std::vector<std::byte> bytes = TestBytes(tensors, grid[i]);
    StoredChunk chunk{.tensor = grid[i].tensor,
                      .first_row = grid[i].first_row,
                      .rows = grid[i].rows,
                      .pieces = StoredPieces(kStateKinds)};
    chunk.digest = DigestBytes(bytes);
    checkpoint.chunks[shard].push_back(chunk);
  }
  for (size_t s = 0; s < shards; ++s) {
    std::string& file = checkpoint.data[s];
    std::vector<std::pair<size_t, size_t>> pieces;
    for (size_t c = 0; c < checkpoint.chunks[s].size(); ++c) {
      if (options.scattered) checkpoint.chunks[s][c].padding_rows = Uniform(random, 0, 2);
      for (size_t k = 0; k < kStateKinds; ++k) pieces.emplace_back(c, k);
    }
    if (options.scattered) std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& [c, k] : pieces) {
      StoredChunk& chunk = checkpoint.chunks[s][c];
      const std::vector<std::byte> bytes =
          TestBytes(tensors, {.tensor = chunk.tensor, .first_row = chunk.first_row, .rows = chunk.rows});
      const size_t size = bytes.size() / kStateKinds;
      std::vector<std::byte> values(bytes.begin() + static_cast<ptrdiff_t>(k * size),
                                    bytes.begin() + static_cast<ptrdiff_t>((k + 1) * size));
      values.resize(static_cast<size_t>(PieceBytes(tensors[static_cast<size_t>(chunk.tensor)], chunk)));
      if (options.scattered) file.append(random() % 100, 'g');
      chunk.pieces[k] = AppendPiece(values, options.compressed && (c + k) % 2 == 0, &file);
    }
    file.append("end");
  }
  m.state_digest = StateDigestOf(checkpoint.chunks, OrderByRow(checkpoint.chunks));
  return checkpoint;
}

absl::Status FlatCheckpoint::Store(Storage& storage) {
  const std::string model = "model for people";
  if (!keep_digests) manifest.shards.clear();
  for (size_t s = 0; s < data.size(); ++s) {
    const std::string stem = absl::StrCat("shard-", s, "-of-", data.size());
    const std::string index = FormatShardIndex(chunks[s]);
    if (!keep_digests) {
      manifest.shards.push_back({.data = FileOf(stem + ".h5", data[s]),
                                 .index = FileOf(stem + ".index", index),
                                 .chunks = static_cast<int64_t>(chunks[s].size())});
    }
    RETURN_IF_ERROR(storage.Create(ObjectName(manifest.name, stem + ".h5"), data[s]));
    RETURN_IF_ERROR(storage.Create(ObjectName(manifest.name, stem + ".index"), index));
  }
  manifest.model = FileOf(kModelName, model);
  RETURN_IF_ERROR(storage.Create(ObjectName(manifest.name, kModelName), model));
  return storage.Create(ObjectName(manifest.name, kManifestName), FormatManifest(manifest));
}

void ReplaceObject(Storage& storage, const std::string& name, const std::string& contents) {
  ASSERT_TRUE(storage.Delete(name).ok());
  const absl::Status created = storage.Create(name, contents);
  ASSERT_TRUE(created.ok()) << created;
}

std::string ObjectText(Storage& storage, const std::string& name) {
  const absl::StatusOr<std::string> text = ReadObject(storage, name, 1 << 30);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

}  // namespace holdfast
