// Every kind of message, with random contents, comes out of the wire format as it went in; what is out of bounds or
// no message at all is refused by name and crashes nothing.

#include "elastic/wire/convert.h"

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "elastic/wire/holdfast.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/random_messages.h"

namespace holdfast {
namespace {

using testing::Equal;
using ::testing::HasSubstr;
using testing::RandomMessages;

constexpr int kRounds = 200;

template <typename Wire, typename Message>
auto ThroughBytes(const Message& message) {
  Wire wire;
  ToWire(message, &wire);
  Wire parsed;
  EXPECT_TRUE(parsed.ParseFromString(wire.SerializeAsString()));
  return FromWire(parsed);
}

TEST(ConvertTest, EveryWorkerMessageSurvives) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    RandomMessages random(seed);
    for (size_t kind = 0; kind < std::variant_size_v<WorkerMessage>; ++kind) {
      const WorkerMessage message = random.Worker(kind);
      ASSERT_EQ(message.index(), kind);
      const auto copy = ThroughBytes<v1::ToCoordinator>(message);
      ASSERT_TRUE(copy.ok()) << copy.status() << " seed " << seed << " kind " << kind;
      ASSERT_TRUE(Equal(message, *copy)) << "seed " << seed << " kind " << kind;
    }
  }
}

TEST(ConvertTest, EveryCoordinatorMessageSurvives) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    RandomMessages random(seed);
    for (size_t kind = 0; kind < std::variant_size_v<CoordinatorMessage>; ++kind) {
      const CoordinatorMessage message = random.FromCoordinator(kind);
      ASSERT_EQ(message.index(), kind);
      const auto copy = ThroughBytes<v1::FromCoordinator>(message);
      ASSERT_TRUE(copy.ok()) << copy.status() << " seed " << seed << " kind " << kind;
      ASSERT_TRUE(Equal(message, *copy)) << "seed " << seed << " kind " << kind;
    }
  }
}

// Members of the source that are in the new world as they were travel once.
TEST(ConvertTest, ASourceIsNotSaidTwice) {
  std::vector<Member> members;
  for (uint64_t i = 0; i < 1000; ++i) {
    const std::string node = absl::StrCat("node-", i / 8);
    members.push_back(
        {{absl::StrCat(node, "/", i % 8), i << 40 | 1}, node, absl::StrCat("10.0.0.", i / 8), 4711, false, 1e15});
  }
  WorldMessage message, without;
  message.world = without.world = {8, members};
  message.source = {7, members};
  const auto bytes_of = [](const WorldMessage& m) {
    v1::FromCoordinator wire;
    ToWire(CoordinatorMessage(m), &wire);
    return wire.ByteSizeLong();
  };
  EXPECT_LE(bytes_of(message), bytes_of(without) + 3 * members.size());
  const auto copy = ThroughBytes<v1::FromCoordinator>(CoordinatorMessage(message));
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(std::get<WorldMessage>(*copy).source, message.source);
}

// As many workers as a run can have, with names and addresses as long as they can be; what limits.h asserts rests on
// it.
TEST(ConvertTest, TheLargestRunFitsIntoItsMessages) {
  const auto world_of = [](char letter) {
    std::vector<Member> members(static_cast<size_t>(kMaxWorkers));
    for (size_t i = 0; i < members.size(); ++i) {
      const std::string name = absl::StrCat(std::string(kMaxNameBytes - 5, letter), absl::Dec(i, absl::kZeroPad5));
      members[i] = {{name, ~i}, name, name, INT64_MAX - static_cast<int64_t>(i), i > 0, 1e15};
    }
    return World{UINT64_MAX, members};
  };
  const World world = world_of('w'), other = world_of('o');
  const std::vector<int64_t> counts(static_cast<size_t>(kMaxWorkers), INT64_MAX);
  WorldMessage begins;
  begins.world = world;
  begins.source = other;
  begins.microbatches = counts;
  PeersMessage peers;
  peers.blobs.assign(static_cast<size_t>(kMaxWorkers), std::string(kMaxBlobBytes, 'b'));
  JoinMessage join;
  join.member = world.members[0];
  join.claim = {world, 1, 2, other};
  VoteMessage vote;
  vote.digests.assign(size_t{kMaxDigests}, {INT32_MAX, UINT64_MAX});
  const auto bytes_of = [](const auto& message, auto wire) {
    ToWire(message, &wire);
    return wire.ByteSizeLong();
  };
  EXPECT_LE(bytes_of(CoordinatorMessage(begins), v1::FromCoordinator()), kMaxOutgoingBytes);
  EXPECT_LE(bytes_of(CoordinatorMessage(peers), v1::FromCoordinator()), kMaxOutgoingBytes);
  EXPECT_LE(bytes_of(CoordinatorMessage(CommitMessage{1, 1, counts, true}), v1::FromCoordinator()), kMaxOutgoingBytes);
  EXPECT_LE(bytes_of(WorkerMessage(join), v1::ToCoordinator()), kMaxIncomingBytes);
  EXPECT_LE(bytes_of(WorkerMessage(vote), v1::ToCoordinator()), kMaxIncomingBytes);
}

TEST(ConvertTest, ASourceOfMembersThatAreNotThereIsRefused) {
  for (const auto& damage : std::vector<std::function<void(v1::Source*)>>{
           [](v1::Source* s) { s->add_ranks(1); },  // of a world without members
           [](v1::Source* s) { s->add_ranks(0); },  // of no further members
           [](v1::Source* s) { s->add_members(); }}) {
    v1::FromCoordinator wire;
    damage(wire.mutable_world()->mutable_source());
    EXPECT_TRUE(absl::IsInvalidArgument(FromWire(wire).status()));
  }
}

TEST(ConvertTest, StatusSurvives) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    const RunStatus status = RandomMessages(seed).Status();
    const auto copy = ThroughBytes<v1::StatusReply>(status);
    ASSERT_TRUE(copy.ok()) << copy.status() << " seed " << seed;
    ASSERT_TRUE(Equal(status, *copy)) << "seed " << seed;
  }
}

TEST(ConvertTest, LongCausesAreCutWhenSentAndNotInsideACharacter) {
  const std::string cause = std::string(kMaxTextBytes - 1, 'x') + "\xC3\xA9 and more";
  FailureMessage failure;
  failure.cause = cause;
  const auto copy = ThroughBytes<v1::ToCoordinator>(WorkerMessage(failure));
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(std::get<FailureMessage>(*copy).cause, std::string(kMaxTextBytes - 1, 'x'));
}

template <typename Wire, typename Change>
std::string Refusal(Change change) {
  Wire wire;
  change(&wire);
  const auto message = FromWire(wire);
  EXPECT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(message.status().message());
}

using To = v1::ToCoordinator;
using From = v1::FromCoordinator;

TEST(ConvertTest, NegativeCountsAreRefused) {
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_vote()->set_step(-1); }), HasSubstr("Vote.step"));
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_vote()->set_microbatches(-1); }), HasSubstr("Vote.microbatches"));
  for (const int64_t bad : {int64_t{-1}, INT64_MAX}) {  // the sum over a world must be a number
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_vote()->set_exchanged_in_node(bad); }), HasSubstr("in_node"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_vote()->set_exchanged_between_nodes(bad); }),
                HasSubstr("between_nodes"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_recovered()->set_bytes_received(bad); }), HasSubstr("received"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_recovered()->set_mirror_bytes(bad); }), HasSubstr("mirror_bytes"));
  }
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_join()->mutable_member()->set_pid(-1); }), HasSubstr("pid"));
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_join()->mutable_member()->set_peak_flops(NAN); }),
              HasSubstr("peak_flops"));
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_join()->mutable_claim()->set_prepared_step(-1); }),
              HasSubstr("prepared_step"));
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_failure()->add_suspects(-1); }), HasSubstr("suspects"));
  EXPECT_THAT(Refusal<From>([](From* w) { w->mutable_commit()->add_microbatches(-1); }), HasSubstr("microbatches"));
  EXPECT_THAT(Refusal<From>([](From* w) { w->mutable_end()->set_exit_code(-1); }), HasSubstr("exit_code"));
}

TEST(ConvertTest, UnknownValuesAreRefused) {
  const auto phase = static_cast<v1::Phase>(11);
  EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_heartbeat()->set_phase(phase); }), HasSubstr("unknown value 11"));
  EXPECT_THAT(Refusal<From>([](From* w) { w->mutable_world()->set_purpose(static_cast<v1::Purpose>(-7)); }),
              HasSubstr("unknown value -7"));
  EXPECT_THAT(Refusal<To>([](To*) {}), HasSubstr("no known kind"));
  EXPECT_THAT(Refusal<From>([](From*) {}), HasSubstr("no known kind"));
}

TEST(ConvertTest, DurationsAreThoseOfThisWorld) {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_vote()->set_wait_seconds(bad); }), HasSubstr("wait_seconds"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_vote()->set_compute_seconds(bad); }), HasSubstr("compute_seconds"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_recovered()->set_transfer_seconds(bad); }), HasSubstr("transfer"));
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_saved()->set_stall_seconds(bad); }), HasSubstr("stall_seconds"));
  }
}

// A line of metrics.jsonl without it is damaged.
TEST(ConvertTest, ALearningRateIsANumber) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(Refusal<To>([=](To* w) { w->mutable_vote()->set_lr(bad); }), HasSubstr("Vote.lr"));
  }
}

TEST(ConvertTest, WhatIsTooLongIsRefused) {
  const std::string name(kMaxNameBytes + 1, 'n'), text(kMaxTextBytes + 1, 't'), blob(kMaxBlobBytes + 1, 'b');
  EXPECT_THAT(Refusal<To>([&](To* w) { w->mutable_worker_exit()->mutable_id()->set_name(name); }), HasSubstr("name"));
  EXPECT_THAT(Refusal<To>([&](To* w) { w->mutable_failure()->set_cause(text); }), HasSubstr("cause"));
  EXPECT_THAT(Refusal<To>([&](To* w) { w->mutable_rendezvous()->set_blob(blob); }), HasSubstr("blob"));
  EXPECT_THAT(Refusal<From>([](From* w) {
                for (int i = 0; i <= kMaxWorkers; ++i) w->mutable_world()->mutable_world()->add_members();
              }),
              HasSubstr("members"));
  EXPECT_THAT(Refusal<To>([](To* w) {
                w->mutable_vote()->mutable_digests()->Resize(kMaxDigests + 1, 0);
                w->mutable_vote()->mutable_digest_chunks()->Resize(kMaxDigests + 1, 0);
              }),
              HasSubstr("digests"));
  EXPECT_THAT(Refusal<To>([](To* w) { w->mutable_vote()->add_digests(1); }), HasSubstr("not one per chunk"));
}

// Random bytes, and messages with some bytes changed, end in a refusal or in a message; address and undefined-behaviour
// sanitizers watch.
TEST(ConvertTest, DamagedBytesCrashNothing) {
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    To wire;
    ToWire(RandomMessages(random()).Worker(random() % std::variant_size_v<WorkerMessage>), &wire);
    std::string bytes = wire.SerializeAsString();
    for (int hits = 1 + static_cast<int>(random() % 8); hits > 0 && !bytes.empty(); --hits) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    To damaged;
    if (!damaged.ParseFromString(bytes) || !FromWire(damaged).ok()) ++refused;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace holdfast
