// JSON to manifest, event by event: what is not expected is refused before it takes memory.

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/manifest_fields.h"
#include "checkpoint/sharded/manifest_json.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxRank = 4;

bool ParseHex(const std::string& text, uint64_t* value) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  return absl::SimpleHexAtoi(text, value);
}

class ManifestHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit ManifestHandler(Manifest* manifest) : manifest_(manifest) {}

  absl::Status status;

  bool boolean(bool) override { return Refuse("true or false"); }
  bool binary(binary_t&) override { return Refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(JsonError(position, error).message());
  }

  bool null() override {
    auto* number = Expected<std::optional<double>*>();
    if (number == nullptr) return Refuse("null");
    (*number)->reset();
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (Expected<FormatVersion>() != nullptr) return TakeVersion(value);
    if (auto* number = Expected<uint64_t*>()) return Store(*number, value);
    if (Expected<double*>() != nullptr || Expected<std::optional<double>*>() != nullptr) {
      return number_float(static_cast<double>(value), "");
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Refuse("a number beyond 2^63");
    if (auto* number = Expected<int64_t*>()) return Store(*number, static_cast<int64_t>(value));
    if (!InArray<Shape64*>()) return Refuse("a number");
    Shape64& shape = *std::get<Shape64*>(frames_.back().array);
    shape.push_back(static_cast<int64_t>(value));
    return shape.size() <= kMaxRank || Fail("too many dimensions");
  }

  bool number_integer(number_integer_t) override { return Refuse("a negative number"); }

  bool number_float(number_float_t value, const string_t&) override {
    if (auto* number = Expected<double*>()) return Store(*number, value);
    if (auto* number = Expected<std::optional<double>*>()) return Store(*number, value);
    return Refuse("a number with a fraction");
  }

  bool string(string_t& value) override {
    if (auto* literal = Expected<Literal>()) {
      return value == literal->text || Fail(absl::StrCat("is not \"", literal->text, "\""));
    }
    if (auto* hex = Expected<Hex>()) return ParseHex(value, hex->value) || Fail("16 hexadecimal digits are expected");
    if (InArray<Names*>()) return TakeName(std::move(value));
    auto* text = Expected<std::string*>();
    return text == nullptr ? Refuse("a string") : Store(*text, std::move(value));
  }

  bool start_object(size_t) override {
    if (frames_.empty()) return Push(FieldsOf(*manifest_));
    if (auto* file = Expected<StoredFile*>()) return Push(FieldsOf(**file));
    if (InArray<std::vector<StoredTensor>*>()) return PushElement<StoredTensor>(kMaxTensors);
    if (InArray<std::vector<StoredShard>*>()) return PushElement<StoredShard>(kMaxShards);
    return Refuse("an object");
  }

  bool start_array(size_t) override {
    if (auto* names = Expected<Names*>()) (*names)->clear();
    if (Expected<Shape64*>() == nullptr && Expected<Names*>() == nullptr &&
        Expected<std::vector<StoredTensor>*>() == nullptr && Expected<std::vector<StoredShard>*>() == nullptr) {
      return Refuse("an array");
    }
    frames_.push_back({.is_array = true, .array = Current().target});
    return true;
  }

  bool key(string_t& name) override {
    Frame& frame = frames_.back();
    const size_t next = frame.next++;
    if (next < frame.fields.size() && name == frame.fields[next].key) return true;
    const char* expected = next < frame.fields.size() ? frame.fields[next].key : "the end";
    --frame.next;
    return Fail(absl::StrCat("found field '", name.substr(0, 100), "' where ", expected, " is expected"));
  }

  bool end_object() override {
    const Frame& frame = frames_.back();
    if (frame.next < frame.fields.size()) {
      return Fail(absl::StrCat("field '", frame.fields[frame.next].key, "' is missing"));
    }
    frames_.pop_back();
    return true;
  }

  bool end_array() override {
    frames_.pop_back();
    return true;
  }

 private:
  struct Frame {
    ManifestFields fields = {};  // of an object
    size_t next = 0;             // number of fields or elements begun
    bool is_array = false;
    FieldTarget array = Literal{""};
  };

  const ManifestField& Current() const { return frames_.back().fields[frames_.back().next - 1]; }

  /// Where a value of this type goes, if the next value must be of this type.
  template <typename T>
  const T* Expected() const {
    if (frames_.empty() || frames_.back().is_array) return nullptr;
    return std::get_if<T>(&Current().target);
  }

  template <typename T>
  bool InArray() const {
    return !frames_.empty() && frames_.back().is_array && std::holds_alternative<T>(frames_.back().array);
  }

  template <typename T, typename V>
  bool Store(T* place, V&& value) {
    *place = std::forward<V>(value);
    return true;
  }

  bool TakeName(std::string name) {
    Names& names = *std::get<Names*>(frames_.back().array);
    names.push_back(std::move(name));
    return names.size() <= kMaxPlanes || Fail("too many planes");
  }

  bool TakeVersion(uint64_t version) {
    if (version < 1 || version > kManifestVersion) {
      Fail(absl::StrCat(version, " is unknown to this version of Holdfast, which reads 1 to ", kManifestVersion));
      // That of a later one is no damage, for which an older checkpoint would be taken.
      if (version > kManifestVersion) {
        status = absl::UnimplementedError(absl::StrCat(status.message(), ": use the later one that wrote it"));
      }
      return false;
    }
    version_ = version;
    DropLaterFields(&frames_.back().fields);
    return true;
  }

  void DropLaterFields(ManifestFields* fields) const {
    std::erase_if(*fields, [this](const ManifestField& field) { return field.since > version_; });
  }

  bool Push(ManifestFields fields) {
    DropLaterFields(&fields);
    frames_.push_back({.fields = std::move(fields)});
    return true;
  }

  template <typename T>
  bool PushElement(size_t limit) {
    Frame& frame = frames_.back();
    auto& list = *std::get<std::vector<T>*>(frame.array);
    if (++frame.next > limit) return Fail(absl::StrCat("more than ", limit));
    return Push(FieldsOf(list.emplace_back()));
  }

  /// "shards[3].data.size".
  std::string Where() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.is_array) {
        if (frame.next > 0) absl::StrAppend(&path, "[", frame.next - 1, "]");
      } else if (frame.next > 0) {
        absl::StrAppend(&path, path.empty() ? "" : ".", frame.fields[frame.next - 1].key);
      }
    }
    return path;
  }

  bool Refuse(const char* what) { return Fail(absl::StrCat(what, " is not expected here")); }
  bool Fail(absl::string_view message) {
    const std::string where = Where();
    if (status.ok()) status = absl::InvalidArgumentError(absl::StrCat(where, where.empty() ? "" : ": ", message));
    return false;
  }

  Manifest* manifest_;
  uint64_t version_ = kManifestVersion;  // until it has said which one it is
  std::vector<Frame> frames_;
};

}  // namespace

absl::Status ParseManifestFields(const std::string& json, Manifest* manifest) {
  RETURN_IF_ERROR(CheckBeforeParsing(json));
  ManifestHandler handler(manifest);
  if (!Json::sax_parse(json, &handler) && handler.status.ok()) {
    handler.status = absl::InvalidArgumentError("malformed JSON");
  }
  return handler.status;
}

}  // namespace holdfast
