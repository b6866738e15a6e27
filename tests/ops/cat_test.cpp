// Joined rows of every length: shorter than a vector, than a cache line, and shared by threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::codes_of;

constexpr std::array<std::array<std::int64_t, 3>, 11> kChannels{{{1, 2, 1},
                                                                 {3, 1, 4},
                                                                 {5, 7, 2},
                                                                 {8, 9, 15},
                                                                 {16, 16, 1},
                                                                 {17, 24, 33},
                                                                 {63, 64, 65},
                                                                 {100, 255, 256},
                                                                 {300, 1, 40},
                                                                 {1023, 1025, 2},
                                                                 {20000, 13000, 8}}};

/// Images with as many rows as keep the longest part small.
Dims image(std::int64_t channels, std::int64_t longest) {
  return longest < 100 ? Dims{2, channels, 67, 41} : Dims{2, channels, 3, 5};
}

QTensor random_image(const Dims& sizes, DType dtype, MemoryFormat format, double scale,
                     Generator& generator) {
  return QTensor(test::random_codes(sizes, dtype, scale, 3, generator).contiguous(format));
}

void check_parts(const QTensor& out, const std::vector<QTensor>& parts, std::int64_t dim) {
  std::int64_t start = 0;
  for (const QTensor& part : parts) {
    const QTensor wanted =
        quantize_per_tensor(dequantize(part), out.q_scale(), out.q_zero_point(), out.dtype());
    CHECK(codes_of(out.narrow(dim, start, part.size(dim))) == codes_of(wanted));
    start += part.size(dim);
  }
  CHECK(start == out.size(dim));
}

}  // namespace

TEST_CASE("quantized::cat: rows of every length in both memory formats") {
  Generator generator(3);
  for (const int threads : {1, 3}) {
    const test::Threads guard(threads);
    for (const MemoryFormat format : {MemoryFormat::ChannelsLast, MemoryFormat::Contiguous}) {
      for (const auto& channels : kChannels) {
        CAPTURE(channels[0]);
        const std::int64_t longest = *std::ranges::max_element(channels);
        std::vector<QTensor> parts;
        for (const std::int64_t count : channels) {
          const double scale = parts.size() == 1 ? 0.1 : 0.07;  // the others keep their codes
          parts.push_back(
              random_image(image(count, longest), DType::QUInt8, format, scale, generator));
        }
        const QTensor out = quantized::cat(parts, 1, 0.07, 3);
        CHECK(out.is_contiguous(format));
        check_parts(out, parts, 1);
      }
    }
  }
}

TEST_CASE("quantized::cat: each dtype and rank is joined along each dimension") {
  Generator generator(6);
  const test::Threads guard(3);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Dims& sizes : {Dims{50}, Dims{7, 90}, Dims{3, 5, 70}, Dims{2, 6, 20, 30},
                              Dims{2, 6, 5, 7, 9}, Dims{9, 1, 40, 60}}) {
      const auto rank = static_cast<std::int64_t>(sizes.size());
      for (const MemoryFormat format : {MemoryFormat::ChannelsLast, MemoryFormat::Contiguous}) {
        if (format == MemoryFormat::ChannelsLast && rank < 4) continue;
        for (const double second : {0.1, 0.2}) {
          const std::vector<QTensor> parts{random_image(sizes, dtype, format, 0.1, generator),
                                           random_image(sizes, dtype, format, second, generator)};
          for (std::int64_t dim = -rank; dim < rank; ++dim) {
            const std::int64_t joined = dim < 0 ? dim + rank : dim;
            check_parts(quantized::cat(parts, dim, 0.1, 3), parts, joined);
            const QTensor joined_relu = quantized::cat_relu(parts, dim, 0.1, 3);
            CHECK(codes_of(joined_relu) ==
                  codes_of(QTensor(relu(quantized::cat(parts, dim, 0.1, 3)))));
          }
        }
      }
    }
  }
}

TEST_CASE("quantized::cat: many long rows are joined by several threads") {
  Generator generator(7);
  for (const int threads : {1, 3, 16}) {
    const test::Threads guard(threads);
    std::vector<QTensor> parts;
    for (const std::int64_t channels : {20, 30}) {
      parts.push_back(random_image({12, channels, 40, 40}, DType::QUInt8, MemoryFormat::Contiguous,
                                   0.01 * static_cast<double>(channels), generator));
    }
    check_parts(quantized::cat(parts, 1, 0.2, 3), parts, 1);
  }
}

TEST_CASE("cat: channels that lie side by side are joined row by row") {
  Generator generator(8);
  const auto kernel = [](const auto& call) {
    Profiler profiler;
    static_cast<void>(call());
    REQUIRE(profiler.events().size() == 1);
    return profiler.events()[0].kernel;
  };
  const auto image = [&](double scale) {
    return random_image({2, 16, 10, 10}, DType::QUInt8, MemoryFormat::ChannelsLast, scale,
                        generator);
  };
  for (const double second : {0.1, 0.2}) {
    const std::array parts{image(0.1), image(second)};
    CHECK(kernel([&] { return quantized::cat(parts, 1, 0.1, 3); }) == "lookup:rows");
  }
  const Tensor x = randn({2, 16, 10, 10}, generator).contiguous(MemoryFormat::ChannelsLast);
  CHECK(kernel([&] { return cat(std::array{x, x}, 1); }) == "copy:rows");
}

TEST_CASE("quantized::cat: pieces may be views or of another memory format") {
  Generator generator(4);
  const auto piece = [&](MemoryFormat format) {
    return random_image({2, 6, 30, 40}, DType::QInt8, format, 0.2, generator);
  };
  const QTensor last = piece(MemoryFormat::ChannelsLast);
  const QTensor first = piece(MemoryFormat::Contiguous);
  const QTensor part(last.narrow(1, 2, 3));
  const QTensor every_second(last.slice(3, 0, 40, 2));
  for (const std::int64_t dim : {0, 1, 2})
    check_parts(quantized::cat(std::array{last, first}, dim, 0.1, 0), {last, first}, dim);
  check_parts(quantized::cat(std::array{last, part, first}, 1, 0.1, 0), {last, part, first}, 1);
  check_parts(quantized::cat(std::array{last, every_second}, 3, 0.1, 0), {last, every_second}, 3);
}

TEST_CASE("cat: floats of short and long rows are what they were") {
  Generator generator(5);
  for (const int threads : {1, 3}) {
    const test::Threads guard(threads);
    for (const auto& lengths : kChannels) {
      CAPTURE(lengths[0]);
      for (const std::int64_t dim : {1, 2}) {
        const auto piece = [&](std::int64_t length) {
          return dim == 1 ? randn({120, length}, generator) : randn({20, 6, length}, generator);
        };
        const std::array<Tensor, 3> parts{piece(lengths[0]), piece(lengths[1]), piece(lengths[2])};
        const Tensor out = cat(parts, dim);
        std::int64_t start = 0;
        for (const Tensor& part : parts) {
          CHECK(out.narrow(dim, start, part.size(dim)).equal(part));
          start += part.size(dim);
        }
      }
    }
  }
}

}  // namespace quanta
