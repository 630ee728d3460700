// Manifest to JSON: one line per field, tensor and shard, so that people can read it and tools can compare it.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/sharded/manifest_fields.h"
#include "checkpoint/sharded/manifest_json.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;

class Printer {
 public:
  std::string Text(const ManifestFields& fields, const char* before, const char* between) {
    std::string text;
    for (const ManifestField& field : fields) {
      absl::StrAppend(&text, text.empty() ? before : between, "\"", field.key, "\": ");
      text += std::visit(*this, field.target);
    }
    return text;
  }

  std::string operator()(Literal literal) { return (*this)(std::string(literal.text)); }
  std::string operator()(FormatVersion) { return absl::StrCat(kManifestVersion); }
  std::string operator()(Hex hex) { return absl::StrFormat("\"%016x\"", *hex.value); }
  std::string operator()(const std::string* text) { return (*this)(*text); }
  std::string operator()(const int64_t* number) { return absl::StrCat(*number); }
  std::string operator()(const uint64_t* number) { return absl::StrCat(*number); }
  std::string operator()(const double* number) { return Json(*number).dump(); }  // shortest that reads back as the same
  std::string operator()(const std::optional<double>* number) { return *number ? Json(**number).dump() : "null"; }
  std::string operator()(StoredFile* file) { return absl::StrCat("{", Text(FieldsOf(*file), "", ", "), "}"); }
  std::string operator()(Shape64* shape) { return Json(*shape).dump(); }
  std::string operator()(Names* names) { return Json(*names).dump(); }

  template <typename T>
  std::string operator()(std::vector<T>* list) {
    std::string text = "[";
    for (T& item : *list) {
      absl::StrAppend(&text, text.size() > 1 ? "," : "", "\n    {", Text(FieldsOf(item), "", ", "), "}");
    }
    return text + "\n  ]";
  }

 private:
  std::string operator()(const std::string& text) {
    return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  }
};

}  // namespace

std::string FormatManifestFields(const Manifest& manifest) {
  // Fields are listed with places to write to; printing only reads.
  return Printer().Text(FieldsOf(const_cast<Manifest&>(manifest)), "{\n  ", ",\n  ");
}

}  // namespace holdfast
