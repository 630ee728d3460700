#pragma once
// holdfast model: what is made of saved models.

#include <stop_token>

#include "checkpoint/admin/model_upcycle.h"
#include "tools/cli/command.h"

namespace holdfast {

struct ModelUpcycleCommand {
  UpcycleOptions options;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  absl::StatusOr<int> Upcycle(const std::stop_token& stop) const;
};

}  // namespace holdfast
