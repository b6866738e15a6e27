#include "quanta/runtime/detail/reading.h"

#include "quanta/runtime/check.h"

namespace quanta::detail {

void throw_no_memory_for_file(std::string_view where) {
  throw FileError(
      fmt::format("{}: expected memory for what the file holds, got none from the system", where));
}

}  // namespace quanta::detail
