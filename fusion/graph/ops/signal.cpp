// DFT and STFT, the windows that go with them, and MelWeightMatrix.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Constants of a recording: Tensor holds floats and integers so, and doubles as bits.
Tensor constant_of(const std::vector<double>& values, const Dims& sizes, DType dtype) {
  if (dtype == DType::Float64) {
    std::vector<std::int64_t> bits(values.size());
    std::ranges::transform(values, bits.begin(), std::bit_cast<std::int64_t, double>);
    return Tensor::from_int64(bits).bit_cast(DType::Float64).view(sizes);
  }
  const std::vector<float> narrow(values.begin(), values.end());
  const Tensor floats = Tensor::from_values(narrow, sizes);
  return dtype == DType::Float32 ? floats : floats.to(dtype);
}

/// Float32 or Float64 of equal sizes; `imaginary` is undefined where all of it is 0.
struct Complex {
  Tensor real, imaginary;
};

enum class Direction : std::uint8_t { Forward, Inverse };

/// exp(-2 pi i j k / n) for j < rows and k < columns, forward.
Complex roots(std::int64_t n, std::int64_t rows, std::int64_t columns, Direction direction,
              DType dtype) {
  std::vector<double> cosines(static_cast<std::size_t>(n));
  std::vector<double> sines(static_cast<std::size_t>(n));
  const double turn = (direction == Direction::Forward ? -2.0 : 2.0) * std::numbers::pi;
  for (std::size_t k = 0; k < cosines.size(); ++k) {
    const double angle = turn * static_cast<double>(k) / static_cast<double>(n);
    cosines[k] = std::cos(angle);
    sines[k] = std::sin(angle);
  }
  std::vector<double> real(static_cast<std::size_t>(rows * columns));
  std::vector<double> imaginary(real.size());
  std::size_t at = 0;
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t k = 0; k < columns; ++k, ++at) {
      const auto root = static_cast<std::size_t>(j * k % n);
      real[at] = cosines[root];
      imaginary[at] = sines[root];
    }
  }
  return {constant_of(real, {rows, columns}, dtype),
          constant_of(imaginary, {rows, columns}, dtype)};
}

template <typename Product>
Complex product(const Complex& x, const Complex& y, Product&& multiply) {
  if (!x.imaginary.defined()) return {multiply(x.real, y.real), multiply(x.real, y.imaginary)};
  return {sub(multiply(x.real, y.real), multiply(x.imaginary, y.imaginary)),
          add(multiply(x.real, y.imaginary), multiply(x.imaginary, y.real))};
}

template <typename Function>
Complex each(const Complex& x, Function&& function) {
  return {function(x.real), x.imaginary.defined() ? function(x.imaginary) : Tensor()};
}

/// The largest divisor of n that is no larger than its root.
std::int64_t divisor_of(std::int64_t n) {
  auto divisor = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % divisor != 0) --divisor;
  return divisor;
}

// Up to here one matrix product is soonest; beyond kMaxPrime its matrix is too large.
constexpr std::int64_t kDense = 512;
constexpr std::int64_t kMaxPrime = 4096;

/// The first `wanted` numbers of the transform along the last dimension. Cooley and Tukey's way of
/// two divisors: x[b i + j] and result[k + a m].
Complex transform(const NodeCall& call, const Complex& x, std::int64_t wanted,
                  Direction direction) {
  const std::int64_t n = x.real.sizes().back();
  const std::int64_t a = divisor_of(n);
  const DType dtype = x.real.dtype();
  if (n <= kDense || a == 1) {
    if (n > kMaxPrime) {
      call.unsupported(
          fmt::format("a length with a prime factor of more than {}: {}", kMaxPrime, n));
    }
    return product(x, roots(n, n, wanted, direction, dtype), matmul);
  }
  const std::int64_t b = n / a;
  Dims split = x.real.sizes();
  split[split.size() - 1] = a;
  split.push_back(b);
  const auto turn = [](const Tensor& y) { return y.transpose(-1, -2).contiguous(); };
  Complex y = each(x, [&](const Tensor& part) { return turn(part.reshape(split)); });
  y = transform(call, y, a, direction);
  y = product(y, roots(n, b, a, direction, dtype), mul);
  y = transform(call, each(y, turn), b, direction);
  return each(y, [&](const Tensor& part) {
    const Tensor whole = turn(part).reshape(x.real.sizes());
    return wanted == n ? whole : whole.slice(-1, 0, wanted);
  });
}

/// The same with ones for the parts: [..., n] and a last dimension of 2.
Tensor joined(const Complex& x) { return stack(std::array{x.real, x.imaginary}, -1); }

/// x[..., 0] and x[..., 1].
Complex parts_of(const NodeCall& call, std::string_view name, const Tensor& x) {
  const std::int64_t parts = x.dim() == 0 ? 0 : x.sizes().back();
  if (parts != 1 && parts != 2) {
    call.fail(
        fmt::format("{}: expected a last dimension of 1 or 2, got sizes {}", name, x.sizes()));
  }
  return {x.select(-1, 0), parts == 2 ? x.select(-1, 1) : Tensor()};
}

/// The last dimension cut to `size`, or filled up with zeros.
Tensor fitted(const Tensor& x, std::int64_t size) {
  const std::int64_t now = x.sizes().back();
  if (now > size) return x.slice(-1, 0, size);
  return now < size ? pad(x, {0, size - now}) : x;
}

/// The rest of a transform of real numbers: the conjugates, backwards.
Complex with_conjugates(const Complex& x, std::int64_t n) {
  const std::int64_t rest = n - x.real.sizes().back();
  if (rest == 0) return x;
  const auto backwards = [&](const Tensor& part) {
    return flip(part.slice(-1, 1, 1 + rest), Dims{-1});
  };
  Complex whole{cat(std::array{x.real, backwards(x.real)}, -1), {}};
  if (x.imaginary.defined()) {
    whole.imaginary = cat(std::array{x.imaginary, neg(backwards(x.imaginary))}, -1);
  }
  return whole;
}

constexpr std::int64_t kMaxLength = std::int64_t{1} << 26;

std::int64_t checked_length(const NodeCall& call, std::string_view name, std::int64_t length) {
  if (length < 1 || length > kMaxLength) {
    call.fail(fmt::format("{}: expected 1..{}, got {}", name, kMaxLength, length));
  }
  return length;
}

void require_floats(const NodeCall& call, std::string_view name, const Tensor& x) {
  if (x.is_floating_point()) return;
  call.fail(fmt::format("{}: expected floats, got {}", name, x.dtype()));
}

Outputs evaluate_dft(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  require_floats(call, "input", x);
  // Counted with the last dimension, which has the parts.
  std::int64_t axis = -2;
  if (call.opset() < 20) {
    axis = call.integer("axis", 1);
  } else if (call.has(2)) {
    axis = single_integer(call, 2, "axis");
  }
  axis = checked_axis(call, "axis", axis, x.dim());
  if (axis == x.dim() - 1) call.fail("axis: expected another dimension than the last, got it");
  const bool onesided = call.flag("onesided", false);
  const bool inverse = call.flag("inverse", false);

  Complex signal = parts_of(call, "input", x);
  std::int64_t n = x.size(axis);
  if (inverse && onesided) n = 2 * (n - 1);
  if (call.has(1)) n = single_integer(call, 1, "dft_length");
  checked_length(call, "dft_length", n);
  const std::int64_t half = n / 2 + 1;
  const auto move = [&](const Tensor& part) { return part.transpose(axis, -1); };
  signal = each(signal, [&](const Tensor& part) {
    return fitted(move(part), inverse && onesided ? half : n).contiguous();
  });
  if (inverse && onesided) signal = with_conjugates(signal, n);
  Complex result = transform(call, signal, onesided && !inverse ? half : n,
                             inverse ? Direction::Inverse : Direction::Forward);
  if (inverse) {
    const double factor = 1.0 / static_cast<double>(n);
    result = each(result, [&](const Tensor& part) { return mul_scalar(part, factor); });
  }
  if (inverse && onesided) return {move(result.real).contiguous().unsqueeze(-1)};
  return {joined(each(result, [&](const Tensor& part) { return move(part).contiguous(); }))};
}

Outputs evaluate_stft(const NodeCall& call) {
  Tensor signal = call.input(0, "signal");
  require_floats(call, "signal", signal);
  if (signal.dim() == 2) signal = signal.unsqueeze(-1);
  if (signal.dim() != 3) {
    call.fail(
        fmt::format("signal: expected [batch, length] or [batch, length, parts], got sizes {}",
                    signal.sizes()));
  }
  const std::int64_t step = single_integer(call, 1, "frame_step");
  if (!call.has(2) && !call.has(3)) call.fail("expected window or frame_length, got neither");
  const std::int64_t n =
      call.has(3) ? single_integer(call, 3, "frame_length") : call.input(2, "window").numel();
  checked_length(call, "frame_step", step);
  checked_length(call, "frame_length", n);
  if (signal.size(1) < n) {
    call.fail(fmt::format("signal: expected at least {} numbers, got sizes {}", n, signal.sizes()));
  }
  if (call.has(2) && (call.input(2, "window").dim() != 1 || call.input(2, "window").numel() != n)) {
    call.fail(fmt::format("window: expected {} numbers, got sizes {}", n,
                          call.input(2, "window").sizes()));
  }
  // [batch, frames, n]
  const Complex frames = each(parts_of(call, "signal", signal), [&](const Tensor& part) {
    const Tensor windows = unfold(part, 1, n, step);
    return call.has(2) ? mul(windows, call.input(2, "window")) : windows.contiguous();
  });
  const std::int64_t wanted = call.flag("onesided", true) ? n / 2 + 1 : n;
  return {joined(transform(call, frames, wanted, Direction::Forward))};
}

DType dtype_wanted(const NodeCall& call) {
  const auto type = static_cast<OnnxType>(
      call.integer("output_datatype", static_cast<std::int64_t>(OnnxType::Float)));
  const auto known = dtype_of(type);
  if (!known) call.unsupported("output_datatype: Quanta does not have " + to_string(type));
  return *known;
}

/// sum of (-1)^k factors[k] cos(2 pi k i / period).
Outputs cosine_window(const NodeCall& call, std::span<const double> factors) {
  const std::int64_t size = checked_length(call, "size", single_integer(call, 0, "size"));
  const std::int64_t period = call.flag("periodic", true) ? size : size - 1;
  std::vector<double> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sign = 1.0;
    for (std::size_t k = 0; k < factors.size(); ++k, sign = -sign) {
      const double turns = static_cast<double>(k * i) / static_cast<double>(period);
      values[i] += sign * factors[k] * std::cos(2.0 * std::numbers::pi * turns);
    }
  }
  return {constant_of(values, {size}, dtype_wanted(call))};
}

Outputs evaluate_hann(const NodeCall& call) { return cosine_window(call, std::array{0.5, 0.5}); }
Outputs evaluate_hamming(const NodeCall& call) {
  return cosine_window(call, std::array{25.0 / 46.0, 21.0 / 46.0});
}
Outputs evaluate_blackman(const NodeCall& call) {
  return cosine_window(call, std::array{0.42, 0.5, 0.08});
}

double single_number(const NodeCall& call, std::size_t i, std::string_view name) {
  const std::vector<double> values = call.numbers(i, name);
  if (values.size() != 1) {
    call.fail(fmt::format("{}: expected one number, got {}", name, values.size()));
  }
  return values[0];
}

// Triangles: band i rises from edges[i] to edges[i + 1] and falls to edges[i + 2].
Outputs evaluate_mel_weights(const NodeCall& call) {
  const std::int64_t bands =
      checked_length(call, "num_mel_bins", single_integer(call, 0, "num_mel_bins"));
  const std::int64_t length =
      checked_length(call, "dft_length", single_integer(call, 1, "dft_length"));
  const std::int64_t rate =
      checked_length(call, "sample_rate", single_integer(call, 2, "sample_rate"));
  const std::int64_t bins = length / 2 + 1;
  const Dims sizes = checked_sizes(call, "output", {bins, bands});
  checked_length(call, "output", bins * bands);

  const auto mel_of = [](double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); };
  const double low = mel_of(single_number(call, 3, "lower_edge_hertz"));
  const double high = mel_of(single_number(call, 4, "upper_edge_hertz"));
  const double step = (high - low) / static_cast<double>(bands + 2);
  std::vector<std::int64_t> edges(static_cast<std::size_t>(bands + 2));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const double mel = low + static_cast<double>(i) * step;
    const double hertz = 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0);
    const double bin =
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(bin >= 0.0 && bin < static_cast<double>(bins))) {
      call.fail(
          fmt::format("upper_edge_hertz: expected edges within {} bins, got one at {}", bins, bin));
    }
    edges[i] = static_cast<std::int64_t>(bin);
  }
  std::vector<double> weights(static_cast<std::size_t>(bins * bands));
  for (std::int64_t band = 0; band < bands; ++band) {
    const auto* edge = edges.data() + band;
    const auto set = [&](std::int64_t bin, std::int64_t part, std::int64_t whole) {
      weights[static_cast<std::size_t>(bin * bands + band)] =
          whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    for (std::int64_t j = edge[0]; j <= edge[1]; ++j) set(j, j - edge[0], edge[1] - edge[0]);
    for (std::int64_t j = edge[1]; j < edge[2]; ++j) set(j, edge[2] - j, edge[2] - edge[1]);
  }
  return {constant_of(weights, sizes, dtype_wanted(call))};
}

}  // namespace

void add_signal_ops(OpTable& table) {
  table.add({.name = "BlackmanWindow", .evaluate = evaluate_blackman});
  table.add({.name = "DFT", .evaluate = evaluate_dft});
  table.add({.name = "HammingWindow", .evaluate = evaluate_hamming});
  table.add({.name = "HannWindow", .evaluate = evaluate_hann});
  table.add({.name = "MelWeightMatrix", .evaluate = evaluate_mel_weights});
  table.add({.name = "STFT", .evaluate = evaluate_stft});
}

}  // namespace quanta::graph
