#include "quanta/ops/cpu/onednn/kept_convolutions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <map>
#include <mutex>
#include <string>

namespace quanta::cpu::onednn {
namespace {

struct Kept {
  std::mutex mutex;
  std::map<std::string, dnnl::primitive, std::less<>> primitives;
  std::size_t most = kMostKeptConvolutions;
};

// Never destroyed: oneDNN's own statics may be gone before ours.
Kept& kept() {
  static Kept& instance = *new Kept;
  return instance;
}

bool has_eltwise(const dnnl::primitive_desc_base& desc) {
  const dnnl::post_ops post_ops = desc.get_primitive_attr().get_post_ops();
  for (int i = 0; i < post_ops.len(); ++i) {
    if (post_ops.kind(i) == dnnl::primitive::kind::eltwise) return true;
  }
  return false;
}

// Measured by making 400 primitives of each implementation and each list of post-ops: brgconv,
// brgconv_1x1, brgconv_strided, and the deconvolutions that are made of them.
bool leaks(const dnnl::primitive_desc_base& desc, std::string_view name) {
  return name.find("brgconv") != std::string_view::npos &&
         (name.find("amx") != std::string_view::npos || has_eltwise(desc));
}

// All that a primitive depends on. Threads too: oneDNN divides the work when it makes one.
std::string key_of(std::string_view name, const ConvShape& shape, std::string_view settings) {
  return fmt::format(
      "{} {} threads {}, {} of {} to {} in {}, {} to {}, {} by {} from {} over {} {}", name,
      settings, omp_get_max_threads(), shape.batch, shape.in_channels, shape.out_channels,
      shape.groups, fmt::join(shape.in, "x"), fmt::join(shape.out, "x"),
      fmt::join(shape.kernel, "x"), fmt::join(shape.stride, "x"), fmt::join(shape.padding, "x"),
      fmt::join(shape.dilation, "x"), shape.transposed);
}

}  // namespace

std::optional<dnnl::primitive> make_convolution(const dnnl::primitive_desc_base& desc,
                                                const ConvShape& shape, std::string_view settings) {
  const std::string name = desc.impl_info_str();
  if (!leaks(desc, name)) return dnnl::primitive(desc.get());
  std::string key = key_of(name, shape, settings);
  Kept& all = kept();
  // Made under the lock: of two that are made at once, one would be lost.
  const std::lock_guard lock(all.mutex);
  const auto found = all.primitives.find(key);
  if (found != all.primitives.end()) return found->second;
  if (all.primitives.size() >= all.most) return std::nullopt;
  return all.primitives.emplace(std::move(key), dnnl::primitive(desc.get())).first->second;
}

std::size_t kept_convolutions() {
  const std::lock_guard lock(kept().mutex);
  return kept().primitives.size();
}

std::size_t set_most_kept_convolutions(std::size_t count) {
  const std::lock_guard lock(kept().mutex);
  return std::exchange(kept().most, count);
}

}  // namespace quanta::cpu::onednn
