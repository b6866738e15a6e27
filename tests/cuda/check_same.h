#pragma once

// What the tests of kernels share: the same call on the CPU and on the device that is named.

#include <doctest/doctest.h>

#include "support/device_guide.h"
#include "support/test_device.h"

namespace quanta::test {

/// Calls `call` on the CPU, and with every operation on the emulated device, but for those in place
/// (fill_ and the like): that all ran there and gave the same elements in the same order.
template <typename Call>
void check_same(Call&& call) {
  const Tensor expected = call();
  DeviceGuide guide(test::test_device());
  Tensor got;
  {
    const GuideScope scope(&guide);
    got = call();
  }
  CHECK(guide.take_count() > 0);
  for (const auto& left : guide.left()) {
    if (!left.first.ends_with('_')) FAIL_CHECK("not on the device: ", left.first);
  }
  CHECK(got.equal(expected));
  CHECK(got.strides() == expected.strides());
}

}  // namespace quanta::test
