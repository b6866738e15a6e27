#pragma once

#include <functional>

#include "quanta/fusion/distributed/communicator.h"

namespace quanta::test {

/// How many processes mpirun has started, and which of them this is.
int processes();
int process();

/// Calls `body` for ranks 0 .. ranks - 1, at least one in each process, each in a thread where there
/// are more. What the first of them throws comes out here. Every process calls it.
void run_ranks(int ranks, const std::function<void(const distributed::Communicator&)>& body);

/// A number of ranks that divides the work among the processes in an uneven way, and one in an even
/// way.
inline int uneven_ranks() { return processes() + 1; }
inline int even_ranks() { return 2 * processes(); }

}  // namespace quanta::test
