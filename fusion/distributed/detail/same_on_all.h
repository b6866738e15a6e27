#pragma once

// Private: ranks that have to agree about something before they go on.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"

namespace quanta::distributed::detail {

/// Throws ArgumentError on all ranks unless the text is the same on all of them: names the first rank
/// with another one and the first line that differs.
void require_same_lines(const Communicator& comm, const std::string& what, const std::string& text);

/// The root's bytes, of any number, for all.
void broadcast_bytes(const Communicator& comm, std::vector<std::byte>& bytes, int root,
                     const std::string& place);

/// Calls `work` on the first rank; what it throws, of Quanta's errors, all ranks throw, with the same
/// type for FileError, ArgumentError and NumericError, Error for the others.
void on_first_rank(const Communicator& comm, const std::string& place,
                   const std::function<void()>& work);

}  // namespace quanta::distributed::detail
