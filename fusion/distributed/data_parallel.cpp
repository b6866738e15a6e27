#include "quanta/fusion/distributed/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "quanta/fusion/distributed/detail/gradient_buckets.h"
#include "quanta/fusion/distributed/detail/same_on_all.h"
#include "quanta/fusion/distributed/sync_observers.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/gradient_sink.h"

namespace quanta::distributed {
namespace {

// Sizes, dtypes and memory orders by name, for a comparison. Observers take over the sizes of a state:
// of theirs there are names alone.
std::string describe_state(const nn::Module& model) {
  std::string text;
  for (const auto& entries : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& [name, tensor] : entries) {
      text += fmt::format("{} {} {} {}\n", name, to_string(tensor.dtype()),
                          to_string(tensor.sizes()), to_string(tensor.strides()));
    }
  }
  for (const auto& [name, tensor] : model.state_dict()) text += name + "\n";
  return text;
}

std::vector<nn::Module::NamedTensor> trained(const nn::Module& model) {
  std::vector<nn::Module::NamedTensor> result;
  for (const auto& entry : model.named_parameters()) {
    if (entry.tensor.requires_grad()) result.push_back(entry);
  }
  return result;
}

// What a rank says before gradients are sent: plain numbers, and whether each parameter is used.
struct Agreement {
  double loss = 0.0;  // the sum over its examples
  std::int64_t examples = 0;
  std::int64_t gathered = 0;  // whether it brings gradients of earlier losses
  std::int64_t broken = 0;    // kLoss or kGradient where one is not finite
};
constexpr std::int64_t kGradient = 1;
constexpr std::int64_t kLoss = 2;  // the cause of others' gradients too

// How a parameter is used: by losses that were gathered before, by the one that goes back.
constexpr char kEarlier = 1;
constexpr char kNow = 2;

std::vector<std::byte> pack(const Agreement& mine, const std::vector<char>& used) {
  std::vector<std::byte> bytes(sizeof mine + used.size());
  std::memcpy(bytes.data(), &mine, sizeof mine);
  if (!used.empty()) std::memcpy(bytes.data() + sizeof mine, used.data(), used.size());
  return bytes;
}

}  // namespace

void broadcast_state(nn::Module& model, const Communicator& comm) {
  detail::require_same_lines(comm, "broadcast_state: model", describe_state(model));
  std::vector<std::byte> bytes;
  if (comm.is_first()) bytes = to_bytes(model.state_dict());
  detail::broadcast_bytes(comm, bytes, 0, "model");
  if (!comm.is_first()) model.load_state_dict(from_bytes(bytes));
}

class DataParallel::Impl : public autograd::GradientSink {
 public:
  Impl(nn::Module& module, const Communicator& communicator, const DataParallelOptions& options)
      : model(module),
        comm(communicator),
        parameters(trained(module)),
        buckets(parameters, options.bucket_bytes, communicator),
        used_(parameters.size()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      numbers.emplace(parameters[i].tensor.impl().get(), i);
    }
  }

  double backward(const Tensor& loss, std::int64_t examples) {
    check_loss(loss, examples);
    try {
      return sync ? synchronize(loss, examples) : gather(loss, examples);
    } catch (...) {
      drop();
      throw;
    }
  }

  void drop() {
    buckets.clear();
    std::fill(used_.begin(), used_.end(), char{0});
    gathered_ = {};
    broken_gradient_.clear();
  }

  // GradientSink: the loss's graph is known, nothing has gone back yet.
  double begin(std::span<const Tensor> leaves) override {
    std::vector<std::size_t> reached;
    for (const Tensor& leaf : leaves) {
      const auto found = numbers.find(leaf.impl().get());
      if (found == numbers.end()) continue;
      reached.push_back(found->second);
      used_[found->second] = static_cast<char>(used_[found->second] | (sync ? kNow : kEarlier));
    }
    if (!sync) return static_cast<double>(now_.examples);
    agree();
    if (overlap_) buckets.start_when_complete(reached, used_anywhere_);
    // One loss from each rank: its weight in the mean is known before anything is rounded.
    const auto mine = static_cast<double>(now_.examples);
    return any_gathered_ ? mine : mine / static_cast<double>(all_examples_);
  }

  bool take(const Tensor& leaf, const Tensor& gradient) override {
    const auto found = numbers.find(leaf.impl().get());
    if (found == numbers.end()) return false;
    if (now_.broken != 0 || buckets.add(found->second, gradient)) return true;
    broken_gradient_ = parameters[found->second].path;
    if (sync) refuse(kGradient, comm.rank());
    now_.broken = kGradient;
    return true;
  }

  nn::Module& model;
  Communicator comm;
  std::vector<nn::Module::NamedTensor> parameters;
  detail::GradientBuckets buckets;
  std::unordered_map<const TensorImpl*, std::size_t> numbers;
  bool sync = true;
  bool syncs_observers = false;
  std::int64_t steps = 0;
  std::size_t overlapped = 0;
  std::vector<std::string> unused;

 private:
  void check_loss(const Tensor& loss, std::int64_t examples) const {
    QUANTA_CHECK(examples >= 0, "DataParallel: backward: examples: expected >= 0, got {}",
                 examples);
    QUANTA_CHECK(loss.defined() || examples == 0,
                 "DataParallel: backward: loss: expected the mean over {} examples, got an "
                 "undefined tensor",
                 examples);
    QUANTA_CHECK(!loss.defined() || (loss.numel() == 1 && loss.requires_grad()),
                 "DataParallel: backward: loss: expected a single number that depends on "
                 "parameters, got sizes {}{}",
                 loss.sizes(), loss.requires_grad() ? "" : " without a gradient");
  }

  void take_in(const Tensor& loss, std::int64_t examples) {
    now_ = {};
    now_.examples = examples;
    // The mean over nothing may be any number.
    if (examples > 0) now_.loss = loss.item() * static_cast<double>(examples);
    now_.broken = std::isfinite(now_.loss) ? 0 : kLoss;
  }

  // Everything since gradients were sent.
  void add_up() {
    gathered_.loss += now_.loss;
    gathered_.examples += now_.examples;
    gathered_.broken = std::max(gathered_.broken, now_.broken);
  }

  double gather(const Tensor& loss, std::int64_t examples) {
    take_in(loss, examples);
    // What is not finite all ranks refuse together, when they send. Until then its rank goes back with
    // the others, who may wait for it on the way.
    if (loss.defined()) autograd::backward(loss, *this);
    add_up();
    gathered_.gathered = 1;
    return gathered_.examples == 0 ? 0.0 : gathered_.loss / static_cast<double>(gathered_.examples);
  }

  double synchronize(const Tensor& loss, std::int64_t examples) {
    take_in(loss, examples);
    if (loss.defined()) {
      autograd::backward(loss, *this);
    } else {
      agree();
    }
    overlapped = buckets.started();
    buckets.start_all(used_anywhere_);
    const double factor = any_gathered_ ? 1.0 / static_cast<double>(all_examples_) : 1.0;
    const autograd::NoGradGuard guard;
    buckets.finish(factor, used_anywhere_);
    const double mean = all_loss_ / static_cast<double>(all_examples_);
    drop();
    ++steps;
    return mean;
  }

  [[noreturn]] void refuse(std::int64_t what, int rank) const {
    if (what == kLoss) {
      throw NumericError(fmt::format(
          "DataParallel: loss: expected a finite number, got NaN or infinity on rank {} at step {}",
          rank, steps + 1));
    }
    const bool is_known = rank == comm.rank() && !broken_gradient_.empty();
    throw NumericError(fmt::format(
        "DataParallel: gradient of {}: expected finite numbers, got NaN or infinity on rank {} at "
        "step {}",
        is_known ? broken_gradient_ : "a parameter", rank, steps + 1));
  }

  // All ranks know what all of them bring.
  void agree() {
    add_up();
    const auto answers = comm.all_gather(pack(gathered_, used_), "DataParallel: losses");
    all_loss_ = 0.0;
    all_examples_ = 0;
    any_gathered_ = false;
    overlap_ = true;
    used_anywhere_.assign(parameters.size(), 0);
    int broken_rank = -1;
    std::int64_t broken = 0;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      Agreement theirs;
      std::memcpy(&theirs, answers[rank].data(), sizeof theirs);
      const auto* uses = reinterpret_cast<const char*>(answers[rank].data() + sizeof theirs);
      all_loss_ += theirs.loss;
      all_examples_ += theirs.examples;
      any_gathered_ = any_gathered_ || theirs.gathered != 0;
      if (theirs.broken > broken) {
        broken = theirs.broken;
        broken_rank = static_cast<int>(rank);
      }
      for (std::size_t i = 0; i < used_.size(); ++i) {
        if (uses[i] != 0) used_anywhere_[i] = 1;
      }
    }
    // Ranks whose losses depend on other parameters would send buckets at other times than the rest,
    // between other messages.
    for (const auto& answer : answers) {
      if (!std::equal(answer.begin() + sizeof(Agreement), answer.end(),
                      answers.front().begin() + sizeof(Agreement))) {
        overlap_ = false;
      }
    }
    if (broken != 0) refuse(broken, broken_rank);
    QUANTA_CHECK(
        all_examples_ > 0,
        "DataParallel: backward: examples: expected some on one rank at least, got none on "
        "{} ranks",
        comm.size());
    unused.clear();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (used_anywhere_[i] == 0) unused.push_back(parameters[i].path);
    }
  }

  std::vector<char> used_;  // by parameter: since gradients were sent
  Agreement gathered_;      // since gradients were sent
  Agreement now_;           // of the loss that goes back
  std::string
      broken_gradient_;  // since gradients were sent: the parameter of one that is not finite
  // What the ranks agreed on.
  std::vector<char> used_anywhere_;
  double all_loss_ = 0.0;
  std::int64_t all_examples_ = 0;
  bool any_gathered_ = false;
  bool overlap_ = true;
};

DataParallel::DataParallel(nn::Module& model, const Communicator& comm,
                           const DataParallelOptions& options) {
  QUANTA_CHECK(options.bucket_bytes > 0, "DataParallel: bucket_bytes: expected > 0, got 0");
  std::string names;
  for (const auto& [path, tensor] : trained(model)) {
    QUANTA_CHECK(tensor.dtype() == DType::Float32 && tensor.is_dense(),
                 "DataParallel: {}: expected a dense Float32 parameter, got {} {}", path,
                 tensor.dtype(), tensor.sizes());
    names += path + "\n";
  }
  broadcast_state(model, comm);
  detail::require_same_lines(comm, "DataParallel: parameters that require a gradient", names);
  impl_ = std::make_unique<Impl>(model, comm, options);
  if (options.sync_observers) {
    sync_observers(model, comm);
    impl_->syncs_observers = true;
  }
}

DataParallel::~DataParallel() {
  if (impl_->syncs_observers) unsync_observers(impl_->model);
}

double DataParallel::backward(const Tensor& loss, std::int64_t examples) {
  return impl_->backward(loss, examples);
}

DataParallel::NoSync::NoSync(DataParallel& parallel)
    : parallel_(parallel), before_(std::exchange(parallel.impl_->sync, false)) {}
DataParallel::NoSync::~NoSync() { parallel_.impl_->sync = before_; }

void DataParallel::drop_gathered() { impl_->drop(); }
std::int64_t DataParallel::steps() const noexcept { return impl_->steps; }
const std::vector<std::string>& DataParallel::unused_parameters() const noexcept {
  return impl_->unused;
}
std::size_t DataParallel::buckets() const noexcept { return impl_->buckets.size(); }
std::size_t DataParallel::overlapped_buckets() const noexcept { return impl_->overlapped; }
nn::Module& DataParallel::model() const noexcept { return impl_->model; }
const Communicator& DataParallel::communicator() const noexcept { return impl_->comm; }

}  // namespace quanta::distributed
