#pragma once
// What really happened, seen from above, and the rules that nothing may break. The model's state is a row of chunks;
// a chunk's content after a step is a hash of its content before, so that a step left out, done twice or done on
// another basis shows in all that follow.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/state_source.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/used_cells.h"
#include "tests/framework/parallel/held_cells.h"

namespace holdfast::sim {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
inline uint32_t LossBits(int64_t step) { return static_cast<uint32_t>(Mix(1, static_cast<uint64_t>(step))); }
inline double ValidationLoss(int64_t step) { return static_cast<double>(Mix(3, static_cast<uint64_t>(step)) % 1000); }
inline uint32_t NormBits(int64_t step) { return static_cast<uint32_t>(Mix(2, static_cast<uint64_t>(step))); }

/// Chunks that somebody holds.
struct Chunks {
  uint64_t generation = 0;  // by whose placement; 0 = nothing is held
  int64_t step = 0;
  std::map<int, uint64_t> hashes;
};

class Truth {
 public:
  Truth(int num_chunks, const ParallelConfig& parallel)
      : num_chunks_(num_chunks), parallel_(parallel), serial_(static_cast<size_t>(num_chunks)) {}

  int num_chunks() const { return num_chunks_; }
  int64_t digest_every = 0, validate_every = 0, total_steps = 0, patience = 0;  // 0 = never
  bool goes_bad = false;  // memory does, so that contents need not be those of the serial run
  static uint64_t First(int chunk) { return Mix(77, static_cast<uint64_t>(chunk)); }
  static uint64_t Next(uint64_t hash, int64_t step) { return Mix(hash, static_cast<uint64_t>(step)); }

  /// What a serial run would have.
  uint64_t Serial(int chunk, int64_t step) {
    auto& chain = serial_[static_cast<size_t>(chunk)];
    if (chain.empty()) chain.push_back(First(chunk));
    while (static_cast<int64_t>(chain.size()) <= step) {
      chain.push_back(Next(chain.back(), static_cast<int64_t>(chain.size())));
    }
    return chain[static_cast<size_t>(step)];
  }

  const Placement& PlacementOf(const World& world) {
    auto& placement = placements_[world.generation];
    if (!placement.has_value()) placement = holdfast::PlacementOf(world, parallel_);
    return *placement;
  }
  int CellOf(const Placement& placement, int chunk) const {
    return static_cast<int>(static_cast<int64_t>(chunk) * placement.num_cells() / num_chunks_);
  }
  holdfast::UsedCells UsedCells() const {
    std::vector<int> finest;
    for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
      finest.push_back(static_cast<int>(chunk * holdfast::UsedCells::kFinest / num_chunks_));
    }
    return holdfast::UsedCells(std::move(finest));
  }
  std::vector<int> ChunksOf(const World& world, int rank) {
    const Placement& placement = PlacementOf(world);
    std::vector<int> chunks;
    const std::vector<int> cells = HeldCells(placement)[static_cast<size_t>(rank)];
    for (int chunk = 0; chunk < num_chunks_; ++chunk) {
      if (std::binary_search(cells.begin(), cells.end(), CellOf(placement, chunk))) chunks.push_back(chunk);
    }
    return chunks;
  }

  // --- what happens -------------------------------------------------------------------------------------------------
  void Persisted(uint64_t generation, const Branch& branch) {
    Demand(generation >= persisted_, "generation ", generation, " is persisted after ", persisted_);
    persisted_ = std::max(persisted_, generation);
    Branch both = branch_;
    both.GoBack(branch);
    Demand(both == branch, "a barrier is taken away");
    branch_ = branch;
  }

  void Sent(int life, const WorldMessage& message) {
    const World& world = message.world;
    Demand(world.generation <= persisted_, "generation ", world.generation, " is published but not persisted");
    const auto [it, is_new] = worlds_.try_emplace(world.generation, world);
    if (is_new) {
      Demand(world.generation > newest_, "generation ", world.generation, " is published after ", newest_);
      newest_ = std::max(newest_, world.generation);
      lives_[world.generation] = life;
      Demand(message.committed_step == committed(), "generation ", world.generation, " begins at step ",
             message.committed_step, ", but ", committed(), " are committed");
      Demand(message.checkpoint.empty() || CanGoBackTo(message.checkpoint, message.committed_step), "generation ",
             world.generation, " begins from checkpoint ", message.checkpoint,
             ", which is not one of this run any more");
    } else {
      Demand(lives_[world.generation] == life && it->second == world, "generation ", world.generation,
             " is used twice");
    }
  }

  void Prepared(uint64_t generation, int64_t step, const WorkerId& id) { prepared_[{generation, step}].insert(id); }

  void Recorded(const RecordAction& record) {
    Demand(record.step == committed() + 1, "step ", record.step, " is recorded after ", committed());
    Demand(record.generation == newest_, "step ", record.step, " is committed in generation ", record.generation,
           ", but the world is ", newest_);
    const World& world = worlds_[record.generation];
    const auto& prepared = prepared_[{record.generation, record.step}];
    for (const Member& member : world.members) {
      Demand(prepared.count(member.id) > 0, "step ", record.step, " is committed in generation ", record.generation,
             ", but ", member.id.name, " has not prepared it");
    }
    Demand(record.loss_bits == LossBits(record.step) && record.grad_norm_bits == NormBits(record.step), "step ",
           record.step, " has other bits than the serial run");
    CheckDigests(record);
    CheckValidation(record);
    if (std::exchange(found_bad_, false)) CheckThatNothingBadCounts();
    recorded_.push_back(record.generation);
    if (IsDigestStep(record.step)) forgiven_ = record.step;  // all copies are alike, so nobody can know
    last_of_[record.generation] = record.step;
  }

  bool IsDigestStep(int64_t step) const {
    return (digest_every > 0 && step % digest_every == 0) || (patience > 0 && IsValidationStep(step));
  }
  bool IsValidationStep(int64_t step) const {
    return validate_every > 0 && (step % validate_every == 0 || step == total_steps);
  }
  /// The step at which a run without any failure ends.
  int64_t LastStep() const {
    double best = ValidationLoss(validate_every);
    int64_t later = 0;
    for (int64_t step = validate_every; patience > 0 && validate_every > 0 && step < total_steps;
         step += validate_every) {
      later = ValidationLoss(step) < best || step == validate_every ? 0 : later + 1;
      best = std::min(best, ValidationLoss(step));
      if (later == patience) return step;
    }
    return total_steps;
  }
  void CheckValidation(const RecordAction& record) {
    const int64_t before = record.step - 1;
    std::optional<ValidationResult> wanted;
    if (before > 0 && IsValidationStep(before)) wanted = {before, ValidationLoss(before)};
    Demand(record.validation == wanted, "step ", record.step, " is recorded without the validation before it");
    Demand(record.step <= LastStep(), "step ", record.step, " is committed, but the run was to end at ", LastStep());
  }
  void CheckDigests(const RecordAction& record) {
    bool right = record.digests.size() == (IsDigestStep(record.step) ? static_cast<size_t>(num_chunks_) : 0);
    for (int chunk = 0; right && chunk < std::ssize(record.digests); ++chunk) {
      right = goes_bad || record.digests[static_cast<size_t>(chunk)] == ChunkDigest{chunk, Serial(chunk, record.step)};
    }
    Demand(right, "the digests of step ", record.step, " are not those of the serial run");
  }
  /// What is said about a checkpoint is about the state of its step.
  void CheckCommit(const CommitCheckpointAction& commit) {
    std::vector<ChunkDigest> digests;
    for (int chunk = 0; chunk < num_chunks_; ++chunk) digests.push_back({chunk, Serial(chunk, commit.step)});
    const bool may_have_digest = IsDigestStep(commit.step);
    Demand(commit.state_digest == 0 || (may_have_digest && (goes_bad || commit.state_digest == StateDigest(digests))),
           "the checkpoint of step ", commit.step, " is to have another state's digest");
    if (!commit.validation_loss.has_value()) return;
    const bool validated = IsValidationStep(commit.step) && ValidationLoss(commit.step) == *commit.validation_loss;
    Demand(validated, "the checkpoint of step ", commit.step, " has the validation loss of another step");
  }

  void SentCommit(const CommitMessage& commit) {
    Demand(commit.step <= committed(), "step ", commit.step, " is committed before it is recorded");
    if (commit.step > committed()) return;
    Demand(commit.generation == generation_of(commit.step), "step ", commit.step, " is committed in generation ",
           commit.generation, ", and in generation ", generation_of(commit.step));
    told_ = std::max(told_, commit.step);
  }
  /// A loss of power: the last lines that were written were not synced.
  void LoseLines(int64_t count) { recorded_.resize(recorded_.size() - std::min<size_t>(recorded_.size(), count)); }
  void CheckThatNothingToldIsMissing() {
    Demand(told_ <= committed(), "step ", told_, " was told to workers, but the record ends with ", committed());
  }

  /// A worker has applied the update of a step.
  void Applied(const std::string& who, int64_t step, const Chunks& state) {
    const bool recorded = step <= last_of_[state.generation] || step <= committed();  // in this or in a later world
    Demand(recorded, who, " applies step ", step, " which is not recorded");
    Check(who, step, state);
  }
  void Check(const std::string& who, int64_t step, const Chunks& state) {
    Demand(state.step == step, who, " has the state of step ", state.step, " instead of ", step);
    for (const auto& [chunk, hash] : state.hashes) {
      Demand(goes_bad || hash == Serial(chunk, state.step), who, " holds wrong content of chunk ", chunk, " at step ",
             state.step);
    }
  }

  // --- memory that goes bad -----------------------------------------------------------------------------------------
  /// The content that a copy has instead from now on.
  uint64_t GoBad(uint64_t hash) { return *bad_.insert(Mix(hash, 99)).first; }
  bool IsBad(uint64_t hash) const { return bad_.contains(hash); }
  /// All members have computed a step; `with_bad`: with a copy that is bad. The first of them to say so counts.
  void Computed(uint64_t generation, int64_t step, const std::function<bool()>& with_bad) {
    const std::pair key(generation, step);
    if (goes_bad && !wrong_.contains(key)) wrong_[key] = with_bad() ? Mix(generation, static_cast<uint64_t>(step)) : 0;
  }
  /// What a copy becomes by the update of a step that was computed in a world.
  uint64_t After(uint64_t hash, uint64_t generation, int64_t step) {
    const auto wrong = wrong_.find({generation, step});
    const uint64_t next = Next(hash, step) ^ (wrong == wrong_.end() ? 0 : wrong->second);
    if (IsBad(hash)) bad_.insert(next);
    return next;
  }
  /// The coordinator has noticed that copies differ.
  void FindBad() {
    found_bad_ = true;
    if (checkpoints_.empty()) return;  // the run goes back to its beginning
    constexpr int64_t kUnknown = 20;   // a newer one may not be known to the coordinator yet
    const auto usable = Usable();
    const auto is_sound = [&](const CheckpointChoice& c) { return c.step + kUnknown <= forgiven_; };
    if (std::none_of(usable.begin(), usable.end(), is_sound)) forgiven_ = committed();  // nothing to go back to
  }
  void CheckThatNothingBadCounts() {
    for (int64_t step = forgiven_ + 1; step <= committed(); ++step) {
      Demand(wrong_[{generation_of(step), step}] == 0, "step ", step,
             ", which was computed with a bad copy, still counts after that was found");
    }
  }

  // --- checkpoints: what is on disk survives everything -----------------------------------------------------------
  /// A member has made its part durable.
  void Saved(uint64_t generation, const Chunks& part) {
    auto& stored = stored_[{part.step, generation}];
    stored.insert(part.hashes.begin(), part.hashes.end());
  }
  void CheckpointExists(int64_t step, uint64_t generation) {
    const auto& stored = stored_[{step, generation}];
    Demand(static_cast<int>(stored.size()) == num_chunks_, "the checkpoint of step ", step, " lacks chunks");
    for (const auto& [chunk, hash] : stored) {
      Demand(goes_bad || hash == Serial(chunk, step), "the checkpoint of step ", step, " has wrong content of chunk ",
             chunk);
    }
    checkpoints_.insert({step, generation});
  }
  uint64_t Stored(const std::string& name, int chunk) const {
    const auto is_it = [&](const auto& entry) { return NameOf(entry.first.first, entry.first.second) == name; };
    return std::find_if(stored_.begin(), stored_.end(), is_it)->second.at(chunk);
  }
  static std::string NameOf(int64_t step, uint64_t generation) { return absl::StrCat(step, "-", generation); }
  /// All that are there, also those given up.
  std::vector<CheckpointChoice> Choices() const {
    std::vector<CheckpointChoice> choices;
    for (auto it = checkpoints_.rbegin(); it != checkpoints_.rend(); ++it) {
      choices.push_back({NameOf(it->first, it->second), it->first, 0, it->second});
    }
    return choices;
  }
  /// What a coordinator finds that starts: as elastic/launch/prepared_run.cc does it.
  std::vector<CheckpointChoice> Usable() const {
    std::vector<CheckpointChoice> usable = Choices();
    std::erase_if(usable, [&](const CheckpointChoice& c) {
      return !branch_.Includes(c.generation, c.step) || (committed() > 0 && c.step > committed());
    });
    return usable;
  }
  /// There is one that can be used and is whole.
  bool HasWholeCheckpoint() const {
    const auto usable = Usable();
    return std::any_of(usable.begin(), usable.end(), [&](const CheckpointChoice& c) { return !IsDamaged(c.name); });
  }
  bool CanGoBackTo(const std::string& name, int64_t step) const {
    const auto usable = Usable();
    return std::any_of(usable.begin(), usable.end(),
                       [&](const CheckpointChoice& c) { return c.name == name && c.step == step; });
  }
  /// As a keeper does it after each: what was given up goes, and of the others all but the newest three.
  void ApplyRetention() {
    constexpr int kKept = 3;
    int kept = 0;
    for (const CheckpointChoice& c : Choices()) {
      if (!branch_.Includes(c.generation, c.step) || ++kept > kKept) checkpoints_.erase({c.step, c.generation});
    }
  }
  void DamageNewest() {
    if (checkpoints_.size() > 1) damaged_.insert(Choices().front().name);
  }
  bool IsDamaged(const std::string& name) const { return damaged_.count(name) > 0; }

  void ModelSaved(int64_t step) { model_step_ = step; }
  /// What a run that was stopped leaves.
  bool IsSaved() const {
    const auto usable = Usable();
    return committed() == 0 || model_step_ == committed() || (!usable.empty() && usable.front().step == committed());
  }

  // --- going back ---------------------------------------------------------------------------------------------------
  /// The last committed step counts, and by this branch does not any more.
  bool WouldGiveUp(const Branch& branch) const {
    const uint64_t generation = generation_of(committed());
    return branch_.Includes(generation, committed()) && !branch.Includes(generation, committed());
  }
  void Rewound(int64_t step) {
    const auto usable = Usable();
    const bool from_the_beginning = step == 0 && usable.empty();
    Demand(from_the_beginning ||
               std::any_of(usable.begin(), usable.end(), [&](const CheckpointChoice& c) { return c.step == step; }),
           "the run goes back to step ", step, ", of which there is no checkpoint");
    Demand(step <= committed(), "the run goes back from step ", committed(), " to ", step);
    Demand(step == committed() || !branch_.Includes(recorded_.back(), committed()), "the record is cut to step ", step,
           " before what was done later is excluded");
    recorded_.resize(static_cast<size_t>(step));
    told_ = std::min(told_, step);
    forgiven_ = std::min(forgiven_, step);
  }
  /// A coordinator that starts finds lines that were given up, if the one before died before it had cut them off.
  void CutWhatWasGivenUp() {
    for (size_t i = 0; i < recorded_.size(); ++i) {
      if (!branch_.Includes(recorded_[i], static_cast<int64_t>(i) + 1)) recorded_.resize(i);
    }
    for (const Barrier& barrier : branch_.barriers()) {
      if (barrier.generation >= newest_) told_ = std::min(told_, barrier.step);
    }
  }
  /// Somebody starts the coordinator with --resume STEP, or (step 0, without checkpoints) with --overwrite.
  void GoBackTo(int64_t step, bool overwrite) {
    branch_.GoBack({.generation = persisted_, .step = step});
    recorded_.resize(static_cast<size_t>(std::min(step, committed())));
    told_ = std::min(told_, step);
    if (overwrite) checkpoints_.clear();
  }

  int64_t committed() const { return static_cast<int64_t>(recorded_.size()); }
  uint64_t generation_of(int64_t step) const { return step > 0 ? recorded_[static_cast<size_t>(step - 1)] : 0; }
  uint64_t persisted() const { return persisted_; }
  const Branch& branch() const { return branch_; }
  uint64_t newest() const { return newest_; }
  const World& world(uint64_t generation) { return worlds_[generation]; }
  const std::string& violation() const { return violation_; }  // the first; empty = none

  template <class... Parts>
  void Demand(bool condition, const Parts&... parts) {
    if (!condition && violation_.empty()) violation_ = absl::StrCat(parts...);
  }

 private:
  int num_chunks_;
  ParallelConfig parallel_;
  std::vector<std::vector<uint64_t>> serial_;
  std::map<uint64_t, std::optional<Placement>> placements_;
  std::map<uint64_t, World> worlds_;
  std::map<uint64_t, int> lives_;  // generation -> coordinator that published it
  std::map<std::pair<uint64_t, int64_t>, std::set<WorkerId>> prepared_;
  std::vector<uint64_t> recorded_;                                          // generation of each step
  std::map<uint64_t, int64_t> last_of_;                                     // the last step of each generation
  std::map<std::pair<int64_t, uint64_t>, std::map<int, uint64_t>> stored_;  // by step and generation
  std::set<std::pair<int64_t, uint64_t>> checkpoints_;
  std::set<std::string> damaged_;
  std::set<uint64_t> bad_;  // contents
  std::map<std::pair<uint64_t, int64_t>, uint64_t>
      wrong_;  // by generation and step: how the update is; 0 = it is right
  bool found_bad_ = false;
  int64_t forgiven_ = 0;  // steps up to here may be wrong
  Branch branch_;
  int64_t told_ = 0;  // the last step that workers were told to be committed
  uint64_t persisted_ = 0, newest_ = 0;
  int64_t model_step_ = 0;
  std::string violation_;
};

}  // namespace holdfast::sim
