#pragma once
// The typed configuration of a run. Plain values: parsing, range checks and printing live in config_table.h (one table
// per section, from which all three are made), checks across fields in validate.h. Units are in the names.
//
// Precedence: defaults < family preset < initial model < file < --set. See configs/ for complete examples, and
// configs/KEYS.md for what users read.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/enums.h"

namespace holdfast {

struct RunConfig {
  std::string name = "run";
  uint64_t seed = 1;

  bool operator==(const RunConfig&) const = default;
};

/// The shape of a decoder-only transformer. `family` presets position, norm, activation, biases, norms of query and
/// key, tie_embeddings, scale_embeddings, and for a family with experts num_experts, experts_per_token, router_score,
/// router_normalize, router_bias and shared_expert_gate (FamilyPreset in load.h); each may still be set by itself.
struct ModelConfig {
  std::string family = "gpt2";
  int64_t vocab_size = 0;  // required
  int64_t max_sequence_length = 1024;
  int64_t num_layers = 12;
  int64_t hidden_size = 768;
  int64_t num_heads = 12;
  int64_t num_kv_heads = 0;       // 0 = num_heads
  int64_t head_dim = 0;           // 0 = hidden_size / num_heads
  int64_t intermediate_size = 0;  // 0 = 4 * hidden_size
  PositionKind position = PositionKind::kLearned;
  NormType norm = NormType::kLayerNorm;
  /// Of the norms in blocks. kBefore: x + branch(norm(x)). kAfter: x + norm(branch(x)), as OLMo 2 has it (arXiv
  /// 2501.00656, section 2.1.2). kBoth: x + norm(branch(norm(x))), as Gemma 2 and 3 have it (arXiv 2408.00118).
  NormPosition norm_position = NormPosition::kBefore;
  ActivationKind activation = ActivationKind::kGelu;
  bool bias = true;             // on linear layers (norm biases follow `norm`)
  bool attention_bias = false;  // on all four projections of attention, also without `bias`
  bool qkv_bias = false;        // on the projections to query, key and value, also without both
  bool mlp_bias = false;        // on the projections of a dense MLP, also without `bias`
  bool qk_norm = false;         // RMS norm of each head of query and key, before they are rotated
  bool qk_norm_joint = false;   // of qk_norm: over all heads of query, and of key, at once
  double clip_qkv = 0.0;        // values of query, key (after their norms) and value stay within +-this; 0 = no limit
  int64_t sliding_window = 0;   // keys that a query sees, its own the last; 0 = all up to its own
  /// Layers from first_window_layer on have the window, all but every full_attention_step-th of them.
  int64_t first_window_layer = 1;   // counted from 1
  int64_t full_attention_step = 0;  // 0 = none of these is left out
  /// A learned score of each head stands beside those of the keys that a query sees, and what it takes of the softmax
  /// goes nowhere (gpt-oss, arXiv 2508.10925, section 2.2).
  bool attention_sinks = false;
  bool tie_embeddings = true;
  bool scale_embeddings = false;  // what is looked up for tokens is multiplied by sqrt(hidden_size)
  double norm_eps = 1e-5;
  int64_t rope_dim = 0;  // values of each head of query and key that are turned by rotary angles, its first; 0 = all
  double rope_theta = 10000.0;
  double window_rope_theta = 0.0;  // the same in layers with a window; 0 = rope_theta
  /// Which frequencies of the rotary angles are divided by rope_factor (models/rotary.h). linear: all. llama3: those
  /// whose wavelength is longer than rope_original_length / rope_low_freq_factor; those shorter than
  /// rope_original_length / rope_high_freq_factor stay, between them both are mixed. yarn: those that turn less often
  /// than rope_beta_slow times in rope_original_length; those that turn more often than rope_beta_fast times stay.
  /// longrope: each by a number of its own, of rope_long_factors where max_sequence_length is more than
  /// rope_original_length, else of rope_short_factors.
  RopeScaling rope_scaling = RopeScaling::kNone;
  RopeScalingLayers rope_scaling_layers = RopeScalingLayers::kAll;  // or those without a window alone
  double rope_factor = 8.0;
  double rope_low_freq_factor = 1.0;
  double rope_high_freq_factor = 4.0;
  int64_t rope_original_length = 8192;  // of the sequences that the model was trained on before
  double rope_beta_fast = 32.0;
  double rope_beta_slow = 1.0;
  bool rope_truncate = true;           // both limits of yarn are moved apart to the next whole frequencies
  double rope_attention_factor = 0.0;  // yarn, longrope: of rotated query and key; 0 = what follows from rope_factor
  std::vector<double> rope_short_factors{}, rope_long_factors{};  // (TurnedDim() / 2), of longrope
  /// Mixture of experts: layers from first_expert_layer on, every expert_layer_step-th, have num_experts SwiGLU layers
  /// of expert_intermediate_size instead of one of intermediate_size; a token goes to experts_per_token of them.
  int64_t num_experts = 0;  // 0 = a dense model
  int64_t experts_per_token = 2;
  int64_t expert_intermediate_size = 0;  // 0 = intermediate_size
  /// Logits of routers have biases, and both projections of every expert; a shared expert has none.
  bool expert_bias = false;
  /// In experts the gate is limited to at most this and what it multiplies to +-this, plus 1, and the gate is
  /// x sigmoid(1.702 x) (gpt-oss, section 2.3); 0 = plain SwiGLU, as dense layers and a shared expert always are.
  double swiglu_limit = 0.0;
  int64_t first_expert_layer = 1;  // counted from 1
  int64_t expert_layer_step = 1;
  RouterScoreKind router_score = RouterScoreKind::kSoftmax;
  bool router_normalize = true;  // weights of a token's experts sum to router_scale
  double router_scale = 1.0;
  int64_t router_groups = 1;         // experts in as many groups of neighbours ...
  int64_t router_groups_chosen = 1;  // ... of which a token's experts come from the best few
  /// In training an expert takes at most ceil(expert_capacity * tokens * experts_per_token / num_experts) of the tokens
  /// of a microbatch: those with the largest weights, ties to the earlier. Others go without it, their other experts'
  /// weights as they are.
  double expert_capacity = 0.0;  // 0 = all that chose it
  /// In training what the router sees of a token is multiplied, element by element, by uniform random numbers between
  /// 1 - router_jitter and 1 + router_jitter (arXiv 2101.03961); experts see it as it is.
  double router_jitter = 0.0;
  /// A SwiGLU layer beside the experts that every token goes through; with a gate its output is multiplied by
  /// sigmoid(<gate, x>).
  int64_t shared_expert_intermediate_size = 0;  // 0 = none
  bool shared_expert_gate = false;
  /// Coefficients of losses that are added to the cross-entropy in training, each a mean over microbatches and layers
  /// with experts: E * sum over experts of (share of the tokens * mean probability), and the mean of logsumexp^2.
  /// With kPooled the share of the tokens is that of all these layers together, as transformers has it.
  RouterBalanceKind router_balance = RouterBalanceKind::kPerLayer;
  double router_balance_loss = 0.0;
  double router_z_loss = 0.0;
  /// A bias of each expert is added to its score for choosing only. After each step it rises by router_bias_rate where
  /// the expert had fewer tokens than the mean of its layer, and falls where it had more (arXiv 2408.15664).
  bool router_bias = false;
  double router_bias_rate = 1e-3;
  double dropout = 0.0;  // on embeddings, attention probabilities and both residual branches
  double init_std = 0.02;
  /// A head of its own begins with zeros: what it adds by chance to the logits becomes less with the width, and is not
  /// there then in a small model either (arXiv 2203.03466, appendix D.2).
  bool zero_init_head = false;
  /// How initial values and rates follow from the sizes (models/parametrization.h), so that what is best for a base
  /// model is best for a larger one: mup, of its width (arXiv 2203.03466); completep, of its depth, too (arXiv
  /// 2505.01618). A model of the base's sizes is the same in all of them.
  Parametrization parametrization = Parametrization::kStandard;
  int64_t base_hidden_size = 0;  // of the base model; not with standard
  int64_t base_num_layers = 0;   // with completep only
  int64_t base_head_dim = 0;     // 0 = head_dim

  /// Of longrope: those by which frequencies are divided.
  const std::vector<double>& RopeFactors() const {
    return max_sequence_length > rope_original_length ? rope_long_factors : rope_short_factors;
  }
  int64_t TurnedDim() const { return rope_dim > 0 ? rope_dim : head_dim; }
  /// The window of a layer, counted from 1; 0 = none.
  int64_t WindowOf(int64_t layer) const {
    const int64_t nth = layer - first_window_layer + 1;  // of those that may have one
    const bool full = nth < 1 || (full_attention_step > 0 && nth % full_attention_step == 0);
    return full ? 0 : sliding_window;
  }
  /// Whether what rope_scaling says is of a layer, counted from 1.
  bool ScalesRope(int64_t layer) const {
    return rope_scaling_layers == RopeScalingLayers::kAll || WindowOf(layer) == 0;
  }
  /// The base of the rotary angles of a layer, counted from 1.
  double RopeThetaOf(int64_t layer) const {
    return window_rope_theta > 0 && WindowOf(layer) > 0 ? window_rope_theta : rope_theta;
  }
  bool HasQkvBias() const { return bias || attention_bias || qkv_bias; }
  bool HasAttentionOutBias() const { return bias || attention_bias; }
  bool HasMlpBias() const { return bias || mlp_bias; }
  /// Whether an MLP has three matrices, of which two read its input.
  bool HasMlpGate() const { return activation != ActivationKind::kGelu; }
  /// `layer` counts from 1.
  bool HasExperts(int64_t layer) const {
    return num_experts > 0 && layer >= first_expert_layer && (layer - first_expert_layer) % expert_layer_step == 0;
  }
  int64_t NumExpertLayers() const {
    if (num_experts == 0 || first_expert_layer > num_layers) return 0;
    return (num_layers - first_expert_layer) / expert_layer_step + 1;
  }

  bool operator==(const ModelConfig&) const = default;
};

/// An object store, of data or of checkpoints; its keys begin with "s3_" there. What is empty is taken from AWS's
/// variables of the environment, credentials always (framework/s3/s3_environment.h).
struct S3Config {
  std::string endpoint{};  // "http://127.0.0.1:9000"; empty = AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else AWS
  std::string region{};    // empty = AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
  std::string ca_file{};   // PEM, to verify the server's certificate with; empty = AWS_CA_BUNDLE, else the system's
  /// https://host/bucket/key (path) or https://bucket.host/key (host). auto: path at an endpoint, host on AWS.
  S3Addressing addressing = S3Addressing::kAuto;
  int64_t retry_seconds = 300;  // how long what may pass is tried again: outages, too many requests

  bool operator==(const S3Config&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;       // required: token files (llm.c .bin), paths or s3://bucket/name
  std::vector<std::string> validation;  // may be empty
  /// "bytes" or path of a Hugging Face tokenizer.json or its directory; used by sampling and saved. Not set: that of
  /// train.init_from.
  std::string tokenizer = "bytes";
  bool shuffle = true;
  /// Documents that were packed one after another do not see each other, and positions restart with each. Files that
  /// say themselves where documents begin are always read so; in others each ends with the tokenizer's end of text.
  bool document_mask = false;
  int64_t loader_threads = 1;  // at least; data in S3 are read by more
  S3Config s3;

  bool operator==(const DataConfig&) const = default;
};

/// The global batch of a step: microbatches * microbatch_size sequences of sequence_length tokens. None of these
/// depends on the number of workers.
struct BatchConfig {
  int64_t sequence_length = 1024;
  int64_t microbatch_size = 4;  // sequences in a microbatch
  int64_t microbatches = 1;     // microbatches in a step
  /// In which order the gradients of microbatches are added (framework/parallel/sum_order.h). A tree, the order of
  /// configs that do not say, holds log2(microbatches) sums at once, chains two.
  GradientSumKind gradient_sum = GradientSumKind::kTree;
  int64_t gradient_sum_block = 4;  // of chains: microbatches added up before they are sent; 1 holds one sum

  int64_t microbatch_tokens() const { return microbatch_size * sequence_length; }
  int64_t step_sequences() const { return microbatches * microbatch_size; }
  int64_t step_tokens() const { return step_sequences() * sequence_length; }
  bool operator==(const BatchConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 0;  // required, or what follows from epochs (models/runtime/epochs.h)
  double epochs = 0;  // passes over data.train; 0 = not set
  DeviceKind device = DeviceKind::kCpu;
  int64_t threads = 0;  // 0 = all processors of this process
  ComputeDType compute_dtype = ComputeDType::kBF16;
  /// How a CPU multiplies bf16 matrices: portable has the same bits on every processor, native uses its bf16
  /// instructions; auto takes the faster one. The resolved config names the instructions.
  ArithmeticChoice arithmetic = ArithmeticChoice::kAuto;
  RecomputeMode recompute = RecomputeMode::kNone;
  int64_t validate_every_steps = 0;     // 0 = only at the end
  int64_t validation_microbatches = 8;  // microbatches of each validation; 0 = the whole set
  /// The run ends when so many validations in a row had a loss of no less than the lowest before, minus min_delta.
  int64_t early_stop_patience = 0;  // 0 = it never ends early
  double early_stop_min_delta = 0;
  std::string init_from;  // saved model to start from, which has missing keys of `model`; empty = random
  /// Patterns of parameters' names (framework/base/glob.h): what matches `freeze` stays as it is in init_from, and so
  /// does everything that does not match `only`.
  std::vector<std::string> freeze, only;
  std::string init_digest;  // of the weights in init_from, where some of them stay; filled in from there
  std::string gemm_table;   // file of `holdfast tune`: which algorithms matrix products take on a GPU; empty = those
                            // that cuBLASLt prefers
  std::string gemm_table_digest;  // of that file; filled in from it where it can be read

  /// The key that says how long the run is.
  const char* length_key() const { return epochs > 0 ? "train.epochs" : "train.steps"; }
  bool operator==(const TrainConfig&) const = default;
};

/// Adapters of low rank beside the layers of a model (Hu et al. 2021, arXiv 2106.09685), which are all that is trained:
/// its own weights stay as they are in train.init_from.
struct LoraConfig {
  int64_t rank = 0;      // 0 = no adapters
  double alpha = 16;     // what adapters give is multiplied by alpha / rank
  bool rslora = false;   // alpha / sqrt(rank) instead (Kalajdzievski 2023, arXiv 2312.03732)
  double dropout = 0.0;  // of what adapters read
  /// Layers: all-linear (all of the model but its head), attention (all four), mlp (all of a dense one), or q_proj,
  /// k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; of layers with experts: experts (all matrices of all),
  /// router, shared_expert, shared_expert_gate.
  std::vector<std::string> targets = {"attention"};
  std::string init_from = {};    // directory of adapters to start from; empty = random
  std::string init_digest = {};  // of their values; filled in from there

  bool operator==(const LoraConfig&) const = default;
};

/// adamw: Loshchilov & Hutter 2019. lion: Chen et al. 2023. muon: Jordan 2024, scaled as by Liu et al. 2025
/// (arXiv 2502.16982), of the matrices inside the blocks; AdamW, with the same lr, of embeddings, head and vectors.
struct OptimizerConfig {
  OptimizerKind name = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9;           // adamw, lion; muon: of its AdamW
  double beta2 = 0.95;          // the same
  double eps = 1e-8;            // adamw; muon: of its AdamW
  double momentum = 0.95;       // muon: Nesterov's
  double weight_decay = 0.1;    // on matrices only, never on norms and biases
  double grad_clip_norm = 1.0;  // 0 = no clipping
  /// More than 0: the state has a moving average of the weights, too: average = ema_decay * average +
  /// (1 - ema_decay) * weight after each step. It begins as the weights. `holdfast ckpt export --ema` writes it.
  double ema_decay = 0.0;
  /// "PATTERN=FACTOR": what the pattern (framework/base/glob.h) matches has FACTOR times the learning rate, and so as
  /// much less or more decay. Of those that match a name the first one counts.
  std::vector<std::string> lr_factors = {};
  std::vector<std::string> no_decay = {};  // patterns of matrices without weight decay
  /// Of L blocks, block i (0, 1, ...) has layer_decay^(L - i) times the learning rate, embeddings layer_decay^(L + 1),
  /// the final norm and a head of its own 1 (Howard & Ruder 2018; Clark et al. 2020). Times what lr_factors says.
  double layer_decay = 1.0;

  /// Whether parameters differ in their rate or decay beyond what they are.
  bool has_groups() const { return !lr_factors.empty() || !no_decay.empty() || layer_decay != 1.0; }
  bool operator==(const OptimizerConfig&) const = default;
};

/// Learning rate as a factor of optimizer.lr: linear warm-up over warmup_steps, then `name` down to min_lr_ratio.
struct ScheduleConfig {
  ScheduleKind name = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;    // cosine, linear: length after warm-up, 0 = until total_steps. wsd: length of the final
                              // decay, 0 = 20% of total_steps
  double min_lr_ratio = 0.1;  // final lr / optimizer.lr
  /// Of the run that the schedule is made for, 0 = train.steps: one of fewer steps is the beginning of it, and
  /// raising train.steps goes on with the rest.
  int64_t total_steps = 0;

  /// `train_steps`: train.steps.
  int64_t length(int64_t train_steps) const { return total_steps > 0 ? total_steps : train_steps; }
  bool operator==(const ScheduleConfig&) const = default;
};

/// How a step is spread over workers. Nothing here changes a bit of the result.
struct ParallelConfig {
  Sharding sharding = Sharding::kFullShard;
  int64_t replicas = 1;  // replica groups (hybrid sharding): each group holds the whole model
  int64_t mirrors = 1;   // holders of each piece of state besides its owner, on other nodes where there are any
  /// Where weights are sharded, whether experts travel to tokens or tokens to experts (expert parallelism). The same
  /// bits; auto: what moves fewer bytes.
  ExpertPlacement experts = ExpertPlacement::kAuto;
  /// Where tokens travel to experts, two microbatches of a worker take turns: one is computed while rows of the other
  /// travel. The same bits; takes the memory of a second microbatch's activations.
  bool overlap_microbatches = false;
  MirrorPlace mirrors_on = MirrorPlace::kDevice;  // cpu: saves GPU memory, costs processor time after each step
  /// mpi: the workers are what mpirun started, a world that cannot change. nccl: between GPUs (train.device: cuda), one
  /// for each worker.
  Transport transport = Transport::kGloo;
  bool encrypt = false;  // what gloo sends between workers, by TLS 1.3

  bool operator==(const ParallelConfig&) const = default;
};

/// How a run reacts to workers that come, go, freeze or slow down. Time limits are ordered: heartbeat_interval_ms <
/// heartbeat_timeout_ms < collective_timeout_ms < kill_timeout_ms.
struct ElasticConfig {
  int64_t workers = 1;      // wanted; `train --workers` sets it
  int64_t min_workers = 1;  // with fewer the run waits
  int64_t max_workers = 0;  // more are not admitted; 0 = workers
  int64_t heartbeat_interval_ms = 200;
  int64_t heartbeat_timeout_ms = 3000;    // silent for longer: hung, removed
  int64_t collective_timeout_ms = 60000;  // of one transfer between workers
  int64_t kill_timeout_ms = 120000;       // a worker that cannot abort a transfer for this long ends itself
  int64_t progress_timeout_ms = 600000;   // heartbeats without progress for longer: hung, removed
  int64_t join_timeout_ms = 60000;        // the first world waits this long for `workers`, then takes min_workers
  int64_t lost_state_timeout_ms = 10000;  // how long holders of lost state may take to come back, once min_workers are
                                          // connected; then the run goes back to the newest checkpoint, or fails
                                          // without one
  int64_t coordinator_lease_ms = 5000;    // a coordinator that is silent for longer is replaced by one that stands by
  int64_t coordinator_timeout_ms = 3600000;  // an agent without a coordinator for longer ends itself and its workers
  int64_t max_restarts = 100;                // of each worker, by its agent
  double straggler_factor = 1.5;             // slower than this times the median: named
  int64_t straggler_steps = 10;              // steps that are looked at
  bool rebalance = false;                    // move microbatches away from stragglers

  int64_t most_workers() const { return max_workers > 0 ? max_workers : workers; }
  bool operator==(const ElasticConfig&) const = default;
};

/// When, where and how checkpoints are written. Nothing here changes a bit of the result.
struct CheckpointConfig {
  std::string directory;                           // a path or s3://bucket/prefix; empty = RUN_DIR/checkpoints
  CheckpointEvery every = CheckpointEvery::kAuto;  // auto: from the measured costs; overridden by the next two
  int64_t every_steps = 0;                         // 0 = not set
  int64_t every_seconds = 0;                       // 0 = not set
  int64_t keep_last = 2;                           // newest checkpoints that stay
  int64_t keep_every_steps = 0;                    // those whose step is a multiple stay too; 0 = none
  int64_t keep_best = 0;  // and as many with the lowest validation losses; > 0: validated states are saved
  /// auto: only where it makes the whole faster, or max_gib asks for it.
  CheckpointCompression compression = CheckpointCompression::kAuto;
  int64_t compression_level = 1;  // of zstd
  int64_t staging_mib = 256;  // CPU memory of a worker for chunks captured and not yet written; half more for a second
  int64_t threads = 1;        // that compress and load, per worker
  double max_gib = 0.0;       // space for all checkpoints, also those that keep_* keep; 0 = no limit
  S3Config s3;

  bool enabled() const { return every_steps > 0 || every_seconds > 0 || every != CheckpointEvery::kNever; }
  bool operator==(const CheckpointConfig&) const = default;
};

/// Where incidents are reported. Secrets stand in files of their own, so that configs can be shown to anybody.
struct AlertsConfig {
  std::string slack_webhook_file;  // holds the URL of an incoming webhook; empty = none
  std::string pagerduty_key_file;  // holds an events v2 integration key; empty = none
  double price_per_hour = 0;       // of a worker, in any currency; alerts say what the run has cost. 0 = not known
  int64_t coordinator_absent_ms = 60'000;  // agents tell of it when none has answered for so long; 0 = never

  bool operator==(const AlertsConfig&) const = default;
};

struct LogConfig {
  int64_t every_steps = 1;           // console lines; metrics.jsonl has every step
  int64_t digest_every_steps = 100;  // state_digest in metrics.jsonl; the last step, or what may be it, always has it
  int64_t sample_bytes = 400;  // tokens of the text sample at the end of a run (bytes, with that tokenizer); 0 = none

  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  TrainConfig train;
  LoraConfig lora;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  ElasticConfig elastic;
  CheckpointConfig checkpoint;
  AlertsConfig alerts;
  LogConfig log;

  /// Whether parameters are frozen.
  bool trains_part() const { return lora.rank > 0 || !train.freeze.empty() || !train.only.empty(); }
  bool operator==(const Config&) const = default;
};

}  // namespace holdfast
