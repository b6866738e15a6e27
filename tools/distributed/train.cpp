#include "distributed/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/json_file.h"
#include "console/progress.h"
#include "distributed/fashion_network.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/fusion/distributed/sync_batch_norm.h"
#include "quanta/fusion/distributed/sync_observers.h"
#include "quanta/fusion/distributed/training.h"
#include "quanta/fusion/distributed/zero_redundancy_optimizer.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/data/data_loader.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/nn/optim/lr_scheduler.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/loss.h"

namespace quanta::cli {
namespace {

using data::FashionMnist;
using distributed::Communicator;

// In train mode, with fake quantizers unless it is to stay in float.
std::shared_ptr<nn::Module> prepare_network(const TrainCommand& options, const Communicator& comm) {
  const FashionNetwork network = make_fashion_network(options.model);
  load_weights(*network.net,
               options.weights.empty() ? fashion_weights(options.model)
                                       : std::filesystem::path(options.weights),
               FileAccess::Copy);
  network.net->train();
  if (!options.in_float) {
    fuse_modules_qat(*network.net, network.fusion_groups);
    // ReLU6 clamps the codes of what comes in: no fake quantizer behind it.
    prepare_qat_(
        *network.net,
        QConfigMapping(get_default_qat_qconfig()).set_object_type<nn::ReLU6>(std::nullopt));
  }
  network.net->requires_grad_();
  distributed::convert_sync_batch_norm(*network.net, comm);
  return network.net;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainCommand& options,
                                                 const nn::Module& net) {
  if (options.optimizer == "adamw") {
    return std::make_unique<optim::AdamW>(
        net.parameters(), optim::AdamOptions{.lr = options.lr, .weight_decay = 0.01});
  }
  return std::make_unique<optim::SGD>(
      net.parameters(), optim::SGDOptions{.lr = options.lr, .momentum = 0.9, .weight_decay = 1e-4});
}

// What a training measured.
struct Figures {
  std::vector<double> losses;  // of this run
  std::vector<double> seconds;
  Communicator::Traffic before;
  Communicator::Traffic after;
  std::int64_t gradient_bytes = 0;
  std::size_t buckets = 0;
};

class Training {
 public:
  Training(const TrainCommand& options, const Communicator& comm)
      : options_(options),
        comm_(comm),
        net_(prepare_network(options, comm)),
        parallel_(*net_, comm),
        optimizer_(make_optimizer(options, *net_)),
        loader_(make_loader()),
        steps_(options.steps > 0 ? options.steps
                                 : options.epochs * loader_.size() / options.accumulate),
        schedule_(*optimizer_, {.max_lr = options.lr, .total_steps = steps_, .pct_start = 0.1}) {
    if (options.zero) zero_.emplace(*optimizer_, comm);
    for (const Tensor& parameter : net_->parameters()) {
      figures_.gradient_bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
  }

  int run() {
    distributed::TrainingLoop loop({.model = parallel_,
                                    .optimizer = *optimizer_,
                                    .scheduler = &schedule_,
                                    .zero = zero_ ? &*zero_ : nullptr,
                                    .generator = generator_},
                                   {.checkpoint = options_.checkpoint,
                                    .max_grad_norm = 2.0,
                                    .accumulate = options_.accumulate});
    go_on(loop);
    std::optional<console::ProgressBar> bar;
    if (comm_.is_first()) bar.emplace("training", steps_ - done_);
    figures_.before = comm_.traffic();
    auto begin = std::chrono::steady_clock::now();
    while (done_ < steps_) {
      for (const data::Batch& part : loader_) {
        settle();
        const std::optional<double> loss = loop.step(
            part.target.size(0), [&] { return cross_entropy((*net_)(part.input), part.target); });
        if (!loss) continue;
        ++done_;
        figures_.losses.push_back(*loss);
        const auto now = std::chrono::steady_clock::now();
        figures_.seconds.push_back(std::chrono::duration<double>(now - begin).count());
        if (bar) bar->advance(1, fmt::format("loss {:.4f}", *loss));
        if (done_ == steps_ || done_ % options_.save_every == 0) loop.save(counters());
        begin = std::chrono::steady_clock::now();
        if (done_ == steps_) break;
      }
    }
    figures_.after = comm_.traffic();
    figures_.buckets = parallel_.buckets();
    bar.reset();
    finish();
    return 0;
  }

 private:
  data::DataLoader make_loader() const {
    const FashionMnist train(options_.data.empty() ? FashionMnist::kDebianFolder : options_.data,
                             FashionMnist::Split::Train);
    const std::int64_t images =
        options_.images > 0 ? std::min(options_.images, train.size()) : train.size();
    return {std::make_shared<data::Subset>(train.dataset(), 0, images),
            {.batch_size = options_.batch,
             .shuffle = true,
             .transform = FashionMnist::normalization(),
             .seed = static_cast<std::uint64_t>(options_.seed),
             .shard = {.index = comm_.rank(), .count = comm_.size()}}};
  }

  optim::Counters counters() const {
    const data::DataLoader::Position at = loader_.position();
    return {{"step", done_},
            {"loader.epoch", at.epoch},
            {"loader.seed", static_cast<std::int64_t>(at.seed)},
            {"loader.batch", at.batch}};
  }

  void go_on(distributed::TrainingLoop& loop) {
    const auto from = loop.resume({"step", "loader.epoch", "loader.seed", "loader.batch"});
    if (!from) return;
    done_ = from->at("step");
    loader_.set_position({.epoch = from->at("loader.epoch"),
                          .seed = static_cast<std::uint64_t>(from->at("loader.seed")),
                          .batch = from->at("loader.batch")});
    if (comm_.is_first()) fmt::print("going on from step {} of {}\n", done_, steps_);
  }

  // Towards the end ranges and statistics stand still, so that weights settle on them.
  void settle() {
    if (options_.in_float || settled_ || done_ < steps_ * 3 / 4) return;
    disable_observer(*net_);
    freeze_bn_stats(*net_);
    settled_ = true;
  }

  void finish() {
    if (!comm_.is_first()) return;
    std::vector<double> seconds = figures_.seconds;
    std::sort(seconds.begin(), seconds.end());
    const double middle = seconds.empty() ? 0.0 : seconds[seconds.size() / 2];
    const double loss = figures_.losses.empty() ? 0.0 : figures_.losses.back();
    fmt::print("{}{}: {} steps of {} images, {}, last loss {:.17g}, {:.1f} ms a step\n",
               options_.model, options_.in_float ? "" : ", quantization in the loop", steps_,
               options_.batch * options_.accumulate, describe_ranks(comm_), loss, 1e3 * middle);
    if (!options_.json.empty()) write_figures(middle);
    if (options_.save.empty()) return;
    distributed::unsync_observers(*net_);
    distributed::revert_sync_batch_norm(*net_);
    net_->requires_grad_(false);
    net_->eval();
    if (!options_.in_float) convert_(*net_);
    save_model(*net_, options_.save);
    fmt::print("{} network written: {}\n", options_.in_float ? "float" : "int8", options_.save);
  }

  void write_figures(double seconds_per_step) const {
    const double steps = std::max<double>(1.0, static_cast<double>(figures_.losses.size()));
    const auto a_step = [&](auto after, auto before) {
      return static_cast<double>(after - before) / steps;
    };
    write_json(
        options_.json,
        {{"model", options_.model},
         {"ranks", comm_.size()},
         {"processes", comm_.processes()},
         {"steps", figures_.losses.size()},
         {"batch", options_.batch},
         {"seconds_per_step", seconds_per_step},
         {"seconds_waited_per_step",
          a_step(figures_.after.seconds_waited, figures_.before.seconds_waited)},
         {"bytes_per_step", a_step(figures_.after.bytes_sent, figures_.before.bytes_sent)},
         {"messages_per_step", a_step(figures_.after.messages_sent, figures_.before.messages_sent)},
         {"gradient_bytes", figures_.gradient_bytes},
         {"buckets", figures_.buckets},
         {"loss", figures_.losses}});
  }

  const TrainCommand& options_;
  Communicator comm_;
  std::shared_ptr<nn::Module> net_;
  distributed::DataParallel parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  data::DataLoader loader_;
  std::int64_t steps_;
  optim::OneCycleLR schedule_;
  std::optional<distributed::ZeroRedundancyOptimizer> zero_;
  Generator generator_{0};  // nothing draws from it: these networks have no dropout
  std::int64_t done_ = 0;
  bool settled_ = false;
  Figures figures_;
};

}  // namespace

int run_train(const TrainCommand& options) {
  return run_on_ranks(options.ranks, [&](const Communicator& comm) {
    require_outputs(
        comm,
        {{"--checkpoint", options.checkpoint}, {"--save", options.save}, {"--json", options.json}});
    return Training(options, comm).run();
  });
}

}  // namespace quanta::cli
