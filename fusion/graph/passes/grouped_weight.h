#pragma once

// Private: weights of weight-only layers as files have them.

#include <cstdint>
#include <optional>

#include "quanta/fusion/graph/graph.h"
#include "quanta/ops/linear_weight_only.h"

namespace quanta::graph {

/// Codes of a weight in groups along its input features.
struct GroupedWeight {
  Tensor codes;                           ///< UInt8 or Int8 [N, K]
  Tensor scales;                          ///< Float32 [N, groups]
  Tensor zero_points;                     ///< as codes, [N, groups]; undefined: 0
  std::int64_t bits = 8, group_size = 0;  ///< 0: whole rows
  /// Unless it is known: where all zero points lie in the middle of the codes.
  std::optional<bool> symmetric{};
};

/// As the kernels take it, or nothing where they cannot.
std::optional<WeightOnlyPackedParams> packed_weight(const GroupedWeight& weight,
                                                    const Tensor& bias);

/// Of com.microsoft's MatMulNBits.
std::optional<GroupedWeight> weight_of_nbits(const Graph& graph, const Node& node);

/// Whether rows of 8 bits with one scale count, which may as well be those of an int8 layer.
enum class ByteRows : bool { No, Yes };
/// Of a MatMul or Gemm with a dequantized constant in blocks, or of 4 bits.
std::optional<GroupedWeight> weight_of_blocks(const Graph& graph, const Node& node, ByteRows rows);

}  // namespace quanta::graph
