#pragma once
// Where the state after the last committed step lies.
//
//   kNowhere     no step is committed: the first world initialises it
//   kClaimed     with workers that have still to say so: the coordinator was started again, and knows only the step
//   kCheckpoint  in a checkpoint, which all members of the next world load
//   kWorld       with the members of a world, as they committed it there
//
// Besides, from the moment when all members of a new world have got their part until they commit a step, it lies with
// them as well: in the world that was entered.
//
// Thread-safety: none.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "elastic/control/messages.h"

namespace holdfast {

class StateLocation {
 public:
  enum class Kind { kNowhere, kClaimed, kCheckpoint, kWorld };

  explicit StateLocation(bool claimed);

  Kind kind() const { return static_cast<Kind>(state_.index()); }
  bool claimed() const { return kind() == Kind::kClaimed; }
  /// Of kWorld; else generation 0.
  const World& source() const;
  /// Name, of kCheckpoint; else empty.
  const std::string& checkpoint() const;
  /// Generation 0: none.
  const World& entered() const { return entered_; }

  /// The claims are resolved, or a step was committed in it.
  void SetWorld(const World& world);
  /// An empty name: kNowhere.
  void SetCheckpoint(const std::string& name);
  void Enter(const World& world) { entered_ = world; }
  void ForgetEntered() { entered_ = {}; }
  /// Holders of the source are lost, and those of the world that was entered are not.
  void AdoptEntered() { SetWorld(World(entered_)); }

  /// A process of the node has ended, and with it what it held of the source.
  void OnProcessEnded(const std::string& node, const WorkerId& id);
  /// Whether a member of the source is known to have ended.
  bool HasEnded(const WorkerId& member) const { return ended_.contains(member); }

  // Of kClaimed. Thousands claim one world: who is in it is said once, and kept once.
  /// False if that was known, or is not said.
  bool Learn(const World& world);
  /// With the members of the worlds that are known.
  StateClaim WithMembers(StateClaim claim) const;
  /// Connection of who was asked for the members of a world; 0 = nobody.
  uint64_t& AskedFor(uint64_t generation);
  bool WasAsked(uint64_t connection, uint64_t generation) const;

 private:
  struct Nowhere {};
  struct Claims {
    std::map<uint64_t, World> known;     // by generation
    std::map<uint64_t, uint64_t> asked;  // connection, by generation
  };
  struct Checkpoint {
    std::string name;
  };
  std::variant<Nowhere, Claims, Checkpoint, World> state_;  // in the order of Kind
  World entered_;
  std::set<WorkerId> ended_;  // of the source
};

}  // namespace holdfast
