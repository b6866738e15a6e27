#include "quanta/runtime/verbose.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

std::atomic<bool> verbose = false;

// Before main: a program that runs ops while its statics are made prints no lines for them.
const bool kEnvironmentRead = [] {
  const char* value = std::getenv("QUANTA_VERBOSE");
  if (value != nullptr && *value != '\0' && std::string_view(value) != "0") set_verbose(true);
  return true;
}();

// The op that the thread runs, among those that are active.
thread_local OpScope* innermost = nullptr;

}  // namespace

void set_verbose(bool on) {
  if (verbose.exchange(on) == on) return;
  detail::op_watchers.fetch_add(on ? 1 : -1);
}
bool is_verbose() noexcept { return verbose.load(std::memory_order_relaxed); }

void OpScope::begin() noexcept {
  if (!is_verbose() && detail::op_listener() == nullptr) return;  // another thread's is meant
  active_ = true;
  outer_ = innermost;
  depth_ = outer_ == nullptr ? 0 : outer_->depth_ + 1;
  innermost = this;
  start_ = std::chrono::steady_clock::now();
}

void OpScope::end() noexcept {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  innermost = outer_;
  const bool reported = work_.multiply_adds != 0 || work_.bytes != 0;
  const OpWork& work = reported ? work_ : inner_work_;
  if (outer_ != nullptr) {
    outer_->inner_work_.multiply_adds += work.multiply_adds;
    outer_->inner_work_.bytes += work.bytes;
  }
  try {
    if (OpListener* listener = detail::op_listener()) {
      listener->op_ended({op_, kernel_, start_, elapsed, depth_, work});
    }
    if (!is_verbose()) return;
    const std::chrono::duration<double, std::micro> time = elapsed;
    const std::string line =
        with_module_path(fmt::format("quanta: {} {} {:.1f} us", op_, kernel_, time.count()));
    std::fprintf(stderr, "%s\n", line.c_str());
  } catch (...) {  // a line of the log or an event is lost, nothing else
  }
}

}  // namespace quanta
