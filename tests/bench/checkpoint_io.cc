// Times what a checkpoint costs outside of training: writing the state of a source checkpoint again, from memory, and
// loading it into memory. One JSON object per call; tests/bench/checkpoint_bench.py runs it beside dd and PyTorch.
//
//   checkpoint_io save SOURCE OUT none|zstd WORKERS THREADS   durable and committed, every byte read back and compared
//   checkpoint_io load DIR WORKERS THREADS                    each worker its share of the chunks
//   checkpoint_io dump DIR FILE                               every tensor's weight and moments as raw fp32, in order
//
// Workers are threads here, each with a writer or a reader of its own.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/commit.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/shard_writer.h"
#include "framework/base/status.h"
#include "framework/storage/local_storage.h"
#include "tests/framework/tensor/copy_of.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

/// A checkpoint whose chunks lie in memory, in canonical order, 12 bytes an element.
struct Source {
  std::unique_ptr<Storage> storage;
  std::unique_ptr<CheckpointReader> reader;
  std::unique_ptr<ParameterLayout> layout;
  std::unique_ptr<StateLayout> planes;  // AdamW's
  std::vector<std::byte> state;
  std::vector<uint64_t> digests;

  size_t Bytes(int chunk) const { return static_cast<size_t>(layout->chunks()[chunk].elements) * 12; }
  size_t Offset(int chunk) const { return static_cast<size_t>(layout->chunks()[chunk].offset) * 12; }
};

absl::Status Open(const std::string& directory, Source& source) {
  ASSIGN_OR_RETURN(source.storage, OpenLocalStorage(directory, {.read_only = true}));
  ASSIGN_OR_RETURN(const Catalog catalog, ScanCheckpoints(*source.storage));
  if (catalog.valid.empty()) return absl::NotFoundError(directory + ": no valid checkpoint");
  ASSIGN_OR_RETURN(source.reader, CheckpointReader::Open(*source.storage, catalog.valid.front().manifest.name));
  std::vector<ParameterSpec> parameters;
  for (const StoredTensor& tensor : source.reader->manifest().tensors) {
    parameters.push_back({.name = tensor.name, .shape = Shape(absl::MakeConstSpan(tensor.shape))});
  }
  source.layout = std::make_unique<ParameterLayout>(std::move(parameters), std::vector<std::string>{"all"});
  source.planes = std::make_unique<StateLayout>(
      *source.layout,
      std::vector<std::vector<Plane>>(source.layout->parameters().size(), {{"weight"}, {"exp_avg"}, {"exp_avg_sq"}}));
  source.state.resize(static_cast<size_t>(source.layout->elements()) * 12);
  return absl::OkStatus();
}

/// Contiguous chunks of `worker`, about equal in bytes.
std::vector<int> Share(const ParameterLayout& layout, int worker, int workers) {
  std::vector<int> share;
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
    if (layout.chunks()[c].offset * workers / layout.elements() == worker) share.push_back(c);
  }
  return share;
}

absl::Status Read(Source& source, const std::vector<int>& wanted, int threads) {
  return source.reader->ReadChunks(*source.layout, wanted, {.threads = threads},
                                   [&](int chunk, absl::Span<const std::byte> bytes) {
                                     std::memcpy(&source.state[source.Offset(chunk)], bytes.data(), bytes.size());
                                     return absl::OkStatus();
                                   });
}

/// All workers at once; the first error.
absl::Status Together(int workers, const std::function<absl::Status(int)>& work) {
  std::vector<absl::Status> results(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) threads.emplace_back([&, w] { results[w] = work(w); });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Save(const std::vector<std::string>& arguments) {
  Source source;
  RETURN_IF_ERROR(Open(arguments[0], source));
  std::vector<int> all(source.layout->chunks().size());
  std::iota(all.begin(), all.end(), 0);
  RETURN_IF_ERROR(Read(source, all, 2));
  for (const int c : all) {
    source.digests.push_back(DigestBytes(absl::MakeSpan(source.state).subspan(source.Offset(c), source.Bytes(c))));
  }
  const int workers = std::atoi(arguments[3].c_str());
  ASSIGN_OR_RETURN(const auto storage, OpenLocalStorage(arguments[1]));
  ASSIGN_OR_RETURN(const auto fence, Fence::Claim(*storage, "checkpoint_io"));
  Manifest manifest = source.reader->manifest();
  manifest.world_size = workers;
  manifest.shards.resize(workers);
  std::vector<ShardReport> reports(workers);

  const auto write = [&](int w) -> absl::Status {
    ShardWriterOptions options{.checkpoint = manifest.name, .shard = w, .num_shards = workers};
    options.compression = arguments[2] == "zstd" ? Compression::kZstd : Compression::kNone;
    options.threads = std::atoi(arguments[4].c_str());
    const std::vector<int> share = Share(*source.layout, w, workers);
    ASSIGN_OR_RETURN(const auto writer, ShardWriter::Create(*storage, options, *source.planes, share));
    for (const int c : share) {
      const auto bytes = absl::MakeConstSpan(source.state).subspan(source.Offset(c), source.Bytes(c));
      RETURN_IF_ERROR(writer->Add({.chunk = c, .bytes = CopyOf(bytes), .digest = source.digests[c]}));
    }
    ASSIGN_OR_RETURN(reports[w], writer->Commit());
    manifest.shards[w] = reports[w].shard;
    return absl::OkStatus();
  };
  const auto start = Clock::now();
  RETURN_IF_ERROR(Together(workers, write));
  const double shards_seconds = Seconds(start);
  RETURN_IF_ERROR(CommitCheckpoint(*storage, *fence, manifest).status());
  const double seconds = Seconds(start);
  ShardReport sum;
  for (const ShardReport& r : reports) {
    sum.raw_bytes += r.raw_bytes;
    sum.stored_bytes += r.stored_bytes;
    sum.compress_seconds += r.compress_seconds;
    sum.write_seconds += r.write_seconds;
    sum.sync_seconds += r.sync_seconds;
    sum.verify_seconds += r.verify_seconds;
  }
  std::printf(
      "{\"seconds\": %.6f, \"shards_seconds\": %.6f, \"raw_bytes\": %lld, \"stored_bytes\": %lld, "
      "\"compress_seconds\": "
      "%.6f, \"write_seconds\": %.6f, \"sync_seconds\": %.6f, \"verify_seconds\": %.6f}\n",
      seconds, shards_seconds, static_cast<long long>(sum.raw_bytes), static_cast<long long>(sum.stored_bytes),
      sum.compress_seconds, sum.write_seconds, sum.sync_seconds, sum.verify_seconds);
  return absl::OkStatus();
}

absl::Status Load(const std::vector<std::string>& arguments) {
  const int workers = std::atoi(arguments[1].c_str()), threads = std::atoi(arguments[2].c_str());
  Source source;
  RETURN_IF_ERROR(Open(arguments[0], source));
  std::memset(source.state.data(), 1, source.state.size());  // the memory of a trainer is there already
  const auto read = [&](int w) -> absl::Status {
    Source mine;
    ASSIGN_OR_RETURN(mine.storage, OpenLocalStorage(arguments[0], {.read_only = true}));
    ASSIGN_OR_RETURN(mine.reader, CheckpointReader::Open(*mine.storage, source.reader->manifest().name));
    const auto place = [&](int chunk) -> ChunkPlaces {
      const auto all = absl::MakeSpan(source.state).subspan(source.Offset(chunk), source.Bytes(chunk));
      const size_t kind = all.size() / 3;
      return {all.first(kind), all.subspan(kind, kind), all.last(kind)};
    };
    return mine.reader->ReadChunks(*source.layout, Share(*source.layout, w, workers),
                                   {.threads = threads, .place = place},
                                   [&](int chunk, absl::Span<const std::byte> bytes) {
                                     std::copy(bytes.begin(), bytes.end(), &source.state[source.Offset(chunk)]);
                                     return absl::OkStatus();
                                   });
  };
  const auto start = Clock::now();
  RETURN_IF_ERROR(Together(workers, read));
  std::printf("{\"seconds\": %.6f, \"raw_bytes\": %zu}\n", Seconds(start), source.state.size());
  return absl::OkStatus();
}

absl::Status Dump(const std::vector<std::string>& arguments) {
  Source source;
  RETURN_IF_ERROR(Open(arguments[0], source));
  std::FILE* file = std::fopen(arguments[1].c_str(), "wb");
  if (file == nullptr) return ErrnoToStatus(errno, arguments[1]);
  std::string shapes;
  for (size_t i = 0; i < source.layout->parameters().size(); ++i) {
    const ParameterSpec& p = source.layout->parameters()[i];
    absl::StrAppend(&shapes, i == 0 ? "" : ", ", "[\"", p.name, "\", ", p.shape.ToString(), "]");
    std::vector<float> values(static_cast<size_t>(p.shape.elements()));
    for (int plane = 0; plane < 3; ++plane) {
      RETURN_IF_ERROR(source.reader->ReadRows(static_cast<int>(i), plane, 0, absl::MakeSpan(values)));
      std::fwrite(values.data(), sizeof(float), values.size(), file);
    }
  }
  if (std::fclose(file) != 0) return ErrnoToStatus(errno, arguments[1]);
  std::printf("{\"tensors\": [%s]}\n", shapes.c_str());
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& arguments) {
  struct Action {
    const char* name;
    size_t arguments;
    absl::Status (*run)(const std::vector<std::string>&);
  };
  for (const Action& action : {Action{"save", 5, Save}, Action{"load", 3, Load}, Action{"dump", 2, Dump}}) {
    if (arguments.empty() || arguments[0] != action.name || arguments.size() != action.arguments + 1) continue;
    const absl::Status status = action.run({arguments.begin() + 1, arguments.end()});
    if (status.ok()) return 0;
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::fprintf(stderr, "usage: checkpoint_io save|load|dump ...; see the head of tests/bench/checkpoint_io.cc\n");
  return 2;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main({argv + 1, argv + argc}); }
