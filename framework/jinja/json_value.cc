#include "framework/jinja/json_value.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast::jinja {
namespace {

using Json = nlohmann::json;

// Builds values event by event, because a document of the library would keep the last of two keys.
class ValueBuilder final : public nlohmann::json_sax<Json> {
 public:
  ValueBuilder(LargeNumbers large, absl::Span<const absl::string_view> members) : large_(large), members_(members) {}

  absl::Status status;
  Value root;

  bool null() override { return Put(Value()); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return PutLarge(static_cast<double>(value), absl::StrCat(value));
    }
    return Put(Value(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return text.find_first_of(".eE") == string_t::npos ? PutLarge(value, text) : Put(value);
  }
  bool string(string_t& value) override { return Put(Value(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (open_.back().dict.FindName(name) != nullptr) return Fail(absl::StrCat("the key ", Json(name).dump(), " twice"));
    if (open_.size() == 1) is_left_out_ = !members_.empty() && !absl::c_linear_search(members_, name);
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    if (status.ok()) status = JsonError(position, error);
    return false;
  }

 private:
  struct Container {
    bool is_object = false;
    Items items = {};
    Dict dict = {};
    std::string key = {};
  };

  bool Fail(const std::string& message) {
    if (status.ok()) status = absl::InvalidArgumentError(message);
    return false;
  }
  bool PutLarge(double value, const std::string& text) {
    if (large_ == LargeNumbers::kRounded) return Put(value);
    return Fail(absl::StrCat("the number ", text, " is beyond 2^63; write it as a string"));
  }
  bool Open(bool is_object) {
    open_.push_back({.is_object = is_object});
    return true;
  }
  bool Close() {
    Container closed = std::move(open_.back());
    open_.pop_back();
    if (open_.empty()) is_left_out_ = false;
    if (is_left_out_) return Put({});
    return Put(closed.is_object ? Value(std::move(closed.dict)) : Value(std::move(closed.items)));
  }
  bool Put(Value value) {
    if (is_left_out_) value = Value();
    if (open_.empty()) {
      root = std::move(value);
    } else if (!open_.back().is_object) {
      if (!is_left_out_) open_.back().items.push_back(std::move(value));
    } else {
      status = open_.back().dict.Set(Value(open_.back().key), std::move(value));
    }
    return status.ok();
  }

  const LargeNumbers large_;
  const absl::Span<const absl::string_view> members_;
  std::vector<Container> open_;
  bool is_left_out_ = false;  // what is read lies in a member that is not kept
};

}  // namespace

absl::StatusOr<Value> ParseJson(absl::string_view json, LargeNumbers large,
                                absl::Span<const absl::string_view> members) {
  RETURN_IF_ERROR(CheckBeforeParsing({json.data(), json.size()}));
  ValueBuilder builder(large, members);
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &builder);
  RETURN_IF_ERROR(builder.status);
  HOLDFAST_CHECK(parsed);  // whoever stops the parser says why
  return std::move(builder.root);
}

const char* JsonKindOf(const Value& value) {
  using Type = Json::value_t;
  if (value.is_none()) return JsonKind(Type::null);
  if (value.is_bool()) return JsonKind(Type::boolean);
  if (value.is_number()) return JsonKind(Type::number_float);
  if (value.is_string()) return JsonKind(Type::string);
  return JsonKind(value.is_list() ? Type::array : Type::object);
}

}  // namespace holdfast::jinja
