#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

/// In a test that finds no GPU: fails it where there should be one, by HOLDFAST_REQUIRE_GPU, and skips it elsewhere.
#define HOLDFAST_NO_GPU()                                                             \
  if (std::getenv("HOLDFAST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU can be used"; \
  GTEST_SKIP() << "no GPU"
