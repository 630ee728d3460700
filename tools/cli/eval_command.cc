#include "tools/cli/eval_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "framework/data/pack_paths.h"
#include "framework/data/token_file.h"
#include "framework/data/token_index.h"
#include "framework/metrics/progress.h"
#include "framework/metrics/run_directory.h"
#include "models/runtime/data_places.h"
#include "models/runtime/multiple_choice.h"
#include "models/runtime/training_data.h"
#include "tools/cli/dtype_argument.h"
#include "tools/cli/output_arguments.h"
#include "tools/cli/place_arguments.h"
#include "tools/cli/run_record.h"

namespace holdfast {
namespace {

bool HoldsQuestions(const std::string& file) { return WithoutCompressionName(file).ends_with(".jsonl"); }

/// Only what `--logits` writes has no other tensors.
bool HoldsLogits(const std::string& path) {
  const auto opened = SafetensorsReader::Open(path);
  return opened.ok() &&
         std::ranges::all_of((*opened)->entries(), [](const auto& entry) { return entry.first.starts_with("logits"); });
}

/// Tokens of a row of those that have rows; 0 = none has. InvalidArgument if they are of different lengths, as no
/// length of sequences suits all of them.
absl::StatusOr<int64_t> RowsOf(absl::Span<const std::shared_ptr<const TokenFile>> files) {
  const TokenFile* first = nullptr;
  for (const auto& file : files) {
    const int64_t rows = file->kind().row_tokens;
    if (rows == 0) continue;
    if (first == nullptr) first = file.get();
    if (rows == first->kind().row_tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        first->path(), " is packed into rows of ", first->kind().row_tokens, " tokens, and ", file->path(),
        " into rows of ", rows, ": evaluate each file by itself, or pack both with the same --sequence-length"));
  }
  return first == nullptr ? 0 : first->kind().row_tokens;
}

void PrintLoss(const LossSum& total) {
  const double loss = total.sum / static_cast<double>(total.counted);
  std::printf("tokens      %s\nloss        %.4f nats per token\nperplexity  %.3f\n",
              FormatCount(static_cast<double>(total.counted)).c_str(), loss, std::exp(loss));
}

/// Rows of logits on their way from the device to a file.
class LogitsRows {
 public:
  /// `rows_left`: how many there are still to be written; those beyond are left out.
  LogitsRows(Device& device, Stream& stream, SafetensorsWriter* writer, int64_t* rows_left)
      : device_(device), stream_(stream), writer_(writer), rows_left_(rows_left) {}

  absl::Status Write(const kernels::ConstMatrix& logits) {
    RETURN_IF_ERROR(stream_.Synchronize());
    row_.resize(static_cast<size_t>(logits.cols));
    for (int64_t r = 0; r<logits.rows&& * rows_left_> 0; ++r, --*rows_left_) {
      const float* from = static_cast<const float*>(logits.data) + r * logits.stride;
      device_.CopyToCpu(row_.data(), from, row_.size() * sizeof(float));
      RETURN_IF_ERROR(writer_->Append(row_));
    }
    return absl::OkStatus();
  }

 private:
  Device& device_;
  Stream& stream_;
  SafetensorsWriter* writer_;
  int64_t* rows_left_;
  std::vector<float> row_;
};

}  // namespace

absl::StatusOr<std::optional<Config>> EvalCommand::ConfigOfRun() const {
  const RunDirectory run(model);
  std::error_code error;
  if (!std::filesystem::exists(run.config(), error)) return std::nullopt;  // the model's files say why not
  return ReadRunConfig(run);
}

absl::StatusOr<bool> EvalCommand::KeepsDocumentsApart() const {
  ASSIGN_OR_RETURN(const std::optional<Config> run, ConfigOfRun());
  return run.has_value() && run->data.document_mask;
}

absl::StatusOr<int> EvalCommand::Run() const {
  if (microbatches > 0 && std::ranges::all_of(data, HoldsQuestions)) {
    return absl::InvalidArgumentError("--microbatches: there is no token file among DATA; questions are all asked");
  }
  ASSIGN_OR_RETURN(const std::optional<Config> run, ConfigOfRun());
  if (const std::string warning = TooManyThreadsWarning("--threads", threads); !warning.empty()) LogWarning(warning);
  std::vector<std::string> token_files;
  std::copy_if(data.begin(), data.end(), std::back_inserter(token_files),
               [](const std::string& file) { return !HoldsQuestions(file); });
  ASSIGN_OR_RETURN(SavedModel saved, ExplainSweep(OpenSavedModel(model), model));
  Places access(places);
  ASSIGN_OR_RETURN(const TokenFiles opened, OpenTokenFiles(token_files, access));
  ASSIGN_OR_RETURN(const int64_t packed, RowsOf(opened));
  const int64_t rows = sequence == 0 ? packed : 0;
  const bool as_in_run = sequence == 0 && rows == 0 && run.has_value();
  const int64_t wanted = rows > 0 ? rows : as_in_run ? run->batch.sequence_length : sequence;
  if (const int64_t longest = saved.config.max_sequence_length; rows > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data are packed into rows of ", rows, " tokens, and the model takes ", longest,
                     " at most: pack them again with --sequence-length ", longest, " or less"));
  }
  ASSIGN_OR_RETURN(const auto loaded,
                   LoadWeightsOf(std::move(saved),
                                 {.compute_dtype = dtype, .threads = threads, .batch = batch, .sequence = wanted}));
  const int64_t length = wanted > 0 ? wanted : std::min<int64_t>(1024, loaded->config.max_sequence_length);
  std::printf("computes    in %s\n", dtype == ComputeDType::kBF16 ? "bf16, sums in fp32" : "fp32");
  std::printf("sequences   of %lld tokens%s\n", static_cast<long long>(length),
              rows > 0    ? ", the rows of the data"
              : as_in_run ? ", as in the run (batch.sequence_length)"
                          : "");
  const bool apart = run.has_value() && run->data.document_mask;
  if (apart && !token_files.empty()) std::printf("documents   kept apart, as in the run (data.document_mask)\n");
  if (loaded->tokenizer != nullptr) {
    const std::string found = WithTokensOfAnother(*loaded->tokenizer, token_files, access);
    if (!found.empty()) LogWarning("the tokenizer of ", model, " ", found);
    RETURN_IF_ERROR(CheckAddedTokens(*loaded->tokenizer, token_files, access, loaded->config.vocab_size));
  }
  RETURN_IF_ERROR(PrintLosses(access, *loaded, token_files, opened, length));
  for (const std::string& file : data) {
    if (HoldsQuestions(file)) RETURN_IF_ERROR(PrintAnswers(*loaded, file, length));
  }
  return kExitDone;
}

absl::StatusOr<Dataset> EvalCommand::Open(Places& access, const LoadedModel& loaded, const std::string& path,
                                          std::shared_ptr<const TokenFile> file, int64_t length) const {
  DatasetOptions options{.files = &access, .on_scan = ScanNotice()};
  ASSIGN_OR_RETURN(const bool apart, KeepsDocumentsApart());
  if (apart && loaded.tokenizer != nullptr) options.end_of_document = loaded.tokenizer->end_of_text();
  TokenFiles files;
  files.push_back(std::move(file));
  auto dataset = Dataset::OfFiles({&path, 1}, std::move(files), length, loaded.config.vocab_size, options);
  return dataset.ok() ? std::move(dataset) : AsDataMistake(dataset.status());
}

int64_t EvalCommand::CountOf(const Dataset& dataset) const {
  const int64_t whole = (dataset.num_samples() + batch - 1) / batch;
  return microbatches > 0 ? std::min(microbatches, whole) : whole;
}

absl::Status EvalCommand::CheckLogitsPlace(const LoadedModel& loaded) const {
  for (const std::string& file : data) {
    if (!IsSameFile(logits, file) && !IsSameFile(logits, TokenIndexPath(file))) continue;
    return absl::InvalidArgumentError(absl::StrCat("--logits ", logits, " would replace what is evaluated"));
  }
  std::error_code error;
  bool of_model = IsSameFile(DirectoryOf(logits), loaded.directory);
  for (const auto& entry : std::filesystem::directory_iterator(loaded.directory, error)) {
    of_model = of_model || IsSameFile(logits, entry.path().string());
  }
  if (!of_model) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--logits ", logits, " would become a part of the model in ", loaded.directory));
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> EvalCommand::OpenLogits(const LoadedModel& loaded,
                                                                           const TokenFiles& files,
                                                                           const std::vector<Dataset>& datasets) const {
  if (logits.empty()) return nullptr;
  if (files.empty()) return absl::InvalidArgumentError("--logits: there is no token file among DATA");
  RETURN_IF_ERROR(CheckLogitsPlace(loaded));
  RETURN_IF_ERROR(CheckReplaces("--logits", logits, "file of logits", HoldsLogits));
  std::vector<SafetensorsWriter::Entry> entries;
  std::map<std::string, std::string> metadata{{"model", loaded.directory}};
  for (size_t i = 0; i < files.size(); ++i) {
    const Dataset& dataset = datasets[i];
    const int64_t samples = std::min(CountOf(dataset) * batch, dataset.num_samples());
    const std::string name = files.size() > 1 ? absl::StrCat("logits.", i) : "logits";
    entries.push_back({name, FileDType::kF32, {samples, dataset.sequence(), loaded.config.vocab_size}});
    metadata[name] = files[i]->path();
  }
  return SafetensorsWriter::Create(logits, std::move(entries), metadata);
}

absl::StatusOr<LossSum> EvalCommand::LossOf(const LoadedModel& loaded, const Dataset& dataset, const std::string& file,
                                            SafetensorsWriter* writer) const {
  const int64_t count = CountOf(dataset);
  Progress progress("evaluating", count, "microbatches");
  LossSum total;
  int64_t rows_left = dataset.num_samples() * dataset.sequence();  // those beyond fill up the last microbatch
  LogitsRows rows(*loaded.device, loaded.runner->stream(), writer, &rows_left);
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Microbatch microbatch, ReadValidationMicrobatch(dataset, batch, i));
    const auto evaluate = [&](const Batch& any, const PassContext& context, float* losses) {
      if (writer == nullptr) return loaded.model->Evaluate(any, context, losses);
      return loaded.model->EvaluateLogits(TokenBatch::Of(any), context, losses,
                                          [&](kernels::ConstMatrix of_rows) { return rows.Write(of_rows); });
    };
    ASSIGN_OR_RETURN(const LossSum loss, loaded.runner->EvaluateBy(evaluate, microbatch, *loaded.store));
    total.sum += loss.sum;
    total.counted += loss.counted;
    progress.Update(i + 1);
  }
  progress.Finish();
  if (total.counted == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": none of its tokens is to be learned"));
  }
  return total;
}

absl::Status EvalCommand::PrintLosses(Places& access, const LoadedModel& loaded, const std::vector<std::string>& paths,
                                      const TokenFiles& files, int64_t length) const {
  std::vector<Dataset> datasets;
  for (size_t i = 0; i < files.size(); ++i) {
    ASSIGN_OR_RETURN(Dataset dataset, Open(access, loaded, paths[i], files[i], length));
    datasets.push_back(std::move(dataset));
  }
  ASSIGN_OR_RETURN(const auto writer, OpenLogits(loaded, files, datasets));
  LossSum total;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& file = files[i]->path();
    ASSIGN_OR_RETURN(const LossSum loss, LossOf(loaded, datasets[i], file, writer.get()));
    total.sum += loss.sum;
    total.counted += loss.counted;
    if (data.size() > 1) std::printf("file        %s\n", file.c_str());
    if (files.size() > 1) PrintLoss(loss);
  }
  if (writer != nullptr) RETURN_IF_ERROR(writer->Finish());
  if (files.size() > 1) std::printf("all files\n");
  if (!files.empty()) PrintLoss(total);
  if (writer != nullptr) std::printf("logits      %s\n", logits.c_str());
  return absl::OkStatus();
}

absl::Status EvalCommand::PrintAnswers(const LoadedModel& loaded, const std::string& file, int64_t length) const {
  Places access(places);
  ASSIGN_OR_RETURN(InputFile input, InputFile::Open(access, file));
  Progress progress("answering", input.size(), "B");
  int64_t done = 0;
  const auto count = [&](int64_t bytes) { progress.Update(done += bytes); };
  ASSIGN_OR_RETURN(const ChoiceResult result, AnswerQuestions(loaded, length, input, count));
  progress.Finish();
  std::printf(
      "file        %s\nquestions   %lld\naccuracy    %.4f\nby length   %.4f (log-probability over characters)\n",
      file.c_str(), static_cast<long long>(result.questions), result.accuracy(), result.accuracy_by_length());
  if (result.cut > 0) {
    const int64_t longest = loaded.config.max_sequence_length;
    LogWarning(file, ": the contexts of ", Counted(result.cut, "question"),
               " lost their beginning, as they do not fit into ", length, " tokens",
               length < longest ? absl::StrCat("; --sequence-length, up to ", longest, ", takes longer ones") : "");
  }
  return absl::OkStatus();
}

void EvalCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "MODEL", model, "directory of a saved model or of adapters, or a run directory")->required();
  AddPathOption(
      command, "DATA", data,
      "token files, paths or s3://bucket/name; .jsonl (.gz, .zst): questions, a line each, {\"context\": \"...\", "
      "\"choices\": [\"...\"], \"answer\": 0}, with no token before a context that is not empty")
      ->required();
  AddPlaceOptions(command, places);
  AddDTypeOption(command, dtype);
  command
      .add_option("--sequence-length", sequence,
                  "tokens of a sequence; 0, the default: those of packed rows; else as in the run, and of a model "
                  "without a run its own, at most 1024")
      ->check(WholeNumberWithin(0, 1 << 24));
  command.add_option("--batch", batch, absl::StrCat("sequences at a time; default ", batch))
      ->check(WholeNumberWithin(1, 65536));
  command
      .add_option(
          "--microbatches", microbatches,
          "of each token file, stop after so many times --batch sequences; 0, the default: all of it. Questions are "
          "all asked")
      ->check(NotNegative());
  AddPathOption(command, "--logits", logits,
                "file for the logits of every evaluated token: safetensors, F32 (sequences, length, vocabulary)");
  command.add_option("--threads", threads, "threads that compute; 0, the default: all processors")
      ->check(WholeNumberWithin(0, 4096));
}

}  // namespace holdfast
