#pragma once

// Private: a loop over a few long items.

#include <cstdint>
#include <type_traits>

namespace quanta::detail {

/// How long items take. Helpers that were not there the last time are asked again only for long ones.
enum class ItemLength : std::uint8_t {
  Short,  ///< some microseconds
  Long,   ///< a tenth of a millisecond and more
};

void for_each_item_impl(std::int64_t count, ItemLength length, void* body,
                        void (*call)(void*, std::int64_t, int));

/// Runs body(item, worker) for each item of [0, count), on up to get_num_threads() threads, each of
/// which takes one after the other: where the system interrupts a thread, the others do more. Of what
/// runs at the same time each has another `worker` in [0, min(count, get_num_threads())). Exceptions of
/// `body` reach the caller.
template <typename Body>
void for_each_item(std::int64_t count, ItemLength length, Body&& body) {
  for_each_item_impl(count, length, &body, [](void* self, std::int64_t item, int worker) {
    (*static_cast<std::remove_reference_t<Body>*>(self))(item, worker);
  });
}

}  // namespace quanta::detail
