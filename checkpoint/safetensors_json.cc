#include "checkpoint/safetensors_json.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDimensions = 64;

// What all our grammars share: events that no grammar accepts, and the first error.
class SaxHandler : public nlohmann::json_sax<Json> {
 public:
  absl::Status status;

  bool null() override { return Refuse("null"); }
  bool boolean(bool) override { return Refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return Refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Refuse("a number that is not an integer"); }
  bool binary(binary_t&) override { return Refuse("binary data"); }
  bool number_unsigned(number_unsigned_t) override { return Refuse("a number"); }
  bool string(string_t&) override { return Refuse("a string"); }
  bool start_array(size_t) override { return Refuse("an array"); }
  bool end_array() override { return Refuse("the end of an array"); }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(JsonError(position, error).message());
  }

 protected:
  bool Fail(absl::string_view message) {
    if (status.ok()) status = absl::InvalidArgumentError(absl::StrCat("header: ", message));
    return false;
  }
  virtual std::string Where() const = 0;
  bool Refuse(const char* what) { return Fail(absl::StrCat(Where(), what, " is not expected here")); }
};

// { "__metadata__": {string: string}, NAME: {"dtype": string, "shape": [n], "data_offsets": [n, n]} }
class HeaderHandler final : public SaxHandler {
 public:
  SafetensorsHeader header;

  bool start_object(size_t) override {
    if (depth_ == 2) return Refuse("an object");
    ++depth_;
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) return BeginEntry(key);
    if (in_metadata_) {
      field_ = key;
      if (header.metadata.contains(key)) return Fail(absl::StrCat("metadata ", Quoted(key), " twice"));
      return true;
    }
    const unsigned bit = key == "dtype" ? 1u : key == "shape" ? 2u : key == "data_offsets" ? 4u : 0u;
    if (bit == 0) return Fail(absl::StrCat(Where(), "unknown field ", Quoted(key)));
    if ((seen_ & bit) != 0) return Fail(absl::StrCat(Where(), "field ", Quoted(key), " twice"));
    seen_ |= bit;
    field_ = key;
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[field_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") return Refuse("a string");
    entry_->dtype_name = std::move(value);
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || field_ == "dtype") return Refuse("an array");
    in_array_ = true;
    offsets_ = 0;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return Refuse("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Refuse("a number beyond 2^63");
    if (field_ == "shape") {
      entry_->shape.push_back(static_cast<int64_t>(value));
      return entry_->shape.size() <= kMaxDimensions || Fail(absl::StrCat(Where(), "too many dimensions"));
    }
    (offsets_ == 0 ? entry_->begin : entry_->end) = value;
    return ++offsets_ <= 2 || Fail(absl::StrCat(Where(), "more than two data_offsets"));
  }

  bool end_array() override {
    in_array_ = false;
    if (field_ == "data_offsets" && offsets_ != 2) return Fail(absl::StrCat(Where(), "two data_offsets are expected"));
    return true;
  }

  bool end_object() override {
    if (depth_-- == 1) return true;
    if (!in_metadata_ && seen_ != 7) return Fail(absl::StrCat(Where(), "needs dtype, shape and data_offsets"));
    in_metadata_ = named_ = false;
    name_.clear();
    return true;
  }

 private:
  bool BeginEntry(string_t& key) {
    name_ = std::move(key);
    named_ = true;
    seen_ = 0;
    in_metadata_ = name_ == "__metadata__";
    if (in_metadata_) return !std::exchange(metadata_seen_, true) || Fail("__metadata__ twice");
    const auto [it, inserted] = header.entries.try_emplace(name_);
    entry_ = &it->second;
    return inserted || Fail(absl::StrCat("tensor ", Quoted(name_), " twice"));
  }

  std::string Where() const override { return named_ ? absl::StrCat("tensor ", Quoted(name_), ": ") : ""; }

  int depth_ = 0;
  bool named_ = false, in_metadata_ = false, metadata_seen_ = false, in_array_ = false;
  unsigned seen_ = 0;  // fields of this entry
  int offsets_ = 0;
  std::string name_, field_;
  SafetensorsEntry* entry_ = nullptr;
};

// { "metadata": anything flat, "weight_map": {string: string}, ... }; what is not the weight map is skipped.
class WeightMapHandler final : public SaxHandler {
 public:
  std::map<std::string, std::string> files;

  bool null() override { return Skip("null"); }
  bool boolean(bool) override { return Skip("a boolean"); }
  bool number_integer(number_integer_t) override { return Skip("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Skip("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Skip("a number"); }
  bool start_object(size_t) override { return Open("an object"); }
  bool start_array(size_t) override { return depth_ > 0 && !in_map_ ? Open("an array") : Refuse("an array"); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      return !in_map_ || !std::exchange(map_seen_, true) || Fail("weight_map twice");
    }
    if (!in_map_) return true;
    name_ = key;
    return !files.contains(key) || Fail(absl::StrCat("tensor ", Quoted(key), " twice"));
  }

  bool string(string_t& value) override {
    if (in_map_ && depth_ == 2) files[name_] = std::move(value);
    return (!in_map_ || depth_ == 2) || Refuse("a string");
  }

  bool has_map() const { return map_seen_; }

 private:
  static constexpr int kMaxDepth = 32;

  bool Skip(const char* what) { return in_map_ || depth_ == 0 ? Refuse(what) : true; }
  bool Open(const char* what) {
    if (depth_ == kMaxDepth || (in_map_ && depth_ >= 2)) return Refuse(what);
    ++depth_;
    return true;
  }
  bool Close() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }
  std::string Where() const override { return in_map_ ? "weight_map: " : ""; }

  int depth_ = 0;
  bool in_map_ = false, map_seen_ = false;
  std::string name_;
};

absl::Status RunSax(absl::string_view json, SaxHandler& handler) {
  if (!absl::StartsWith(json, "{")) return absl::InvalidArgumentError("header: does not begin with \"{\"");
  RETURN_IF_ERROR(Annotate(CheckBeforeParsing({json.data(), json.size()}), "header"));
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &handler);
  RETURN_IF_ERROR(handler.status);
  HOLDFAST_CHECK(parsed);  // whoever stops the parser says why
  return absl::OkStatus();
}

absl::StatusOr<std::string> Dump(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("a name or a metadata string is not UTF-8");
  }
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsJson(absl::string_view json) {
  HeaderHandler handler;
  RETURN_IF_ERROR(RunSax(json, handler));
  return std::move(handler.header);
}

absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(absl::string_view json) {
  WeightMapHandler handler;
  RETURN_IF_ERROR(RunSax(json, handler));
  if (!handler.has_map()) return absl::InvalidArgumentError("header: no \"weight_map\"");
  return std::move(handler.files);
}

absl::StatusOr<std::string> FormatString(const std::string& text) { return Dump(Json(text)); }

absl::StatusOr<std::string> FormatWeightIndex(const std::map<std::string, std::string>& weight_map,
                                              uint64_t total_bytes) {
  return Dump(Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}});
}

absl::StatusOr<std::string> FormatStringMap(const std::map<std::string, std::string>& map) { return Dump(Json(map)); }

}  // namespace holdfast
