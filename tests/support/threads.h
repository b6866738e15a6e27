#pragma once

#include <doctest/doctest.h>

#include <initializer_list>

#include "quanta/runtime/parallel.h"

namespace quanta::test {

/// Sets the number of threads, and puts the old one back.
class Threads {
 public:
  explicit Threads(int count) : before_(get_num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Calls `body` with each number of threads.
template <typename Body>
void with_threads(std::initializer_list<int> counts, const Body& body) {
  for (const int count : counts) {
    const Threads guard(count);
    CAPTURE(count);
    body();
  }
}

}  // namespace quanta::test
