#include "quanta/fusion/distributed/calibrate.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/fusion/distributed/detail/calibration.h"
#include "quanta/fusion/distributed/detail/progress.h"
#include "quanta/nn/aimet/quantizer.h"
#include "quanta/nn/data/dataset.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

using nn::detail::child_path;

constexpr std::string_view kOp = "calibrate";

// All that gathers below a model, each once.
class Gathering {
 public:
  explicit Gathering(const nn::Module& model) {
    for (const nn::Module::NamedModule& entry : model.named_modules()) {
      for (const nn::Module::NamedObserver& named : entry.module->named_observers()) {
        add_observer(child_path(entry.path, named.name), named.observer);
      }
      const auto* quantizer = dynamic_cast<const aimet::Quantizer*>(entry.module);
      if (quantizer != nullptr && quantizer->is_calibrating()) {
        add(child_path(entry.path, "analyzer"), quantizer->analyzer());
      }
    }
    QUANTA_SUPPORTED(quantizing_.empty(),
                     "{}: prepared: expected fake quantizers that observe and change nothing "
                     "(disable_fake_quant), got ones that do both: {}",
                     kOp, quantizing_);
    QUANTA_CHECK(!collectors_.empty(),
                 "{}: prepared: expected a model with observers (prepare), got none", kOp);
  }
  const Statistics& collectors() const noexcept { return collectors_; }

 private:
  void add_observer(const std::string& path, const std::shared_ptr<Observer>& observer) {
    if (const auto* fake = dynamic_cast<const FakeQuantizeBase*>(observer.get())) {
      if (!fake->is_observer_enabled()) return;
      // One whose parameters never change does the same to every batch.
      const bool is_fixed = dynamic_cast<const FixedQParamsFakeQuantize*>(fake) != nullptr;
      if (fake->is_fake_quant_enabled() && !is_fixed) {
        quantizing_ += (quantizing_.empty() ? "" : ", ") + path;
      }
    }
    add(path, observer);
  }
  void add(const std::string& path, const std::shared_ptr<Collector>& collector) {
    if (collector != nullptr && seen_.insert(collector.get()).second) {
      collectors_.emplace(path, collector);
    }
  }

  Statistics collectors_;
  std::string quantizing_;
  std::set<const Collector*> seen_;
};

void check_every(std::int64_t combine_every) {
  QUANTA_CHECK(combine_every >= 0, "{}: combine_every: expected at least 0, got {}", kOp,
               combine_every);
}

}  // namespace

void calibrate(const nn::Module& prepared, const std::shared_ptr<const data::Dataset>& dataset,
               const Communicator& comm, const CalibrateOptions& options) {
  QUANTA_CHECK(dataset != nullptr, "{}: dataset: expected one, got none", kOp);
  QUANTA_CHECK(options.batch_size >= 1, "{}: batch_size: expected at least 1, got {}", kOp,
               options.batch_size);
  check_every(options.combine_every);
  QUANTA_CHECK(!prepared.is_training(),
               "{}: prepared: expected a model in eval mode, got one in train mode: call eval()",
               kOp);
  const Gathering gathering(prepared);
  const std::int64_t size = dataset->size();
  const std::int64_t batches = size / options.batch_size + (size % options.batch_size == 0 ? 0 : 1);
  detail::Progress progress(options.progress, batches, comm);
  const autograd::NoGradGuard no_grad;
  detail::Calibration calibration(gathering.collectors(), comm,
                                  fmt::format("{} examples in batches of {}, combine_every {}",
                                              size, options.batch_size, options.combine_every));
  const auto run_batches = [&](std::int64_t begin, std::int64_t end, bool is_repeated) {
    const std::int64_t first = begin * options.batch_size;
    const std::int64_t last = end == batches ? size : end * options.batch_size;
    if (first == last) return;
    data::DataLoader loader(std::make_shared<data::Subset>(dataset, first, last - first),
                            {.batch_size = options.batch_size,
                             .prefetch = options.prefetch,
                             .transform = options.transform,
                             .seed = 0});
    for (const data::Batch& batch : loader) {
      if (options.forward) {
        options.forward(prepared, batch);
      } else {
        static_cast<void>(prepared(batch.input));
      }
      if (!is_repeated) progress.advance(1);
    }
  };
  calibration.run(batches, options.combine_every, run_batches);
  progress.finish();
}

void calibrate(const Statistics& collectors, std::int64_t batches,
               const std::function<void(std::int64_t batch)>& feed, const Communicator& comm,
               const CalibrateCollectorsOptions& options) {
  QUANTA_CHECK(batches >= 0, "{}: batches: expected at least 0, got {}", kOp, batches);
  QUANTA_CHECK(feed != nullptr, "{}: feed: expected a function, got none", kOp);
  check_every(options.combine_every);
  detail::Progress progress(options.progress, batches, comm);
  detail::Calibration calibration(
      collectors, comm,
      fmt::format("{} batches, combine_every {}", batches, options.combine_every));
  const auto run_batches = [&](std::int64_t begin, std::int64_t end, bool is_repeated) {
    for (std::int64_t batch = begin; batch < end; ++batch) {
      feed(batch);
      if (!is_repeated) progress.advance(1);
    }
  };
  calibration.run(batches, options.combine_every, run_batches);
  progress.finish();
}

}  // namespace quanta::distributed
