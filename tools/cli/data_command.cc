#include "tools/cli/data_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/model_directory.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/base/format_bytes.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/data/pack.h"
#include "framework/data/token_file.h"
#include "framework/data/token_index.h"
#include "framework/data/token_stats.h"
#include "framework/data/tokenizer.h"
#include "framework/metrics/progress.h"
#include "tools/cli/place_arguments.h"
#include "tools/cli/stoppable.h"
#include "tools/cli/terminal_text.h"

namespace holdfast {
namespace {

constexpr int kShownSamples = 14;  // blocks that `show` compares with the index

void PrintPackReport(const DataPackCommand& arguments, const Tokenizer& tokenizer, const PackReport& report) {
  const bool documents = arguments.options.documents;
  const std::string bits = documents ? "marked" : tokenizer.vocab_size() <= 65536 ? "uint16" : "uint32";
  const int64_t tokens = report.tokens + report.validation_tokens;
  std::printf("read        %s in %s%s\n", FormatBytes(static_cast<double>(report.input_bytes)).c_str(),
              Counted(report.documents, "document").c_str(),
              report.empty_documents > 0 ? absl::StrFormat(" (%d of them empty)", report.empty_documents).c_str() : "");
  std::printf("tokens      %lld (%.2f bytes per token), vocabulary %lld, %s\n", static_cast<long long>(tokens),
              static_cast<double>(report.text_bytes) / static_cast<double>(tokens),
              static_cast<long long>(tokenizer.vocab_size()), bits.c_str());
  if (!documents && !tokenizer.end_of_text().has_value() && report.documents > 1) {
    std::printf("note        %s: nothing marks where a document ends\n", NoEndOfText(arguments.tokenizer).c_str());
  }
  std::printf("written     %s: %s\n", arguments.options.paths.output.c_str(), Counted(report.tokens, "token").c_str());
  if (report.validation_tokens == 0) return;
  std::printf("written     %s: %s, the last %.4g%% of the input\n", arguments.options.paths.validation_output.c_str(),
              Counted(report.validation_tokens, "token").c_str(),
              100.0 * static_cast<double>(report.validation_tokens) / static_cast<double>(tokens));
}

void PrintRows(const std::string& path, const PackedRows& packed, int64_t row_tokens) {
  const double room = static_cast<double>(packed.rows) * static_cast<double>(row_tokens);
  std::printf("written     %s: %s in %s of %s, %.1f%% full; %s, %.1f%% of them learned\n", path.c_str(),
              Counted(packed.conversations, "conversation").c_str(), Counted(packed.rows, "row").c_str(),
              Counted(row_tokens, "token").c_str(), 100 * static_cast<double>(packed.tokens) / room,
              Counted(packed.tokens, "token").c_str(),
              100 * static_cast<double>(packed.learned_tokens) / static_cast<double>(packed.tokens));
}

void PrintChatReport(const PackConversationsOptions& options, const PackConversationsReport& report) {
  const bool cut = options.too_long == PackConversationsOptions::TooLong::kCut;
  std::printf("read        %s, the longest of %s\n", Counted(report.conversations, "conversation").c_str(),
              Counted(report.longest, "token").c_str());
  if (report.too_long > 0) {
    std::printf("too long    %lld of more than %s %s %s\n", static_cast<long long>(report.too_long),
                Counted(options.row_tokens, "token").c_str(), report.too_long == 1 ? "was" : "were",
                cut ? "cut" : "left out (--too-long cut keeps the beginning)");
  }
  if (report.without_learned > 0) {
    std::printf("left out    %lld in which nothing is learned\n", static_cast<long long>(report.without_learned));
  }
  if (report.left_out_tools > 0) {
    std::printf(
        "note        the chat template leaves out the tools, or the calls of tools, of %s: it does not name them\n",
        Counted(report.left_out_tools, "conversation").c_str());
  }
  if (report.left_out_reasoning > 0) {
    std::printf("note        the chat template leaves out reasoning of %s, which is not learned\n",
                Counted(report.left_out_reasoning, "conversation").c_str());
  }
  if (report.left_out_calls > 0) {
    std::printf("note        the chat template leaves out further calls of tools of a message in %s\n",
                Counted(report.left_out_calls, "conversation").c_str());
  }
  if (report.left_out_system > 0) {
    std::printf("note        the chat template leaves out text of messages of the system in %s\n",
                Counted(report.left_out_system, "conversation").c_str());
  }
  if (report.without_end > 0) {
    std::printf("note        no end of the last answer is learned in %s: the model is not taught to stop there\n",
                Counted(report.without_end, "conversation").c_str());
  }
  PrintRows(options.paths.output, report.training, options.row_tokens);
  if (report.validation.rows > 0) PrintRows(options.paths.validation_output, report.validation, options.row_tokens);
  std::printf("train with  batch.sequence_length: %lld\n", static_cast<long long>(options.row_tokens));
}

/// The progress of packing, whose total is known with the first call.
class PackBar {
 public:
  std::function<void(int64_t, int64_t)> Callback() {
    return [this](int64_t done, int64_t total) {
      if (bar_ == nullptr) bar_ = std::make_unique<Progress>("packing", total, "B");
      bar_->Update(done);
    };
  }
  template <typename Report>
  Report End(Report report) {
    if (report.ok() && bar_ != nullptr) bar_->Finish();
    bar_.reset();
    return report;
  }

 private:
  std::unique_ptr<Progress> bar_;
};

std::string OnOneLine(std::string_view text) {
  std::string result;
  for (const char c : TerminalText(text)) result += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  return result;
}

void PrintMostFrequent(const TokenStats& stats, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < stats.counts.size(); ++id) {
    if (stats.counts[id] > 0) ids.push_back(static_cast<int32_t>(id));
  }
  const auto more_frequent = [&](int32_t a, int32_t b) {
    return stats.counts[a] != stats.counts[b] ? stats.counts[a] > stats.counts[b] : a < b;
  };
  const size_t shown = std::min<size_t>(ids.size(), 10);
  std::partial_sort(ids.begin(), ids.begin() + shown, ids.end(), more_frequent);
  const double most = shown > 0 ? static_cast<double>(stats.counts[ids[0]]) : 1;
  for (size_t i = 0; i < shown; ++i) {
    const auto count = static_cast<double>(stats.counts[ids[i]]);
    const std::string bar(static_cast<size_t>(std::lround(30 * count / most)), '#');
    const std::string text = tokenizer ? "'" + OnOneLine(tokenizer->Decode({ids[i]})) + "'" : "";
    std::printf("  %8d  %6.2f%%  %-30s  %s\n", ids[i], 100 * count / static_cast<double>(stats.count), bar.c_str(),
                text.c_str());
  }
}

std::string TextOf(absl::Span<const uint32_t> tokens, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return absl::StrJoin(tokens, " ");
  return TerminalText(tokenizer->Decode(std::vector<int32_t>(tokens.begin(), tokens.end())));
}

/// Of a file with marks: each document from a new line on, and what of it is learned in brackets.
void PrintMarked(absl::Span<const uint32_t> marked, const Tokenizer* tokenizer) {
  // The first token of a document is nobody's target.
  const auto is_learned = [&](size_t i) { return (marked[i] & (kNotLearned | kDocumentStart)) == 0; };
  std::vector<uint32_t> part;
  for (size_t i = 0; i < marked.size(); ++i) {
    part.push_back(marked[i] & kTokenBits);
    const bool ends_document = i + 1 == marked.size() || (marked[i + 1] & kDocumentStart) != 0;
    if (!ends_document && is_learned(i + 1) == is_learned(i)) continue;
    const char* const end = ends_document ? "\n" : tokenizer == nullptr ? " " : "";
    std::printf(is_learned(i) ? "⟦%s⟧%s" : "%s%s", TextOf(part, tokenizer).c_str(), end);
    part.clear();
  }
}

absl::Status PrintTokens(const TokenFile& file, const DataShowCommand& arguments, const Tokenizer* tokenizer) {
  const int64_t count = std::min(arguments.tokens, file.num_tokens() - arguments.at);
  const bool has_marks = file.kind().has_marks;
  std::printf("tokens %lld to %lld%s:\n", static_cast<long long>(arguments.at),
              static_cast<long long>(arguments.at + count - 1),
              has_marks ? ", each document from a new line on, what is learned in ⟦ ⟧" : "");
  if (has_marks) {
    std::vector<uint32_t> marked(count);
    RETURN_IF_ERROR(file.ReadMarked(arguments.at, absl::MakeSpan(marked)));
    PrintMarked(marked, tokenizer);
  } else {
    std::vector<int32_t> tokens(count);
    RETURN_IF_ERROR(file.Read(arguments.at, absl::MakeSpan(tokens)));
    std::printf("%s\n", TextOf(std::vector<uint32_t>(tokens.begin(), tokens.end()), tokenizer).c_str());
  }
  if (tokenizer == nullptr) std::printf("(--tokenizer bytes or a tokenizer.json shows them as text)\n");
  return absl::OkStatus();
}

/// "none", or whether it agrees with the file in what can be told without reading all of that.
std::string DescribeIndex(FileAccess& files, const std::string& path, const TokenFile& file) {
  const absl::StatusOr<TokenIndex> index = ReadTokenIndex(files, path);
  if (absl::IsNotFound(index.status())) return "none (holdfast data index makes one)";
  const absl::Status status =
      index.ok() ? CheckSomeBlocks(file, *index, kShownSamples, /*seed=*/0) : absl::Status(index.status());
  if (!status.ok()) return std::string(status.message());
  return absl::StrFormat("digest %016x, %s; some of them compared", index->digest,
                         Counted(static_cast<int64_t>(index->blocks.size()), "block"));
}

std::string DescribeKind(const TokenFileKind& kind) {
  if (!kind.has_marks && kind.row_tokens == 0)
    return absl::StrFormat("llm.c .bin, uint%d tokens", 8 * kind.bytes_per_token);
  return absl::StrFormat("Holdfast's, uint%d tokens%s%s", 8 * kind.bytes_per_token,
                         kind.has_marks ? " with marks of documents and of what is not learned" : "",
                         kind.row_tokens > 0 ? absl::StrFormat(", rows of %d", kind.row_tokens) : "");
}

/// A bar for each file that is read as a whole.
class ReadBar {
 public:
  ReadProgress Callback() {
    return [this](const std::string& path, int64_t done, int64_t total) {
      if (bar_ == nullptr) bar_ = std::make_unique<Progress>("reading " + path, total, "B");
      bar_->Update(done);
    };
  }

 private:
  std::unique_ptr<Progress> bar_;
};

/// OK if the file is the one that was indexed, to the last token.
absl::Status VerifyFile(FileAccess& files, const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, TokenFile::Open(files, path));
  const absl::StatusOr<TokenIndex> index = ReadTokenIndex(files, path);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no ", TokenIndexPath(path), " to compare it with"));
  }
  RETURN_IF_ERROR(index.status());
  ReadBar bar;
  ASSIGN_OR_RETURN(const std::vector<int64_t> others, CompareWithIndex(*file, *index, bar.Callback()));
  if (others.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: not what was indexed in %d of %s, the first at byte %d", path,
                                             others.size(),
                                             Counted(static_cast<int64_t>(index->blocks.size()), "block"),
                                             TokenFile::OffsetOfStored(others[0] * kTokenBlockBytes)));
}

/// Of a tokenizer, and what lies beside it and is read with it.
std::vector<std::string> FilesOf(const std::string& tokenizer) {
  if (tokenizer == "bytes") return {};
  const std::string file = TokenizerFileOf(tokenizer);
  std::vector<std::string> files{file};
  for (const char* name : kOtherFiles) files.push_back(absl::StrCat(DirectoryOf(file), "/", name));
  return files;
}

}  // namespace

absl::StatusOr<int> DataPackCommand::Run() const {
  return RunStoppable("no token file was written", [this](const StopSignal& stop) {
    return chat ? PackChat(stop.token()) : PackText(stop.token());
  });
}

absl::StatusOr<int> DataPackCommand::PackText(const std::stop_token& stop) const {
  PackOptions pack = options;
  ASSIGN_OR_RETURN(const auto opened, OpenTokenizer(tokenizer));
  if (append_eot && !opened->end_of_text().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--append-eot: ", NoEndOfText(tokenizer), "; leave the flag out"));
  }
  pack.append_end_of_text = !no_eot;
  pack.paths.tokenizer = FilesOf(tokenizer);
  PackBar bar;
  pack.progress = bar.Callback();
  pack.stop = stop;
  ASSIGN_OR_RETURN(const auto files, OpenPlaces(places, stop));
  ASSIGN_OR_RETURN(const PackReport report, bar.End(Pack(*opened, pack, *files)));
  PrintPackReport(*this, *opened, report);
  return kExitDone;
}

absl::StatusOr<int> DataPackCommand::PackChat(const std::stop_token& stop) const {
  std::error_code error;
  const bool is_file = std::filesystem::path(tokenizer).filename() == "tokenizer.json";
  const std::string directory = is_file ? DirectoryOf(tokenizer) : tokenizer;
  if (!std::filesystem::is_directory(directory, error)) {
    RETURN_IF_ERROR(OpenTokenizer(tokenizer).status());  // says so where nothing is there
    return absl::InvalidArgumentError(
        absl::StrCat("--chat: the tokenizer ", tokenizer, " has no chat template; give ",
                     "--tokenizer the directory of a model's tokenizer.json and template"));
  }
  ASSIGN_OR_RETURN(const ChatTemplate opened, ChatTemplate::Open(directory, chat_options));
  PackBar bar;
  PackPaths paths = options.paths;
  paths.tokenizer = FilesOf(tokenizer);
  const PackConversationsOptions pack{.paths = paths,
                                      .row_tokens = sequence_length,
                                      .too_long = too_long,
                                      .threads = options.threads,
                                      .progress = bar.Callback(),
                                      .stop = stop};
  ASSIGN_OR_RETURN(const auto files, OpenPlaces(places, stop));
  ASSIGN_OR_RETURN(const PackConversationsReport report, bar.End(PackConversations(opened, pack, *files)));
  PrintChatReport(pack, report);
  return kExitDone;
}

absl::StatusOr<int> DataShowCommand::Run() const {
  Places files(places);
  ASSIGN_OR_RETURN(const auto file, TokenFile::Open(files, path));
  std::unique_ptr<const Tokenizer> opened;
  if (!tokenizer.empty()) {
    ASSIGN_OR_RETURN(opened, OpenTokenizer(tokenizer));
  }
  if (at > 0 && at >= file->num_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--at ", at, ": ", path, " has ", Counted(file->num_tokens(), "token")));
  }
  TokenStats stats;
  {
    ReadBar bar;  // ends before what is printed
    ASSIGN_OR_RETURN(stats, ComputeTokenStats(*file, bar.Callback()));
  }
  if (opened != nullptr) {  // a file that has a token beyond the vocabulary is no text of this tokenizer
    TokenIndex index;
    index.num_tokens = stats.count;
    index.largest = stats.largest;
    RETURN_IF_ERROR(AsDataMistake(CheckVocabulary(*file, index, opened->vocab_size())));
  }
  const int64_t bytes = 1024 + stats.count * file->bytes_per_token();
  std::printf("file        %s\nformat      %s\n", path.c_str(), DescribeKind(file->kind()).c_str());
  std::printf("tokens      %lld (%s on disk)\n", static_cast<long long>(stats.count),
              FormatBytes(static_cast<double>(bytes)).c_str());
  std::printf("index       %s\n", DescribeIndex(files, path, *file).c_str());
  if (stats.count == 0) return kExitDone;
  std::printf("ids         %u to %u, %lld distinct\n", stats.smallest, stats.largest,
              static_cast<long long>(stats.distinct));
  if (stats.uncounted > 0) {
    std::printf("warning     %s with an id beyond 16777215: not of any tokenizer\n",
                Counted(stats.uncounted, "token").c_str());
  }
  std::printf("entropy     %.3f bits per token (each token by itself)\nmost frequent\n", stats.entropy_bits);
  PrintMostFrequent(stats, opened.get());
  if (tokens > 0) RETURN_IF_ERROR(PrintTokens(*file, *this, opened.get()));
  return kExitDone;
}

absl::StatusOr<int> DataIndexCommand::Run() const {
  ASSIGN_OR_RETURN(const auto files, OpenPlaces(places));
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const auto file, TokenFile::Open(*files, path));
    RETURN_IF_ERROR(CheckIndexPlace(path));
    ReadBar bar;
    ASSIGN_OR_RETURN(const TokenIndex index, IndexTokens(*file, bar.Callback()));
    RETURN_IF_ERROR(WriteTokenIndex(*files, path, index));
    std::printf("%s  %s, largest %u, digest %016llx\n", TokenIndexPath(path).c_str(),
                Counted(index.num_tokens, "token").c_str(), index.largest,
                static_cast<unsigned long long>(index.digest));
  }
  return kExitDone;
}

absl::StatusOr<int> DataVerifyCommand::Run() const {
  Places files(places);
  int exit_code = kExitDone;
  for (const std::string& path : paths) {
    const absl::Status status = VerifyFile(files, path);
    if (status.ok()) {
      std::printf("%s  as it was indexed\n", path.c_str());
      continue;
    }
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
    const int code = ExitCodeOf(status);
    if (exit_code == kExitDone || code == kExitFailure) exit_code = code;  // damage, whatever else there is
  }
  return exit_code;
}

void DataPackCommand::AddTo(CLI::App& command) {
  options.threads = AvailableProcessors();
  AddPathOption(
      command, "INPUT", options.paths.inputs,
      "text files (a document each) or JSON Lines files (a document per line), also compressed by gzip or zstd; "
      "- = standard input")
      ->required();
  AddPathOption(command, "--out", options.paths.output, "token file to write; its index goes beside it")->required();
  command.add_flag("--overwrite", options.paths.overwrite,
                   "replace token files that are there, at --out and at --validation-out");
  AddPlaceOptions(command, places);
  command
      .add_option("--tokenizer", tokenizer, "bytes, or the path of a Hugging Face tokenizer.json, or of its directory")
      ->capture_default_str();
  using Format = PackOptions::Format;
  const Choices<Format> formats = {{"auto", Format::kAuto}, {"text", Format::kText}, {"jsonl", Format::kJsonl}};
  AddChoice(command, "--format", options.format, formats,
            "auto (by the name: .jsonl, .ndjson, each also with .gz or .zst), text or jsonl; default auto");
  command.add_option("--jsonl-field", options.jsonl_field, "the field that holds the text")->capture_default_str();
  auto* fraction =
      command
          .add_option("--validation-fraction", options.paths.validation_fraction,
                      "the share of all tokens, the last ones, that goes into --validation-out (with --chat of all "
                      "conversations); below 1, default 0")
          ->check(NumberWithin(0, 1));
  auto* output =
      AddPathOption(command, "--validation-out", options.paths.validation_output, "token file for validation");
  fraction->needs(output);
  output->needs(fraction);
  auto* append = command.add_flag("--append-eot", append_eot,
                                  "end-of-text token after each document (the default if the tokenizer has one)");
  command.add_flag("--no-eot", no_eot, "no end-of-text tokens")->excludes(append);
  command
      .add_option("--threads", options.threads,
                  "threads that encode; the files are the same with any number. Default: all processors")
      ->check(WholeNumberWithin(1, 4096));
  command.add_flag(
      "--documents", options.documents,
      "say where documents begin, so that training keeps them apart: 4 bytes a token, a format of Holdfast");
  AddChatTo(command);
}

void DataPackCommand::AddChatTo(CLI::App& command) {
  auto* is_chat = command.add_flag("--chat", chat,
                                   "the inputs are conversations, JSON Lines with \"messages\" or \"prompt\" and "
                                   "\"completion\"; they are written by the tokenizer's chat template");
  auto* length = command
                     .add_option("--sequence-length", sequence_length,
                                 "tokens of a row that conversations are packed into: batch.sequence_length")
                     ->check(WholeNumberWithin(2, int64_t{1} << 24));
  for (const char* of_text : {"--format", "--jsonl-field", "--append-eot", "--no-eot", "--documents"}) {
    is_chat->excludes(command.get_option(of_text));
  }
  is_chat->needs(length);
  length->needs(is_chat);
  using TooLong = PackConversationsOptions::TooLong;
  const Choices<TooLong> too_long_names = {{"drop", TooLong::kDrop}, {"cut", TooLong::kCut}};
  AddChoice(command, "--too-long", too_long, too_long_names,
            "conversations longer than a row: drop them, or cut off their ends; default drop")
      ->needs(is_chat);
  using Learn = ChatOptions::Learn;
  const Choices<Learn> learn_names = {{"all", Learn::kAllTurns}, {"last", Learn::kLastTurn}};
  AddChoice(command, "--learn", chat_options.learn, learn_names,
            "turns of the assistant that are learned: all, or the last; default all")
      ->needs(is_chat);
  command
      .add_option(
          "--template", chat_options.template_name,
          "name of the chat template, of a tokenizer that has several; default: tool_use for conversations with "
          "tools, if there is one, else default")
      ->needs(is_chat);
  command.add_option("--date", chat_options.date, "YYYY-MM-DD, needed where the template writes today's date")
      ->needs(is_chat)
      ->check(IsDate());
}

void DataShowCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "FILE", path, "token file, a path or s3://bucket/name")->required();
  AddPlaceOptions(command, places);
  command.add_option("--tokenizer", tokenizer,
                     "bytes, or a tokenizer.json, or its directory: shows the tokens as text");
  command.add_option("--tokens", tokens, "how many tokens to print")
      ->check(WholeNumberWithin(0, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("--at", at, "position of the first token to print")->check(NotNegative())->capture_default_str();
}

void DataFilesArguments::AddTo(CLI::App& command) {
  AddPathOption(command, "FILE", paths, "token files, paths or s3://bucket/name")->required();
  AddPlaceOptions(command, places);
}

}  // namespace holdfast
