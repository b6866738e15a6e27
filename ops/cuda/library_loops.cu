#include "quanta/ops/cuda/library_loops.h"

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/host_device.h"

namespace quanta::cuda {
namespace {

// NaN stays.
SIMT_DEVICE float at_least_zero(float value) { return value < 0.0F ? 0.0F : value; }

SIMT_DEVICE std::int64_t place(const MatrixLayout& layout, std::int64_t matrix, std::int64_t row,
                               std::int64_t column) {
  return matrix * layout.batch_stride +
         (layout.transposed ? column * layout.stride + row : row * layout.stride + column);
}

struct LoopProduct {
  static constexpr const char* kName = "loop_product";
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LoopProductParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const FloatProduct& product = p.product;
    const std::int64_t i = simt::global_thread();
    if (i >= product.batch * product.rows * product.columns) return;
    const std::int64_t column = i % product.columns;
    const std::int64_t row = i / product.columns % product.rows;
    const std::int64_t matrix = i / product.columns / product.rows;
    float sum = 0.0F;
    for (std::int64_t k = 0; k < product.depth; ++k) {
      sum += float_at(product.dtype, p.operands.lhs, place(product.lhs, matrix, row, k)) *
             float_at(product.dtype, p.operands.rhs, place(product.rhs, matrix, k, column));
    }
    const std::int64_t at = place(product.out, matrix, row, column);
    float value = product.alpha * sum;
    if (product.beta != 0.0F) value += product.beta * float_at(product.dtype, p.operands.out, at);
    if (product.has_bias) value += float_at(product.dtype, p.operands.bias, column);
    put_float(product.dtype, p.operands.out, at, value);
  }
};

/// An element's place in a dense image [N, D, H, W, C] or weight [O, D, H, W, C].
struct Place {
  std::int64_t outer, at[3], channel;
};

SIMT_DEVICE Place place_of(std::int64_t i, const std::int64_t (&sizes)[3], std::int64_t channels) {
  Place place{};
  place.channel = i % channels;
  i /= channels;
  for (int d = 2; d >= 0; --d) {
    place.at[d] = i % sizes[d];
    i /= sizes[d];
  }
  place.outer = i;
  return place;
}

SIMT_DEVICE std::int64_t index_of(const Place& place, const std::int64_t (&sizes)[3],
                                  std::int64_t channels) {
  std::int64_t i = place.outer;
  for (int d = 0; d < 3; ++d) i = i * sizes[d] + place.at[d];
  return i * channels + place.channel;
}

struct LoopConvolution {
  static constexpr const char* kName = "loop_convolution";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LoopConvolutionParams;

  static QUANTA_HOST_DEVICE std::int64_t group_in(const cpu::ConvShape& s) {
    return s.in_channels / s.groups;
  }
  static QUANTA_HOST_DEVICE std::int64_t group_out(const cpu::ConvShape& s) {
    return s.out_channels / s.groups;
  }
  static QUANTA_HOST_DEVICE std::int64_t volume(const std::int64_t (&sizes)[3]) {
    return sizes[0] * sizes[1] * sizes[2];
  }
  static QUANTA_HOST_DEVICE std::int64_t count(const FloatConvolution& c) {
    const cpu::ConvShape& s = c.shape;
    switch (c.pass) {
      case ConvPass::Output:
        return s.batch * volume(s.out) * s.out_channels;
      case ConvPass::Input:
        return s.batch * volume(s.in) * s.in_channels;
      case ConvPass::Weight:
        break;
    }
    return s.out_channels * volume(s.kernel) * group_in(s);
  }

  // Where a tap of an output lies in the input; false: in the padding.
  static SIMT_DEVICE bool input_of(const cpu::ConvShape& s, const Place& y, const Place& tap,
                                   Place& x) {
    for (int d = 0; d < 3; ++d) {
      x.at[d] = y.at[d] * s.stride[d] - s.padding[d] + tap.at[d] * s.dilation[d];
      if (x.at[d] < 0 || x.at[d] >= s.in[d]) return false;
    }
    return true;
  }
  // Which output meets an input with a tap; false: none.
  static SIMT_DEVICE bool output_of(const cpu::ConvShape& s, const Place& x, const Place& tap,
                                    Place& y) {
    for (int d = 0; d < 3; ++d) {
      const std::int64_t reach = x.at[d] + s.padding[d] - tap.at[d] * s.dilation[d];
      if (reach < 0 || reach % s.stride[d] != 0) return false;
      y.at[d] = reach / s.stride[d];
      if (y.at[d] >= s.out[d]) return false;
    }
    return true;
  }

  static SIMT_DEVICE float at_input(const Params& p, const Place& x) {
    const cpu::ConvShape& s = p.convolution.shape;
    return float_at(p.convolution.dtype, p.operands.input, index_of(x, s.in, s.in_channels));
  }
  static SIMT_DEVICE float at_output(const Params& p, const Place& y) {
    const cpu::ConvShape& s = p.convolution.shape;
    return float_at(p.convolution.dtype, p.operands.output, index_of(y, s.out, s.out_channels));
  }
  static SIMT_DEVICE float at_weight(const Params& p, const Place& tap) {
    const cpu::ConvShape& s = p.convolution.shape;
    return float_at(p.convolution.dtype, p.operands.weight, index_of(tap, s.kernel, group_in(s)));
  }

  static SIMT_DEVICE float output(const Params& p, std::int64_t i) {
    const cpu::ConvShape& s = p.convolution.shape;
    const Place y = place_of(i, s.out, s.out_channels);
    float sum = 0.0F;
    for (std::int64_t t = 0; t < volume(s.kernel) * group_in(s); ++t) {
      Place tap = place_of(t, s.kernel, group_in(s));
      tap.outer = y.channel;
      Place x{y.outer, {}, y.channel / group_out(s) * group_in(s) + tap.channel};
      if (input_of(s, y, tap, x)) sum += at_input(p, x) * at_weight(p, tap);
    }
    return sum;
  }
  static SIMT_DEVICE float input(const Params& p, std::int64_t i) {
    const cpu::ConvShape& s = p.convolution.shape;
    const Place x = place_of(i, s.in, s.in_channels);
    const std::int64_t first = x.channel / group_in(s) * group_out(s);
    float sum = 0.0F;
    for (std::int64_t t = 0; t < volume(s.kernel); ++t) {
      Place tap = place_of(t, s.kernel, 1);
      tap.channel = x.channel % group_in(s);
      Place y{x.outer, {}, 0};
      if (!output_of(s, x, tap, y)) continue;
      for (std::int64_t o = first; o < first + group_out(s); ++o) {
        y.channel = tap.outer = o;
        sum += at_output(p, y) * at_weight(p, tap);
      }
    }
    return sum;
  }
  static SIMT_DEVICE float weight(const Params& p, std::int64_t i) {
    const cpu::ConvShape& s = p.convolution.shape;
    const Place tap = place_of(i, s.kernel, group_in(s));
    float sum = 0.0F;
    for (std::int64_t t = 0; t < s.batch * volume(s.out); ++t) {
      Place y = place_of(t, s.out, 1);
      y.channel = tap.outer;
      Place x{y.outer, {}, y.channel / group_out(s) * group_in(s) + tap.channel};
      if (input_of(s, y, tap, x)) sum += at_input(p, x) * at_output(p, y);
    }
    return sum;
  }

  static SIMT_DEVICE float bias(const Params& p, std::int64_t channel) {
    return p.convolution.has_bias ? float_at(p.convolution.dtype, p.operands.bias, channel) : 0.0F;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= count(p.convolution)) return;
    const DType dtype = p.convolution.dtype;
    switch (p.convolution.pass) {
      case ConvPass::Output:
        return put_float(dtype, p.operands.output, i,
                         output(p, i) + bias(p, i % p.convolution.shape.out_channels));
      case ConvPass::Input:
        return put_float(dtype, p.operands.input, i,
                         input(p, i) + bias(p, i % p.convolution.shape.in_channels));
      case ConvPass::Weight:
        return put_float(dtype, p.operands.weight, i, weight(p, i));
    }
  }
};

// Of channels that come in fours, so that memory is read and written 16 bytes at a time.
struct AddBiasToFours {
  static constexpr const char* kName = "add_bias_to_fours";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AddBiasParams;
  struct alignas(16) Four {
    float values[4] = {};
  };
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = 4 * simt::global_thread();
    if (i >= p.count) return;
    float* const y = static_cast<float*>(p.y) + i;
    auto four = simt::load<Four>(y);
    Four bias;
    if (p.bias != nullptr) {
      bias = simt::load<Four>(static_cast<const float*>(p.bias) + i % p.channels);
    }
    for (int k = 0; k < 4; ++k) {
      const float value = four.values[k] + bias.values[k];
      four.values[k] = p.relu ? at_least_zero(value) : value;
    }
    simt::store(y, four);
  }
};

struct AddBias {
  static constexpr const char* kName = "add_bias";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AddBiasParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    float value = float_at(p.dtype, p.y, i);
    if (p.bias != nullptr) value += float_at(p.dtype, p.bias, i % p.channels);
    put_float(p.dtype, p.y, i, p.relu ? at_least_zero(value) : value);
  }
};

bool comes_in_fours(const AddBiasParams& params) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(params.y) | reinterpret_cast<std::uintptr_t>(params.bias);
  return params.dtype == DType::Float32 && params.channels % 4 == 0 && bits % 16 == 0;
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void loop_product(Device device, const LoopProductParams& params) {
  const FloatProduct& product = params.product;
  simt::launch<LoopProduct>(device, simt::grid_for(product.batch * product.rows * product.columns),
                            params);
}
void loop_convolution(Device device, const LoopConvolutionParams& params) {
  simt::launch<LoopConvolution>(device, simt::grid_for(LoopConvolution::count(params.convolution)),
                                params);
}
void add_bias(Device device, const AddBiasParams& params) {
  if (comes_in_fours(params)) {
    simt::launch<AddBiasToFours>(device, simt::grid_for(params.count, AddBiasToFours::kThreads, 4),
                                 params);
  } else {
    simt::launch<AddBias>(device, simt::grid_for(params.count), params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
