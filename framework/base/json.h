#pragma once
// JSON, read in one way by all rooms. nlohmann's parser takes a zero byte for the end of the text, and what it has made
// of deep nesting is copied and printed by recursion: both are refused before it is called. Nothing here throws.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

inline constexpr int kJsonDepthMax = 64;

/// InvalidArgument, and what is wrong: a byte that is zero, arrays and objects that nest deeper than `depth_max`, half
/// of a surrogate pair, what is not UTF-8, a number beyond double, or what else is no JSON. Of two equal keys the last
/// one is kept. `look` may be empty; it is told of every event (nlohmann's parser_callback_t), and returns whether what
/// it is told of is kept: what is not takes no memory.
/// Json: nlohmann::json or nlohmann::ordered_json.
template <typename Json = nlohmann::json>
absl::StatusOr<Json> ParseJson(std::string_view text, int depth_max = kJsonDepthMax,
                               const typename Json::parser_callback_t& look = nullptr);

/// For whoever parses event by event (nlohmann::json::sax_parse): what ParseJson refuses before it parses, and what it
/// says of the parser's error, for parse_error.
absl::Status CheckBeforeParsing(std::string_view json, int depth_max = kJsonDepthMax);
absl::Status JsonError(size_t position, const nlohmann::json::exception& error);

/// "a list", "an object": what a value is, for messages to whoever has written it.
const char* JsonKind(nlohmann::json::value_t type);

}  // namespace holdfast
