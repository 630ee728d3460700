#pragma once
// Typed access to the object of a config.json. It remembers which keys were asked for, so that a key that nobody knows
// does not pass in silence: it may decide what the model computes.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

class ConfigFields {
 public:
  /// `path` leads every message. `object` must outlive the reader.
  ConfigFields(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {}

  /// Null counts as missing.
  bool Has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }
  /// There, and null: what a class takes that has another default.
  bool IsNull(const std::string& key) const { return object_.contains(key) && object_[key].is_null(); }
  /// What leads the messages about an object inside this one.
  std::string Path(const std::string& key) const;
  const nlohmann::json& operator[](const std::string& key) const { return object_[key]; }

  /// A dimension: a whole number from 1 to 2^24; 1 after an error. Without `otherwise` the key must be there.
  int64_t Size(const std::string& key) { return Integer(key, 1); }
  int64_t Size(const std::string& key, int64_t otherwise) {
    return Has(key) ? Integer(key, 1) : (Know(key), otherwise);
  }
  /// The same from 0.
  int64_t Whole(const std::string& key, int64_t otherwise) {
    return Has(key) ? Integer(key, 0) : (Know(key), otherwise);
  }
  double RequiredPositive(const std::string& key);
  double Positive(const std::string& key, double otherwise);
  double NotNegative(const std::string& key, double otherwise);
  /// Positive ones; empty if the key is missing.
  std::vector<double> Numbers(const std::string& key);
  bool Bool(const std::string& key, bool otherwise);
  std::string String(const std::string& key, const std::string& otherwise);

  /// A list of strings, all among `known`; none if the key is missing or something else, which is then a problem.
  std::optional<std::vector<std::string>> Strings(const std::string& key, std::initializer_list<const char*> known);

  /// The key decides, and there is code for these values only (and for null), which an error names.
  void Only(const std::string& key, std::initializer_list<nlohmann::json> values);
  /// The keys decide nothing here.
  void Ignore(absl::Span<const char* const> keys) { known_.insert(keys.begin(), keys.end()); }

  /// Keys that transformers writes into every config.json: those that decide nothing pass, those that do must say what
  /// is supported. A quantization_config passes if the family has read it.
  void CheckGeneric();

  void Invalid(const std::string& key, const std::string& what);
  /// Names the key and its value; `what_is` follows.
  void Unsupported(const std::string& key, const std::string& what_is = "");
  /// Takes over what a reader of an object inside this one has found.
  void Add(const absl::Status& status);
  /// Unimplemented for every key that was neither asked for nor ignored; null and names with a leading underscore,
  /// which transformers keeps for itself, pass.
  void RefuseUnknown();

  /// Ok, or everything that was found, one line each, with the code of the first.
  absl::Status status() const;

 private:
  void Know(const std::string& key) { known_.insert(key); }
  void Add(absl::StatusCode code, const std::string& key, const std::string& what);
  int64_t Integer(const std::string& key, int64_t min);
  double Number(const std::string& key, double otherwise, bool zero_allowed);

  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string> known_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::vector<std::string> problems_;
};

/// A key of `model`, and whether it has a value of interest.
struct KeyCheck {
  std::string key;
  bool hit = true;
};

/// The first key that is not empty and was hit, or "".
std::string FirstKey(std::initializer_list<KeyCheck> checks);

}  // namespace holdfast
