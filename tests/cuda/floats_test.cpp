#include <doctest/doctest.h>

#include <limits>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/shuffle.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/random.h"
#include "support/device_guide.h"
#include "support/test_device.h"

// Arithmetic on floats, and what only moves elements: on the device as on the CPU.

namespace quanta {
namespace {

template <typename Call>
void check_same(Call&& call) {
  const Tensor expected = call();
  test::DeviceGuide guide(test::test_device());
  const GuideScope scope(&guide);
  const Tensor got = call();
  CHECK(guide.take_count() > 0);
  CHECK(got.sizes() == expected.sizes());
  // NaN is equal to NaN here.
  const std::vector<float> left = got.to_float_vector();
  const std::vector<float> right = expected.to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    CHECK((left[i] == right[i] || (left[i] != left[i] && right[i] != right[i])));
  }
}

}  // namespace

TEST_CASE("cuda floats: sums, products and quotients, broadcast and not") {
  Generator generator(9);
  const Tensor a = randn({2, 3, 4, 5}, generator);
  const Tensor b = randn({2, 3, 4, 5}, generator);
  float* const values = b.mutable_data<float>();
  values[0] = 0.0F;
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor row = randn({3, 1, 5}, generator);
  for (const Tensor& other : {b, row, b.contiguous(MemoryFormat::ChannelsLast)}) {
    check_same([&] { return add(a, other); });
    check_same([&] { return sub(other, a); });
    check_same([&] { return mul(a, other); });
    check_same([&] { return div(a, other); });
    check_same([&] { return add_relu(a, other); });
  }
  check_same([&] { return add_scalar(b, 0.3); });
  check_same([&] { return mul_scalar(b.permute({0, 2, 1, 3}), -1.7); });
}

TEST_CASE("cuda floats: bounds") {
  Generator generator(9);
  const Tensor x = randn({3, 7}, generator);
  x.mutable_data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  check_same([&] { return relu(x); });
  check_same([&] { return relu6(mul_scalar(x, 10.0)); });
  check_same([&] { return clamp(x, -0.3, 0.4); });
  check_same([&] { return hardtanh(x, -0.5, 0.1); });
}

TEST_CASE("cuda floats: channels and pixels change places") {
  for (const DType dtype : {DType::Float32, DType::QUInt8, DType::Int64, DType::BFloat16}) {
    const Tensor x = sample_tensor({2, 8, 4, 6}, dtype);
    for (const Tensor& each : {x, x.contiguous(MemoryFormat::ChannelsLast)}) {
      check_same([&] { return channel_shuffle(each, 4); });
      check_same([&] { return pixel_shuffle(each, 2); });
      check_same([&] { return pixel_unshuffle(each, 2); });
    }
  }
}

}  // namespace quanta
