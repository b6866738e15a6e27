#pragma once

// Calls of the C library that fail when a test wants it: faults.cpp defines them in the program
// itself, before the library's own.

#include <cstdint>
#include <string_view>

namespace quanta::faults {

/// What may fail.
enum class Call : std::uint8_t { Allocate, Open, Read, Write, Sync, Rename, Close };
inline constexpr Call kFileCalls[] = {Call::Open, Call::Read,   Call::Write,
                                      Call::Sync, Call::Rename, Call::Close};
std::string_view name_of(Call call);

/// How. Short: half of the bytes are read or written; Interrupted: EINTR, once.
enum class Outcome : std::uint8_t { NoSpace, InputOutput, Short, Interrupted };
std::string_view name_of(Outcome outcome);

/// From now on the calling thread's `at`-th such call (from 0) fails. An allocation that fails gives
/// null, whatever the outcome.
struct Plan {
  Call call = Call::Allocate;
  std::int64_t at = 0;
  Outcome outcome = Outcome::NoSpace;
};
void arm(const Plan& plan);

/// What became of a plan. Foreign: the allocation was made for oneDNN or OpenMP, which end the
/// process without memory, and was spared.
enum class End : std::uint8_t { Failed, Foreign, NotReached };
/// All calls work again.
End disarm();

}  // namespace quanta::faults
