// Proves that text ends before the first stop, however it is cut into pieces, and that nothing is held back for ever.

#include "models/stop_text.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

struct Ended {
  std::string text;
  bool stopped;
  friend bool operator==(const Ended&, const Ended&) = default;
};

Ended InPieces(const std::string& text, size_t piece, std::vector<std::string> stops) {
  StopText stop(std::move(stops));
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) out += stop.Add(text.substr(i, piece));
  return {out + stop.Rest(), stop.stopped()};
}

TEST(StopText, EndsBeforeTheFirstStopHoweverItIsCut) {
  for (size_t piece : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(InPieces("one\n\ntwo", piece, {"\n\n"}), (Ended{"one", true})) << piece;
    EXPECT_EQ(InPieces("aaab", piece, {"aab"}), (Ended{"a", true})) << piece;
    EXPECT_EQ(InPieces("xaby", piece, {"by", "ab"}), (Ended{"x", true})) << piece;
    EXPECT_EQ(InPieces("stop", piece, {"stop"}), (Ended{"", true})) << piece;
    EXPECT_EQ(InPieces("no sto", piece, {"stop"}), (Ended{"no sto", false})) << piece;
    EXPECT_EQ(InPieces("all of it", piece, {}), (Ended{"all of it", false})) << piece;
  }
}

TEST(StopText, HoldsBackOnlyWhatMayBeAStop) {
  StopText stop({"END"});
  EXPECT_EQ(stop.Add("the E"), "the ");
  EXPECT_EQ(stop.Add("Nd"), "ENd");
  EXPECT_EQ(stop.Add("EN"), "");
  EXPECT_EQ(stop.Add("D more"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.Add("later") + stop.Rest(), "");
}

}  // namespace
}  // namespace holdfast
