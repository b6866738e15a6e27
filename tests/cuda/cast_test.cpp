// Casts and changes in place on a CUDA device: the CPU's elements.

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantize.h"
#include "support/test_device.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();

constexpr DType kPlain[] = {DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
                            DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
                            DType::Bool};

// Numbers that the dtypes hold, and some that few of them do.
Tensor numbers(DType dtype) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Tensor wide = Tensor::empty({3, 7}, DType::Float64);
  const double values[] = {0.0,   -0.0,  1.0,   -1.0,    0.5,   -2.5,  3.5,
                           7.49,  -9.0,  127.0, 128.0,   255.0, 256.0, 300.7,
                           65504, 70000, 4.5e9, -3.2e10, nan,   inf,   -inf};
  for (std::int64_t i = 0; i < wide.numel(); ++i) wide.mutable_data<double>()[i] = values[i];
  return wide.to(dtype);
}

}  // namespace

TEST_CASE("cuda cast: every dtype to every other, with and without saturation") {
  for (const DType from : kPlain) {
    const Tensor x = numbers(from);
    for (const DType to : kPlain) {
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      for (const bool saturate : {false, true}) {
        const CastOptions options{.saturate = saturate};
        CHECK(test::same_numbers(cast(x.to(kDevice), to, options), cast(x, to, options)));
      }
      if (to != DType::Int8 && to != DType::UInt8) continue;
      for (const std::int64_t bits : {2, 4}) {
        const CastOptions options{.bits = bits};
        CHECK(test::same_numbers(cast(x.to(kDevice), to, options), cast(x, to, options)));
      }
    }
  }
  // Integers keep what a double does not hold.
  const Tensor large = Tensor::from_int64(std::vector<std::int64_t>{(std::int64_t{1} << 53) + 1});
  CHECK(cast(large.to(kDevice), DType::Int32).cpu().equal(cast(large, DType::Int32)));
}

TEST_CASE("cuda cast: any layout, nothing, and gradients") {
  const Tensor x = sample_tensor({2, 3, 5, 4}, DType::Float32);
  for (const Tensor& given : {x.contiguous(MemoryFormat::ChannelsLast), x.transpose(0, 3),
                              x.slice(3, 0, 4, 2), Tensor::zeros({0, 3})}) {
    test::check_devices({given}, 1,
                        [](const std::vector<Tensor>& in) { return cast(in[0], DType::Float64); });
  }
}

TEST_CASE("cuda relu_: floats and codes, dense ones and views") {
  const Tensor x = sample_tensor({3, 5, 4}, DType::Float32);
  const QTensor codes = quantize_per_tensor(x, 0.03, 111, DType::QUInt8);
  for (const Tensor& given : {x, Tensor(codes)}) {
    for (const bool is_view : {false, true}) {
      const Tensor here = given.clone();
      const Tensor there = given.to(kDevice);
      const auto part = [&](const Tensor& all) { return is_view ? all.slice(2, 1, 4, 2) : all; };
      relu_(part(here));
      relu_(part(there));
      CHECK(there.cpu().equal(here));
      CHECK_FALSE(here.equal(given));
    }
  }
}

}  // namespace quanta
