#include "models/runtime/initial_adapters.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "checkpoint/model_directory.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "models/runtime/adapted_layers.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/adapter_deltas.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"
#include "xxhash.h"

namespace holdfast {
namespace {

using AdapterValues = std::vector<std::vector<float>>;  // by parameter; empty: no adapter

absl::Status CheckHoldsAdapter(const std::string& directory) {
  ASSIGN_OR_RETURN(const bool is_adapter, HoldsAdapter(directory));
  if (is_adapter) return absl::OkStatus();
  const std::string of_run = directory + "/model";
  ASSIGN_OR_RETURN(const bool run_has_them, HoldsAdapter(of_run));
  return absl::NotFoundError(absl::StrCat(directory, " holds no adapters: it has no ", kAdapterConfigFile,
                                          run_has_them ? absl::StrCat("; name ", of_run) : ""));
}

/// Adapters that are trained are of one rank and one scale.
absl::Status CheckAreAlike(const AdapterDeltas& adapters, const std::string& directory) {
  const auto words = [](const AdapterDeltas::LowRank& of) {
    return absl::StrCat(of.module, " has rank ", of.rank, " and scale ", of.scale);
  };
  for (const AdapterDeltas::LowRank& low : adapters.all()) {
    const AdapterDeltas::LowRank& first = adapters.all().front();
    if (low.rank == first.rank && low.scale == first.scale) continue;
    return absl::InvalidArgumentError(absl::StrCat("of the adapters in ", directory, " ", words(first), ", but ",
                                                   words(low), "; a run trains adapters that are alike in both"));
  }
  return absl::OkStatus();
}

/// `value` in as many digits as it takes for what they say to fit.
std::string DigitsOf(double value, absl::FunctionRef<bool(double)> fits) {
  std::string text;
  double said = 0;
  for (int digits = 6; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (absl::SimpleAtod(text, &said) && fits(said)) break;
  }
  return text;
}

/// The config's adapters compute what these do.
absl::Status CheckScale(const AdapterDeltas& adapters, const Config& config) {
  const std::string& directory = config.lora.init_from;
  RETURN_IF_ERROR(CheckAreAlike(adapters, directory));
  if (adapters.all().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  const AdapterDeltas::LowRank& low = adapters.all().front();
  if (low.rank == lora.rank && low.scale == lora.scale) return absl::OkStatus();
  ASSIGN_OR_RETURN(const AdapterKind kind, ReadAdapterKind(directory));
  const auto rank = static_cast<double>(low.rank);
  const double divisor = kind.rslora ? std::sqrt(rank) : rank;
  const std::string alpha = DigitsOf(static_cast<double>(low.scale) * divisor,
                                     [&](double said) { return static_cast<float>(said / divisor) == low.scale; });
  const std::string own_alpha = DigitsOf(config.lora.alpha, [&](double said) { return said == config.lora.alpha; });
  const auto keys = [](int64_t r, const std::string& a, bool rslora) {
    return absl::StrCat("lora.rank: ", r, ", lora.alpha: ", a, ", lora.rslora: ", rslora ? "true" : "false");
  };
  return absl::InvalidArgumentError(absl::StrCat("the adapters in ", directory,
                                                 " have another rank or scale than the config's: set ",
                                                 keys(low.rank, alpha, kind.rslora), " (", kAdapterConfigFile,
                                                 "), not ", keys(config.lora.rank, own_alpha, config.lora.rslora)));
}

/// With LongRoPE the length chooses the angles that they were trained with.
absl::Status CheckAngles(const Config& config) {
  if (config.model.rope_scaling != RopeScaling::kLongRope) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<int64_t> length, LengthOfAdapter(config.lora.init_from));
  if (!length.has_value()) return absl::OkStatus();
  ModelConfig theirs = config.model;
  theirs.max_sequence_length = *length;
  if (theirs.RopeFactors() == config.model.RopeFactors()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the adapters in ", config.lora.init_from,
                                                 " were trained with other factors of LongRoPE than ",
                                                 "model.max_sequence_length ", config.model.max_sequence_length,
                                                 " chooses: set model.max_sequence_length: ", *length));
}

using Modules = std::set<std::string>;

/// Of which the config's lora.targets are replaced; empty if the model has none of them by themselves.
Modules ModulesOfTargets(Config config, std::vector<std::string> targets) {
  config.lora.targets = std::move(targets);
  Modules modules;
  const auto lora = LoraOptionsOf(config);
  if (!lora.ok()) return modules;
  const auto adapted = AdaptedLayers(config, TransformerLayout(config.model, *lora));
  if (!adapted.ok()) return modules;
  for (const AdaptedLayer& layer : *adapted) modules.insert(layer.module);
  return modules;
}

/// lora.targets whose layers are these; empty if there are none.
std::vector<std::string> TargetsFor(const Config& config, const Modules& wanted) {
  std::vector<std::string> targets;
  Modules found;
  for (const std::vector<std::string>& some : std::vector<std::vector<std::string>>{{"attention"},
                                                                                    {"mlp"},
                                                                                    {"q_proj"},
                                                                                    {"k_proj"},
                                                                                    {"v_proj"},
                                                                                    {"o_proj"},
                                                                                    {"q_proj", "k_proj", "v_proj"},
                                                                                    {"gate_proj"},
                                                                                    {"up_proj"},
                                                                                    {"down_proj"},
                                                                                    {"gate_proj", "up_proj"},
                                                                                    {"experts"},
                                                                                    {"router"},
                                                                                    {"shared_expert"},
                                                                                    {"shared_expert_gate"}}) {
    const Modules modules = ModulesOfTargets(config, some);
    const bool fit = std::includes(wanted.begin(), wanted.end(), modules.begin(), modules.end());
    if (!fit || std::includes(found.begin(), found.end(), modules.begin(), modules.end())) continue;
    targets.insert(targets.end(), some.begin(), some.end());
    found.insert(modules.begin(), modules.end());
  }
  return found == wanted ? targets : std::vector<std::string>();
}

/// Of layers `read` that have adapters in the directory lora.targets has none for `surplus`, and one for `missing`.
absl::Status OtherLayers(const Config& config, const Modules& read, const Modules& surplus, const Modules& missing) {
  std::vector<std::string> differences;
  if (!surplus.empty()) {
    differences.push_back(absl::StrCat("has adapters for ", JoinFirst(surplus, 1), ", and lora.targets has none"));
  }
  if (!missing.empty()) {
    differences.push_back(absl::StrCat("has none for ", JoinFirst(missing, 1), ", and lora.targets has"));
  }
  const std::vector<std::string> targets = TargetsFor(config, read);
  return absl::InvalidArgumentError(
      absl::StrCat(config.lora.init_from, " ", absl::StrJoin(differences, "; "),
                   targets.empty() ? ": no lora.targets are just its layers"
                                   : absl::StrCat(": set lora.targets: [", absl::StrJoin(targets, ", "), "]")));
}

/// Parameter, first row and rows that an adapter is for, in the layout without adapters.
using AdaptedRows = std::tuple<int, int64_t, int64_t>;

std::map<AdaptedRows, const AdapterDeltas::LowRank*> ByRows(const AdapterDeltas& adapters) {
  std::map<AdaptedRows, const AdapterDeltas::LowRank*> by_rows;
  for (const AdapterDeltas::LowRank& low : adapters.all()) {
    by_rows.emplace(AdaptedRows(low.parameter, low.first_row, low.rows), &low);
  }
  return by_rows;
}

absl::StatusOr<AdapterValues> ReadAdapters(const Config& config, const ParameterLayout& layout) {
  const std::string& directory = config.lora.init_from;
  RETURN_IF_ERROR(CheckHoldsAdapter(directory));
  ASSIGN_OR_RETURN(const AdapterDeltas theirs, AdapterDeltas::Read(directory, config.model, config.train.init_digest));
  RETURN_IF_ERROR(CheckScale(theirs, config));
  RETURN_IF_ERROR(CheckAngles(config));
  auto by_rows = ByRows(theirs);
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> ours, AdaptedLayers(config, layout));
  AdapterValues values;
  for (const ParameterSpec& spec : layout.parameters()) {
    values.emplace_back(static_cast<size_t>(spec.adapter ? spec.shape.elements() : 0));
  }
  const auto put = [&](const std::vector<float>& rows, int parameter, int64_t first_row) {
    const auto p = static_cast<size_t>(parameter);
    std::copy(rows.begin(), rows.end(), values[p].begin() + first_row * layout.parameters()[p].shape.cols());
  };
  Modules read, surplus, missing;
  for (const AdaptedLayer& layer : ours) {
    const auto low = by_rows.find(AdaptedRows(layer.weight, layer.first_row, layer.rows));
    (low == by_rows.end() ? missing : read).insert(layer.module);
    if (low == by_rows.end()) continue;
    put(low->second->a, layer.a, layer.first_row_of_a);
    put(low->second->b, layer.b, layer.first_row_of_b);
    by_rows.erase(low);
  }
  for (const auto& [rows, low] : by_rows) surplus.insert(low->module);
  if (surplus.empty() && missing.empty()) return values;
  read.insert(surplus.begin(), surplus.end());
  return OtherLayers(config, read, surplus, missing);
}

std::string DigestOfAdapters(const AdapterValues& values) {
  uint64_t digest = 0;
  for (const std::vector<float>& of_parameter : values) {
    digest = XXH3_64bits_withSeed(of_parameter.data(), of_parameter.size() * sizeof(float), digest);
  }
  return absl::StrCat(absl::Hex(digest, absl::kZeroPad16));
}

absl::Status CheckAdapterDigest(const Config& config, const AdapterValues& values) {
  const std::string digest = DigestOfAdapters(values);
  if (config.lora.init_digest.empty() || config.lora.init_digest == digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the adapters in ", config.lora.init_from, " have the digest ",
                                                    digest, ", but lora.init_digest is ", config.lora.init_digest,
                                                    ": these are others than the run began with; bring those back"));
}

/// Adapters of PEFT say by a name alone for which model they are. Those of our runs have been compared by a digest.
void WarnOfOtherBase(const Config& config) {
  const std::string& directory = config.lora.init_from;
  const auto file = SafetensorsReader::Open(absl::StrCat(directory, "/", kAdapterWeightsFile));
  const absl::StatusOr<std::string> base = BaseModelOf(directory);
  if (!base.ok() || !file.ok() || (*file)->metadata().contains(kBaseDigestKey)) return;
  if (MayBeModel(*base, config.train.init_from)) return;
  LogWarning("lora.init_from: the adapters in ", directory, " are for the model ", *base, " (", kAdapterConfigFile,
             "), and train.init_from is ", config.train.init_from,
             ": if that is another one, they do not fit it, though their shapes do");
}

/// Those of lora.init_from, in memory from when they are asked for until they are freed. Thread-safe.
class ReadAdapterValues {
 public:
  ReadAdapterValues(Config config, ParameterLayout layout) : config_(std::move(config)), layout_(std::move(layout)) {}

  absl::StatusOr<std::shared_ptr<const AdapterValues>> Get() {
    const std::lock_guard lock(mutex_);
    if (values_ != nullptr) return values_;
    absl::StatusOr<AdapterValues> read = ReadAdapters(config_, layout_);
    if (!read.ok()) return Annotate(read.status(), "lora.init_from");
    RETURN_IF_ERROR(CheckAdapterDigest(config_, *read));
    values_ = std::make_shared<const AdapterValues>(*std::move(read));
    return values_;
  }
  void Free() {
    const std::lock_guard lock(mutex_);
    values_.reset();
  }

 private:
  const Config config_;
  const ParameterLayout layout_;
  std::mutex mutex_;
  std::shared_ptr<const AdapterValues> values_;  // a call may still read those that another has freed
};

}  // namespace

absl::StatusOr<InitialAdapters> OpenInitialAdapters(const Config& config, const ParameterLayout& layout,
                                                    ReadWeightsFn base) {
  auto adapters = std::make_shared<ReadAdapterValues>(config, layout);  // of both functions
  RETURN_IF_ERROR(adapters->Get().status());
  return InitialAdapters{
      .read = [layout, base = std::move(base), adapters](int64_t first, absl::Span<float> out) -> absl::Status {
        const auto p = static_cast<size_t>(ParameterAt(layout, first));
        if (!layout.parameters()[p].adapter) return base(first, out);
        ASSIGN_OR_RETURN(const auto values, adapters->Get());
        std::copy_n((*values)[p].begin() + (first - layout.parameters()[p].offset), out.size(), out.begin());
        return absl::OkStatus();
      },
      .free = [adapters] { adapters->Free(); }};
}

absl::Status ResolveAdapterDigest(Config* config) {
  if (config->lora.init_from.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(*config));
  const absl::StatusOr<AdapterValues> values = ReadAdapters(*config, TransformerLayout(config->model, lora));
  if (!values.ok()) return Annotate(values.status(), "lora.init_from");
  RETURN_IF_ERROR(CheckAdapterDigest(*config, *values));
  if (config->lora.init_digest.empty()) WarnOfOtherBase(*config);  // workers have the resolved config
  config->lora.init_digest = DigestOfAdapters(*values);
  return absl::OkStatus();
}

}  // namespace holdfast
