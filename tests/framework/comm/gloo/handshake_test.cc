// Both ends of a connection prove that they belong to one world; who has another key, sends a proof back, plays an old
// one, or speaks of another rank, mesh or generation does not, whichever end it is.

#include "framework/comm/gloo/handshake.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace holdfast {
namespace {

std::vector<MemberAddress> Members(uint64_t generation = 3) {
  std::vector<MemberAddress> members;
  for (uint64_t rank = 0; rank < 3; ++rank) {
    MemberAddress member{.generation = generation, .key = 0x1234567890abcdef + rank, .groups = 5};
    member.listener = *ResolveHost("10.0.0.7", 4000 + static_cast<int>(rank));
    members.push_back(member);
  }
  return members;
}

struct Messages {
  std::string hello, challenge, dialers_proof, listeners_proof;
};

/// Lets both speak; empty from where one of them has refused.
Messages Speak(Handshake dialer, Handshake listener) {
  Messages sent;
  sent.hello = dialer.First();
  sent.challenge = *listener.Take(sent.hello);
  sent.dialers_proof = *dialer.Take(sent.challenge);
  const auto answer = listener.Take(sent.dialers_proof);
  if (!answer.ok()) return sent;
  EXPECT_TRUE(listener.done());
  sent.listeners_proof = *answer;
  EXPECT_TRUE(dialer.Take(sent.listeners_proof).ok());
  EXPECT_TRUE(dialer.done());
  return sent;
}

TEST(HandshakeTest, MembersProveThemselvesToEachOther) {
  const WorldKey key = KeyOf(Members());
  Handshake dialer = Handshake::Dial(key, 7, 2, 1), listener = Handshake::Answer(key, 1);
  const std::string challenge = *listener.Take(dialer.First());
  const std::string proof = *dialer.Take(challenge);
  EXPECT_FALSE(dialer.done() || listener.done());
  const std::string answer = *listener.Take(proof);
  EXPECT_TRUE(listener.done());
  EXPECT_EQ(listener.mesh(), 7u);
  EXPECT_EQ(listener.dialer(), 2u);
  EXPECT_FALSE(dialer.done());
  EXPECT_EQ(*dialer.Take(answer), "");
  EXPECT_TRUE(dialer.done());
  EXPECT_EQ(dialer.ConnectionKey(), listener.ConnectionKey());
  EXPECT_NE(dialer.ConnectionKey(), key);
  Handshake again = Handshake::Dial(key, 7, 2, 1), answering = Handshake::Answer(key, 1);
  ASSERT_TRUE(again.Take(*answering.Take(*again.Take(*answering.Take(again.First())))).ok());
  EXPECT_NE(again.ConnectionKey(), dialer.ConnectionKey()) << "of another connection";
}

TEST(HandshakeTest, TheKeyIsOfEverythingThatMembersHaveTold) {
  std::set<WorldKey> keys = {KeyOf(Members()), KeyOf(Members(4)), KeyOf({})};
  for (size_t rank = 0; rank < 3; ++rank) {
    for (int what = 0; what < 4; ++what) {
      std::vector<MemberAddress> members = Members();
      if (what == 0) members[rank].key ^= 1;
      if (what == 1) members[rank].generation += 1;
      if (what == 2) members[rank].groups += 1;
      if (what == 3) members[rank].listener = *ResolveHost("10.0.0.8", 4000);
      keys.insert(KeyOf(members));
    }
  }
  std::vector<MemberAddress> swapped = Members();
  std::swap(swapped[0], swapped[1]);
  keys.insert(KeyOf(swapped));
  EXPECT_EQ(keys.size(), 3u + 3 * 4 + 1);
  EXPECT_EQ(KeyOf(Members()), KeyOf(Members()));
}

TEST(HandshakeTest, AnotherKeyProvesNothing) {
  const WorldKey key = KeyOf(Members()), before = KeyOf(Members(2));
  for (const auto& [dialers, listeners] :
       {std::pair(before, key), std::pair(key, before), std::pair(WorldKey(), key)}) {
    EXPECT_EQ(Speak(Handshake::Dial(dialers, 0, 2, 1), Handshake::Answer(listeners, 1)).listeners_proof, "");
  }
  // And the other way round: a listener that does not look.
  Handshake dialer = Handshake::Dial(key, 0, 2, 1), stranger = Handshake::Dial(before, 0, 2, 1);
  const std::string nonce(32, 'n');
  ASSERT_TRUE(dialer.Take(nonce).ok());
  EXPECT_EQ(dialer.Take(*stranger.Take(nonce)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(dialer.done());
}

TEST(HandshakeTest, AProofThatIsSentBackProvesNothing) {
  const WorldKey key = KeyOf(Members());
  Handshake dialer = Handshake::Dial(key, 0, 2, 1);
  const std::string hello = dialer.First();
  const std::string proof = *dialer.Take(hello.substr(hello.size() - 32));  // its own nonce for a challenge
  EXPECT_TRUE(absl::IsPermissionDenied(dialer.Take(proof).status()));
}

TEST(HandshakeTest, WhatWasRecordedProvesNothing) {
  const WorldKey key = KeyOf(Members());
  const Messages old = Speak(Handshake::Dial(key, 0, 2, 1), Handshake::Answer(key, 1));
  ASSERT_NE(old.listeners_proof, "");
  Handshake listener = Handshake::Answer(key, 1);
  EXPECT_NE(*listener.Take(old.hello), old.challenge);
  EXPECT_TRUE(absl::IsPermissionDenied(listener.Take(old.dialers_proof).status()));
  Handshake dialer = Handshake::Dial(key, 0, 2, 1);
  EXPECT_NE(dialer.First(), old.hello);
  ASSERT_TRUE(dialer.Take(old.challenge).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(dialer.Take(old.listeners_proof).status()));
}

TEST(HandshakeTest, RanksAndMeshArePartOfTheProof) {
  const WorldKey key = KeyOf(Members());
  EXPECT_EQ(Speak(Handshake::Dial(key, 0, 2, 1), Handshake::Answer(key, 0)).listeners_proof, "") << "another listener";
  for (const size_t byte : {size_t{0}, sizeof(uint32_t)}) {  // mesh, rank
    Handshake dialer = Handshake::Dial(key, 0, 2, 1), listener = Handshake::Answer(key, 1);
    std::string hello = dialer.First();
    hello[byte] ^= 1;
    EXPECT_TRUE(absl::IsPermissionDenied(listener.Take(*dialer.Take(*listener.Take(hello))).status())) << byte;
  }
}

TEST(HandshakeTest, EveryBitOfAProofCounts) {
  const WorldKey key = KeyOf(Members());
  for (size_t bit = 0; bit < 256; ++bit) {
    Handshake dialer = Handshake::Dial(key, 0, 2, 1), listener = Handshake::Answer(key, 1);
    const std::string challenge = *listener.Take(dialer.First());
    std::string proof = *dialer.Take(challenge);
    Handshake other = listener;
    std::string answer = *other.Take(proof);
    proof[bit / 8] = static_cast<char>(proof[bit / 8] ^ 1 << (bit % 8));
    answer[bit / 8] = static_cast<char>(answer[bit / 8] ^ 1 << (bit % 8));
    EXPECT_TRUE(absl::IsPermissionDenied(listener.Take(proof).status()));
    EXPECT_TRUE(absl::IsPermissionDenied(dialer.Take(answer).status()));
  }
}

}  // namespace
}  // namespace holdfast
