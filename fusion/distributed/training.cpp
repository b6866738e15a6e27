#include "quanta/fusion/distributed/training.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/distributed/detail/same_on_all.h"
#include "quanta/nn/optim/detail/training_parts.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

optim::TrainingParts parts_of(const TrainingParts& training) {
  return {.model = training.model.model(),
          .optimizer = training.optimizer,
          .scheduler = training.scheduler,
          .generator = training.generator};
}

const Communicator& comm_of(const TrainingParts& training) { return training.model.communicator(); }

// While it lives, rank 0's optimizer has the whole state.
class WholeState {
 public:
  explicit WholeState(const TrainingParts& training) : training_(training) {
    if (training.zero == nullptr) return;
    mine_ = training.optimizer.state_dict();
    const StateDict whole = training.zero->state_dict();
    if (comm_of(training).is_first()) training.optimizer.load_state_dict(whole);
  }
  ~WholeState() {
    if (training_.zero != nullptr) training_.optimizer.load_state_dict(mine_);
  }
  WholeState(const WholeState&) = delete;
  WholeState& operator=(const WholeState&) = delete;

 private:
  const TrainingParts& training_;
  StateDict mine_;
};

void share_random_numbers(const TrainingParts& training) {
  training.generator.set_state(
      comm_of(training).broadcast(training.generator.state(), 0, "checkpoint: random numbers"));
}

}  // namespace

void save_checkpoint(const TrainingParts& training, const std::filesystem::path& path,
                     const optim::Counters& counters) {
  const WholeState whole(training);
  detail::on_first_rank(comm_of(training), "save_checkpoint",
                        [&] { optim::save_checkpoint(parts_of(training), path, counters); });
  share_random_numbers(training);
}

optim::Counters load_checkpoint(const std::filesystem::path& path, const TrainingParts& training,
                                const std::vector<std::string>& required) {
  const Communicator& comm = comm_of(training);
  optim::Counters counters;
  // Rank 0's optimizer takes the whole state for a moment.
  detail::on_first_rank(comm, "load_checkpoint", [&] {
    counters = optim::load_checkpoint(path, parts_of(training), required);
  });
  broadcast_state(training.model.model(), comm);
  std::vector<std::byte> bytes;
  if (comm.is_first()) bytes = to_bytes(training.optimizer.state_dict());
  detail::broadcast_bytes(comm, bytes, 0, "load_checkpoint: optimizer");
  const StateDict optimizer = from_bytes(bytes);
  if (training.scheduler != nullptr) {
    std::int64_t step = training.scheduler->last_step();
    comm.broadcast(std::as_writable_bytes(std::span(&step, 1)), 0, "load_checkpoint: schedule");
    if (!comm.is_first()) training.scheduler->set_last_step(step);
  }
  // After the schedule: learning rates may have been set by hand.
  if (training.zero != nullptr) {
    training.zero->load_state_dict(optimizer);
  } else if (!comm.is_first()) {
    training.optimizer.load_state_dict(optimizer);
  }
  share_random_numbers(training);

  std::string text;
  for (const auto& [name, value] : counters) text += fmt::format("{} {}\n", value, name);
  text = comm.broadcast(text, 0, "load_checkpoint: counters");
  counters.clear();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t space = text.find(' ', begin);
    const std::size_t end = text.find('\n', space);
    counters.emplace(text.substr(space + 1, end - space - 1),
                     std::stoll(text.substr(begin, space - begin)));
    begin = end + 1;
  }
  return counters;
}

TrainingLoop::TrainingLoop(const TrainingParts& training) : TrainingLoop(training, Options()) {}

TrainingLoop::TrainingLoop(const TrainingParts& training, Options options)
    : training_(training), options_(std::move(options)) {
  QUANTA_CHECK(!options_.max_grad_norm || *options_.max_grad_norm >= 0.0,
               "TrainingLoop: max_grad_norm: expected >= 0, got {}", *options_.max_grad_norm);
  QUANTA_CHECK(options_.accumulate >= 1, "TrainingLoop: accumulate: expected at least 1, got {}",
               options_.accumulate);
}

void TrainingLoop::refuse(const std::string& what) const {
  optim::refuse_to_go_on(what, saved_step_, options_.checkpoint);
}

std::optional<double> TrainingLoop::step(std::int64_t examples,
                                         const std::function<Tensor()>& loss) {
  optim::Optimizer& optimizer = training_.optimizer;
  DataParallel& parallel = training_.model;
  const bool is_last = gathered_ + 1 == options_.accumulate;
  if (gathered_ == 0) optimizer.zero_grad();
  double mean = 0.0;
  try {
    if (!is_last) {
      const DataParallel::NoSync guard = parallel.no_sync();
      static_cast<void>(parallel.backward(loss(), examples));
      ++gathered_;
      return std::nullopt;
    }
    mean = parallel.backward(loss(), examples);
    gathered_ = 0;
  } catch (const NumericError& error) {
    gathered_ = 0;
    refuse(error.what());
  } catch (const ArgumentError& error) {
    gathered_ = 0;
    // Observers do not take NaN: after a step that broke the parameters that is what is seen first.
    const std::string broken = optim::broken_parameter(parallel.model());
    if (broken.empty()) throw;
    refuse(fmt::format("training: {}: expected finite parameters, got others at step {} ({})",
                       broken, optimizer.steps() + 1, error.what()));
  }
  if (options_.max_grad_norm) {
    if (const auto wrong = optim::clip_gradients(optimizer, *options_.max_grad_norm))
      refuse(*wrong);
  }
  if (training_.zero != nullptr) {
    training_.zero->step();
  } else {
    optimizer.step();
  }
  if (training_.scheduler != nullptr) training_.scheduler->step();
  return mean;
}

void TrainingLoop::save(const optim::Counters& counters) {
  if (options_.checkpoint.empty()) return;
  QUANTA_CHECK(gathered_ == 0,
               "TrainingLoop: save: expected the parameters to have changed since the last loss "
               "({} losses make a step), got {} that wait",
               options_.accumulate, gathered_);
  detail::on_first_rank(comm_of(training_), "TrainingLoop: save", [&] {
    const std::string broken = optim::broken_parameter(training_.model.model());
    if (broken.empty()) return;
    refuse(fmt::format("training: {}: expected finite parameters, got others after step {}", broken,
                       training_.optimizer.steps()));
  });
  save_checkpoint(training_, options_.checkpoint, counters);
  saved_step_ = training_.optimizer.steps();
}

std::optional<optim::Counters> TrainingLoop::resume(const std::vector<std::string>& required) {
  if (options_.checkpoint.empty()) return std::nullopt;
  std::int64_t is_there = 0;
  detail::on_first_rank(comm_of(training_), "TrainingLoop: resume",
                        [&] { is_there = std::filesystem::exists(options_.checkpoint) ? 1 : 0; });
  comm_of(training_).broadcast(std::as_writable_bytes(std::span(&is_there, 1)), 0,
                               "TrainingLoop: resume");
  if (is_there == 0) return std::nullopt;
  optim::Counters counters = load_checkpoint(options_.checkpoint, training_, required);
  saved_step_ = training_.optimizer.steps();
  return counters;
}

}  // namespace quanta::distributed
