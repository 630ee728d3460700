#include "elastic/sweep/sweep_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elastic/sweep/trial_setup.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "framework/config/config_table.h"
#include "framework/config/error_list.h"
#include "framework/config/field_text.h"
#include "framework/config/fields.h"
#include "framework/config/suggest.h"
#include "framework/config/yaml_tree.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

constexpr int64_t kMaxTrials = 1'000'000;
constexpr double kMaxBudget = 1e40;
constexpr char kSpace[] = "space", kHosts[] = "hosts";

/// Of every trial the sweep has its own value of these (trial_run.cc), whatever a point says.
constexpr std::array kSetBySweep = {"run.name",        "checkpoint.directory", "checkpoint.every",
                                    "elastic.workers", "elastic.min_workers",  "elastic.max_workers"};

/// What stands in the file, before it is known to make sense.
struct Raw {
  Raw() { sweep.strategy.rungs = 3; }

  SweepConfig sweep;
  std::string goal = "minimize", cost = NameOf(CostKind::kFlops);
  int64_t seed = 1;
};

std::vector<Section> TableOf(Raw* raw) {
  SweepConfig& sweep = raw->sweep;
  SweepBudget& budget = sweep.budget;
  return {
      {"sweep",
       {String("name", &sweep.name, StringRule::kFileName),
        Required(String("config", &sweep.config, StringRule::kNotEmpty)),
        {"set", ListValue{&sweep.overrides, "section.key=value", {}}},
        Choice("strategy", &sweep.strategy.name, {"grid", "random", "asha", "bayes"}),
        Int("seed", &raw->seed, 0, int64_t{1} << 62),
        String("metric", &sweep.metric, StringRule::kNotEmpty),
        Choice("goal", &raw->goal, {"minimize", "maximize"}),
        Choice("cost", &raw->cost, {NameOf(CostKind::kFlops), NameOf(CostKind::kTokens), NameOf(CostKind::kSeconds)}),
        Int("parallel", &sweep.parallel, 1, 1024),
        Int("workers", &sweep.workers, 1, kMaxWorkers),
        Int("attempts", &sweep.attempts, 1, 100),
        String("runs", &sweep.runs, StringRule::kAny),
        String("listen", &sweep.listen, StringRule::kNotEmpty)}},
      {"budget",
       {Int("trials", &budget.trials, 0, kMaxTrials), Double("flops", &budget.flops, 0, kMaxBudget),
        Double("tokens", &budget.tokens, 0, kMaxBudget), Double("seconds", &budget.seconds, 0, kMaxBudget),
        Double("money", &budget.money, 0, kMaxBudget),
        Double("price_per_hour", &budget.price_per_hour, 0, kMaxBudget)}},
      {"asha", {Int("rungs", &sweep.strategy.rungs, 2, 20), Double("reduction", &sweep.strategy.reduction, 1.5, 100)}}};
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const FamilyPreset& family : FamilyPresets()) names.push_back(family.name);
  return names;
}

/// The key of the config that a dimension sets; null if it sets several, by what its choices say.
std::optional<Field> ConfigField(const std::string& key) {
  static Config config;
  static const std::vector<Section> table = ConfigTable(&config, FamilyNames());
  for (const Section& section : table) {
    for (const Field& field : section.fields) {
      if (absl::StrCat(section.name, ".", field.key) == key) return field;
    }
  }
  return std::nullopt;
}

constexpr char kIsSetBySweep[] = "a sweep sets this key of its trials itself; leave it out";

bool IsSetBySweep(const std::string& key) {
  return std::find(kSetBySweep.begin(), kSetBySweep.end(), key) != kSetBySweep.end();
}

std::vector<std::string> ConfigKeys() {
  Config config;
  std::vector<std::string> keys;
  for (const Section& section : ConfigTable(&config)) {
    for (const Field& field : section.fields) keys.push_back(absl::StrCat(section.name, ".", field.key));
  }
  return keys;
}

/// What is wrong with `text` as a value of the key, read as an override's: "" if nothing is.
std::string ProblemOf(const Field& field, const std::string& text) {
  YamlTree tree = ParseYaml(text);
  if (text.empty()) {  // "train.init_from=" means the empty string
    tree.root.kind = YamlNode::Kind::kScalar;
    tree.root.quoted = true;
  }
  return tree.problems.empty() ? SetField(tree.root, field) : tree.problems[0].message;
}

/// The same of an end of a range. Whole numbers are whole by the checks of the space.
std::string ProblemOfEnd(const Field& field, double end) {
  const bool number = std::holds_alternative<DoubleValue>(field.value);
  if (!number && (end != std::floor(end) || std::abs(end) > search::kLargestInteger)) return "";
  return ProblemOf(field, number ? NumberText(end) : absl::StrCat(static_cast<int64_t>(end)));
}

/// What is wrong if a choice before, in `before` by what it sets, sets what `choice` does: "" if none does. It would be
/// tried twice, and count as two where a choice is drawn.
std::string ProblemOfTwin(std::map<std::string, std::string>& before, const std::string& sets,
                          const std::string& choice) {
  const auto [first, is_new] = before.try_emplace(sets, choice);
  return is_new ? "" : absl::StrCat("'", choice, "' sets the same as '", first->second, "'; leave one of both out");
}

std::string DidYouMean(const std::string& word) {
  return word.empty() ? "" : absl::StrCat(" (did you mean '", word, "'?)");
}

class Reader {
 public:
  explicit Reader(const std::string& path) : errors_(path, {}) {}

  absl::StatusOr<SweepConfig> Read(const std::string& text) {
    const YamlTree tree = ParseYaml(text);
    for (const YamlProblem& problem : tree.problems) errors_.Add({.line = problem.line}, "", problem.message);
    if (tree.root.kind == YamlNode::Kind::kMap) {
      ReadSections(tree.root);
    } else {
      errors_.Add({.line = tree.root.line}, "", "expected the sections sweep, budget and space");
    }
    if (tree.complete) Check();
    RETURN_IF_ERROR(errors_.ToStatus());
    SweepConfig& sweep = raw_.sweep;
    sweep.maximize = raw_.goal == "maximize";
    for (const CostKind kind : {CostKind::kFlops, CostKind::kTokens, CostKind::kSeconds}) {
      if (raw_.cost == NameOf(kind)) sweep.cost = kind;
    }
    if (sweep.hosts.empty()) {
      sweep.hosts.push_back({.name = "w", .workers = sweep.workers});
    } else {
      sweep.workers = 0;
      for (const SweepHost& host : sweep.hosts) sweep.workers += host.workers;
    }
    sweep.strategy.seed = static_cast<uint64_t>(raw_.seed);
    if (sweep.strategy.name != "asha") sweep.strategy.rungs = 1;
    return std::move(sweep);
  }

 private:
  void ReadSections(const YamlNode& root) {
    const std::vector<Section> table = TableOf(&raw_);
    for (size_t i = 0; i < root.keys.size(); ++i) {
      const YamlNode &name = root.keys[i], &body = root.items[i];
      if (!IsNew(name, name.text)) continue;
      const auto section =
          std::find_if(table.begin(), table.end(), [&](const Section& s) { return s.name == name.text; });
      if (section == table.end() && name.text != kSpace && name.text != kHosts) {
        errors_.Add({.line = name.line}, name.text, "unknown section; there are sweep, budget, asha, space, hosts");
      } else if (body.kind != YamlNode::Kind::kMap) {
        errors_.Add({.line = name.line}, name.text, "expected a map of keys below the section");
      } else if (name.text == kHosts) {
        for (size_t h = 0; h < body.keys.size(); ++h) ReadHost(body.keys[h], body.items[h]);
      } else if (name.text == kSpace) {
        for (size_t d = 0; d < body.keys.size(); ++d) ReadDimension(body.keys[d], body.items[d]);
      } else {
        ReadFields(*section, name.text, body);
      }
    }
  }

  /// Sets `fields` from the keys of `body`; what they are called in messages begins with `owner`. False: some are
  /// wrong.
  bool ReadFields(const Section& section, const std::string& owner, const YamlNode& body) {
    bool good = true;
    for (size_t i = 0; i < body.keys.size(); ++i) {
      const std::string full = absl::StrCat(owner, ".", body.keys[i].text);
      const auto field = std::find_if(section.fields.begin(), section.fields.end(),
                                      [&](const Field& f) { return f.key == body.keys[i].text; });
      if (!IsNew(body.keys[i], full)) {
        good = false;
        continue;
      }
      if (field == section.fields.end()) {
        good = false;
        errors_.Add({.line = body.keys[i].line}, full,
                    "unknown key" + DidYouMean(Nearest(body.keys[i].text, section.Keys())));
        continue;
      }
      const std::string problem = SetField(body.items[i], *field);
      if (problem.empty()) continue;
      good = false;
      errors_.Add({.line = body.keys[i].line}, full, problem);
    }
    return good;
  }

  bool IsNew(const YamlNode& key, const std::string& full) {
    const auto [before, is_new] = lines_.try_emplace(full, key.line);
    if (!is_new) errors_.Add({.line = key.line}, full, absl::StrCat("given twice, first on line ", before->second));
    return is_new;
  }

  void ReadHost(const YamlNode& key, const YamlNode& body) {
    const std::string full = absl::StrCat(kHosts, ".", key.text);
    if (!IsNew(key, full)) return;
    const auto wrong = [&](const std::string& message) { errors_.Add({.line = key.line}, full, message); };
    if (body.kind != YamlNode::Kind::kMap) return wrong("expected {workers: , command: }");
    constexpr char kOrdinary[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (key.text.empty() || key.text.find_first_not_of(kOrdinary) != std::string::npos) {
      return wrong("expected a name of letters, digits, dots, _ and -");
    }
    SweepHost host{.name = key.text};
    ReadFields({kHosts,
                {Int("workers", &host.workers, 1, kMaxWorkers), String("command", &host.command, StringRule::kAny),
                 String("binary", &host.binary, StringRule::kAny)}},
               full, body);
    if (host.command.empty() && !host.binary.empty()) return wrong("binary is that of a host with a command");
    raw_.sweep.hosts.push_back(std::move(host));
  }

  void ReadDimension(const YamlNode& key, const YamlNode& body) {
    const std::string& name = key.text;
    const std::string full = absl::StrCat(kSpace, ".", name);
    if (!IsNew(key, full)) return;
    if (body.kind != YamlNode::Kind::kMap) {
      errors_.Add({.line = key.line}, full, "expected {low: , high: , scale: linear | log} or {choices: [...]}");
      return;
    }
    search::Dimension dimension{.name = name};
    std::string scale = "linear", when;
    const bool good = ReadFields({kSpace,
                                  {Double("low", &dimension.low, -kMaxBudget, kMaxBudget),
                                   Double("high", &dimension.high, -kMaxBudget, kMaxBudget),
                                   Choice("scale", &scale, {"linear", "log"}),
                                   {"choices", ListValue{&dimension.choices, "choice", {}}},
                                   Int("points", &dimension.steps, 2, kMaxTrials),
                                   String("when", &when, StringRule::kAny)}},
                                 full, body);
    const auto has = [&](const char* what) { return lines_.contains(absl::StrCat(full, ".", what)); };
    const auto wrong = [&](const std::string& message) { errors_.Add({.line = key.line}, full, message); };
    if (has("choices") == (has("low") || has("high"))) return wrong("expected either choices, or low and high");
    if (has("low") != has("high")) return wrong("low and high are both needed");
    if (has("choices") && (has("scale") || has("points"))) return wrong("scale and points are of low and high");
    dimension.scale = has("choices")   ? search::Scale::kChoice
                      : scale == "log" ? search::Scale::kLog
                                       : search::Scale::kLinear;
    const std::optional<Field> field = ConfigField(name);
    if (field.has_value()) {
      dimension.integer =
          std::holds_alternative<IntValue>(field->value) || std::holds_alternative<SeedValue>(field->value);
      const bool number = dimension.integer || std::holds_alternative<DoubleValue>(field->value);
      dimension.integer = dimension.integer && !has("choices");
      if (IsSetBySweep(name)) return wrong(kIsSetBySweep);
      if (!number && !has("choices")) return wrong("is no number: say its choices");
      if (good) CheckValues(dimension, *field, full);
    } else if (absl::StrContains(name, '.')) {
      return wrong("the config has no such key" + DidYouMean(Nearest(name, ConfigKeys())));
    } else if (!has("choices")) {
      return wrong("is no key of the config (section.key), so its choices have to say KEY=VALUE");
    } else if (!CheckBundles(dimension, wrong)) {
      return;
    }
    if (!when.empty()) {
      const std::vector<std::string> parts = absl::StrSplit(when, absl::MaxSplits('=', 1));
      if (parts.size() != 2) return wrong("when: expected DIMENSION=VALUE");
      dimension.condition = search::Condition{parts[0], parts[1]};
    }
    raw_.sweep.space.push_back(std::move(dimension));
  }

  /// Every value of the dimension is one that its key may have.
  void CheckValues(const search::Dimension& dimension, const Field& field, const std::string& full) {
    const auto check = [&](const char* part, const std::string& problem) {
      const std::string key = absl::StrCat(full, ".", part);
      if (!problem.empty()) errors_.Add({.line = lines_.at(key)}, key, problem);
    };
    if (dimension.scale != search::Scale::kChoice) {
      check("low", ProblemOfEnd(field, dimension.low));
      check("high", ProblemOfEnd(field, dimension.high));
    }
    std::map<std::string, std::string> before;
    for (const std::string& choice : dimension.choices) {
      const std::string problem = ProblemOf(field, choice);
      check("choices", problem.empty() ? ProblemOfTwin(before, PrintField(field, ""), choice) : problem);
    }
  }

  static bool CheckBundles(const search::Dimension& dimension, const std::function<void(const std::string&)>& wrong) {
    std::map<std::string, std::string> before;
    for (const std::string& choice : dimension.choices) {
      std::map<std::string, std::string> sets;  // by key
      for (const absl::string_view each : absl::StrSplit(choice, ' ', absl::SkipEmpty())) {
        const std::string key(each.substr(0, each.find('=')));
        const std::optional<Field> field = ConfigField(key);
        if (absl::StrContains(each, '=') && field.has_value()) {
          const std::string problem =
              IsSetBySweep(key) ? kIsSetBySweep : ProblemOf(*field, std::string(each.substr(key.size() + 1)));
          if (problem.empty()) {
            sets[key] = PrintField(*field, "");
            continue;
          }
          wrong(absl::StrCat("'", each, "': ", problem));
          return false;
        }
        wrong(absl::StrCat("'", each, "' is not KEY=VALUE with a key of the config",
                           DidYouMean(Nearest(key, ConfigKeys()))));
        return false;
      }
      const std::string twin = ProblemOfTwin(before, absl::StrJoin(sets, "", absl::PairFormatter("=")), choice);
      if (!twin.empty()) {
        wrong(twin);
        return false;
      }
    }
    return true;
  }

  void Check() {
    const SweepConfig& sweep = raw_.sweep;
    const SweepBudget& budget = sweep.budget;
    if (sweep.config.empty() && !lines_.contains("sweep.config")) {
      errors_.Add({}, "sweep.config", "required key is missing");
    }
    if (sweep.space.empty() && !lines_.contains(kSpace)) {
      errors_.Add({}, kSpace, "required section is missing: there is nothing to choose");
    }
    CheckHosts();
    const bool limited =
        budget.trials > 0 || budget.flops > 0 || budget.tokens > 0 || budget.seconds > 0 || budget.money > 0;
    if (!limited && sweep.strategy.name != "grid") {
      errors_.Add({}, "budget", "nothing limits the search: set trials, flops, tokens, seconds or money");
    }
    if ((budget.money > 0) != (budget.price_per_hour > 0)) {
      errors_.Add({}, "budget", "money and price_per_hour (of a worker) need each other");
    }
    if (sweep.strategy.name != "asha" && lines_.contains("asha")) {
      errors_.Add({.line = lines_.at("asha")}, "asha", "is read with sweep.strategy: asha only; leave it out");
    }
    for (const search::Dimension& dimension : sweep.space) {
      if (sweep.strategy.name != "grid" && dimension.steps > 0) {
        const std::string full = absl::StrCat(kSpace, ".", dimension.name, ".points");
        errors_.Add({.line = lines_.at(full)}, full, "is read with sweep.strategy: grid only; leave it out");
      }
      if (sweep.strategy.name == "asha" && (dimension.name == "train.steps" || dimension.name == "train.epochs")) {
        const std::string full = absl::StrCat(kSpace, ".", dimension.name);
        errors_.Add({.line = lines_.at(full)}, full,
                    "the rungs of asha say how many steps a trial has; leave it out, or take another strategy");
      }
    }
    CheckThatKeysAreSetOnce();
    if (!errors_.empty()) return;
    const absl::StatusOr<search::SearchSpace> space = search::SearchSpace::Create(sweep.space);
    if (!space.ok()) return errors_.Add({}, kSpace, std::string(space.status().message()));
    search::StrategyOptions options = sweep.strategy;
    if (options.name != "asha") options.rungs = 1;
    if (const auto strategy = search::MakeStrategy(*space, options); !strategy.ok()) {
      errors_.Add({}, kSpace, std::string(strategy.status().message()));
    }
  }

  /// Of two dimensions with one key the table of results would say both. They may have it where no trial has both.
  void CheckThatKeysAreSetOnce() {
    std::map<std::string, std::vector<const search::Dimension*>> setters;
    for (const search::Dimension& dimension : raw_.sweep.space) {
      for (const std::string& key : KeysOf(dimension)) {
        std::vector<const search::Dimension*>& before = setters[key];
        const auto clashes = [&](const search::Dimension* other) {
          const auto &a = dimension.condition, &b = other->condition;
          return !a.has_value() || !b.has_value() || a->name != b->name || a->value == b->value;
        };
        const auto found = std::find_if(before.begin(), before.end(), clashes);
        if (found != before.end()) {
          const std::string full = absl::StrCat(kSpace, ".", dimension.name);
          errors_.Add({.line = lines_.at(full)}, full,
                      absl::StrCat("sets ", key, ", as space.", (*found)->name,
                                   " does; a trial can have one value of it only"));
        }
        before.push_back(&dimension);
      }
    }
  }

  static std::set<std::string> KeysOf(const search::Dimension& dimension) {
    if (absl::StrContains(dimension.name, '.')) return {dimension.name};
    std::set<std::string> keys;
    for (const std::string& choice : dimension.choices) {
      for (const absl::string_view each : absl::StrSplit(choice, ' ', absl::SkipEmpty())) {
        keys.emplace(each.substr(0, each.find('=')));
      }
    }
    return keys;
  }

  void CheckHosts() {
    const SweepConfig& sweep = raw_.sweep;
    if (!sweep.hosts.empty() && lines_.contains("sweep.workers")) {
      errors_.Add({.line = lines_.at("sweep.workers")}, "sweep.workers",
                  "the hosts say how many workers they have; leave one of both out");
    }
    const bool others = std::any_of(sweep.hosts.begin(), sweep.hosts.end(),
                                    [](const SweepHost& host) { return !host.command.empty(); });
    if (others && !lines_.contains("sweep.listen")) {
      errors_.Add({.line = lines_.at(kHosts)}, kHosts,
                  "sweep.listen is missing: the address of this machine at which its hosts reach it");
    }
    if (sweep.listen == "0.0.0.0" || sweep.listen == "::") {
      errors_.Add({.line = lines_.at("sweep.listen")}, "sweep.listen",
                  "has to be one address of this machine, as hosts are told to go there");
    }
  }

  ErrorList errors_;
  Raw raw_;
  std::map<std::string, int> lines_;
};

std::string DimensionText(const search::Dimension& d) {
  const std::string values =
      d.scale == search::Scale::kChoice
          ? absl::StrCat("choices [", absl::StrJoin(d.choices, ", "), "]")
          : absl::StrCat(d.scale == search::Scale::kLog ? "log " : "linear ", NumberText(d.low), " to ",
                         NumberText(d.high), d.steps > 0 ? absl::StrCat(" points ", d.steps) : "");
  return absl::StrCat(
      values, d.condition.has_value() ? absl::StrCat(" when ", d.condition->name, "=", d.condition->value) : "");
}

}  // namespace

const char* NameOf(CostKind kind) {
  switch (kind) {
    case CostKind::kFlops:
      return "flops";
    case CostKind::kTokens:
      return "tokens";
    case CostKind::kSeconds:
      return "seconds";
  }
  return "";
}

absl::StatusOr<SweepConfig> ParseSweepConfig(const std::string& text, const std::string& path) {
  return Reader(path).Read(text);
}

absl::StatusOr<SweepConfig> LoadSweepConfig(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) return Annotate(text.status(), "cannot read the sweep");
  return ParseSweepConfig(*text, path);
}

std::string IdentityText(const SweepConfig& config) {
  std::string text =
      absl::StrCat("sweep.config: ", config.config, "\nsweep.set: ", absl::StrJoin(config.overrides, " "),
                   "\nsweep.strategy: ", config.strategy.name, "\nsweep.seed: ", config.strategy.seed,
                   "\nsweep.metric: ", config.metric, "\nsweep.goal: ", config.maximize ? "maximize" : "minimize",
                   "\nsweep.cost: ", NameOf(config.cost), "\nsweep.parallel: ", config.parallel,
                   "\nasha: ", config.strategy.rungs, " rungs, reduction ", config.strategy.reduction, "\n");
  for (const search::Dimension& dimension : config.space) {
    absl::StrAppend(&text, "space.", dimension.name, ": ", DimensionText(dimension), "\n");
  }
  return text;
}

}  // namespace holdfast
