#include "quanta/ops/linear/cpu_weight_only.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// Rows that are multiplied with a block before the next one: their activations stay in the cache.
constexpr std::int64_t kRowsAtOnce = 192;

float to_float(float value) { return value; }
float to_float(std::uint16_t bits) { return math::bfloat16_to_float(bits); }

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return math::float_to_bfloat16(value);
  }
}

/// Float buffers of the calling thread.
float* floats(onednn::Buffer use, std::int64_t count) {
  return reinterpret_cast<float*>(
      onednn::thread_buffer(use, static_cast<std::size_t>(count) * sizeof(float)));
}

struct Tile {
  std::int64_t begin;   // the first row
  std::int64_t rows;    // rows that there are
  std::int64_t padded;  // rows that the kernel takes
  std::int64_t offset;  // padded rows before this tile
};

/// The rows of one pass in tiles as the kernels take them.
class Tiles {
 public:
  explicit Tiles(std::int64_t rows) {
    for (std::int64_t begin = 0; begin < rows;) {
      const std::int64_t padded = weight_only_tile_rows(rows - begin);
      tiles_[static_cast<std::size_t>(count_++)] = {begin, std::min(padded, rows - begin), padded,
                                                    padded_rows_};
      begin += padded;
      padded_rows_ += padded;
    }
  }
  std::int64_t count() const { return count_; }
  std::int64_t padded_rows() const { return padded_rows_; }
  const Tile& operator[](std::int64_t index) const {
    return tiles_[static_cast<std::size_t>(index)];
  }

 private:
  // The smallest tile that is not the last one has four rows.
  std::array<Tile, kRowsAtOnce / 4> tiles_;
  std::int64_t count_ = 0;
  std::int64_t padded_rows_ = 0;
};

/// packed[k * padded + r] = the rows of one tile, zeros for what is padded.
template <typename T>
void pack_tile(const Tile& tile, const T* src, std::int64_t in_features, std::int64_t depth,
               float* packed) {
  if (tile.rows < tile.padded || depth > in_features) {
    std::fill_n(packed, depth * tile.padded, 0.0F);
  }
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const T* row = src + (tile.begin + r) * in_features;
    for (std::int64_t k = 0; k < in_features; ++k) packed[k * tile.padded + r] = to_float(row[k]);
  }
}

/// sums[g * padded + r] over the groups of a packed tile.
void sum_groups(const Tile& tile, const float* packed, std::int64_t depth, std::int64_t group,
                float* sums) {
  for (std::int64_t begin = 0; begin < depth; begin += group, sums += tile.padded) {
    const std::int64_t end = std::min(begin + group, depth);
    std::fill_n(sums, tile.padded, 0.0F);
    for (std::int64_t k = begin; k < end; ++k) {
      for (std::int64_t r = 0; r < tile.padded; ++r) sums[r] += packed[k * tile.padded + r];
    }
  }
}

/// Packed tiles one after the other, and their sums over groups.
struct Activations {
  const float* packed;
  const float* group_sums;
  std::int64_t depth;
  std::int64_t sums_a_row;

  WeightOnlyRows of(const Tile& tile, std::int64_t k = 0) const {
    return {packed + tile.offset * depth + k * tile.padded, group_sums + tile.offset * sums_a_row,
            tile.padded};
  }
};

void sums_in_registers(const WeightOnlyBlock& block, const Tiles& tiles, const Activations& x,
                       float* sums) {
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    weight_only_sums(block, x.of(tiles[t]), sums + tiles[t].offset * kWeightOnlyBlock);
  }
}

/// The weights of a part of the depth become floats once for all tiles: 16 KiB, which stay in the
/// first cache.
void sums_through_panel(const WeightOnlyBlock& block, const Tiles& tiles, const Activations& x,
                        float* sums) {
  constexpr std::int64_t kPart = 128;
  alignas(64) std::array<float, kPart * kWeightOnlyBlock> panel;
  for (std::int64_t begin = 0; begin < block.depth; begin += kPart) {
    const std::int64_t end = std::min(begin + kPart, block.depth);
    weight_only_panel(block, begin, end, panel.data());
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      panel_sums(panel.data(), end - begin, x.of(tiles[t], begin),
                 begin == 0 ? Sums::Set : Sums::Add, sums + tiles[t].offset * kWeightOnlyBlock);
    }
  }
}

/// The sums of one block, from `channel` on, with the bias.
template <typename T>
void write_rows(const Tile& tile, const float* sums, std::int64_t channel,
                std::int64_t out_features, const float* bias, T* dst) {
  const std::int64_t width = std::min(kWeightOnlyBlock, out_features - channel);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* row = dst + (tile.begin + r) * out_features + channel;
    const float* sum = sums + r * kWeightOnlyBlock;
    for (std::int64_t c = 0; c < width; ++c) {
      row[c] = from_float<T>(bias == nullptr ? sum[c] : sum[c] + bias[channel + c]);
    }
  }
}

}  // namespace

WeightOnlyLinear::WeightOnlyLinear(const WeightOnlyCodes& weight, Tensor bias)
    : bits_(weight.bits),
      out_features_(weight.out_features),
      in_features_(weight.in_features),
      depth_(round_up(weight.in_features, kWeightOnlyStep)),
      bias_(std::move(bias)) {
  group_ = weight.group == in_features_ ? depth_ : weight.group;
  pack_codes(weight);
  pack_group_values(weight);
}

std::int64_t WeightOnlyLinear::blocks() const noexcept {
  return ceil_div(out_features_, kWeightOnlyBlock);
}
std::int64_t WeightOnlyLinear::groups() const noexcept { return ceil_div(depth_, group_); }

void WeightOnlyLinear::pack_codes(const WeightOnlyCodes& weight) {
  const std::int64_t block_bytes = depth_ * kWeightOnlyBlock * bits_ / 8;
  codes_ = Tensor::zeros({blocks() * block_bytes}, DType::UInt8);
  auto* packed = codes_.mutable_data<std::uint8_t>();
  for (std::int64_t n = 0; n < out_features_; ++n) {
    std::uint8_t* block = packed + n / kWeightOnlyBlock * block_bytes;
    const std::int64_t c = n % kWeightOnlyBlock;
    const std::int8_t* codes = weight.codes.data() + n * in_features_;
    for (std::int64_t k = 0; k < in_features_; ++k) {
      if (bits_ == 8) {
        block[k * kWeightOnlyBlock + c] = static_cast<std::uint8_t>(codes[k]);
      } else {
        const std::int64_t word = k / kWeightOnlyStep * kWeightOnlyBlock + c;
        std::uint8_t& pair = block[word * 4 + k % kWeightOnlyStep / 2];
        pair = static_cast<std::uint8_t>(pair | (codes[k] & 15) << (k % 2 * 4));
      }
    }
  }
}

void WeightOnlyLinear::pack_group_values(const WeightOnlyCodes& weight) {
  const std::int64_t count = groups();
  scales_ = Tensor::zeros({blocks() * count * kWeightOnlyBlock});
  auto* scales = scales_.mutable_data<float>();
  std::int8_t* zero_points = nullptr;
  if (!weight.zero_points.empty()) {
    zero_points_ = Tensor::zeros(scales_.sizes(), DType::Int8);
    zero_points = zero_points_.mutable_data<std::int8_t>();
  }
  for (std::int64_t n = 0; n < out_features_; ++n) {
    for (std::int64_t g = 0; g < count; ++g) {
      const std::int64_t to =
          (n / kWeightOnlyBlock * count + g) * kWeightOnlyBlock + n % kWeightOnlyBlock;
      const auto from = static_cast<std::size_t>(n * count + g);
      scales[to] = weight.scales[from];
      if (zero_points != nullptr) zero_points[to] = weight.zero_points[from];
    }
  }
}

WeightOnlyBlock WeightOnlyLinear::block(std::int64_t index) const {
  const std::int64_t group_values = index * groups() * kWeightOnlyBlock;
  return {bits_,
          codes_.data<std::uint8_t>() + index * (depth_ * kWeightOnlyBlock * bits_ / 8),
          scales_.data<float>() + group_values,
          zero_points_.defined() ? zero_points_.data<std::int8_t>() + group_values : nullptr,
          depth_,
          group_};
}

WeightOnlyCodes WeightOnlyLinear::unpack() const {
  WeightOnlyCodes weight{.bits = bits_,
                         .out_features = out_features_,
                         .in_features = in_features_,
                         .group = groups() == 1 ? in_features_ : group_};
  for (std::int64_t n = 0; n < out_features_; ++n) {
    const WeightOnlyBlock from = block(n / kWeightOnlyBlock);
    const std::int64_t c = n % kWeightOnlyBlock;
    for (std::int64_t k = 0; k < in_features_; ++k) {
      weight.codes.push_back(static_cast<std::int8_t>(weight_only_code(from, k, c)));
    }
    for (std::int64_t g = 0; g < groups(); ++g) {
      weight.scales.push_back(from.scales[g * kWeightOnlyBlock + c]);
      if (from.zero_points != nullptr) {
        weight.zero_points.push_back(from.zero_points[g * kWeightOnlyBlock + c]);
      }
    }
  }
  return weight;
}

void WeightOnlyLinear::dequantize(float* dst) const {
  float* panel = floats(onednn::Buffer::Scratchpad, depth_ * kWeightOnlyBlock);
  for (std::int64_t b = 0; b < blocks(); ++b) {
    weight_only_panel(block(b), 0, depth_, panel);
    const std::int64_t begin = b * kWeightOnlyBlock;
    const std::int64_t end = std::min(begin + kWeightOnlyBlock, out_features_);
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t k = 0; k < in_features_; ++k) {
        dst[n * in_features_ + k] = panel[k * kWeightOnlyBlock + n - begin];
      }
    }
  }
}

std::size_t WeightOnlyLinear::nbytes() const noexcept {
  return codes_.nbytes() + scales_.nbytes() + (zero_points_.defined() ? zero_points_.nbytes() : 0) +
         (bias_.defined() ? bias_.nbytes() : 0);
}

template <typename T>
void WeightOnlyLinear::run_rows(std::int64_t rows, const T* src, T* dst) const {
  const Tiles tiles(rows);
  // More tiles would turn the same codes into floats again and again.
  const bool through_panel = tiles.count() > 2;
  const std::int64_t sums_a_row = zero_points_.defined() && !through_panel ? groups() : 0;
  float* packed = floats(onednn::Buffer::Padded, tiles.padded_rows() * (depth_ + sums_a_row));
  float* group_sums = packed + tiles.padded_rows() * depth_;
  const bool one_thread = threads_for(rows * in_features_ * out_features_ * 4) == 1;
  parallel_for(
      tiles.count(), one_thread ? tiles.count() : 2, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          float* x = packed + tiles[t].offset * depth_;
          pack_tile(tiles[t], src, in_features_, depth_, x);
          if (sums_a_row > 0) {
            sum_groups(tiles[t], x, depth_, group_, group_sums + tiles[t].offset * sums_a_row);
          }
        }
      });

  const float* bias = bias_.defined() ? bias_.data<float>() : nullptr;
  parallel_for(blocks(), one_thread ? blocks() : 1,
               [&](std::int64_t first_block, std::int64_t last_block) {
                 float* sums = floats(onednn::Buffer::Sums, tiles.padded_rows() * kWeightOnlyBlock);
                 for (std::int64_t b = first_block; b < last_block; ++b) {
                   const Activations x{packed, group_sums, depth_, sums_a_row};
                   through_panel ? sums_through_panel(block(b), tiles, x, sums)
                                 : sums_in_registers(block(b), tiles, x, sums);
                   for (std::int64_t t = 0; t < tiles.count(); ++t) {
                     write_rows(tiles[t], sums + tiles[t].offset * kWeightOnlyBlock,
                                b * kWeightOnlyBlock, out_features_, bias, dst);
                   }
                 }
               });
}

std::string_view WeightOnlyLinear::run(std::int64_t rows, DType dtype, const void* src,
                                       void* dst) const {
  for (std::int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - begin);
    if (dtype == DType::BFloat16) {
      run_rows(count, static_cast<const std::uint16_t*>(src) + begin * in_features_,
               static_cast<std::uint16_t*>(dst) + begin * out_features_);
    } else {
      run_rows(count, static_cast<const float*>(src) + begin * in_features_,
               static_cast<float*>(dst) + begin * out_features_);
    }
  }
  return bits_ == 4 ? "weight_only_int4" : "weight_only_int8";
}

}  // namespace quanta::cpu
