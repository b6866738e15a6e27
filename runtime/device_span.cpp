#include "quanta/runtime/device_span.h"

#include "quanta/runtime/cuda/driver.h"

namespace quanta {
namespace {

double microseconds_between(Device device, const cuda::Event& begin, const cuda::Event& end) {
  return 1000.0 * cuda::driver(device).elapsed(begin, end);
}

}  // namespace

DeviceSpan::DeviceSpan(Device device)
    : device_(device), begin_(cuda::driver(device).record_event()) {}

void DeviceSpan::end() { end_ = cuda::driver(device_).record_event(); }

bool DeviceSpan::has_passed() const {
  return is_empty() || cuda::driver(device_).has_passed(*end_);
}

double DeviceSpan::microseconds() const {
  return is_empty() ? 0.0 : microseconds_between(device_, *begin_, *end_);
}

double DeviceSpan::microseconds_until(const DeviceSpan& later) const {
  if (is_empty() || later.is_empty() || later.device_ != device_) return 0.0;
  return microseconds_between(device_, *begin_, *later.begin_);
}

void DeviceSpan::extend(const DeviceSpan& later) noexcept {
  if (later.is_empty()) return;
  if (begin_ == nullptr) {
    *this = later;
  } else if (later.device_ == device_) {
    end_ = later.end_;
  }
}

}  // namespace quanta
