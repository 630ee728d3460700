#include "models/runtime/saved_model_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/model_directory.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/data/chat_template_bytes.h"
#include "framework/data/tokenizer.h"
#include "framework/data/tokenizer_json.h"
#include "models/families/huggingface.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

constexpr char kBytes[] = "bytes", kSpecialTokensMapFile[] = "special_tokens_map.json",
               kAddedTokensFile[] = "added_tokens.json";
constexpr size_t kMaxTokenizerBytes = 100'000'000;
constexpr size_t kMaxSettingsBytes = size_t{16} << 20;

/// A file; empty if it is not there, or `directory` is empty. What cannot be read is left out: a model is not lost for
/// it.
std::string SettingsIn(const std::string& directory, const std::string& name) {
  return directory.empty() ? "" : ReadFile(absl::StrCat(directory, "/", name), kMaxSettingsBytes).value_or("");
}

/// The token that the settings name, else the one that the tokenizer itself has for the purpose; none if they say none,
/// or the model has no embedding for it.
std::optional<SpecialToken> Find(const Tokenizer& tokenizer, const std::optional<std::string>& text,
                                 std::optional<int32_t> own, int64_t vocab_size) {
  if (text == "") return std::nullopt;
  if (text.has_value()) {
    const auto ids = tokenizer.Encode(*text);
    if (ids.ok() && ids->size() == 1) {
      return ids->front() < vocab_size ? std::optional(SpecialToken{ids->front(), *text}) : std::nullopt;
    }
  }
  if (!own.has_value() || *own >= vocab_size) return std::nullopt;
  return SpecialToken{*own, tokenizer.Decode({*own})};
}

bool IsChatTemplate(const std::string& name) {
  return name == kChatTemplateFile || fs::path(name).parent_path() == kChatTemplateDirectory;
}

/// The chat templates in a directory, by the names of their files there: chat_template.jinja and those in
/// additional_chat_templates. One that is empty, cannot be read, or is larger than those that are read for use, is left
/// out, the latter with a warning: a model is not lost for it.
std::map<std::string, std::string> ChatTemplatesIn(const std::string& directory) {
  std::vector<std::string> names{kChatTemplateFile};
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return {};
  for (const auto& entry : fs::directory_iterator(fs::path(directory) / kChatTemplateDirectory, ignored)) {
    if (entry.path().extension() == ".jinja") names.push_back(kChatTemplateDirectory / entry.path().filename());
  }
  std::map<std::string, std::string> templates;
  for (const std::string& name : names) {
    auto contents = ReadFile(absl::StrCat(directory, "/", name), kChatTemplateBytesMax);
    if (contents.ok() && !contents->empty()) {
      templates[name] = *std::move(contents);
    } else if (!contents.ok() && !absl::IsNotFound(contents.status())) {
      LogWarning("the chat template is not saved with the model: ", contents.status().message());
    }
  }
  return templates;
}

/// The contents of a tokenizer_config.json.
bool SaysChatTemplate(const std::string& settings) {
  const nlohmann::json object = ParseJson(settings).value_or(nullptr);
  return object.is_object() && object.contains("chat_template") && !object["chat_template"].is_null();
}

bool HasChatTemplateFile(const SavedModelFiles& files) {
  return std::ranges::any_of(files.others, [](const auto& file) { return IsChatTemplate(file.first); });
}

}  // namespace

std::string TorchName(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF32:
      return "float32";
    case FileDType::kF16:
      return "float16";
    case FileDType::kBF16:
      return "bfloat16";
    case FileDType::kOther:
      break;
  }
  return "";
}

absl::StatusOr<SavedModelFiles> MakeSavedModelFiles(const ModelConfig& model, const std::string& tokenizer,
                                                    FileDType dtype, const std::string& base) {
  const std::string file = TokenizerFileOf(tokenizer);
  ASSIGN_OR_RETURN(const auto opened, OpenTokenizer(file));
  RETURN_IF_ERROR(CheckVocabulary(*opened, file, model.vocab_size));
  SavedModelFiles files;
  SavedTokenizer saved{.bytes = file == kBytes};
  const std::string beside = saved.bytes ? "" : DirectoryOf(file);
  const std::string settings = SettingsIn(beside, kTokenizerConfigFile);
  if (saved.bytes) {
    files.others[kTokenizerFile] = ByteTokenizerJson();
  } else {
    ASSIGN_OR_RETURN(files.others[kTokenizerFile], ReadFile(file, kMaxTokenizerBytes));
    for (const char* older : {kSpecialTokensMapFile, kAddedTokensFile}) {
      std::string content = SettingsIn(beside, older);
      if (!content.empty()) files.others[older] = std::move(content);
    }
    files.others.merge(ChatTemplatesIn(beside));
  }
  const SpecialTokenTexts texts = ReadTokenizerConfigJson(settings);
  // As the chat template takes it (framework/chat/tokenizer_settings.h).
  const SpecialTokenTexts older =
      ReadTokenizerConfigJson(texts.adds_tokens ? "" : SettingsIn(beside, kSpecialTokensMapFile));
  saved.bos = Find(*opened, older.bos.has_value() ? older.bos : texts.bos, opened->begin_of_text(), model.vocab_size);
  saved.eos = Find(*opened, older.eos.has_value() ? older.eos : texts.eos, opened->end_of_text(), model.vocab_size);
  files.others[kTokenizerConfigFile] = HuggingFaceTokenizerConfigJson(model, saved, settings);
  const std::string config = SettingsIn(beside, kConfigFile), config_of_base = SettingsIn(base, kConfigFile);
  std::string generation = SettingsIn(beside, kGenerationConfigFile);
  if (generation.empty()) generation = ImpliedGenerationConfigJson(config, model.vocab_size);
  files.others[kGenerationConfigFile] = HuggingFaceGenerationConfigJson(saved, generation);
  files.config_json =
      HuggingFaceConfigJson(model, saved, TorchName(dtype), config_of_base.empty() ? config : config_of_base);
  return files;
}

bool HasChatTemplate(const SavedModelFiles& files) {
  if (HasChatTemplateFile(files)) return true;
  const auto settings = files.others.find(kTokenizerConfigFile);
  return settings != files.others.end() && SaysChatTemplate(settings->second);
}

bool HoldsChatTemplate(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(fs::path(directory) / kChatTemplateFile, ignored) ||
         fs::exists(fs::path(directory) / kChatTemplateDirectory, ignored) ||
         SaysChatTemplate(SettingsIn(directory, kTokenizerConfigFile));
}

bool KeepChatTemplate(const std::string& directory, SavedModelFiles* files) {
  if (HasChatTemplateFile(*files)) return false;
  std::map<std::string, std::string> written = ChatTemplatesIn(directory);
  files->others.merge(written);
  return HasChatTemplateFile(*files);
}

}  // namespace holdfast
