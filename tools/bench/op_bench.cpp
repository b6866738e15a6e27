#include "op_bench.h"

#include <map>

#include "peak.h"
#include "quanta/runtime/profiler.h"

namespace quanta::bench {
namespace {

double copy_speed() {
  static const double speed = copy_bandwidth(std::size_t{256} << 20);
  return speed;
}

double read_speed(std::size_t bytes) {
  static std::map<std::size_t, double> speeds;
  double& speed = speeds[bytes];
  if (speed == 0.0) speed = read_bandwidth(bytes);
  return speed;
}

}  // namespace

Tensor float_input(const Dims& sizes) {
  Generator generator(7);
  const Tensor x = randn(sizes, generator);
  return sizes.size() < 4 ? x : x.contiguous(MemoryFormat::ChannelsLast);
}

QTensor quint8_input(const Dims& sizes) {
  return quantize_per_tensor(float_input(sizes), kScale, kZeroPoint, DType::QUInt8);
}

QTensor qint8_weight(const Dims& sizes) {
  Generator generator(8);
  const std::vector<double> scales(static_cast<std::size_t>(sizes[0]), 0.02);
  const std::vector<std::int64_t> zero_points(scales.size(), 0);
  return QTensor::from_int_repr(randint(-127, 128, sizes, DType::Int8, generator),
                                Quantizer::per_channel(scales, zero_points, 0));
}

std::string kernels_of(const std::function<void()>& call) {
  const Profiler profiler;
  call();
  std::string names;
  for (const ProfileEvent& event : profiler.events()) {
    if (event.kind != ProfileEvent::Kind::Op || event.depth > 0) continue;
    if (names.find(event.kernel) != std::string::npos) continue;
    names += (names.empty() ? "" : "+") + event.kernel;
  }
  return names;
}

void set_counters(benchmark::State& state, const Work& work, double int8_seconds,
                  double float_seconds, double ratio) {
  if (float_seconds > 0.0) {
    state.counters["float_ms"] = 1e3 * float_seconds;
    state.counters["float/int8"] = ratio;
    if (ratio < 1.0) state.counters["slower_than_float"] = 1;
  }
  if (work.bytes > 0.0) {
    state.counters["GB/s"] = work.bytes / int8_seconds / 1e9;
    if (work.read_set > 0) {
      state.counters["of_read"] = work.bytes / int8_seconds / read_speed(work.read_set);
    } else {
      state.counters["of_copy"] = work.bytes / int8_seconds / copy_speed();
    }
  }
  if (work.operations > 0.0) {
    const Int8Peak& peak = int8_peak();
    state.counters["GOP/s"] = work.operations / int8_seconds / 1e9;
    if (peak.vector_ops > 0.0) {
      state.counters["of_peak"] = work.operations / int8_seconds / peak.vector_ops;
    }
    if (peak.tile_ops > 0.0) {
      state.counters["of_amx"] = work.operations / int8_seconds / peak.tile_ops;
    }
  }
}

}  // namespace quanta::bench
