#pragma once

// Private: the convolutions that oneDNN cannot free.

#include <cstddef>
#include <optional>
#include <string_view>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/onednn/onednn.h"

namespace quanta::cpu::onednn {

/// How many primitives that leak a process makes: 20 to 250 KB each, so 128 MB at most. A ResNet-50
/// of one image size has 23.
inline constexpr std::size_t kMostKeptConvolutions = 512;

/// The primitive of `desc`, a convolution of `shape` whose other settings (types, what follows the
/// sum) `settings` tells from those of any other.
///
/// oneDNN 3.2 never frees all of a "brgconv" primitive with AMX or with an eltwise post-op. Such a
/// one is made once for the process and kept; when kMostKeptConvolutions are, there is nothing for
/// further ones, and the caller takes the next implementation, which costs up to half the speed.
/// Safe from many threads.
std::optional<dnnl::primitive> make_convolution(const dnnl::primitive_desc_base& desc,
                                                const ConvShape& shape, std::string_view settings);

/// How many are kept now, and, for tests, another limit; the one before comes back.
std::size_t kept_convolutions();
std::size_t set_most_kept_convolutions(std::size_t count);

}  // namespace quanta::cpu::onednn
