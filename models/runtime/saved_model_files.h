#pragma once
// Everything a saved model holds besides its weights, so that transformers loads it with its tokenizer.

#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/saved_model.h"
#include "framework/config/config.h"

namespace holdfast {

/// As torch calls it.
std::string TorchName(FileDType dtype);

/// `tokenizer` as in DataConfig. Settings beside its tokenizer.json (tokenizer_config.json, generation_config.json,
/// special_tokens_map.json, added_tokens.json, chat_template.jinja, additional_chat_templates) are taken over. `dtype`:
/// of the weights. `base`: the directory of the model that this one was made of, whose config.json says what no config
/// of a run does (HuggingFaceConfigJson), else the one beside the tokenizer; empty: none.
absl::StatusOr<SavedModelFiles> MakeSavedModelFiles(const ModelConfig& model, const std::string& tokenizer,
                                                    FileDType dtype, const std::string& base = "");

/// Whether its tokenizer brings a chat template, in a file or in tokenizer_config.json.
bool HasChatTemplate(const SavedModelFiles& files);

/// Whether a saved model or a tokenizer in `directory` has one.
bool HoldsChatTemplate(const std::string& directory);

/// Takes over the chat templates in files of `directory`, which somebody may have written there for the model that
/// `files` will replace, unless `files` has one; true if it did.
bool KeepChatTemplate(const std::string& directory, SavedModelFiles* files);

}  // namespace holdfast
