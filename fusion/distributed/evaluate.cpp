#include "quanta/fusion/distributed/evaluate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "quanta/fusion/distributed/detail/progress.h"
#include "quanta/fusion/distributed/sync_observers.h"
#include "quanta/nn/data/dataset.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

std::size_t place_of(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  QUANTA_CHECK(found != names.end(), "Evaluation: name: expected one of {}, got {}",
               fmt::join(names, ", "), name);
  return static_cast<std::size_t>(found - names.begin());
}

// Adds what the metric says of a batch.
void add_batch(std::vector<ExactSum>& sums, const Metric& metric, const Tensor& output,
               const data::Batch& batch) {
  const Tensor values = metric.values(output.cpu(), batch.target);
  const std::int64_t examples = batch.input.size(0);
  const auto columns = static_cast<std::int64_t>(metric.names.size());
  QUANTA_CHECK(values.defined() && values.dim() >= 1 && values.size(0) == examples &&
                   values.numel() == examples * columns,
               "evaluate: metric: expected {} values for each of {} examples, got {}", columns,
               examples, values.defined() ? to_string(values.sizes()) : "an undefined tensor");
  const Tensor wide = values.detach().cpu().to(DType::Float64).contiguous();
  const auto* from = wide.data<double>();
  for (std::int64_t i = 0; i < examples; ++i) {
    for (ExactSum& sum : sums) sum.add(*from++);
  }
}

}  // namespace

double Evaluation::sum(std::string_view name) const {
  return sums_[place_of(names_, name)].value();
}

double Evaluation::mean(std::string_view name) const {
  const double total = sum(name);
  if (examples_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return total / static_cast<double>(examples_);
}

Evaluation evaluate(const std::function<Tensor(const Tensor&)>& model,
                    const std::shared_ptr<const data::Dataset>& dataset, const Metric& metric,
                    const Communicator& comm, const EvaluateOptions& options) {
  QUANTA_CHECK(model != nullptr, "evaluate: model: expected one, got none");
  QUANTA_CHECK(metric.values && !metric.names.empty(),
               "evaluate: metric: expected names and a function, got none");
  const std::shared_ptr<const data::Dataset> mine =
      data::whole_batches(dataset, options.batch_size, comm.rank(), comm.size());
  detail::Progress progress(options.progress, dataset->size(), comm);
  Evaluation result;
  result.names_ = metric.names;
  result.sums_.resize(metric.names.size());
  std::int64_t done = 0;
  if (mine->size() > 0) {
    const autograd::NoGradGuard no_grad;
    data::DataLoader loader(mine, {.batch_size = options.batch_size,
                                   .prefetch = options.prefetch,
                                   .transform = options.transform,
                                   .seed = 0});
    for (const data::Batch& batch : loader) {
      add_batch(result.sums_, metric, model(batch.input), batch);
      done += batch.input.size(0);
      progress.advance(batch.input.size(0));
    }
  }
  progress.finish();
  std::vector<std::int64_t> parts;
  for (ExactSum& sum : result.sums_) {
    const std::span<std::int64_t> each = sum.parts();
    parts.insert(parts.end(), each.begin(), each.end());
  }
  parts.push_back(done);
  comm.sum(std::span(parts), "evaluate");
  auto from = parts.begin();
  for (ExactSum& sum : result.sums_) {
    const std::span<std::int64_t> each = sum.parts();
    std::copy_n(from, each.size(), each.begin());
    from += static_cast<std::ptrdiff_t>(each.size());
  }
  result.examples_ = parts.back();
  return result;
}

Evaluation evaluate(const nn::Module& model, const std::shared_ptr<const data::Dataset>& dataset,
                    const Metric& metric, const Communicator& comm,
                    const EvaluateOptions& options) {
  QUANTA_CHECK(!model.is_training(),
               "evaluate: model: expected one in eval mode, got one in train mode: call eval()");
  const std::vector<std::string> waiting = waiting_observers(model);
  QUANTA_CHECK(
      waiting.empty(),
      "evaluate: model: expected observers that are switched off (disable_observer) or on their "
      "own (unsync_observers), got synchronised ones, which wait for ranks that have another "
      "number of batches: {}",
      fmt::join(waiting, ", "));
  return evaluate([&](const Tensor& x) { return model(x); }, dataset, metric, comm, options);
}

}  // namespace quanta::distributed
