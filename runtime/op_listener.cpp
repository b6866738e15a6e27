#include "quanta/runtime/op_listener.h"

namespace quanta {
namespace {

thread_local OpListener* thread_listener = nullptr;

}  // namespace

void OpListener::module_started(const void*, std::size_t) {}
void OpListener::module_ended() {}

ListenScope::ListenScope(OpListener& listener) noexcept : outer_(thread_listener) {
  thread_listener = &listener;
  detail::op_watchers.fetch_add(1, std::memory_order_relaxed);
}

ListenScope::~ListenScope() {
  detail::op_watchers.fetch_sub(1, std::memory_order_relaxed);
  thread_listener = outer_;
}

namespace detail {

constinit std::atomic<int> op_watchers{0};

OpListener* op_listener() noexcept { return thread_listener; }

void tell_module_started(const void* module, std::size_t depth) noexcept {
  if (thread_listener == nullptr) return;
  try {
    thread_listener->module_started(module, depth);
  } catch (...) {  // an event is lost, nothing else
  }
}

void tell_module_ended() noexcept {
  if (thread_listener == nullptr) return;
  try {
    thread_listener->module_ended();
  } catch (...) {  // an event is lost, nothing else
  }
}

}  // namespace detail
}  // namespace quanta
