#include "quanta/runtime/verbose.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/graph.h"
#include "quanta/runtime/module_path.h"

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

struct Line {
  std::string op, path;
  DeviceSpan span;
};

void print(const std::string& op, double microseconds, const std::string& path) {
  const std::string where = path.empty() ? "" : fmt::format(" (in module '{}')", path);
  std::fprintf(stderr, "quanta: %s %.1f us%s\n", op.c_str(), microseconds, where.c_str());
}

// Lines of ops that a device may still be at work on, in their order.
class WaitingLines {
 public:
  ~WaitingLines() { print_all(); }

  void add(Line line) {
    lines_.push_back(std::move(line));
    while (!lines_.empty() && lines_.front().span.has_passed()) print_first();
  }
  void print_all() noexcept {
    try {
      while (!lines_.empty()) print_first();
    } catch (...) {  // the device is broken: lines of the log are lost, nothing else
      lines_.clear();
    }
  }

 private:
  void print_first() {
    const Line line = std::move(lines_.front());
    lines_.pop_front();
    print(line.op, line.span.microseconds(), line.path);
  }

  std::deque<Line> lines_;
};

WaitingLines& waiting_lines() {
  thread_local WaitingLines lines;
  return lines;
}

}  // namespace

void set_verbose(bool on) {
  if (verbose.exchange(on) == on) return;
  detail::op_watchers.fetch_add(on ? 1 : -1);
  if (!on) detail::print_waiting_lines();
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

void OpScope::begin_span(Device device) noexcept {
  if (cuda::is_capturing()) return;  // the device does it later, and more than once
  try {
    span_ = std::make_unique<DeviceSpan>(device);
  } catch (...) {  // it is not timed
  }
}

void OpScope::end_span() noexcept {
  try {
    span_->end();
  } catch (...) {
    span_ = nullptr;
  }
}

void OpScope::end() noexcept {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  innermost = outer_;
  const bool reported = work_.multiply_adds != 0 || work_.bytes != 0;
  const OpWork& work = reported ? work_ : inner_work_;
  if (span_ != nullptr && span_->is_empty()) span_ = nullptr;  // the op has thrown
  if (outer_ != nullptr) {
    outer_->inner_work_.multiply_adds += work.multiply_adds;
    outer_->inner_work_.bytes += work.bytes;
  }
  try {
    if (outer_ != nullptr && span_ != nullptr) {
      // One that asks the device itself has begun a span already, and ends it behind this one.
      if (outer_->span_ == nullptr) outer_->span_ = std::make_unique<DeviceSpan>();
      outer_->span_->extend(*span_);
    }
    tell(elapsed, work);
  } catch (...) {  // a line of the log or an event is lost, nothing else
  }
}

void OpScope::tell(std::chrono::steady_clock::duration elapsed, const OpWork& work) const {
  if (OpListener* listener = detail::op_listener()) {
    listener->op_ended({op_, kernel_, start_, elapsed, depth_, work, span_.get()});
  }
  if (!is_verbose()) return;
  std::string op = fmt::format("{} {}", op_, kernel_);
  if (span_ != nullptr) {
    waiting_lines().add({std::move(op), current_module_path(), *span_});
    return;
  }
  waiting_lines().print_all();  // lines keep their order
  print(op, std::chrono::duration<double, std::micro>(elapsed).count(), current_module_path());
}

namespace detail {
void print_waiting_lines() noexcept { waiting_lines().print_all(); }
}  // namespace detail

}  // namespace quanta
