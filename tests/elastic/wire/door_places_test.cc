#include "elastic/wire/door_places.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

Origin At(const std::string& address) { return OriginOf(*ResolveHost(address, 0, HostNames::kNumericOnly)); }

TEST(DoorPlaces, ANetworkOfIPv6IsSixtyFourBitsAndAHostOfIPv4ItsOwn) {
  EXPECT_EQ(At("2001:db8:1:2:3:4:5:6").network, "2001:db8:1:2::");
  EXPECT_EQ(At("2001:db8:1:2:3:4:5:6").host, "2001:db8:1:2:3:4:5:6");
  EXPECT_EQ(At("10.0.0.7").network, "10.0.0.7");
}

TEST(DoorPlaces, TheHostWithMostLosesItsNewest) {
  DoorPlaces places;
  for (uint64_t id = 1; id <= 3; ++id) places.Add(At("10.0.0.7"), id);
  EXPECT_EQ(places.LosesTo(At("10.0.0.8")), 3u);
  EXPECT_EQ(places.LosesTo(At("10.0.0.7")), std::nullopt);
  places.Remove(At("10.0.0.7"), 3);
  places.Add(At("10.0.0.8"), 4);
  EXPECT_EQ(places.LosesTo(At("10.0.0.8")), std::nullopt) << "each would have as many";
}

// One machine with an address for each of its connections.
TEST(DoorPlaces, ManyAddressesOfOneNetworkTakeNoPlaceFromOthers) {
  DoorPlaces places;
  for (uint64_t id = 1; id <= 9; ++id) places.Add(At("2001:db8::" + std::to_string(id)), id);
  EXPECT_TRUE(places.LosesTo(At("2001:db8:0:1::1")).has_value());
  EXPECT_TRUE(places.LosesTo(At("10.0.0.8")).has_value());
  EXPECT_EQ(places.LosesTo(At("2001:db8::10")), std::nullopt);
}

TEST(DoorPlaces, InOneNetworkHostsAreToldApart) {
  DoorPlaces places;
  for (uint64_t id = 1; id <= 9; ++id) places.Add(At("2001:db8::1"), id);
  places.Add(At("2001:db8::2"), 10);
  EXPECT_EQ(places.LosesTo(At("2001:db8::3")), 9u);
  EXPECT_EQ(places.LosesTo(At("2001:db8::1")), std::nullopt);
}

TEST(DoorPlaces, WhereThereAreNoneNobodyLosesOne) { EXPECT_EQ(DoorPlaces().LosesTo(At("10.0.0.7")), std::nullopt); }

}  // namespace
}  // namespace holdfast
