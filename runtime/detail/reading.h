#pragma once

// Private: what the readers of all kinds of files have in common.

#include <new>
#include <stdexcept>
#include <string_view>

namespace quanta::detail {

/// Throws FileError `<where>: ...`: what the file holds does not fit into memory.
[[noreturn]] void throw_no_memory_for_file(std::string_view where);

/// What `read` returns. A reader takes memory in proportion to its file; where even that is more
/// than there is, the file ends in a FileError as every other one that cannot be read. All public
/// readers run in here.
template <typename Read>
decltype(auto) reading(std::string_view where, const Read& read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    throw_no_memory_for_file(where);
  } catch (const std::length_error&) {  // of a standard container
    throw_no_memory_for_file(where);
  }
}

}  // namespace quanta::detail
