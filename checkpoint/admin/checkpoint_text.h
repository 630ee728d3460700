#pragma once
// What `holdfast ckpt` says about checkpoints, for people and for programs. Pure.

#include <cstdint>
#include <string>

#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"

namespace holdfast {

/// A table, newest first, those that cannot be used among the others with the reason; `now`: seconds since the epoch.
std::string CatalogText(const Catalog& catalog, double now);
/// One JSON object: {"checkpoints": [{name, step, generation, bytes, time, world_size, sharding, validation_loss,
/// state_digest}], "rejected": [{name, reason, unfinished, given_up}]}, both newest first.
std::string CatalogJson(const Catalog& catalog);

/// The lines about the checkpoint as a whole, and a table of its tensors.
std::string SummaryText(const CatalogEntry& entry, const CheckpointReader& reader, const std::string& where,
                        double now);
std::string TensorTable(const Manifest& manifest);

/// 16 hexadecimal digits, as in metrics.jsonl.
std::string DigestText(uint64_t state_digest);
/// "[768, 3072]".
std::string ShapeText(const std::vector<int64_t>& shape);
/// "1234567" -> "1,234,567".
std::string WithCommas(uint64_t count);

}  // namespace holdfast
