#include "quanta/runtime/tensor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::iota;

QTensor per_channel_codes(const Dims& sizes, std::int64_t axis) {
  std::vector<double> scales;
  std::vector<std::int64_t> zero_points;
  for (std::int64_t c = 0; c < sizes[static_cast<std::size_t>(axis)]; ++c) {
    scales.push_back(0.1 * static_cast<double>(c + 1));
    zero_points.push_back(c);
  }
  return QTensor::from_int_repr(iota(sizes).to(DType::Int8),
                                Quantizer::per_channel(scales, zero_points, axis));
}

}  // namespace

TEST_CASE("Tensor: strides follow the memory format and sizes of 1 do not matter") {
  const Tensor contiguous = Tensor::empty({2, 3, 4, 5});
  CHECK(contiguous.strides() == Dims{60, 20, 5, 1});
  const Tensor channels_last =
      Tensor::empty({2, 3, 4, 5}, DType::Float32, MemoryFormat::ChannelsLast);
  CHECK(channels_last.strides() == Dims{60, 1, 15, 3});
  CHECK(channels_last.suggested_format() == MemoryFormat::ChannelsLast);
  CHECK_FALSE(channels_last.is_contiguous());
  const Tensor both = Tensor::empty({2, 1, 4, 5});
  CHECK(both.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(both.is_contiguous());
  CHECK(Tensor::empty({0, 3, 4, 5}).is_contiguous());
}

TEST_CASE("Tensor: each member but the plain questions refuses an undefined tensor") {
  const Tensor undefined, x = Tensor::ones({2});
  const QTensor codes;
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"view", [&] { undefined.view({1}); }},
      {"reshape", [&] { undefined.reshape({1}); }},
      {"permute", [&] { undefined.permute({0}); }},
      {"transpose", [&] { undefined.transpose(0, 1); }},
      {"t", [&] { undefined.t(); }},
      {"select", [&] { undefined.select(0, 0); }},
      {"select", [&] { undefined[0]; }},
      {"slice", [&] { undefined.slice(0, 0, 1); }},
      {"narrow", [&] { undefined.narrow(0, 0, 1); }},
      {"expand", [&] { undefined.expand({1}); }},
      {"squeeze", [&] { undefined.squeeze(); }},
      {"squeeze", [&] { undefined.squeeze(0); }},
      {"unsqueeze", [&] { undefined.unsqueeze(0); }},
      {"as_strided", [&] { undefined.as_strided({1}, {1}, 0); }},
      {"detach", [&] { undefined.detach(); }},
      {"contiguous", [&] { undefined.contiguous(); }},
      {"clone", [&] { undefined.clone(); }},
      {"to", [&] { undefined.to(DType::Int8); }},
      {"to", [&] { undefined.to(Device::cpu()); }},
      {"copy_", [&] { undefined.copy_(x); }},
      {"copy_", [&] { x.copy_(undefined); }},
      {"fill_", [&] { undefined.fill_(1.0); }},
      {"bit_cast", [&] { undefined.bit_cast(DType::Int32); }},
      {"equal", [&] { static_cast<void>(undefined.equal(x)); }},
      {"equal", [&] { static_cast<void>(x.equal(undefined)); }},
      {"size", [&] { static_cast<void>(undefined.size(0)); }},
      {"item", [&] { static_cast<void>(undefined.item()); }},
      {"to_float_vector", [&] { undefined.to_float_vector(); }},
      {"to_int64_vector", [&] { undefined.to_int64_vector(); }},
      {"set_requires_grad", [&] { undefined.set_requires_grad(); }},
      {"grad", [&] { undefined.grad(); }},
      {"clear_grad", [&] { undefined.clear_grad(); }},
      {"q_scale", [&] { static_cast<void>(codes.q_scale()); }},
      {"q_zero_point", [&] { static_cast<void>(codes.q_zero_point()); }},
      {"q_per_channel_scales", [&] { codes.q_per_channel_scales(); }},
      {"q_per_channel_zero_points", [&] { codes.q_per_channel_zero_points(); }},
      {"q_per_channel_axis", [&] { static_cast<void>(codes.q_per_channel_axis()); }},
      {"int_repr_view", [&] { codes.int_repr_view(); }},
      {"with_quantizer", [&] { codes.with_quantizer(Quantizer::per_tensor(1.0, 0)); }}};
  for (const auto& [name, call] : calls) {
    CAPTURE_BINDING(name);
    CHECK_THROWS_WITH_AS(call(), doctest::Contains("expected a tensor, got an undefined one"),
                         ArgumentError);
  }
}

TEST_CASE("Tensor: views share storage and show the same elements") {
  const Tensor x = iota({2, 3, 4});
  CHECK(x.view({6, -1}).to_float_vector() == x.to_float_vector());
  CHECK(x.permute({2, 0, 1}).sizes() == Dims{4, 2, 3});
  CHECK(x.permute({2, 0, 1}).reshape({24}).to_float_vector()[1] == 4.0F);
  CHECK(x.select(1, -1).to_float_vector() == std::vector<float>{8, 9, 10, 11, 20, 21, 22, 23});
  CHECK(x.slice(2, 1, 100, 2).to_float_vector()[1] == 3.0F);
  CHECK(x.slice(0, 1, 1).numel() == 0);
  CHECK(x.transpose(0, 2).transpose(0, 2).equal(x));
  CHECK(x.unsqueeze(-1).sizes() == Dims{2, 3, 4, 1});
  CHECK(x.unsqueeze(0).squeeze().sizes() == x.sizes());
  CHECK(Tensor::from_values({1, 2, 3}, {3, 1}).expand({3, 2}).to_float_vector() ==
        std::vector<float>{1, 1, 2, 2, 3, 3});
  x.select(0, 0).fill_(7.0);
  CHECK(x.to_float_vector()[11] == 7.0F);
  CHECK(x.to_float_vector()[12] == 12.0F);
}

TEST_CASE("Tensor: view refuses strides that do not fit and reshape copies then") {
  const Tensor x = iota({3, 4}).transpose(0, 1);
  CHECK_THROWS_WITH_AS(x.view({12}), doctest::Contains("view: sizes: expected sizes that fit"),
                       ArgumentError);
  CHECK(x.reshape({12}).to_float_vector()[1] == 4.0F);
  CHECK(x.view({2, 2, 3}).to_float_vector() == x.to_float_vector());
  CHECK_THROWS_AS(x.view({-1, -1}), ArgumentError);
  CHECK_THROWS_AS(x.view({5, -1}), ArgumentError);
  CHECK_THROWS_AS(x.reshape({13}), ArgumentError);
}

TEST_CASE("Tensor: random views agree with index arithmetic") {
  Generator generator(3);
  for (int round = 0; round < 200; ++round) {
    const Dims sizes{generator.integer(1, 4), generator.integer(1, 4), generator.integer(1, 4)};
    Tensor x = iota(sizes);
    const std::vector<Dims> orders{{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    x = x.permute(orders[static_cast<std::size_t>(generator.integer(0, 5))]);
    const std::int64_t d = generator.integer(0, 2);
    x = x.slice(d, generator.integer(0, 1), 4, generator.integer(1, 2));
    const std::vector<float> values = x.to_float_vector();
    CHECK(x.clone(MemoryFormat::Contiguous).to_float_vector() == values);
    CHECK(x.contiguous(MemoryFormat::ChannelsLast).to_float_vector() == values);
    CHECK(x.reshape({-1}).to_float_vector() == values);
    CHECK(x.to(DType::Float64).to_float_vector() == values);
    CHECK(x.clone().equal(x));
  }
}

TEST_CASE("Tensor: from_blob uses the memory in place and calls its deleter once") {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int deleted = 0;
  {
    const Tensor x = Tensor::from_blob(data, {2, 3}, DType::Float32, [&](void*) { ++deleted; });
    const Tensor row = x[1];
    row.fill_(9.0);
    CHECK(data[5] == 9.0F);
    CHECK(deleted == 0);
  }
  CHECK(deleted == 1);
  CHECK_THROWS_AS(Tensor::from_blob(nullptr, {2}, DType::Float32), ArgumentError);
  CHECK_THROWS_AS(Tensor::from_blob(data, {2}, {-1}, DType::Float32), ArgumentError);
}

TEST_CASE("Tensor: sizes that overflow are refused") {
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 40, std::int64_t{1} << 40}), ArgumentError);
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 58}, DType::Float64), ArgumentError);
  CHECK_THROWS_AS(Tensor::empty({0, std::int64_t{1} << 62, std::int64_t{1} << 62}), ArgumentError);
  // Of none, as a size is 0: the bound without the memory.
  constexpr std::int64_t kMost = (std::int64_t{1} << 57) - 1;
  CHECK(Tensor::empty({0, kMost}).numel() == 0);
  CHECK_THROWS_AS(Tensor::empty({0, kMost + 1}), ArgumentError);
  CHECK_THROWS_AS(Tensor::empty({0, std::int64_t{1} << 29, std::int64_t{1} << 28}), ArgumentError);
  CHECK_THROWS_AS(Tensor::empty({-1}), ArgumentError);
  CHECK_THROWS_AS(iota({4}).as_strided({2, 2}, {3, 1}, 1), ArgumentError);
  CHECK(iota({5}).as_strided({2, 2}, {2, 1}, 1).to_float_vector() ==
        std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("Tensor: data checks the element type") {
  const Tensor x = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(x.data<double>(), doctest::Contains("got Float32"), ArgumentError);
  CHECK(x.data<float>()[1] == 0.0F);
}

TEST_CASE("QTensor: parameters are checked by name") {
  const Tensor codes = Tensor::zeros({2, 3}, DType::UInt8);
  CHECK_THROWS_WITH_AS(QTensor::empty({2}, 0.1, 300, DType::QUInt8),
                       doctest::Contains("zero_point: expected 0..255 for QUInt8, got 300"),
                       ArgumentError);
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(), 1e-60}) {
    CHECK_THROWS_WITH_AS(QTensor::empty({2}, scale, 0, DType::QUInt8), doctest::Contains("scale"),
                         ArgumentError);
  }
  CHECK_THROWS_AS(QTensor::from_int_repr(codes, Quantizer::per_channel({1.0}, {0}, 0)),
                  ArgumentError);
  CHECK_THROWS_AS(QTensor::from_int_repr(codes, Quantizer::per_channel({1.0, 1.0}, {0, 0}, 2)),
                  ArgumentError);
  CHECK_THROWS_AS(QTensor(Tensor::zeros({2})), ArgumentError);
}

TEST_CASE("QTensor: views of per-channel tensors follow the channel axis") {
  const QTensor x = per_channel_codes({2, 3, 4}, 1);
  const std::vector<float> values = x.to_float_vector();
  CHECK(QTensor(x.permute({1, 0, 2})).q_per_channel_axis() == 0);
  CHECK(x.permute({1, 0, 2}).permute({1, 0, 2}).to_float_vector() == values);
  CHECK(QTensor(x.select(0, 1)).q_per_channel_axis() == 0);
  const QTensor channel(x.select(1, 2));
  CHECK(channel.qscheme() == QScheme::PerTensorAffine);
  CHECK(channel.q_zero_point() == 2);
  CHECK(channel.q_scale() == doctest::Approx(0.3));
  CHECK(QTensor(x.slice(1, 1, 3)).q_per_channel_scales().numel() == 2);
  CHECK(QTensor(x.unsqueeze(0)).q_per_channel_axis() == 2);
  CHECK(QTensor(x.view({2, 3, 2, 2})).q_per_channel_axis() == 1);
  CHECK(x.view({2, 3, 2, 2}).to_float_vector() == values);
  CHECK_THROWS_WITH_AS(x.view({6, 4}), doctest::Contains("channel axis"), ArgumentError);
  CHECK_THROWS_AS(x.flatten(), ArgumentError);
}

TEST_CASE("QTensor: copy_ takes over parameters or quantizes") {
  const QTensor dst = QTensor::empty({3}, 0.5, 10, DType::QUInt8);
  dst.copy_(Tensor::from_values({1.0F, -100.0F, 0.26F}));
  CHECK(dst.to_int64_vector() == std::vector<std::int64_t>{12, 0, 11});
  const QTensor src = QTensor::empty({3}, 0.25, 3, DType::QUInt8);
  src.fill_(1.0);
  dst.copy_(src);
  CHECK(dst.q_zero_point() == 3);
  CHECK(dst.equal(src));
  CHECK_THROWS_AS(Tensor::zeros({3}).copy_(src), ArgumentError);
}

TEST_CASE("QTensor: copy_ from float agrees with the scalar formula and its wrapping") {
  Generator generator(71);
  std::vector<float> values = rand({997}, generator).to_float_vector();
  for (float& value : values) value = (value - 0.5F) * 40.0F;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value :
       {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1e10F, -1e10F, 1e6F, -1e6F,
        2147483648.0F, -2147483648.0F, 2147483520.0F, 0.05F, 0.15F}) {
    values.push_back(value);
    values.push_back(value * 0.1F);
  }
  for (int half = -300; half < 300; ++half) values.push_back(static_cast<float>(half) * 0.05F);
  const auto count = static_cast<std::int64_t>(values.size());
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const IntRange range = quant_range(dtype);
    for (const std::int64_t zero_point : {range.min, std::int64_t{3}, range.max}) {
      const QTensor wide = QTensor::empty({2, count}, 0.1, zero_point, dtype);
      const Tensor columns = QTensor::empty({count, 2}, 0.1, zero_point, dtype).t();
      const Tensor source = Tensor::from_values(values, {count}).expand({2, count});
      wide.copy_(source);
      columns.copy_(source);
      CHECK(columns.equal(wide));
      const std::vector<std::int64_t> codes = wide.to_int64_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        CAPTURE(values[i]);
        REQUIRE(codes[i] == math::quantize_wrapping(values[i], math::inverse_scale(0.1F),
                                                    static_cast<std::int32_t>(zero_point),
                                                    static_cast<std::int32_t>(range.min),
                                                    static_cast<std::int32_t>(range.max)));
      }
    }
  }
}

TEST_CASE("QTensor: printing shows values and parameters as torch does") {
  const QTensor x = QTensor::empty({2, 2}, 0.5, 1, DType::QUInt8);
  x.copy_(Tensor::from_values({0.0F, 0.5F, 1.0F, 1.5F}, {2, 2}));
  CHECK(to_string(x) ==
        "tensor([[0.0000, 0.5000],\n        [1.0000, 1.5000]], size=(2, 2), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.5, zero_point=1)");
  CHECK(to_string(Tensor::from_values({1.0F, 2.0F})) == "tensor([1., 2.])");
}

TEST_CASE("half: every float16 bit pattern survives the round trip") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float value = math::float16_to_float(pattern);
    if (std::isnan(value)) continue;
    CHECK_MESSAGE(math::float_to_float16(value) == pattern, "bits ", bits);
  }
  CHECK(math::float_to_float16(65519.99F) == 0x7BFFU);
  CHECK(math::float_to_float16(65520.0F) == 0x7C00U);
}

TEST_CASE("half: every bfloat16 and float8 bit pattern survives the round trip") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float value = math::bfloat16_to_float(pattern);
    if (!std::isnan(value)) CHECK(math::float_to_bfloat16(value) == pattern);
  }
  for (std::uint32_t bits = 0; bits < 0x100U; ++bits) {
    const auto pattern = static_cast<std::uint8_t>(bits);
    const float e4m3 = math::float8_e4m3fn_to_float(pattern);
    if (!std::isnan(e4m3)) CHECK(math::float_to_float8_e4m3fn(e4m3) == pattern);
    const float e5m2 = math::float8_e5m2_to_float(pattern);
    if (!std::isnan(e5m2)) CHECK(math::float_to_float8_e5m2(e5m2) == pattern);
  }
}

// AddressSanitizer would see less: with it nothing is cached.
#if !QUANTA_ADDRESS_SANITIZER
TEST_CASE("allocator: a freed block is handed out again without asking the system") {
  { const Tensor warm = Tensor::empty({1000}); }
  const std::uint64_t before = allocator_stats().system_allocations;
  for (int i = 0; i < 100; ++i) {
    const Tensor again = Tensor::empty({1000});
  }
  CHECK(allocator_stats().system_allocations == before);
}
#endif

TEST_CASE("allocator: blocks of zeros are zeros whether they are new or used before") {
  for (const std::int64_t count : {100, 300000, 1000000}) {
    for (int i = 0; i < 3; ++i) {
      const Tensor zeros = Tensor::zeros({count});
      const float* values = zeros.data<float>();
      CHECK(std::all_of(values, values + count, [](float value) { return value == 0.0F; }));
      zeros.fill_(1.0);
    }
  }
}

#if !QUANTA_ADDRESS_SANITIZER
TEST_CASE("allocator: cached blocks of all sizes go back to the system") {
  for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 23; bytes = bytes * 5 / 4 + 1) {
    static_cast<void>(Tensor::zeros({bytes}, DType::UInt8));
  }
  CHECK(allocator_stats().cached > 0);
  empty_cache();
  CHECK(allocator_stats().cached == 0);
}
#endif

TEST_CASE("bit_cast: as Bool every byte but 0 is true") {
  const Tensor bytes = Tensor::from_span(std::array<std::uint8_t, 5>{0, 1, 2, 128, 255});
  const Tensor codes = bytes.bit_cast(DType::Int8);  // a view
  CHECK(codes.data<std::int8_t>()[3] == -128);
  CHECK(codes.data_ptr() == bytes.data_ptr());
  for (const Tensor& x : {bytes, codes}) {
    const Tensor bools = x.bit_cast(DType::Bool);
    const Tensor stored = bools.bit_cast(DType::UInt8);
    CHECK(stored.data<std::uint8_t>()[0] == 0);
    for (std::size_t i = 1; i < 5; ++i) CHECK(stored.data<std::uint8_t>()[i] == 1);
  }
  const Tensor bools = bytes.bit_cast(DType::Bool);
  CHECK(bools.bit_cast(DType::Bool).data_ptr() == bools.data_ptr());
  CHECK(bytes.transpose(0, 0).bit_cast(DType::Bool).sizes() == Dims{5});
}

}  // namespace quanta
