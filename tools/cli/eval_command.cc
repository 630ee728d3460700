#include "tools/cli/eval_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "framework/metrics/progress.h"
#include "models/runtime/data_places.h"
#include "models/runtime/multiple_choice.h"
#include "tools/cli/dtype_argument.h"
#include "tools/cli/place_arguments.h"

namespace holdfast {
namespace {

bool HoldsQuestions(const std::string& file) {
  constexpr std::string_view kEnd = ".jsonl";
  return file.size() > kEnd.size() && file.compare(file.size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

void PrintLoss(const LossSum& total) {
  const double loss = total.sum / static_cast<double>(total.counted);
  std::printf("tokens      %s\nloss        %.4f nats per token\nperplexity  %.3f\n",
              FormatCount(static_cast<double>(total.counted)).c_str(), loss, std::exp(loss));
}

}  // namespace

absl::StatusOr<int> EvalCommand::Run() const {
  ASSIGN_OR_RETURN(
      const auto loaded,
      LoadSavedModel(model, {.compute_dtype = dtype, .threads = threads, .batch = batch, .sequence = sequence}));
  const int64_t length = sequence > 0 ? sequence : std::min<int64_t>(1024, loaded->config.max_sequence_length);
  std::vector<std::string> token_files;
  std::copy_if(data.begin(), data.end(), std::back_inserter(token_files),
               [](const std::string& file) { return !HoldsQuestions(file); });
  std::printf("computes    in %s\n", dtype == ComputeDType::kBF16 ? "bf16, sums in fp32" : "fp32");
  if (!token_files.empty()) RETURN_IF_ERROR(PrintLosses(*loaded, token_files, length));
  for (const std::string& file : data) {
    if (HoldsQuestions(file)) RETURN_IF_ERROR(PrintAnswers(*loaded, file, length));
  }
  return kExitDone;
}

absl::StatusOr<LossSum> EvalCommand::LossOf(const LoadedModel& loaded, const std::vector<std::string>& files,
                                            int64_t length) const {
  Places access(places);
  ASSIGN_OR_RETURN(const Dataset dataset,
                   Dataset::Open(files, length, loaded.config.vocab_size, {.files = &access, .on_scan = ScanNotice()}));
  const int64_t whole = (dataset.num_samples() + batch - 1) / batch;
  const int64_t count = microbatches > 0 ? std::min(microbatches, whole) : whole;
  Progress progress("evaluating", count, "microbatches");
  LossSum total;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Microbatch microbatch, ReadValidationMicrobatch(dataset, batch, i));
    ASSIGN_OR_RETURN(const LossSum loss, loaded.runner->Evaluate(microbatch, *loaded.store));
    total.sum += loss.sum;
    total.counted += loss.counted;
    progress.Update(i + 1);
  }
  progress.Finish();
  if (total.counted == 0) {
    return absl::FailedPreconditionError(absl::StrCat(files[0], ": none of its tokens is to be learned"));
  }
  return total;
}

absl::Status EvalCommand::PrintLosses(const LoadedModel& loaded, const std::vector<std::string>& files,
                                      int64_t length) const {
  LossSum total;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const LossSum loss, LossOf(loaded, {file}, length));
    total.sum += loss.sum;
    total.counted += loss.counted;
    if (files.size() == 1) continue;
    std::printf("file        %s\n", file.c_str());
    PrintLoss(loss);
  }
  if (files.size() > 1) std::printf("all files\n");
  PrintLoss(total);
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
  std::printf("file        %s\nquestions   %lld\naccuracy    %.4f\nby bytes    %.4f (log-probability over bytes)\n",
              file.c_str(), static_cast<long long>(result.questions), result.accuracy(), result.accuracy_by_byte());
  return absl::OkStatus();
}

void EvalCommand::AddTo(CLI::App& command) {
  command.add_option("MODEL", model, "saved model directory, or a run directory")->required();
  command
      .add_option("DATA", data,
                  "token files, paths or s3://bucket/name; .jsonl: questions, a line each, {\"context\": \"...\", "
                  "\"choices\": [\"...\"], \"answer\": 0}")
      ->required();
  AddPlaceOptions(command, places);
  AddDTypeOption(command, dtype);
  command.add_option("--sequence-length", sequence, "0 = the model's, at most 1024")->check(CLI::Range(0, 1 << 24));
  command.add_option("--batch", batch, "sequences at a time")->check(CLI::Range(1, 65536));
  command.add_option("--microbatches", microbatches, "of a file, stop after this many; 0 = all of it")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--threads", threads, "0 = all")->check(CLI::Range(0, 4096));
}

}  // namespace holdfast
