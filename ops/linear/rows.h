#pragma once

// Private: what linear layers share: the operations of this family map x [..., K] to [..., N].

#include <cstdint>
#include <string_view>

#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/op_listener.h"
#include "quanta/runtime/tensor.h"

namespace quanta::linear_layers {

/// A weight [N, K] and its bias.
inline void check_weight(const Tensor& weight, const Tensor& bias, DType dtype) {
  QUANTA_CHECK(weight.defined(), "linear: weight: expected a tensor, got an undefined one");
  QUANTA_CHECK(weight.dtype() == dtype, "linear: weight: expected {}, got {}", dtype,
               weight.dtype());
  QUANTA_CHECK(weight.dim() == 2 && weight.numel() > 0,
               "linear: weight: expected sizes [N, K] of 1 or more, got {}", weight.sizes());
  if (!bias.defined()) return;
  const DType wanted = is_floating_point(dtype) ? dtype : DType::Float32;
  const bool integers = dtype == DType::QInt8 && bias.dtype() == DType::Int32;
  QUANTA_CHECK(bias.dtype() == wanted || integers, "linear: bias: expected {}, got {}", wanted,
               bias.dtype());
  QUANTA_CHECK(bias.dim() == 1 && bias.sizes()[0] == weight.sizes()[0],
               "linear: bias: expected one number for each of {} output features, got sizes {}",
               weight.sizes()[0], bias.sizes());
}

/// The sizes of the result.
inline Dims output_sizes(std::string_view op, const Tensor& x, std::int64_t in_features,
                         std::int64_t out_features) {
  QUANTA_CHECK(x.dim() >= 1 && x.sizes().back() == in_features,
               "{}: x: expected a last dimension of {} features, got sizes {}", op, in_features,
               x.sizes());
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = out_features;
  return sizes;
}

/// `weight_bytes` are those of all weights.
inline OpWork linear_work(const Tensor& x, const Tensor& out, std::size_t weight_bytes) {
  return {.multiply_adds = x.numel() * out.sizes().back(),
          .bytes = static_cast<std::int64_t>(x.nbytes() + out.nbytes() + weight_bytes)};
}

void add_quantized(Catalogue& catalogue);
void add_dynamic(Catalogue& catalogue);
void add_to_float(Catalogue& catalogue);
void add_weight_only(Catalogue& catalogue);

}  // namespace quanta::linear_layers
