#include "checkpoint/admin/checkpoint_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "framework/base/counted.h"
#include "framework/base/format_bytes.h"
#include "framework/config/printable.h"
#include "framework/metrics/progress.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxCellBytes = 40;

std::string LocalTime(double seconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixSeconds(static_cast<int64_t>(seconds)),
                          absl::LocalTimeZone());
}

std::string Age(double time, double now) { return now < time ? "now" : FormatDuration(now - time) + " ago"; }

std::string LossText(const Manifest& manifest) {
  return manifest.validation_loss.has_value() ? absl::StrFormat("%.4f", *manifest.validation_loss) : "-";
}

std::string Row(const std::string& step, const std::string& generation, const std::string& size,
                const std::string& written, const std::string& workers, const std::string& sharding,
                const std::string& loss, const std::string& state) {
  return absl::StrFormat("%10s %10s  %10s  %-36s %7s  %-13s %10s  %s\n", step, generation, size, written, workers,
                         sharding, loss, state);
}

std::string ValidRow(const CatalogEntry& entry, double now) {
  const Manifest& m = entry.manifest;
  return Row(absl::StrCat(m.name.step), absl::StrCat(m.name.generation), FormatBytes(static_cast<double>(entry.bytes)),
             absl::StrCat(LocalTime(m.time), ", ", Age(m.time, now)), absl::StrCat(m.world_size),
             Printable(m.sharding, kMaxCellBytes), LossText(m), "complete");
}

std::string RejectedRow(const RejectedCheckpoint& rejected, const std::optional<CheckpointName>& name) {
  const std::string step = name.has_value() ? absl::StrCat(name->step) : Printable(rejected.name, kMaxCellBytes);
  const std::string generation = name.has_value() ? absl::StrCat(name->generation) : "-";
  return Row(step, generation, "-", "-", "-", "-", "-",
             rejected.unfinished || rejected.given_up ? rejected.reason : "DAMAGED: " + rejected.reason);
}

std::string Line(const std::string& label, const std::string& value) {
  return absl::StrFormat("%-12s%s\n", label, value);
}

}  // namespace

std::string CatalogText(const Catalog& catalog, double now) {
  std::vector<std::pair<std::optional<CheckpointName>, std::string>> rows;
  for (const CatalogEntry& entry : catalog.valid) rows.emplace_back(entry.manifest.name, ValidRow(entry, now));
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    const auto name = CheckpointName::Parse(rejected.name);
    rows.emplace_back(name, RejectedRow(rejected, name));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = Row("step", "generation", "size", "written", "workers", "sharding", "validation", "state");
  for (const auto& [name, row] : rows) text += row;
  if (!catalog.valid.empty()) text += "complete: all files are there; holdfast ckpt verify --all reads their bytes\n";
  return text;
}

std::string CatalogJson(const Catalog& catalog) {
  ordered_json checkpoints = ordered_json::array(), rejected = ordered_json::array();
  for (const CatalogEntry& entry : catalog.valid) {
    const Manifest& m = entry.manifest;
    ordered_json item{{"name", m.name.ToString()}, {"step", m.name.step}, {"generation", m.name.generation}};
    item["bytes"] = entry.bytes;
    item["time"] = m.time;
    item["world_size"] = m.world_size;
    item["sharding"] = m.sharding;
    item["validation_loss"] = nullptr;
    if (m.validation_loss.has_value()) item["validation_loss"] = *m.validation_loss;
    item["state_digest"] = DigestText(m.state_digest);
    checkpoints.push_back(std::move(item));
  }
  for (const RejectedCheckpoint& r : catalog.rejected) {
    rejected.push_back(
        {{"name", r.name}, {"reason", r.reason}, {"unfinished", r.unfinished}, {"given_up", r.given_up}});
  }
  const ordered_json all{{"checkpoints", checkpoints}, {"rejected", rejected}};
  return all.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

std::string SummaryText(const CatalogEntry& entry, const CheckpointReader& reader, const std::string& where,
                        double now) {
  const Manifest& m = entry.manifest;
  uint64_t elements = 0, values = 0, stored = 0, padding = 0, compressed = 0, pieces = 0;
  for (const StoredTensor& tensor : m.tensors) {
    const auto of_tensor = static_cast<uint64_t>(tensor.rows() * tensor.cols());
    elements += of_tensor;
    values += of_tensor * tensor.planes.size();
  }
  for (const auto& shard : reader.chunks()) {
    for (const StoredChunk& chunk : shard) {
      for (const StoredPiece& piece : chunk.pieces) {
        stored += piece.size;
        compressed += piece.compressed ? 1 : 0;
        if (!piece.compressed) padding += piece.size / (chunk.rows + chunk.padding_rows) * chunk.padding_rows;
        ++pieces;
      }
    }
  }
  const auto raw = static_cast<double>(values) * sizeof(float);
  const std::string filled_up = padding == 0 ? ""
                                             : absl::StrCat(", ", FormatBytes(static_cast<double>(padding)),
                                                            " of it zeros that fill up tensors' last chunks");
  std::string text = Line("checkpoint", where);
  text +=
      Line("written", absl::StrCat(LocalTime(m.time), ", ", Age(m.time, now), ", by ", Counted(m.world_size, "worker"),
                                   " (", Printable(m.sharding, kMaxCellBytes), ")"));
  text += Line("step",
               absl::StrCat(m.name.step, ", generation ", m.name.generation, ", after ", Counted(m.samples, "sample")));
  text += Line("validation", m.validation_loss.has_value() ? "loss " + LossText(m) : "none of this step");
  text += Line("digest", DigestText(m.state_digest));
  text += Line("size", absl::StrFormat("%s in %s; values %s stored in %s%s, %d of %d pieces compressed",
                                       FormatBytes(static_cast<double>(entry.bytes)),
                                       Counted(static_cast<int64_t>(m.shards.size()), "shard"), FormatBytes(raw),
                                       FormatBytes(static_cast<double>(stored)), filled_up, compressed, pieces));
  text += Line("parameters",
               absl::StrCat(WithCommas(elements), " in ", Counted(static_cast<int64_t>(m.tensors.size()), "tensor")));
  text += Line("state", absl::StrJoin(PlaneNames(m.tensors), ", "));
  return text;
}

std::string TensorTable(const Manifest& manifest) {
  size_t width = 0;
  for (const StoredTensor& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  std::string text;
  for (const StoredTensor& tensor : manifest.tensors) {
    absl::StrAppendFormat(&text, "  %-*s  %-20s %15s\n", static_cast<int>(width), tensor.name, ShapeText(tensor.shape),
                          WithCommas(static_cast<uint64_t>(tensor.rows() * tensor.cols())));
  }
  return text;
}

std::string DigestText(uint64_t state_digest) { return absl::StrFormat("%016x", state_digest); }

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::string WithCommas(uint64_t count) {
  std::string text = absl::StrCat(count);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

}  // namespace holdfast
