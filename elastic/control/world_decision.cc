#include "elastic/control/world_decision.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "elastic/control/state_source.h"
#include "framework/base/counted.h"
#include "framework/base/join_first.h"

namespace holdfast {
namespace {

std::vector<Member> MissingHolders(const WorldQuestion& question, const std::vector<Candidate>& chosen,
                                   const ParallelConfig& parallel) {
  const World& source = question.source;
  std::vector<bool> alive(source.members.size(), false);
  for (const Candidate& c : chosen) {
    const int rank = c.holds_state ? source.RankOf(c.member.id) : -1;
    if (rank >= 0) alive[static_cast<size_t>(rank)] = true;
  }
  return HoldersOfLostState(source, alive, parallel, question.used);
}

bool IsUnwanted(const Candidate& c) { return c.quarantined || c.leaves; }

// Holders of state first, for without them there is nothing to go on from; of these who may stay; then who is at work;
// then who came first.
bool ComesBefore(const Candidate& a, const Candidate& b) {
  return std::tuple(!a.holds_state, IsUnwanted(a), !a.was_member, a.arrival, a.member.id) <
         std::tuple(!b.holds_state, IsUnwanted(b), !b.was_member, b.arrival, b.member.id);
}

std::vector<Candidate> Choose(const ElasticConfig& elastic, const WorldQuestion& question, bool with_unwanted) {
  std::vector<Candidate> chosen;
  for (const Candidate& c : question.candidates) {
    if (IsUnwanted(c) && !(with_unwanted && c.holds_state)) continue;
    if (question.ending && question.source.generation != 0 && !c.holds_state && !c.was_member) continue;
    chosen.push_back(c);
  }
  std::sort(chosen.begin(), chosen.end(), ComesBefore);
  const auto most = static_cast<size_t>(std::max<int64_t>(1, elastic.most_workers()));
  if (chosen.size() <= most) return chosen;
  // The run may have been larger before its coordinator was started anew. What only they hold, they hand on and go.
  const auto holders = static_cast<size_t>(
      std::count_if(chosen.begin(), chosen.end(), [](const Candidate& c) { return c.holds_state; }));
  const auto end_of_holders = chosen.begin() + static_cast<std::ptrdiff_t>(holders);
  if (holders > 0 && std::all_of(chosen.begin(), end_of_holders, [](const Candidate& c) { return c.leaves; })) {
    chosen.resize(std::min(chosen.size(), holders + most));  // whom they hand on to comes in beside them
    return chosen;
  }
  chosen.resize(with_unwanted ? std::max(most, holders) : most);
  for (size_t i = most; i < chosen.size(); ++i) chosen[i].leaves = true;
  return chosen;
}

std::string NamesOf(const std::vector<Member>& members) {
  constexpr size_t kMaxNamed = 8;
  return JoinFirst(members, kMaxNamed, [](std::string* out, const Member& m) { out->append(m.id.name); });
}

std::string WhyTooFew(const ElasticConfig& elastic, const WorldQuestion& question, size_t chosen) {
  const auto count = static_cast<int64_t>(chosen);
  const int64_t least = question.ending ? 1 : elastic.min_workers;
  const auto quarantined = std::count_if(question.candidates.begin(), question.candidates.end(),
                                         [](const Candidate& c) { return c.quarantined; });
  const std::string aside = quarantined > 0 ? absl::StrCat("; ", quarantined, " in quarantine or kept out") : "";
  if (count < least) return absl::StrCat(count, " of at least ", Counted(least, "worker"), " joined", aside);
  const bool wait_for_all = question.first && !question.joined_long && !question.ending;
  if (wait_for_all && count < elastic.workers) {
    return absl::StrCat(count, " of ", Counted(elastic.workers, "worker"), " joined", aside);
  }
  return "";
}

}  // namespace

WorldDecision DecideWorld(const ElasticConfig& elastic, const ParallelConfig& parallel, const WorldQuestion& question) {
  WorldDecision decision;
  std::vector<Candidate> chosen = Choose(elastic, question, /*with_unwanted=*/false);
  decision.missing = MissingHolders(question, chosen, parallel);
  if (!decision.missing.empty()) {
    chosen = Choose(elastic, question, /*with_unwanted=*/true);
    decision.missing = MissingHolders(question, chosen, parallel);
  }
  if (!decision.missing.empty()) {
    decision.verdict = WorldDecision::Verdict::kStateMissing;
    decision.detail =
        absl::StrCat("part of the state is held by no connected worker; waiting for ", NamesOf(decision.missing));
    return decision;
  }
  decision.detail = WhyTooFew(elastic, question, chosen.size());
  if (!decision.detail.empty()) return decision;
  decision.verdict = WorldDecision::Verdict::kPublish;
  const bool some_stay = std::any_of(chosen.begin(), chosen.end(), [](const Candidate& c) { return !c.leaves; });
  for (const Candidate& c : chosen) {
    decision.members.push_back(c.member);
    decision.members.back().leaves = c.leaves && some_stay;
  }
  std::sort(decision.members.begin(), decision.members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.leaves, a.node, a.id.name, a.id.incarnation) <
           std::tie(b.leaves, b.node, b.id.name, b.id.incarnation);
  });
  return decision;
}

}  // namespace holdfast
