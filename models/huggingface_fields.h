#pragma once
// Typed access to the object of a config.json. It remembers which keys were asked for, so that a key that nobody knows
// does not pass in silence: it may decide what the model computes.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

class FieldReader {
 public:
  /// `path` leads every message. `object` must outlive the reader.
  FieldReader(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {}

  /// Null counts as missing.
  bool Has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }
  const nlohmann::json& operator[](const std::string& key) const { return object_[key]; }

  /// Whole number in [1, max]; 1 after an error.
  int64_t Size(const std::string& key, int64_t max);
  int64_t Size(const std::string& key, int64_t max, int64_t otherwise) {
    return Has(key) ? Size(key, max) : (Know(key), otherwise);
  }
  double Positive(const std::string& key, double otherwise);
  double NotNegative(const std::string& key, double otherwise);
  bool Bool(const std::string& key, bool otherwise);
  std::string String(const std::string& key, const std::string& otherwise);

  /// One of `names`, by its place in them.
  template <typename Enum>
  Enum Choice(const std::string& key, std::initializer_list<std::pair<const char*, Enum>> names) {
    const std::string value = String(key, "");
    for (const auto& [name, choice] : names) {
      if (value == name) return choice;
    }
    Unsupported(key);
    return names.begin()->second;
  }

  /// The key decides, and there is code for these values only (and for null).
  void Only(const std::string& key, std::initializer_list<nlohmann::json> values);
  /// The keys decide nothing here.
  void Ignore(absl::Span<const char* const> keys) { known_.insert(keys.begin(), keys.end()); }

  void Invalid(const std::string& key, const std::string& what);
  /// Names the key and its value.
  void Unsupported(const std::string& key);
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
  double Number(const std::string& key, double otherwise, bool zero_allowed);

  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string> known_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::vector<std::string> problems_;
};

}  // namespace holdfast
