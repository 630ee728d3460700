#include "framework/config/config_table.h"

#include "framework/base/limits.h"
#include "framework/config/enums.h"
#include "framework/config/fields.h"

namespace holdfast {
namespace {

// Bounds on sizes are far above any real model and small enough that products of them (parameters, bytes of logits,
// attention scores of a microbatch) fit int64; validate.cc bounds the products that these leave open.
constexpr int64_t kMaxSequenceLength = int64_t{1} << 20;
constexpr int64_t kMaxExperts = 4096, kMaxExpertsPerToken = 64;  // as kernels/experts.h has them
constexpr int64_t kMaxThreads = 4096;
constexpr int64_t kMaxMilliseconds = 24 * 3600 * int64_t{1000};
constexpr int64_t kMaxSeconds = 366 * 24 * int64_t{3600};

Field With(Decides decides, Field field) {
  field.decides = decides;
  return field;
}

/// All fields that do not say otherwise.
Section All(Decides decides, Section section) {
  for (Field& field : section.fields) {
    if (field.decides == Decides::kUnsaid) field.decides = decides;
  }
  return section;
}

Section RunTable(RunConfig* run) {
  return All(Decides::kContent, {"run",
                                 {String("name", &run->name, StringRule::kFileName),
                                  With(Decides::kBits, Field{"seed", SeedValue{&run->seed}})}});
}

Section ModelTable(ModelConfig* model, std::vector<std::string> families) {
  return All(Decides::kBits,
             {"model",
              {Choice("family", &model->family, std::move(families)),
               Required(Int("vocab_size", &model->vocab_size, 1, int64_t{1} << 24)),
               Int("max_sequence_length", &model->max_sequence_length, 1, kMaxSequenceLength),
               Int("num_layers", &model->num_layers, 1, 4096),
               Int("hidden_size", &model->hidden_size, 8, int64_t{1} << 17),
               Int("num_heads", &model->num_heads, 1, 1024),
               Int("num_kv_heads", &model->num_kv_heads, 0, 1024),
               Int("head_dim", &model->head_dim, 0, 256),
               Int("intermediate_size", &model->intermediate_size, 0, int64_t{1} << 20),
               Enum("position", &model->position),
               Enum("norm", &model->norm),
               Enum("norm_position", &model->norm_position),
               Enum("activation", &model->activation),
               Bool("bias", &model->bias),
               Bool("attention_bias", &model->attention_bias),
               Bool("qkv_bias", &model->qkv_bias),
               Bool("mlp_bias", &model->mlp_bias),
               Bool("qk_norm", &model->qk_norm),
               Bool("qk_norm_joint", &model->qk_norm_joint),
               Double("clip_qkv", &model->clip_qkv, 0.0, 1e6),
               Int("sliding_window", &model->sliding_window, 0, kMaxSequenceLength),
               Int("first_window_layer", &model->first_window_layer, 1, 4096),
               Int("full_attention_step", &model->full_attention_step, 0, 4096),
               Bool("attention_sinks", &model->attention_sinks),
               Bool("tie_embeddings", &model->tie_embeddings),
               Bool("scale_embeddings", &model->scale_embeddings),
               Double("norm_eps", &model->norm_eps, 1e-20, 1.0),
               Int("rope_dim", &model->rope_dim, 0, 256),
               Double("rope_theta", &model->rope_theta, 1.0, 1e12),
               Double("window_rope_theta", &model->window_rope_theta, 0.0, 1e12),
               Enum("rope_scaling", &model->rope_scaling),
               Enum("rope_scaling_layers", &model->rope_scaling_layers),
               Double("rope_factor", &model->rope_factor, 1.0, 1e6),
               Double("rope_low_freq_factor", &model->rope_low_freq_factor, 1e-6, 1e6),
               Double("rope_high_freq_factor", &model->rope_high_freq_factor, 1e-6, 1e6),
               Int("rope_original_length", &model->rope_original_length, 1, kMaxSequenceLength),
               Double("rope_beta_fast", &model->rope_beta_fast, 1e-6, 1e6),
               Double("rope_beta_slow", &model->rope_beta_slow, 1e-6, 1e6),
               Bool("rope_truncate", &model->rope_truncate),
               Double("rope_attention_factor", &model->rope_attention_factor, 0.0, 1e3),
               Numbers("rope_short_factors", &model->rope_short_factors, 1e-6, 1e6),
               Numbers("rope_long_factors", &model->rope_long_factors, 1e-6, 1e6),
               Int("num_experts", &model->num_experts, 0, kMaxExperts),
               Int("experts_per_token", &model->experts_per_token, 1, kMaxExpertsPerToken),
               Int("expert_intermediate_size", &model->expert_intermediate_size, 0, int64_t{1} << 20),
               Bool("expert_bias", &model->expert_bias),
               Double("swiglu_limit", &model->swiglu_limit, 0.0, 1e6),
               Int("first_expert_layer", &model->first_expert_layer, 1, 4096),
               Int("expert_layer_step", &model->expert_layer_step, 1, 4096),
               Enum("router_score", &model->router_score),
               Bool("router_normalize", &model->router_normalize),
               Double("router_scale", &model->router_scale, 1e-6, 1e6),
               Int("router_groups", &model->router_groups, 1, kMaxExperts),
               Int("router_groups_chosen", &model->router_groups_chosen, 1, kMaxExperts),
               Double("expert_capacity", &model->expert_capacity, 0.0, 1e3),
               Double("router_jitter", &model->router_jitter, 0.0, 1.0),
               Int("shared_expert_intermediate_size", &model->shared_expert_intermediate_size, 0, int64_t{1} << 20),
               Bool("shared_expert_gate", &model->shared_expert_gate),
               Enum("router_balance", &model->router_balance),
               Double("router_balance_loss", &model->router_balance_loss, 0.0, 1e3),
               Double("router_z_loss", &model->router_z_loss, 0.0, 1e3),
               Bool("router_bias", &model->router_bias),
               Double("router_bias_rate", &model->router_bias_rate, 0.0, 1.0),
               Double("dropout", &model->dropout, 0.0, 0.99),
               Double("init_std", &model->init_std, 0.0, 10.0),
               Bool("zero_init_head", &model->zero_init_head),
               Enum("parametrization", &model->parametrization),
               Int("base_hidden_size", &model->base_hidden_size, 0, int64_t{1} << 17),
               Int("base_num_layers", &model->base_num_layers, 0, 4096),
               Int("base_head_dim", &model->base_head_dim, 0, 256)}});
}

/// `section` with the keys of an object store at its end.
Section WithS3(Section section, S3Config* s3) {
  for (Field& field : std::vector<Field>{
           String("s3_endpoint", &s3->endpoint, StringRule::kAny), String("s3_region", &s3->region, StringRule::kAny),
           String("s3_ca_file", &s3->ca_file, StringRule::kAny), Enum("s3_addressing", &s3->addressing),
           Int("s3_retry_seconds", &s3->retry_seconds, 0, kMaxSeconds)}) {
    section.fields.push_back(With(Decides::kHost, std::move(field)));
  }
  return section;
}

Section DataTable(DataConfig* data) {
  return All(Decides::kContent, WithS3({"data",
                                        {Required(Paths("train", &data->train)), Paths("validation", &data->validation),
                                         String("tokenizer", &data->tokenizer, StringRule::kNotEmpty),
                                         With(Decides::kBits, Bool("shuffle", &data->shuffle)),
                                         With(Decides::kBits, Bool("document_mask", &data->document_mask)),
                                         With(Decides::kHost, Int("loader_threads", &data->loader_threads, 1, 256))}},
                                       &data->s3));
}

Section BatchTable(BatchConfig* batch) {
  return All(Decides::kBits, {"batch",
                              {Int("sequence_length", &batch->sequence_length, 1, kMaxSequenceLength),
                               Int("microbatch_size", &batch->microbatch_size, 1, int64_t{1} << 16),
                               Int("microbatches", &batch->microbatches, 1, int64_t{1} << 16),
                               Enum("gradient_sum", &batch->gradient_sum),
                               Int("gradient_sum_block", &batch->gradient_sum_block, 1, int64_t{1} << 16)}});
}

Section TrainTable(TrainConfig* train) {
  return All(
      Decides::kContent,
      {"train",
       {With(Decides::kBits, Required(Int("steps", &train->steps, 0, kMaxSteps))),
        Double("epochs", &train->epochs, 0.0, 1e6),  // bits follow from the steps that they become
        With(Decides::kBits, Enum("device", &train->device)),
        With(Decides::kHost, Int("threads", &train->threads, 0, kMaxThreads)),
        With(Decides::kBits, Enum("compute_dtype", &train->compute_dtype)),
        With(Decides::kBits, Enum("arithmetic", &train->arithmetic)),
        With(Decides::kLayout, Enum("recompute", &train->recompute)),
        Int("validate_every_steps", &train->validate_every_steps, 0, kMaxSteps),
        Int("validation_microbatches", &train->validation_microbatches, 0, kMaxSteps),
        Int("early_stop_patience", &train->early_stop_patience, 0, kMaxSteps),
        Double("early_stop_min_delta", &train->early_stop_min_delta, 0.0, 1e6),
        String("init_from", &train->init_from, StringRule::kAny),
        With(Decides::kBits, Patterns("freeze", &train->freeze)), With(Decides::kBits, Patterns("only", &train->only)),
        With(Decides::kBits, String("init_digest", &train->init_digest, StringRule::kAny)),
        With(Decides::kHost, String("gemm_table", &train->gemm_table, StringRule::kAny)),
        With(Decides::kBits, String("gemm_table_digest", &train->gemm_table_digest, StringRule::kAny))}});
}

Section LoraTable(LoraConfig* lora) {
  const std::vector<std::string> targets = {"all-linear",    "attention",          "mlp",     "experts",  "router",
                                            "shared_expert", "shared_expert_gate", "q_proj",  "k_proj",   "v_proj",
                                            "o_proj",        "gate_proj",          "up_proj", "down_proj"};
  return All(Decides::kBits, {"lora",
                              {Int("rank", &lora->rank, 0, 4096),
                               Double("alpha", &lora->alpha, 1e-6, 1e6),
                               Bool("rslora", &lora->rslora),
                               Double("dropout", &lora->dropout, 0.0, 0.999),
                               {"targets", ListValue{&lora->targets, "layer", targets}},
                               With(Decides::kContent, String("init_from", &lora->init_from, StringRule::kAny)),
                               String("init_digest", &lora->init_digest, StringRule::kAny)}});
}

// The optimizer computes in float: eps must not round to 0 there, nor a beta or another decay to 1 (bias correction
// divides by 1-beta).
Section OptimizerTable(OptimizerConfig* optimizer) {
  return All(Decides::kBits, {"optimizer",
                              {Enum("name", &optimizer->name),
                               Double("lr", &optimizer->lr, 0.0, 1000.0),
                               Double("beta1", &optimizer->beta1, 0.0, 0.999999),
                               Double("beta2", &optimizer->beta2, 0.0, 0.999999),
                               Double("eps", &optimizer->eps, 1e-30, 1.0),
                               Double("momentum", &optimizer->momentum, 0.0, 0.999999),
                               Double("weight_decay", &optimizer->weight_decay, 0.0, 1000.0),
                               Double("grad_clip_norm", &optimizer->grad_clip_norm, 0.0, 1e9),
                               Double("ema_decay", &optimizer->ema_decay, 0.0, 0.999999),
                               {"lr_factors", ListValue{&optimizer->lr_factors, "pattern with a factor", {}}},
                               Patterns("no_decay", &optimizer->no_decay),
                               Double("layer_decay", &optimizer->layer_decay, 1e-3, 1.0)}});
}

Section ScheduleTable(ScheduleConfig* schedule) {
  return All(Decides::kBits,
             {"schedule",
              {Enum("name", &schedule->name), Int("warmup_steps", &schedule->warmup_steps, 0, kMaxSteps),
               Int("decay_steps", &schedule->decay_steps, 0, kMaxSteps),
               Double("min_lr_ratio", &schedule->min_lr_ratio, 0.0, 1.0),
               Int("total_steps", &schedule->total_steps, 0, kMaxSteps)}});
}

Section ParallelTable(ParallelConfig* parallel) {
  return All(Decides::kLayout,
             {"parallel",
              {Enum("sharding", &parallel->sharding), Int("replicas", &parallel->replicas, 1, kMaxWorkers),
               Int("mirrors", &parallel->mirrors, 0, 16), Enum("mirrors_on", &parallel->mirrors_on),
               Enum("experts", &parallel->experts), Bool("overlap_microbatches", &parallel->overlap_microbatches),
               Enum("transport", &parallel->transport), Bool("encrypt", &parallel->encrypt)}});
}

Section ElasticTable(ElasticConfig* elastic) {
  return All(
      Decides::kHost,
      {"elastic",
       {Int("workers", &elastic->workers, 1, kMaxWorkers), Int("min_workers", &elastic->min_workers, 1, kMaxWorkers),
        Int("max_workers", &elastic->max_workers, 0, kMaxWorkers),
        Int("heartbeat_interval_ms", &elastic->heartbeat_interval_ms, 10, kMaxMilliseconds / 2),
        Int("heartbeat_timeout_ms", &elastic->heartbeat_timeout_ms, 20, kMaxMilliseconds),
        Int("collective_timeout_ms", &elastic->collective_timeout_ms, 30, kMaxMilliseconds),
        Int("kill_timeout_ms", &elastic->kill_timeout_ms, 40, kMaxMilliseconds),
        Int("progress_timeout_ms", &elastic->progress_timeout_ms, 100, kMaxMilliseconds),
        Int("join_timeout_ms", &elastic->join_timeout_ms, 100, kMaxMilliseconds),
        Int("lost_state_timeout_ms", &elastic->lost_state_timeout_ms, 0, kMaxMilliseconds),
        Int("coordinator_lease_ms", &elastic->coordinator_lease_ms, 500, kMaxMilliseconds),
        Int("coordinator_timeout_ms", &elastic->coordinator_timeout_ms, 100, kMaxMilliseconds),
        Int("max_restarts", &elastic->max_restarts, 0, kMaxSteps),
        Double("straggler_factor", &elastic->straggler_factor, 1.05, 100.0),
        Int("straggler_steps", &elastic->straggler_steps, 3, 1000), Bool("rebalance", &elastic->rebalance)}});
}

Section CheckpointTable(CheckpointConfig* checkpoint) {
  return All(
      Decides::kHost,
      WithS3(
          {"checkpoint",
           {String("directory", &checkpoint->directory, StringRule::kAny), Enum("every", &checkpoint->every),
            Int("every_steps", &checkpoint->every_steps, 0, kMaxSteps),
            Int("every_seconds", &checkpoint->every_seconds, 0, kMaxSeconds),
            Int("keep_last", &checkpoint->keep_last, 1, kMaxSteps),
            Int("keep_every_steps", &checkpoint->keep_every_steps, 0, kMaxSteps),
            Int("keep_best", &checkpoint->keep_best, 0, kMaxSteps), Enum("compression", &checkpoint->compression),
            Int("compression_level", &checkpoint->compression_level, 1, 19),
            Int("staging_mib", &checkpoint->staging_mib, 8, int64_t{1} << 24),
            Int("threads", &checkpoint->threads, 1, kMaxThreads), Double("max_gib", &checkpoint->max_gib, 0.0, 1e9)}},
          &checkpoint->s3));
}

Section AlertsTable(AlertsConfig* alerts) {
  return All(Decides::kHost, {"alerts",
                              {String("slack_webhook_file", &alerts->slack_webhook_file, StringRule::kAny),
                               String("pagerduty_key_file", &alerts->pagerduty_key_file, StringRule::kAny),
                               Double("price_per_hour", &alerts->price_per_hour, 0.0, 1e9),
                               Int("coordinator_absent_ms", &alerts->coordinator_absent_ms, 0, kMaxMilliseconds)}});
}

Section LogTable(LogConfig* log) {
  return All(Decides::kContent, {"log",
                                 {Int("every_steps", &log->every_steps, 1, kMaxSteps),
                                  Int("digest_every_steps", &log->digest_every_steps, 0, kMaxSteps),
                                  Int("sample_bytes", &log->sample_bytes, 0, int64_t{1} << 20)}});
}

}  // namespace

std::vector<std::string> Section::Keys() const {
  std::vector<std::string> keys;
  keys.reserve(fields.size());
  for (const Field& field : fields) {
    keys.push_back(field.key);
  }
  return keys;
}

std::vector<Section> ConfigTable(Config* config, std::vector<std::string> families) {
  return {RunTable(&config->run),
          ModelTable(&config->model, std::move(families)),
          DataTable(&config->data),
          BatchTable(&config->batch),
          TrainTable(&config->train),
          LoraTable(&config->lora),
          OptimizerTable(&config->optimizer),
          ScheduleTable(&config->schedule),
          ParallelTable(&config->parallel),
          ElasticTable(&config->elastic),
          CheckpointTable(&config->checkpoint),
          AlertsTable(&config->alerts),
          LogTable(&config->log)};
}

}  // namespace holdfast
