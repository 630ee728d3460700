#include "models/cached_decoder.h"

#include <algorithm>

#include "framework/base/status.h"
#include "models/plan.h"

namespace holdfast {
namespace {

/// Rows of prompts in one pass: enough that weights are read seldom, and no more activations than training has.
constexpr int64_t kPromptRows = 512;

constexpr int kRowArrays = 4;  // of a batch

}  // namespace

absl::StatusOr<std::unique_ptr<CachedDecoder>> CachedDecoder::Create(LanguageModel& model, const ModelConfig& config,
                                                                     Device& device, Stream& stream, UnitStore& store,
                                                                     const Options& options) {
  std::unique_ptr<CachedDecoder> decoder(new CachedDecoder(model, config.vocab_size, device, stream, store));
  decoder->kept_ = {.sequences = options.sequences, .capacity = options.capacity};
  const int64_t half = decoder->kept_.Bytes(config.num_kv_heads, config.head_dim, model.compute_dtype());
  ASSIGN_OR_RETURN(decoder->kept_memory_,
                   Buffer::Allocate(device, static_cast<size_t>(2 * config.num_layers * half), "keys and values"));
  decoder->kept_.data = decoder->kept_memory_.as<std::byte>();
  decoder->rows_max_ = std::max(std::min(kPromptRows, options.sequences * options.capacity), options.sequences);
  const auto rows = static_cast<size_t>(decoder->rows_max_);
  ASSIGN_OR_RETURN(decoder->rows_memory_, Buffer::Allocate(device, kRowArrays * rows * sizeof(int32_t), "tokens"));
  const auto logits = static_cast<size_t>(options.sequences * config.vocab_size);
  ASSIGN_OR_RETURN(decoder->logits_memory_, Buffer::Allocate(device, logits * sizeof(float), "logits"));
  const size_t bytes = std::max(PlanContinuing(model, decoder->rows_max_, /*wants_logits=*/false).arena_bytes,
                                PlanContinuing(model, options.sequences, /*wants_logits=*/true).arena_bytes);
  ASSIGN_OR_RETURN(decoder->arena_, Arena::Create(device, bytes));
  decoder->held_.resize(static_cast<size_t>(options.sequences));
  return decoder;
}

void CachedDecoder::Push(int64_t sequence, int32_t token) {
  std::vector<int32_t>& held = held_[static_cast<size_t>(sequence)];
  const auto length = static_cast<int64_t>(held.size());
  HOLDFAST_CHECK(length < kept_.capacity);
  tokens_.push_back(token);
  sequence_of_.push_back(static_cast<int32_t>(sequence));
  position_of_.push_back(static_cast<int32_t>(length));
  begins_.push_back(static_cast<int32_t>(-length));
  held.push_back(token);
}

absl::Status CachedDecoder::Run(bool wants_logits) {
  ContinuedBatch batch{.rows = static_cast<int64_t>(tokens_.size()), .kept = kept_};
  const std::vector<int32_t>* arrays[kRowArrays] = {&tokens_, &sequence_of_, &position_of_, &begins_};
  const int32_t** views[kRowArrays] = {&batch.tokens, &batch.sequence_of, &batch.position_of, &batch.begins};
  for (int i = 0; i < kRowArrays; ++i) {
    int32_t* to = rows_memory_.as<int32_t>() + i * rows_max_;
    device_.CopyFromCpu(to, arrays[i]->data(), arrays[i]->size() * sizeof(int32_t));
    *views[i] = to;
  }
  const PassContext context{.ops = &stream_.ops(), .arena = &arena_, .store = &store_, .random = {}};
  RETURN_IF_ERROR(model_.Continue(batch, context, wants_logits, logits_memory_.as<float>()));
  for (std::vector<int32_t>* array : {&tokens_, &sequence_of_, &position_of_, &begins_}) array->clear();
  return stream_.Synchronize();  // the next batch takes the same memory
}

absl::Status CachedDecoder::Begin(absl::Span<const Beginning> beginnings) {
  for (const Beginning& beginning : beginnings) {
    std::vector<int32_t>& held = held_[static_cast<size_t>(beginning.sequence)];
    held.erase(std::ranges::mismatch(held, beginning.tokens).in1, held.end());
    for (const int32_t token : beginning.tokens.subspan(held.size())) {
      Push(beginning.sequence, token);
      if (static_cast<int64_t>(tokens_.size()) == rows_max_) RETURN_IF_ERROR(Run(/*wants_logits=*/false));
    }
  }
  return tokens_.empty() ? absl::OkStatus() : Run(/*wants_logits=*/false);
}

absl::StatusOr<absl::Span<const float>> CachedDecoder::Add(absl::Span<const Token> tokens) {
  for (const Token& token : tokens) Push(token.sequence, token.token);
  RETURN_IF_ERROR(Run(/*wants_logits=*/true));
  const size_t count = tokens.size() * static_cast<size_t>(vocab_size_);
  if (device_.is_cpu()) return absl::MakeConstSpan(logits_memory_.as<float>(), count);
  logits_.resize(count);
  device_.CopyToCpu(logits_.data(), logits_memory_.data(), count * sizeof(float));
  return absl::MakeConstSpan(logits_);
}

}  // namespace holdfast
