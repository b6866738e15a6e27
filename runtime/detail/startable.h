#pragma once

// Private: how many threads the system lets this process have.

namespace quanta::detail {

/// How many of `count` threads can be there at once besides those that are there now: starts them,
/// and ends them again, so that every limit counts (RLIMIT_NPROC, a cgroup's pids.max, the memory for
/// stacks). About 0.1 ms each.
int startable_threads(int count) noexcept;

}  // namespace quanta::detail
