#include "tools/cli/sample_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/byte_order_mark.h"
#include "framework/base/counted.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/chat/chat_template.h"
#include "framework/chat/tokenizer_settings.h"
#include "framework/data/document_reader.h"
#include "framework/metrics/progress.h"
#include "models/stop_text.h"
#include "tools/cli/dtype_argument.h"
#include "tools/cli/run_record.h"
#include "tools/cli/talk.h"
#include "tools/cli/terminal_text.h"

namespace holdfast {
namespace {

/// The texts of all requests, printed in the order of requests: a single one as it comes, several whole, each below a
/// line that says whose it is.
class SampleTexts {
 public:
  /// `heads`: of each request, what is printed before its text, of `tokens` tokens at most.
  SampleTexts(std::vector<std::string> heads, const std::vector<std::string>& stops, int64_t tokens)
      : ready_(std::move(heads)), texts_(ready_.size(), StopText(stops)), done_(ready_.size()) {
    if (ready_.size() > 1) {
      progress_.emplace("sampling", static_cast<int64_t>(ready_.size()) * tokens, "tokens");
    } else {
      Print(std::exchange(ready_[0], ""));
    }
    left_.assign(ready_.size(), tokens);
  }

  /// Whether the request is to be continued.
  bool Add(size_t request, const std::string& piece) {
    const std::string sure = texts_[request].Add(piece);
    progress_.has_value() ? void(ready_[request] += sure) : Print(sure);
    --left_[request];
    ++sampled_;
    if (progress_.has_value()) progress_->Update(sampled_);
    if (texts_[request].stopped() || left_[request] == 0) End(request);
    return !texts_[request].stopped();
  }

  /// There is no more of the request.
  void End(size_t request) {
    if (done_[request]) return;
    done_[request] = true;
    if (progress_.has_value()) progress_->ReduceTotal(left_[request]);
    ready_[request] += texts_[request].Rest() + "\n";
    for (; next_ < done_.size() && done_[next_]; ++next_) {
      if (progress_.has_value()) progress_->Clear();
      Print(std::exchange(ready_[next_], ""));
    }
  }

  int64_t sampled() const { return sampled_; }

  void Finish() {
    for (size_t request = 0; request < done_.size(); ++request) End(request);
    if (progress_.has_value()) progress_->Finish();
  }

 private:
  void Print(const std::string& text) {
    const std::string shown = shown_.Add(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  TerminalPieces shown_{isatty(STDOUT_FILENO) != 0};
  std::vector<std::string> ready_;  // to be printed when all before are done
  std::vector<StopText> texts_;
  std::vector<bool> done_;
  std::vector<int64_t> left_;  // tokens that may still come
  size_t next_ = 0;            // the first that is not printed
  int64_t sampled_ = 0;        // tokens
  std::optional<Progress> progress_;
};

std::string Today() { return absl::FormatTime("%Y-%m-%d", absl::Now(), absl::LocalTimeZone()); }

}  // namespace

absl::StatusOr<std::vector<std::string>> SampleCommand::Prompts() const {
  std::vector<std::string> all = prompts;
  if (!prompts_file.empty()) {
    LocalFileAccess files;
    ASSIGN_OR_RETURN(InputFile input, InputFile::Open(files, prompts_file));
    const auto take = [&](std::string_view line) {
      if (all.size() == prompts.size()) line = WithoutByteOrderMark(line);
      if (line.ends_with('\r')) line.remove_suffix(1);
      all.emplace_back(line);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ReadLines(input, take, [](int64_t) {}));
    if (all.size() == prompts.size()) return absl::InvalidArgumentError(prompts_file + ": no prompt");
  }
  if (all.empty()) all.emplace_back("\n");
  return all;
}

absl::StatusOr<SampleCommand::Start> SampleCommand::StartOf(const SavedModel& saved,
                                                            const std::vector<std::string>& given) const {
  Start start{.texts = given, .prefix = {}, .ends = {}, .chat_template = {}};
  if (saved.tokenizer->end_of_text().has_value()) start.ends.push_back(*saved.tokenizer->end_of_text());
  if (saved.tokenizer_directory != saved.directory) {  // beside adapters there is hardly ever a generation_config.json
    ASSIGN_OR_RETURN(const TokenizerSettings of_model, ReadTokenizerSettings(saved.directory));
    start.ends.insert(start.ends.end(), of_model.ends.begin(), of_model.ends.end());
  }
  if (!chat) {
    // Where they differ, text that was packed without a template ends with the one, prompts with completions (`data
    // pack --chat`) with the other.
    ASSIGN_OR_RETURN(const TokenizerSettings settings, ReadTokenizerSettings(saved.tokenizer_directory));
    RETURN_IF_ERROR(CheckPrefix(settings, saved.config.vocab_size));
    start.prefix = settings.prefix;
    start.ends.insert(start.ends.end(), settings.ends.begin(), settings.ends.end());
    ASSIGN_OR_RETURN(const std::optional<int32_t> end, EndOfText(*saved.tokenizer, settings));
    if (end.has_value()) start.ends.push_back(*end);
    return start;
  }
  ASSIGN_OR_RETURN(start.chat_template,
                   ChatTemplate::Open(saved.tokenizer_directory, {.date = date.empty() ? Today() : date}));
  const ChatTemplate& opened = *start.chat_template;
  for (std::string& text : start.texts) {
    ASSIGN_OR_RETURN(text, conversation_file.empty() ? opened.RenderPrompt(system, text) : TextOfConversation(opened));
  }
  const std::vector<int32_t>& ends = opened.ends();
  start.ends.insert(start.ends.end(), ends.begin(), ends.end());
  if (opened.end_of_text().has_value()) start.ends.push_back(*opened.end_of_text());
  return start;
}

absl::StatusOr<std::string> SampleCommand::TextOfConversation(const ChatTemplate& opened) const {
  LocalFileAccess files;
  ASSIGN_OR_RETURN(InputFile input, InputFile::Open(files, conversation_file));
  ASSIGN_OR_RETURN(const Conversation conversation, ReadUnanswered(input));
  if (opened.LeavesOutTools(conversation)) {
    LogWarning(input.name(), ": the chat template leaves out the tools, or the calls of tools: it does not name them");
  }
  if (opened.LeavesOutReasoning(conversation)) {
    LogWarning(input.name(), ": the chat template leaves out the reasoning: it does not name it");
  }
  return opened.Render(conversation, /*add_generation_prompt=*/true);
}

absl::StatusOr<std::vector<SampleRequest>> SampleCommand::Requests(const SavedModel& saved, const Start& start) const {
  const int64_t longest = saved.config.max_sequence_length;
  const bool is_prompt = !IsTalk() && conversation_file.empty();
  std::vector<SampleRequest> requests;
  for (size_t i = 0; i < start.texts.size(); ++i) {
    const std::string name = is_prompt ? absl::StrCat("prompt ", i + 1) : "the conversation";
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, saved.Encode(start.texts[i]));
    PutBefore(start.prefix, tokens);
    if (tokens.empty()) return absl::InvalidArgumentError(name + " is empty");
    if (static_cast<int64_t>(tokens.size()) > longest) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", tokens.size(), " tokens, and the model takes ", longest));
    }
    for (uint32_t number = 0; number < samples; ++number) requests.push_back({tokens, number});
  }
  return requests;
}

absl::StatusOr<int> SampleCommand::TalkWith(const LoadedModel& loaded, const Start& start) const {
  const TalkOptions talk{.system = system,
                         .ends = start.ends,
                         .stops = stops,
                         .sample = options,
                         .asks = isatty(STDIN_FILENO) != 0,
                         .tells_of_cuts = isatty(STDERR_FILENO) != 0,
                         .to_terminal = isatty(STDOUT_FILENO) != 0};
  RETURN_IF_ERROR(Talk(loaded, *start.chat_template, talk, std::cin));
  return kExitDone;
}

absl::StatusOr<int> SampleCommand::Run() const {
  if (IsTalk() && samples > 1) {
    return absl::InvalidArgumentError(
        "--samples: a conversation has one answer to each message; for several give --prompt or --conversation");
  }
  // A line end stands for the conversation that is still to come: what is wrong with its template is said at once.
  ASSIGN_OR_RETURN(const std::vector<std::string> given, Prompts());
  ASSIGN_OR_RETURN(SavedModel saved, ExplainSweep(OpenSavedModel(model), model));
  if (saved.tokenizer == nullptr) {
    return absl::InvalidArgumentError(model + " has no tokenizer.json, so text cannot be sampled from it");
  }
  ASSIGN_OR_RETURN(const Start start, StartOf(saved, given));
  ASSIGN_OR_RETURN(const std::vector<SampleRequest> requests, Requests(saved, start));
  if (const std::string warning = TooManyThreadsWarning("--threads", threads); !warning.empty()) LogWarning(warning);
  int64_t context = IsTalk() ? saved.config.max_sequence_length : 0;
  for (const SampleRequest& request : requests) {
    const int64_t needed = static_cast<int64_t>(request.prompt.size()) + options.tokens;
    context = std::min(std::max(context, needed), saved.config.max_sequence_length);
  }
  ASSIGN_OR_RETURN(
      const auto loaded,
      LoadWeightsOf(std::move(saved),
                    {.compute_dtype = dtype, .threads = threads, .sequence = context, .whole_batches = false}));
  if (IsTalk()) return TalkWith(*loaded, start);
  ASSIGN_OR_RETURN(const auto decoder,
                   loaded->MakeDecoder(std::min(batch, static_cast<int64_t>(requests.size())), context));

  const auto name = [&](size_t request) {
    const auto of_prompt = static_cast<size_t>(samples);
    return absl::StrCat(conversation_file.empty() ? absl::StrCat("prompt ", request / of_prompt + 1, ", ") : "",
                        "sample ", request % of_prompt + 1);
  };
  std::vector<std::string> heads;
  for (size_t request = 0; request < requests.size(); ++request) {
    const std::string& prompt = given[request / static_cast<size_t>(samples)];
    heads.push_back(absl::StrCat(requests.size() > 1 ? "--- " + name(request) + "\n" : "", chat ? "" : prompt));
  }
  SampleTexts texts(std::move(heads), stops, options.tokens);
  const auto accept = [&](size_t request, int32_t token) {
    const bool ends = std::find(start.ends.begin(), start.ends.end(), token) != start.ends.end();
    if (ends) texts.End(request);
    return !ends && texts.Add(request, loaded->tokenizer->Decode({token}));
  };
  const auto start_time = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const std::vector<SampleEnd> ends, GenerateTokens(*decoder, requests, options, accept));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_time;
  texts.Finish();
  LogDebug("sampled ", Counted(texts.sampled(), "token"), " in ", seconds.count(), " s, prompts included");
  for (size_t request = 0; request < ends.size(); ++request) {
    if (ends[request] != SampleEnd::kContextFull) continue;
    LogWarning(name(request), " ended early: the model takes ", Counted(context, "token"));
  }
  return kExitDone;
}

void SampleCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "MODEL", model, "directory of a saved model or of adapters, or a run directory")->required();
  auto* of_prompt = command
                        .add_option("--prompt", prompts,
                                    "text to continue, default a line end; with --chat a message to answer, default a "
                                    "conversation; may be repeated")
                        ->allow_extra_args(false);
  auto* of_prompts =
      command.add_option("--prompts", prompts_file, "file of prompts, one on each line, after those of --prompt");
  command.add_option("--samples", samples, absl::StrCat("texts of each prompt; default ", samples))
      ->check(WholeNumberWithin(1, 1'000'000));
  command
      .add_option("--batch", batch,
                  absl::StrCat("texts sampled at a time, which changes none of them; default ", batch))
      ->check(WholeNumberWithin(1, 4096));
  auto* is_chat = command.add_flag("--chat", chat,
                                   "write prompts by the model's chat template; with no prompt, each line of standard "
                                   "input is a message of a conversation, until its end or an empty line");
  auto* of_system = command.add_option("--system", system, "a system message before each prompt, or the conversation")
                        ->needs(is_chat);
  AddPathOption(command, "--conversation", conversation_file,
                "JSON with \"messages\", the last of which is answered, and \"tools\" if there are any; - = standard "
                "input")
      ->needs(is_chat)
      ->excludes(of_prompt)
      ->excludes(of_prompts)
      ->excludes(of_system);
  command.add_option("--date", date, "YYYY-MM-DD, for templates that write the date; default today")
      ->needs(is_chat)
      ->check(IsDate());
  command.add_option("--stop", stops, "end before this text; may be repeated")
      ->allow_extra_args(false)
      ->check([](const std::string& stop) {
        return stop.empty() ? std::string("a stop must not be empty") : std::string();
      });
  command.add_option("--tokens", options.tokens, absl::StrCat("most tokens of each text; default ", options.tokens))
      ->check(WholeNumberWithin(1, 1'000'000));
  command
      .add_option("--temperature", options.temperature,
                  absl::StrCat("0 = always the likeliest; default ", options.temperature))
      ->check(NumberWithin(0, 100));
  command
      .add_option("--top-k", options.top_k,
                  absl::StrCat("sample among the k likeliest; 0 = all; default ", options.top_k))
      ->check(NotNegative());
  command
      .add_option("--top-p", options.top_p,
                  absl::StrCat("sample among the likeliest, up to this share of their probability; 1 = all; default ",
                               options.top_p))
      ->check(NumberWithin(0, 1));
  command.add_option("--seed", options.seed, absl::StrCat("the same seed gives the same text; default ", options.seed))
      ->check(IsSeed());
  AddDTypeOption(command, dtype);
  command.add_option("--threads", threads, "threads that compute; 0, the default: all processors")
      ->check(WholeNumberWithin(0, 4096));
}

}  // namespace holdfast
