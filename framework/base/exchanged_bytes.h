#pragma once
// What ranks sent each other of the rows of their layers (tokens to experts and back).

#include <cstdint>

namespace holdfast {

struct ExchangedBytes {
  int64_t in_node = 0, between_nodes = 0;

  ExchangedBytes& operator+=(const ExchangedBytes& other) {
    in_node += other.in_node;
    between_nodes += other.between_nodes;
    return *this;
  }
  friend bool operator==(const ExchangedBytes&, const ExchangedBytes&) = default;
};

}  // namespace holdfast
