#include "first_result.h"

#include <fmt/core.h>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "networks.h"
#include "quanta/quanta.h"
#include "quanta/runtime/detail/packed_forms.h"

namespace quanta::cli {
namespace {

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

int run_first_result(const BenchOptions& options) {
  if (options.weights.empty() || !options.onnx.empty()) {
    throw ArgumentError(
        fmt::format("bench: --first: expected --weights with a model that --save wrote, got {}",
                    options.onnx.empty() ? "none" : "--onnx"));
  }
  if (!options.device.empty() && Device::parse(options.device).is_cuda()) {
    throw UnsupportedError("bench: --first: expected --device cpu beside it, got " +
                           options.device);
  }
  const NetworkKind& kind = network_kind(options.model);
  Tensor x = options.input.empty() ? random_inputs(kind, options.batch)
                                   : read_inputs(kind, options.input).slice(0, 0, options.batch);
  if (x.dim() == 4) x = x.contiguous(MemoryFormat::ChannelsLast);

  const std::int64_t begun = now();
  const std::shared_ptr<nn::Module> model =
      load_saved_network(kind, options.weights, options.map ? FileAccess::Map : FileAccess::Copy);
  FrozenModel frozen;
  if (!options.eager) frozen = freeze(*model, x);
  const std::int64_t ready = now();
  const Tensor y = options.eager ? (*model)(x) : frozen(x);
  const std::int64_t first = now();

  const auto counts = quanta::detail::PackedForms::counts();
  const nlohmann::json figures{{"begun_ns", begun},
                               {"ready_ns", ready},
                               {"first_ns", first},
                               {"packed", counts.packed},
                               {"found_packed", counts.found}};
  fmt::print("{}\n", figures.dump());
  return 0;
}

}  // namespace quanta::cli
