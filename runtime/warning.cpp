#include "quanta/runtime/warning.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "quanta/runtime/detail/warning_capture.h"

namespace quanta {
namespace {

thread_local constinit detail::WarningCapture* capture = nullptr;

struct Warnings {
  std::mutex mutex;
  WarningHandler handler;
  std::set<std::string> printed;
};

Warnings& warnings() {
  static Warnings all;
  return all;
}

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) {
  Warnings& all = warnings();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.handler, std::move(handler));
}

namespace detail {

WarningCapture::WarningCapture() noexcept : outer_(capture) { capture = this; }
WarningCapture::~WarningCapture() { capture = outer_; }

}  // namespace detail

void warn(const std::string& text) {
  if (capture != nullptr) return capture->add(text);
  Warnings& all = warnings();
  WarningHandler handler;
  {
    const std::lock_guard lock(all.mutex);
    handler = all.handler;
    constexpr std::size_t kRemembered = 1000;
    if (!handler && (all.printed.size() >= kRemembered || !all.printed.insert(text).second)) return;
  }
  if (handler) {
    handler(text);
  } else {
    std::fprintf(stderr, "quanta: warning: %s\n", text.c_str());
  }
}

}  // namespace quanta
