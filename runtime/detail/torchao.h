#pragma once

// Private: the int8 weights of torchao (quantize_(model, Int8WeightOnlyConfig())).

#include <string>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The parts of torchao's Int8Tensor (torchao/quantization/quantize_/workflows/int8).
struct TorchaoInt8 {
  Tensor qdata;       ///< Int8 [N, K]
  Tensor scale;       ///< Float32, Float16 or BFloat16 [N, 1] or [N]
  Tensor zero_point;  ///< as many zeros, or undefined
  Dims block_size;    ///< [1, K]: a scale for each row
};

/// (qdata * scale) as a QInt8 tensor, per channel along axis 0. Throws FileError `<where>: ...` for
/// anything else than symmetric codes with a scale for each row.
QTensor restore_torchao_int8(const TorchaoInt8& parts, std::string_view where);

}  // namespace quanta::detail
