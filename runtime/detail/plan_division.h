#pragma once

// Private: a plan whose rows the threads of a run share.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/detail/plan_layout.h"

namespace quanta::replay::detail {

/// The steps for some of the rows at a time.
struct Division {
  Layout layout;
  std::int64_t rows = 0;                               ///< at a time
  std::int64_t parts = 0;                              ///< that all rows make
  std::vector<std::size_t> input_bytes, output_bytes;  ///< of such a part, by number

  Division(const Program& program, std::int64_t rows_at_a_time, std::int64_t all_rows);
  void run(std::span<const Place> in_places, std::span<const Place> out_places) const;
};

}  // namespace quanta::replay::detail
