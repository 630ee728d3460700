#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/safetensors_json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxQuotedBytes = 160;
constexpr int64_t kMaxElements = int64_t{1} << 62;
constexpr absl::string_view kMetadata = "__metadata__";

struct DTypeInfo {
  absl::string_view name;
  FileDType dtype;
  int bits;
};

// https://github.com/huggingface/safetensors, "Format"; a dtype that is not here is accepted without a check of its
// size and cannot be read.
constexpr std::array<DTypeInfo, 17> kDTypes = {{{"F32", FileDType::kF32, 32},
                                                {"F16", FileDType::kF16, 16},
                                                {"BF16", FileDType::kBF16, 16},
                                                {"F64", FileDType::kOther, 64},
                                                {"I64", FileDType::kOther, 64},
                                                {"U64", FileDType::kOther, 64},
                                                {"C64", FileDType::kOther, 64},
                                                {"I32", FileDType::kOther, 32},
                                                {"U32", FileDType::kOther, 32},
                                                {"I16", FileDType::kOther, 16},
                                                {"U16", FileDType::kOther, 16},
                                                {"I8", FileDType::kOther, 8},
                                                {"U8", FileDType::kOther, 8},
                                                {"BOOL", FileDType::kOther, 8},
                                                {"F8_E4M3", FileDType::kOther, 8},
                                                {"F8_E5M2", FileDType::kOther, 8},
                                                {"F4", FileDType::kOther, 4}}};

const DTypeInfo* FindDType(absl::string_view name) {
  const auto* it = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& d) { return d.name == name; });
  return it == kDTypes.end() ? nullptr : it;
}

absl::string_view NameOf(FileDType dtype) {
  return std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& d) { return d.dtype == dtype; })->name;
}

absl::Status CheckSize(SafetensorsEntry& entry) {
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(entry.shape));
  const DTypeInfo* info = FindDType(entry.dtype_name);
  entry.dtype = info == nullptr ? FileDType::kOther : info->dtype;
  if (entry.end < entry.begin) return absl::InvalidArgumentError("its data ends before it begins");
  if (info == nullptr) return absl::OkStatus();
  const auto bits = static_cast<__uint128_t>(elements) * static_cast<unsigned>(info->bits);
  if (bits != static_cast<__uint128_t>(entry.end - entry.begin) * 8) {
    return absl::InvalidArgumentError(absl::StrCat(entry.end - entry.begin, " bytes of data for ", entry.dtype_name,
                                                   " [", absl::StrJoin(entry.shape, ", "), "]"));
  }
  return absl::OkStatus();
}

// In order of position every tensor must begin where the one before it ended.
absl::Status CheckCoverage(const std::map<std::string, SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  order.reserve(entries.size());
  for (const auto& [name, entry] : entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->begin, a.second->end, *a.first) < std::tie(b.second->begin, b.second->end, *b.first);
  });
  uint64_t end = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != end) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(*name), " begins at byte ", entry->begin,
                                                     entry->begin < end ? ", inside the tensor before it" : "",
                                                     "; expected ", end));
    }
    end = entry->end;
    if (end > data_bytes) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(*name), " ends at byte ", end, " but only ", data_bytes,
                                              " bytes of data are there: the file is truncated"));
    }
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(data_bytes - end, " bytes of data belong to no tensor"));
}

}  // namespace

absl::StatusOr<int64_t> CheckedElements(absl::Span<const int64_t> shape) {
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; })) {
    return absl::InvalidArgumentError(absl::StrCat("negative dimension in [", absl::StrJoin(shape, ", "), "]"));
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (elements > kMaxElements / dim) {
      return absl::InvalidArgumentError(absl::StrCat("too many elements: [", absl::StrJoin(shape, ", "), "]"));
    }
    elements *= dim;
  }
  return elements;
}

std::string Quoted(absl::string_view name) {
  const bool cut = name.size() > kMaxQuotedBytes;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(name.substr(0, kMaxQuotedBytes)), cut ? "...\"" : "\"");
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, uint64_t data_bytes) {
  ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsJson(json));
  for (auto& [name, entry] : header.entries) {
    RETURN_IF_ERROR(Annotate(CheckSize(entry), absl::StrCat("tensor ", Quoted(name))));
  }
  RETURN_IF_ERROR(CheckCoverage(header.entries, data_bytes));
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(const std::vector<SafetensorsWriter::Entry>& entries,
                                                    const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> items;
  if (!metadata.empty()) {
    ASSIGN_OR_RETURN(std::string text, FormatStringMap(metadata));
    items.push_back(absl::StrCat("\"", kMetadata, "\":", text));
  }
  std::set<absl::string_view> names;
  uint64_t end = 0;
  for (const SafetensorsWriter::Entry& entry : entries) {
    if (entry.dtype == FileDType::kOther || entry.name == kMetadata || !names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(entry.name), ": name used twice or reserved, or ", "a dtype that cannot be written"));
    }
    auto elements = CheckedElements(entry.shape);
    if (!elements.ok()) return Annotate(elements.status(), absl::StrCat("tensor ", Quoted(entry.name)));
    const uint64_t begin = end;
    const uint64_t bytes = static_cast<uint64_t>(*elements) * (entry.dtype == FileDType::kF32 ? 4 : 2);
    end += bytes;
    if (bytes > uint64_t{kMaxElements} || end > uint64_t{kMaxElements}) return absl::InvalidArgumentError("too large");
    ASSIGN_OR_RETURN(const std::string name, FormatString(entry.name));
    items.push_back(absl::StrCat(name, ":{\"dtype\":\"", NameOf(entry.dtype), "\",\"shape\":[",
                                 absl::StrJoin(entry.shape, ","), "],\"data_offsets\":[", begin, ",", end, "]}"));
  }
  std::string json = absl::StrCat("{", absl::StrJoin(items, ","), "}");
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes) return absl::InvalidArgumentError("the header is longer than 100 MB");
  std::string result(8, '\0');
  for (size_t i = 0; i < 8; ++i) result[i] = static_cast<char>(uint64_t{json.size()} >> (8 * i) & 0xff);
  return result + json;
}

}  // namespace holdfast
