#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/ops/catalogue.h"
#include "quanta/runtime/operation.h"

namespace quanta::api_fuzz {

/// A call of an operation of the catalogue: its sample call, changed in a few places.
struct Call {
  const OperationEntry* entry = nullptr;
  DType dtype = DType::Float32;  ///< of the sample that it was made from
  std::shared_ptr<const Operation> operation;
  std::vector<Tensor> inputs;
  bool plain_settings = true;  ///< those of the sample
  bool plain_values = true;    ///< numbers of ordinary size: sums do not depend on their order much
  bool wants_gradient = false;
};

/// The call of that number; the same for the same seed. `op` is a name out of the catalogue, or
/// empty for all of them.
Call random_call(std::uint64_t seed, std::uint64_t number, std::string_view op);

std::string to_string(const Call& call);

}  // namespace quanta::api_fuzz
