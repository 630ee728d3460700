// One line of metrics.jsonl, written and read. Text and bits of a number are both there: people read the text,
// `compare` reads the bits. JSON has no NaN or infinity, so such a number is null with its bits beside it.

#include <bit>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

constexpr int kMaxDepth = 16;

using Json = nlohmann::ordered_json;

/// The shortest text that reads back as the same value (absl::StrCat would cut to six digits).
template <typename Real>
std::string RealToJson(Real value) {
  if (!std::isfinite(value)) return "null";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

std::string BitsToJson(float value) { return absl::StrFormat("\"%08x\"", std::bit_cast<uint32_t>(value)); }

std::string FiguresToJson(const std::vector<Figure>& figures) {
  const auto real = [](std::string* out, double value) { out->append(RealToJson(value)); };
  const auto figure = [&](std::string* out, const Figure& f) {
    const std::string values = absl::StrJoin(f.values, ",", real);
    absl::StrAppend(out, Json(f.name).dump(-1, ' ', true, Json::error_handler_t::replace), ":",
                    f.is_list ? absl::StrCat("[", values, "]") : values);
  };
  return absl::StrCat("{", absl::StrJoin(figures, ",", figure), "}");
}

absl::StatusOr<const Json*> Find(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end()) return absl::DataLossError(absl::StrCat("field '", name, "' is missing"));
  return &*found;
}

absl::Status WrongType(const char* name, const Json& value, const char* expected) {
  return absl::DataLossError(absl::StrCat("field '", name, "': expected ", expected, ", found ",
                                          value.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

absl::Status Read(const Json& line, const char* name, int64_t* out) {
  ASSIGN_OR_RETURN(const Json* value, Find(line, name));
  if (!value->is_number_integer()) return WrongType(name, *value, "an integer");
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return WrongType(name, *value, "an integer of 64 bits");
  }
  *out = value->get<int64_t>();
  return absl::OkStatus();
}

absl::Status Read(const Json& line, const char* name, double* out) {
  ASSIGN_OR_RETURN(const Json* value, Find(line, name));
  if (!value->is_number()) return WrongType(name, *value, "a number");
  *out = value->get<double>();
  return absl::OkStatus();
}

template <typename Unsigned>
absl::Status ReadHex(const Json& line, const char* name, Unsigned* out) {
  ASSIGN_OR_RETURN(const Json* value, Find(line, name));
  constexpr size_t kDigits = 2 * sizeof(Unsigned);
  if (value->is_string() && value->get_ref<const std::string&>().size() == kDigits) {
    const std::string& text = value->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, *out, 16);
    if (error == std::errc() && end == text.data() + kDigits) return absl::OkStatus();
  }
  return WrongType(name, *value, sizeof(Unsigned) == 4 ? "8 hexadecimal digits" : "16 hexadecimal digits");
}

/// The bits are the truth, and the text beside them shows whether they are damaged.
absl::Status ReadWithBits(const Json& line, const char* name, const char* bits_name, float* out) {
  uint32_t bits = 0;
  RETURN_IF_ERROR(ReadHex(line, bits_name, &bits));
  *out = std::bit_cast<float>(bits);
  ASSIGN_OR_RETURN(const Json* text, Find(line, name));
  const std::string expected = RealToJson(*out);
  if (*text == Json::parse(expected)) return absl::OkStatus();
  return WrongType(name, *text, absl::StrCat(expected, ", as '", bits_name, "' says").c_str());
}

/// null is a number that JSON does not have.
absl::Status ReadValidation(const Json& line, const char* name, ValidationResult* out) {
  ASSIGN_OR_RETURN(const Json* object, Find(line, name));
  if (!object->is_object()) return WrongType(name, *object, "an object");
  RETURN_IF_ERROR(Read(*object, "step", &out->step));
  if (!object->contains("loss") || !(*object)["loss"].is_null()) return Read(*object, "loss", &out->loss);
  out->loss = std::nan("");
  return absl::OkStatus();
}

absl::Status ReadFigures(const Json& line, const char* name, std::vector<Figure>* out) {
  ASSIGN_OR_RETURN(const Json* object, Find(line, name));
  if (!object->is_object()) return WrongType(name, *object, "an object");
  for (const auto& [key, value] : object->items()) {
    Figure& figure = out->emplace_back(Figure{.name = key, .values = {}, .is_list = value.is_array()});
    for (const Json& number : value.is_array() ? value : Json::array({value})) {
      if (!number.is_number() && !number.is_null()) return WrongType(name, *object, "numbers and lists of numbers");
      figure.values.push_back(number.is_null() ? std::nan("") : number.get<double>());
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string StepMetrics::ToJson() const {
  std::string json =
      absl::StrCat("{\"step\":", step, ",\"loss\":", RealToJson(loss), ",\"loss_bits\":", BitsToJson(loss),
                   ",\"grad_norm\":", RealToJson(grad_norm), ",\"grad_norm_bits\":", BitsToJson(grad_norm));
  absl::StrAppend(&json, ",\"lr\":", RealToJson(lr), ",\"tokens\":", tokens, ",\"world_size\":", world_size,
                  ",\"generation\":", generation, ",\"step_seconds\":", RealToJson(step_seconds),
                  ",\"tokens_per_second\":", RealToJson(tokens_per_second),
                  ",\"mfu\":", mfu.has_value() ? RealToJson(*mfu) : "null");
  absl::StrAppend(&json, ",\"checkpoint_stall_seconds\":", RealToJson(checkpoint_stall_seconds),
                  ",\"time\":", RealToJson(time));
  if (exchanged != ExchangedBytes()) {
    absl::StrAppend(&json, ",\"exchanged_bytes\":{\"in_node\":", exchanged.in_node,
                    ",\"between_nodes\":", exchanged.between_nodes, "}");
  }
  if (state_digest.has_value())
    absl::StrAppend(&json, ",\"state_digest\":", absl::StrFormat("\"%016x\"", *state_digest));
  if (validation.has_value()) {
    absl::StrAppend(&json, ",\"validation\":{\"step\":", validation->step, ",\"loss\":", RealToJson(validation->loss),
                    "}");
  }
  if (!figures.empty()) absl::StrAppend(&json, ",\"statistics\":", FiguresToJson(figures));
  return absl::StrCat(json, "}");
}

std::optional<double> ModelFlopsUtilisation(double flops_per_token, double tokens_per_second, double peak_flops) {
  if (peak_flops <= 0) return std::nullopt;
  return flops_per_token * tokens_per_second / peak_flops;
}

absl::StatusOr<StepMetrics> StepMetrics::FromJson(const std::string& line) {
  const absl::StatusOr<Json> parsed = ParseJson<Json>(line, kMaxDepth);
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  const Json& fields = *parsed;
  if (!fields.is_object()) return absl::DataLossError("not a JSON object");
  StepMetrics m;
  RETURN_IF_ERROR(Read(fields, "step", &m.step));
  RETURN_IF_ERROR(ReadWithBits(fields, "loss", "loss_bits", &m.loss));
  RETURN_IF_ERROR(ReadWithBits(fields, "grad_norm", "grad_norm_bits", &m.grad_norm));
  RETURN_IF_ERROR(Read(fields, "lr", &m.lr));
  RETURN_IF_ERROR(Read(fields, "tokens", &m.tokens));
  RETURN_IF_ERROR(Read(fields, "world_size", &m.world_size));
  RETURN_IF_ERROR(Read(fields, "generation", &m.generation));
  RETURN_IF_ERROR(Read(fields, "step_seconds", &m.step_seconds));
  RETURN_IF_ERROR(Read(fields, "tokens_per_second", &m.tokens_per_second));
  RETURN_IF_ERROR(Read(fields, "checkpoint_stall_seconds", &m.checkpoint_stall_seconds));
  RETURN_IF_ERROR(Read(fields, "time", &m.time));
  if (fields.contains("exchanged_bytes")) {
    const Json& exchanged = fields["exchanged_bytes"];
    if (!exchanged.is_object()) return WrongType("exchanged_bytes", exchanged, "an object");
    RETURN_IF_ERROR(Read(exchanged, "in_node", &m.exchanged.in_node));
    RETURN_IF_ERROR(Read(exchanged, "between_nodes", &m.exchanged.between_nodes));
  }
  if (fields.contains("mfu") && !fields["mfu"].is_null()) RETURN_IF_ERROR(Read(fields, "mfu", &m.mfu.emplace()));
  if (fields.contains("state_digest")) RETURN_IF_ERROR(ReadHex(fields, "state_digest", &m.state_digest.emplace()));
  if (fields.contains("validation")) RETURN_IF_ERROR(ReadValidation(fields, "validation", &m.validation.emplace()));
  if (fields.contains("statistics")) RETURN_IF_ERROR(ReadFigures(fields, "statistics", &m.figures));
  return m;
}

}  // namespace holdfast
