// gemm_codes against plain loops, on every instruction set.

#include "quanta/ops/cpu/gemm/gemm_codes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "instruction_sets.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/random.h"

namespace quanta::cpu {
namespace {

struct Case {
  std::int64_t rows, channels, depth;
  bool extreme = false;  // all codes 255 and weights at an end: the largest sums
};

struct Problem {
  std::vector<std::uint8_t> src;
  std::vector<std::int8_t> weight;
  std::vector<float> bias, multiplier;
  std::vector<std::int32_t> compensation;
  RequantizeParams requantize;
};

Problem make_problem(const Case& c, Generator& generator, std::int32_t min, std::int32_t max) {
  Problem p;
  p.src.resize(static_cast<std::size_t>(c.rows * c.depth));
  p.weight.resize(static_cast<std::size_t>(c.channels * c.depth));
  for (auto& code : p.src) {
    code = c.extreme ? 255 : static_cast<std::uint8_t>(generator.integer(0, 255));
  }
  for (auto& code : p.weight) {
    const auto drawn = static_cast<std::int8_t>(generator.integer(-128, 127));
    code = !c.extreme ? drawn : (drawn < 0 ? std::int8_t{-128} : std::int8_t{127});
  }
  for (std::int64_t n = 0; n < c.channels; ++n) {
    p.bias.push_back(static_cast<float>(generator.integer(0, 2000)) - 1000.0F);
    p.multiplier.push_back(1e-6F + 1e-6F * static_cast<float>(generator.integer(0, 4999)));
    p.compensation.push_back(static_cast<std::int32_t>(generator.integer(0, 200000)) - 100000);
  }
  const float bias_factor = generator.integer(0, 1) == 0 ? 1.0F : 37.3F;
  p.requantize = {p.bias.data(), p.multiplier.data(), 70, min, max, bias_factor};
  return p;
}

std::vector<std::uint8_t> reference(const Case& c, const Problem& p) {
  std::vector<std::uint8_t> codes;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t n = 0; n < c.channels; ++n) {
      std::int32_t sum = p.compensation[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < c.depth; ++k) {
        sum += p.src[static_cast<std::size_t>(r * c.depth + k)] *
               p.weight[static_cast<std::size_t>(n * c.depth + k)];
      }
      codes.push_back(static_cast<std::uint8_t>(
          math::requantize(sum, p.bias[static_cast<std::size_t>(n)], p.requantize.bias_factor,
                           p.multiplier[static_cast<std::size_t>(n)], p.requantize.zero_point,
                           p.requantize.min, p.requantize.max)));
    }
  }
  return codes;
}

/// Bytes behind a result, which nothing writes to.
constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kUntouched = 170;
bool is_untouched(const std::vector<std::uint8_t>& result) {
  return std::all_of(result.end() - kGuard, result.end(),
                     [](std::uint8_t x) { return x == kUntouched; });
}

void check(const Case& c, Generator& generator, std::int32_t min, std::int32_t max) {
  CAPTURE(c.rows);
  CAPTURE(c.channels);
  CAPTURE(c.depth);
  const Problem p = make_problem(c, generator, min, max);
  const std::vector<std::uint8_t> expected = reference(c, p);
  CodePanels panels = pack_code_panels(p.weight.data(), c.channels, c.depth);
  const PanelRequantize requantize = panel_requantize(p.requantize, p.compensation.data(), panels);
  const CodeRows rows = dense_rows(p.src.data(), c.rows, c.depth);
  CodeTable table{};
  for (auto& code : table) code = static_cast<std::uint8_t>(generator.integer(0, 255));
  for (const bool tiles : {panels.tiles, false}) {
    panels.tiles = tiles;
    for (const int threads : {1, 2, 3}) {
      std::vector<std::uint8_t> got(expected.size() + kGuard, kUntouched);
      parallel_gemm_codes({rows, panels, requantize, got.data()}, threads);
      CHECK(std::equal(expected.begin(), expected.end(), got.begin()));
      CHECK(is_untouched(got));

      std::vector<std::uint8_t> mapped(expected.size() + kGuard, kUntouched);
      parallel_gemm_codes({rows, panels, requantize, mapped.data(), &table}, threads);
      CHECK(std::equal(expected.begin(), expected.end(), mapped.begin(),
                       [&](std::uint8_t a, std::uint8_t b) { return table[a] == b; }));
      CHECK(is_untouched(mapped));
    }
  }
}

/// quantized::add of the product's codes and others.
void check_sum(const Case& c, Generator& generator, bool relu) {
  CAPTURE(c.rows);
  CAPTURE(c.channels);
  CAPTURE(c.depth);
  const Problem p = make_problem(c, generator, 0, 255);
  const std::vector<std::uint8_t> products = reference(c, p);
  std::vector<std::uint8_t> others(products.size());
  for (auto& code : others) code = static_cast<std::uint8_t>(generator.integer(0, 255));
  CodeTable table{};
  for (auto& code : table) code = static_cast<std::uint8_t>(generator.integer(0, 255));
  const float scale = 0.011F;
  const float other_scale = 0.03F;
  const AddArgs args{scale,
                     math::dequantize_offset(scale, 70),
                     other_scale,
                     math::dequantize_offset(other_scale, 19),
                     {1.0F / 0.027F, 31, relu ? 31 : 0, 255, 255}};
  std::vector<std::uint8_t> expected;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const float sum = math::dequantize_fused(products[i], args.lhs_scale, args.lhs_offset) +
                      math::dequantize_fused(others[i], args.rhs_scale, args.rhs_offset);
    expected.push_back(static_cast<std::uint8_t>(
        math::quantize(sum, args.out.inv_scale, args.out.zero_point, args.out.min, 255)));
  }
  CodePanels panels = pack_code_panels(p.weight.data(), c.channels, c.depth);
  const PanelRequantize requantize = panel_requantize(p.requantize, p.compensation.data(), panels);
  const CodeRows rows = dense_rows(p.src.data(), c.rows, c.depth);
  for (const bool tiles : {panels.tiles, false}) {
    panels.tiles = tiles;
    for (const int threads : {1, 2, 3}) {
      std::vector<std::uint8_t> got(expected.size() + kGuard, kUntouched);
      parallel_gemm_codes({rows, panels, requantize, got.data(), nullptr, {others.data(), args}},
                          threads);
      CHECK(std::equal(expected.begin(), expected.end(), got.begin()));
      parallel_gemm_codes({rows, panels, requantize, got.data(), &table, {others.data(), args}},
                          threads);
      CHECK(std::equal(expected.begin(), expected.end(), got.begin(),
                       [&](std::uint8_t a, std::uint8_t b) { return table[a] == b; }));
      CHECK(is_untouched(got));
    }
  }
}

/// Runs `body` with every instruction set that gemm_codes runs on.
template <typename Body>
void for_each_product(const Body& body) {
  test::for_each_instruction_set([&] {
    const Code code = running_code();
    if (code == Code::Plain || features().has_dot_product(code)) body();
  });
}

TEST_CASE("gemm_codes: random shapes give the codes of plain loops") {
  for_each_product([] {
    Generator generator(21);
    for (int i = 0; i < 60; ++i) {
      const Case c{1 + (generator.integer(0, 149)), 1 + (generator.integer(0, 109)),
                   4 * (1 + (generator.integer(0, 49)))};
      check(c, generator, i % 2 == 0 ? 0 : 70, 255);
    }
  });
}

/// Rows in lines, as of a convolution: `pitch` rows from line to line, of which the first `count` count.
void check_lines(std::int64_t lines, std::int64_t count, std::int64_t pitch, std::int64_t channels,
                 Generator& generator) {
  CAPTURE(lines);
  CAPTURE(count);
  CAPTURE(pitch);
  CAPTURE(channels);
  const Case all{lines * pitch, channels, 68};
  Problem p = make_problem(all, generator, 0, 255);
  const std::vector<std::uint8_t> codes = reference(all, p);
  std::vector<std::uint8_t> expected;
  for (std::int64_t line = 0; line < lines; ++line) {
    const auto begin = codes.begin() + line * pitch * all.channels;
    expected.insert(expected.end(), begin, begin + count * all.channels);
  }
  constexpr std::int64_t kBeyond = 64;
  p.src.resize(p.src.size() + kBeyond, 255);
  CodePanels panels = pack_code_panels(p.weight.data(), all.channels, all.depth);
  const PanelRequantize requantize = panel_requantize(p.requantize, p.compensation.data(), panels);
  CodeRows rows = dense_rows(p.src.data(), count, all.depth);
  rows.lines = lines;
  rows.line_stride = pitch * all.depth;
  rows.beyond = kBeyond;
  for (const bool tiles : {panels.tiles, false}) {
    panels.tiles = tiles;
    std::vector<std::uint8_t> got(expected.size() + kGuard, kUntouched);
    parallel_gemm_codes({rows, panels, requantize, got.data()}, 1);
    CHECK(std::equal(expected.begin(), expected.end(), got.begin()));
    CHECK(is_untouched(got));
  }
}

TEST_CASE("gemm_codes: few rows, alone and in lines") {
  for_each_product([] {
    Generator generator(24);
    for (std::int64_t rows = 2; rows <= 18; ++rows) check({rows, 40, 132}, generator, 0, 255);
    for (const std::int64_t count : {1, 2, 3, 5, 7}) {
      for (std::int64_t lines = 1; lines <= 12; lines += 1 + lines / 4) {
        for (const std::int64_t between : {0, 1, 2}) {
          check_lines(lines, count, count + between, 40, generator);
        }
      }
    }
  });
}

TEST_CASE("gemm_codes: many rows, long rows, few channels, a clamp from above, the largest sums") {
  for_each_product([] {
    Generator generator(22);
    check({1500, 16, 16}, generator, 0, 255);
    check({700, 24, 96}, generator, 0, 255);
    check({40, 33, 1028}, generator, 0, 255);
    check({100, 64, 64}, generator, 10, 200);
    check({33, 48, 512, true}, generator, 0, 255);
    check({1, 1, 4}, generator, 0, 255);
  });
}

TEST_CASE("gemm_codes: rows that are shorter than vectors end where they end") {
  for_each_product([] {
    Generator generator(25);
    for (const std::int64_t channels : {8, 12, 20, 24}) {
      for (const std::int64_t count : {1, 7, 8, 15, 31}) {
        for (const std::int64_t lines : {2, 3}) {
          check_lines(lines, count, count + 1, channels, generator);
        }
      }
      // Threads have neighbouring rows.
      check_sum({150, channels, 24}, generator, channels == 24);
    }
    for (const std::int64_t rows : {1, 7, 8, 13, 14, 15, 29, 46}) {
      for (std::int64_t channels = 1; channels <= 33; ++channels) {
        check({rows, channels, 24}, generator, 0, 255);
        check_sum({rows, channels, 24}, generator, channels % 2 == 0);
      }
    }
  });
}

TEST_CASE("gemm_codes: codes that are added give those of quantized::add") {
  for_each_product([] {
    Generator generator(23);
    for (int i = 0; i < 25; ++i) {
      check_sum({1 + (generator.integer(0, 99)), 1 + (generator.integer(0, 109)),
                 4 * (1 + (generator.integer(0, 29)))},
                generator, i % 2 == 0);
    }
    check_sum({49, 96, 512, true}, generator, true);
  });
}

}  // namespace
}  // namespace quanta::cpu
