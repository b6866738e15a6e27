#include "bench_support.h"

#include <cstring>

#include "quanta/runtime/parallel.h"

namespace quanta::bench {

double copy_bandwidth(std::size_t bytes) {
  const Tensor src = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::UInt8);
  const Tensor dst = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::UInt8);
  const auto* from = src.data<std::uint8_t>();
  auto* to = dst.mutable_data<std::uint8_t>();
  const double seconds = median_seconds([&] {
    parallel_for(static_cast<std::int64_t>(bytes), 1 << 20,
                 [&](std::int64_t begin, std::int64_t end) {
                   std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                 });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

}  // namespace quanta::bench
