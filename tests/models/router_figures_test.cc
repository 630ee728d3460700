// Proves what a step's line says of routers: losses with their factors, and for each layer the largest load over the
// mean, experts without a token, and the entropy.

#include "gtest/gtest.h"
#include "models/experts.h"

namespace holdfast {
namespace {

std::vector<std::string> NamesOf(const std::vector<Figure>& figures) {
  std::vector<std::string> names;
  for (const Figure& figure : figures) names.push_back(figure.name);
  return names;
}

TEST(RouterFigures, SayLossesAndLoads) {
  ModelConfig config;
  config.num_layers = 2;
  config.num_experts = 4;
  config.experts_per_token = 1;
  config.router_balance_loss = 0.5;
  config.router_z_loss = 0.25;
  ASSERT_EQ(config.NumExpertLayers(), 2);
  Statistics step;
  step.Add({"loss", std::vector<double>{7}});
  step.Add({"router_balance", std::vector<double>{1, 3}});
  step.Add({"router_z", std::vector<double>{4, 8}});
  step.Add({"router_entropy", std::vector<double>{1.25, 0.5}});
  step.Add({"expert_load", std::vector<int64_t>{2, 2, 2, 2, 0, 6, 2, 0}});
  const std::vector<Figure> figures = RouterFigures(config, step);
  ASSERT_EQ(figures.size(), 5u);
  EXPECT_EQ(NamesOf(figures), RouterFigureNames(config));
  EXPECT_EQ(figures[0], (Figure{.name = "balance_loss", .values = {1}}));
  EXPECT_EQ(figures[1], (Figure{.name = "z_loss", .values = {1.5}}));
  EXPECT_EQ(figures[2], (Figure{.name = "expert_load", .values = {1, 3}, .is_list = true}));
  EXPECT_EQ(figures[3], (Figure{.name = "dead_experts", .values = {0, 2}, .is_list = true}));
  EXPECT_EQ(figures[4], (Figure{.name = "router_entropy", .values = {1.25, 0.5}, .is_list = true}));
}

TEST(RouterFigures, SayTheShareThatWasDropped) {
  ModelConfig config;
  config.num_layers = 2;
  config.num_experts = 4;
  config.experts_per_token = 1;
  config.expert_capacity = 1.25;
  EXPECT_EQ(ExpertCapacity(config, 8), 3);  // 2.5
  EXPECT_EQ(ExpertCapacity(config, 1), 1);
  ASSERT_EQ(RouterStatistics(config).specs().back().name, "dropped_choices");
  Statistics step;
  for (const char* name : {"router_balance", "router_z", "router_entropy"}) {
    step.Add({name, std::vector<double>{0, 0}});
  }
  step.Add({"expert_load", std::vector<int64_t>{2, 2, 2, 2, 0, 6, 2, 0}});
  step.Add({"dropped_choices", std::vector<int64_t>{0, 2}});
  const std::vector<Figure> figures = RouterFigures(config, step);
  EXPECT_EQ(figures.back(), (Figure{.name = "dropped_choices", .values = {0, 0.25}, .is_list = true}));
  EXPECT_EQ(NamesOf(figures), RouterFigureNames(config));
}

TEST(RouterFigures, OfADenseModelAreNone) {
  EXPECT_TRUE(RouterFigures(ModelConfig(), Statistics()).empty());
  EXPECT_TRUE(RouterFigureNames(ModelConfig()).empty());
}

}  // namespace
}  // namespace holdfast
