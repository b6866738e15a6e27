#include "quanta/ops/cpu/float_formats.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/block_quant/cpu_kernels.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/detail/float_casts.h"

namespace quanta {
namespace {

using cpu::FloatRounding;
using cpu::FloatScaling;
using math::FloatFormat;
using math::NanRule;
using math::Overflow;
using test::for_each_target;

const FloatFormat kFormats[] = {
    math::kFloat16, math::kBFloat16, math::kE4M3FN, math::kE4M3FNUZ,
    math::kE5M2,    math::kE5M2FNUZ, math::kE3M2,   math::kE2M3,
    math::kE2M1,    math::kE1M2,     math::kE0M3,   {3, 0, 3, FloatFormat::Specials::None}};

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// Every code's number, what lies halfway to the next one, the neighbours of these, and a walk
// through all of float32; infinity and NaN are among them.
std::vector<float> awkward_values(const FloatFormat& format) {
  std::vector<float> values;
  const std::uint32_t step = format.bits() > 8 ? 61 : 1;
  for (std::uint32_t code = 0; code < 2U * format.sign_bit(); code += step) {
    const auto bits =
        std::bit_cast<std::uint32_t>(math::decode_float(static_cast<std::uint16_t>(code), format));
    const std::uint32_t half = 1U << (22 - format.mantissa_bits);
    for (const std::uint32_t offset : {0U, 1U, 0U - 1U, half, half - 1U, half + 1U}) {
      values.push_back(std::bit_cast<float>(bits + offset));
    }
    values.push_back(0.5F * math::decode_float(static_cast<std::uint16_t>(code), format));
  }
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 3000017) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const float x :
       {0.0F, -0.0F, std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    values.push_back(x);
  }
  return values;
}

cpu::AffineLayout layout_of(const Dims& sizes, const Dims& shape, const Dims& blocks = {}) {
  return detail::affine_layout("test", "scale", sizes, shape, blocks);
}

TEST_CASE("round_to_format: vectors give the bits of the scalar code on every instruction set") {
  for (const FloatFormat& format : kFormats) {
    CAPTURE(format.exponent_bits);
    CAPTURE(format.mantissa_bits);
    const std::vector<float> x = awkward_values(format);
    const auto count = static_cast<std::int64_t>(x.size());
    for (const FloatScaling scaling : {FloatScaling::Divide, FloatScaling::Multiply}) {
      for (const Overflow overflow : {Overflow::Saturate, Overflow::Special}) {
        for (const NanRule nan : {NanRule::Keep, NanRule::Saturate}) {
          const FloatRounding rounding{format, scaling, overflow, nan};
          for (const float scale : {1.0F, 0.37F}) {
            const float unscale = 1.0F / scale;
            for_each_target([&] {
              std::vector<float> y(x.size());
              cpu::round_to_format(x.data(), layout_of({count}, {1}), rounding, &scale, &unscale,
                                   y.data());
              for (std::size_t i = 0; i < x.size(); ++i) {
                CAPTURE(x[i]);
                const float expected = cpu::round_scaled(x[i], scale, unscale, rounding);
                if (!same(y[i], expected)) REQUIRE(y[i] == expected);
              }
            });
          }
        }
      }
    }
  }
}

struct Shared {
  Dims sizes, shape, blocks;
};

TEST_CASE("round_to_format: scales of tensors, channels and blocks belong to their elements") {
  Generator generator(7);
  const Shared cases[] = {{{5, 7, 19}, {}, {}},          {{5, 7, 19}, {5, 1, 1}, {}},
                          {{5, 7, 19}, {7, 1}, {}},      {{5, 7, 19}, {19}, {}},
                          {{6, 64}, {6, 4}, {1, 16}},    {{6, 66}, {6, 22}, {1, 3}},
                          {{6, 64}, {2, 2}, {3, 32}},    {{4, 6, 10}, {2, 3, 5}, {2, 2, 2}},
                          {{3, 16384}, {3, 1}, {1, -1}}, {{0, 4}, {1}, {}}};
  for (const Shared& one : cases) {
    const Tensor x = randn(one.sizes, generator);
    const Tensor scale = add_scalar(rand(one.shape, generator), 0.25);
    const Dims blocks = detail::resolve_blocks("test", "scale", one.sizes, one.shape, one.blocks);
    const FloatRounding rounding{math::kE4M3FN};
    Tensor expected = Tensor::empty(one.sizes);
    const std::int64_t count = x.numel();
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i;
      std::int64_t at = 0;
      std::int64_t stride = 1;
      for (std::size_t d = one.shape.size(); d-- > 0;) {
        const std::size_t axis = d + one.sizes.size() - one.shape.size();
        at += rest % one.sizes[axis] / blocks[d] * stride;
        rest /= one.sizes[axis];
        stride *= one.shape[d];
      }
      const float s = scale.data<float>()[at];
      expected.mutable_data<float>()[i] = cpu::round_scaled(x.data<float>()[i], s, s, rounding);
    }
    for_each_target([&] {
      Tensor y = Tensor::empty(one.sizes);
      cpu::round_to_format(x.data<float>(), layout_of(one.sizes, one.shape, one.blocks), rounding,
                           scale.data<float>(), nullptr, y.mutable_data<float>());
      CHECK(y.equal(expected));
    });
  }
}

TEST_CASE("round_to_format: large tensors are written past the caches with the same numbers") {
  Generator generator(8);
  const Tensor x = randn({1024, 16384}, generator);
  const Tensor scale = add_scalar(rand({1024, 1}, generator), 0.25);
  const FloatRounding rounding{math::kE2M1};
  Tensor y = Tensor::empty(x.sizes());
  cpu::round_to_format(x.data<float>(), layout_of(x.sizes(), scale.sizes()), rounding,
                       scale.data<float>(), nullptr, y.mutable_data<float>());
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < x.numel(); i += 97) {
    const float s = scale.data<float>()[i / 16384];
    if (y.data<float>()[i] != cpu::round_scaled(x.data<float>()[i], s, s, rounding)) ++different;
  }
  CHECK(different == 0);
}

// A row whose blocks differ in magnitude by all that float32 allows; some are zero or not finite.
std::vector<float> awkward_blocks(std::int64_t count, Generator& generator) {
  const Tensor noise = randn({count}, generator);
  std::vector<float> row = noise.to_float_vector();
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = std::ldexp(row[i], static_cast<int>(i / 8 * 37 % 277) - 148);
  }
  for (std::size_t i = 96; i < 192; ++i) row[i] = 0.0F;
  row[300] = std::numeric_limits<float>::quiet_NaN();
  row[400] = -std::numeric_limits<float>::infinity();
  return row;
}

TEST_CASE("dynamic_block_row: vectors give the scalar rules' numbers on every instruction set") {
  Generator generator(9);
  const std::int64_t count = 3001;
  const std::vector<float> x = awkward_blocks(count, generator);
  const math::FloatFormat elements[] = {math::kE4M3FN, math::kE5M2, math::kE3M2,      math::kE2M3,
                                        math::kE2M1,   math::kE3M0, math::kBlockInt8, math::kE0M3};
  for (const math::FloatFormat& element : elements) {
    for (const auto& [kind, global] : {std::pair{math::BlockScaleKind::PowerOfTwo, 0.0F},
                                       {math::BlockScaleKind::TwoLevel, 3.7F},
                                       {math::BlockScaleKind::TwoLevel, 0.0F},
                                       {math::BlockScaleKind::Plain, 0.0F}}) {
      const math::BlockFormat format{element, kind, math::kE4M3FN, global};
      for (const std::int64_t block : {1, 8, 16, 32, 37}) {
        for_each_target([&] {
          CAPTURE(block);
          std::vector<float> y(x.size());
          std::vector<float> unscales(x.size());
          cpu::dynamic_block_row(x.data(), count, block, format, y.data(), unscales.data());
          for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t begin = i / block * block;
            float amax = 0.0F;
            for (std::int64_t j = begin; j < std::min(count, begin + block); ++j) {
              const float magnitude = std::fabs(x[static_cast<std::size_t>(j)]);
              if (!(magnitude <= amax)) amax = magnitude;
              if (amax != amax) break;
            }
            const math::BlockScale scale = math::block_scale(amax, format);
            const float expected =
                math::round_block_element(x[static_cast<std::size_t>(i)] * scale.scale, element) *
                scale.unscale;
            CAPTURE(amax);
            const float got = y[static_cast<std::size_t>(i)];
            if (!same(got, expected)) REQUIRE(got == expected);
            const float unscale = unscales[static_cast<std::size_t>(i / block)];
            if (!same(unscale, scale.unscale)) REQUIRE(unscale == scale.unscale);
          }
        });
      }
    }
  }
}

template <typename Code>
void check_encoding(const FloatFormat& format, const std::vector<float>& x, Overflow overflow) {
  for_each_target([&] {
    std::vector<Code> codes(x.size());
    detail::encode_floats(x.data(), static_cast<std::int64_t>(x.size()), format, overflow,
                          codes.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      CAPTURE(x[i]);
      const std::uint16_t expected = math::encode_float(x[i], format, overflow);
      if (codes[i] != expected) REQUIRE(codes[i] == expected);
    }
  });
}

TEST_CASE("encode_floats: vectors give the codes of the scalar code on every instruction set") {
  for (const FloatFormat& format : kFormats) {
    CAPTURE(format.exponent_bits);
    CAPTURE(format.mantissa_bits);
    const std::vector<float> x = awkward_values(format);
    for (const Overflow overflow : {Overflow::Saturate, Overflow::Special}) {
      check_encoding<std::uint16_t>(format, x, overflow);
      if (format.bits() <= 8) check_encoding<std::uint8_t>(format, x, overflow);
    }
  }
}

template <typename Code>
void check_decoding(const FloatFormat& format) {
  std::vector<Code> codes(2U * format.sign_bit());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Code>(i);
  for_each_target([&] {
    std::vector<float> y(codes.size());
    detail::decode_floats(codes.data(), static_cast<std::int64_t>(codes.size()), format, y.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      CAPTURE(i);
      const auto got = std::bit_cast<std::uint32_t>(y[i]);
      const auto expected = std::bit_cast<std::uint32_t>(math::decode_float(codes[i], format));
      if (got != expected) REQUIRE(got == expected);
    }
  });
}

TEST_CASE("decode_floats: every code becomes its number on every instruction set") {
  for (const FloatFormat& format : kFormats) {
    CAPTURE(format.exponent_bits);
    CAPTURE(format.mantissa_bits);
    check_decoding<std::uint16_t>(format);
    if (format.bits() <= 8) check_decoding<std::uint8_t>(format);
  }
}

TEST_CASE("Tensor.to: small floats of any layout hold what the scalar code gives") {
  Generator generator(10);
  for (const auto& [dtype, format] : {std::pair{DType::Float16, math::kFloat16},
                                      {DType::BFloat16, math::kBFloat16},
                                      {DType::Float8E4M3FN, math::kE4M3FN},
                                      {DType::Float8E5M2, math::kE5M2}}) {
    const Tensor x = mul_scalar(randn({3, 37, 5, 41}, generator), 300.0);
    for (const Tensor& view : {x, x.slice(3, 1, 40, 2), x.permute({3, 0, 2, 1}),
                               x.contiguous(MemoryFormat::ChannelsLast)}) {
      const std::vector<float> values = view.to_float_vector();
      const std::vector<float> rounded = view.to(dtype).to_float_vector();
      const std::vector<float> back = view.to(dtype).to(DType::Float32).to_float_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float expected = math::round_to_format(values[i], format, Overflow::Special);
        if (!same(rounded[i], expected)) REQUIRE(rounded[i] == expected);
        if (!same(back[i], expected)) REQUIRE(back[i] == expected);
      }
    }
  }
}

TEST_CASE("pack_pairs: two codes share a byte in either order and come back") {
  std::vector<std::uint8_t> codes(512);
  for (std::size_t i = 0; i < 256; ++i) {
    codes[2 * i] = static_cast<std::uint8_t>(i & 15U);
    codes[2 * i + 1] = static_cast<std::uint8_t>(i >> 4);
  }
  for (const cpu::FirstCode first : {cpu::FirstCode::Low, cpu::FirstCode::High}) {
    std::vector<std::uint8_t> packed(256);
    std::vector<std::uint8_t> back(512);
    cpu::pack_pairs(codes.data(), 256, first, packed.data());
    CHECK(packed[0x2B] == (first == cpu::FirstCode::Low ? 0x2B : 0xB2));
    cpu::unpack_pairs(packed.data(), 256, first, back.data());
    CHECK(back == codes);
  }
}

}  // namespace
}  // namespace quanta
