#include "distributed/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/observer_option.h"
#include "console/progress.h"
#include "distributed/fashion_network.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/distributed/calibrate.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/warning.h"

namespace quanta::cli {
namespace {

using data::FashionMnist;

// Without packed weights where the processor's kernels take plain ones.
void save(const nn::Module& net, const CalibrateCommand& options) {
  if (options.packed) {
    try {
      save_model(net, options.save, {.packed = SavePacked::Yes});
      return;
    } catch (const ArgumentError&) {
      warn("calibrate: --packed: this processor's kernels pack no weights: saved without");
    }
  }
  save_model(net, options.save);
}

int calibrate_on(const CalibrateCommand& options, const distributed::Communicator& comm) {
  require_outputs(comm, {{"--save", options.save}});
  const FashionMnist train(options.data.empty() ? FashionMnist::kDebianFolder : options.data,
                           FashionMnist::Split::Train);
  const auto images =
      std::make_shared<data::Subset>(train.dataset(), 0, std::min(options.images, train.size()));
  const FashionNetwork network = make_fashion_network(options.model);
  load_weights(*network.net,
               options.weights.empty() ? fashion_weights(options.model)
                                       : std::filesystem::path(options.weights),
               FileAccess::Copy);
  fuse_modules(*network.net, network.fusion_groups);
  prepare_(*network.net, qconfig_of_observer(options.observer, options.per_tensor));

  std::optional<console::ProgressBar> bar;
  const std::int64_t batches = (images->size() + options.batch - 1) / options.batch;
  if (comm.is_first()) bar.emplace("calibrating", batches);
  std::int64_t shown = 0;
  const auto begin = std::chrono::steady_clock::now();
  distributed::calibrate(*network.net, images, comm,
                         {.batch_size = options.batch,
                          .transform = FashionMnist::normalization(),
                          .progress = [&](std::int64_t done, std::int64_t) {
                            if (bar) bar->advance(done - shown);
                            shown = done;
                          }});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bar.reset();
  if (!comm.is_first()) return 0;
  convert_(*network.net);
  if (options.packed) {  // which forms are packed
    (*network.net)(train.images(0, std::min(options.batch, train.size())));
  }
  save(*network.net, options);
  fmt::print("{}: {} images, {} observer, {}, {:.2f} s; int8 network written: {}\n", options.model,
             images->size(), options.observer, describe_ranks(comm), seconds, options.save);
  return 0;
}

}  // namespace

int run_calibrate(const CalibrateCommand& options) {
  return run_on_ranks(options.ranks, [&](const distributed::Communicator& comm) {
    return calibrate_on(options, comm);
  });
}

}  // namespace quanta::cli
