#include "quanta/fusion/distributed/communicator.h"

#include <utility>

#include "quanta/fusion/distributed/detail/rank_group.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::distributed {
namespace {

using detail::Job;
using detail::JobKind;

template <typename T>
Job::Part in_place(std::span<T> values) {
  Job::Part part;
  part.in_out = std::as_writable_bytes(values);
  return part;
}

}  // namespace

PendingSum::PendingSum(std::shared_ptr<detail::RankGroup> group, std::shared_ptr<Job> job,
                       int local)
    : group_(std::move(group)), job_(std::move(job)), local_(local) {}

PendingSum& PendingSum::operator=(PendingSum&& other) noexcept {
  if (this == &other) return *this;
  PendingSum before(std::move(*this));
  group_ = std::move(other.group_);
  job_ = std::move(other.job_);
  local_ = other.local_;
  return *this;
}

PendingSum::~PendingSum() {
  try {
    wait();
  } catch (const std::exception&) {
    // Who wants to know calls wait().
  }
}

void PendingSum::wait() {
  if (job_ == nullptr) return;
  const std::shared_ptr<Job> job = std::move(job_);
  group_->wait(*job, local_);
}

Communicator::Communicator(std::shared_ptr<detail::RankGroup> group, int local)
    : group_(std::move(group)), local_(local) {}

int Communicator::rank() const noexcept { return group_->first() + local_; }
int Communicator::size() const noexcept { return group_->total(); }
int Communicator::processes() const noexcept { return group_->processes().size(); }
int Communicator::local_rank() const noexcept { return group_->local_rank(local_); }
int Communicator::local_size() const noexcept { return group_->local_size(); }

void Communicator::set_time_limit(std::chrono::milliseconds limit) const {
  QUANTA_CHECK(limit.count() > 0 && limit <= kLongestTimeLimit,
               "distributed: set_time_limit: limit: expected 1..{} ms, got {}",
               kLongestTimeLimit.count(), limit.count());
  group_->processes().set_time_limit(limit);
}

std::chrono::milliseconds Communicator::time_limit() const noexcept {
  return group_->processes().time_limit();
}

void Communicator::barrier(std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::Barrier, place, 0, {}), local_);
}

void Communicator::sum(std::span<float> values, std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::SumFloat, place, 0, in_place(values)), local_);
}

void Communicator::sum(std::span<double> values, std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::SumDouble, place, 0, in_place(values)), local_);
}

void Communicator::sum(std::span<std::int64_t> values, std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::SumInt64, place, 0, in_place(values)), local_);
}

void Communicator::min(std::span<float> values, std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::MinFloat, place, 0, in_place(values)), local_);
}

void Communicator::max(std::span<float> values, std::string_view place) const {
  group_->wait(*group_->join(local_, JobKind::MaxFloat, place, 0, in_place(values)), local_);
}

void Communicator::sum(const Tensor& values, std::string_view place) const {
  QUANTA_CHECK(
      values.defined() && (values.dtype() == DType::Float32 || values.dtype() == DType::Float64) &&
          values.is_contiguous(),
      "distributed: sum: values: expected a contiguous Float32 or Float64 tensor, got {}",
      values.defined() ? fmt::format("{} {}", values.dtype(), values.sizes()) : "an undefined one");
  const Tensor here = values.cpu();
  const auto count = static_cast<std::size_t>(here.numel());
  if (here.dtype() == DType::Float32) {
    sum(std::span(static_cast<float*>(here.data_ptr()), count), place);
  } else {
    sum(std::span(static_cast<double*>(here.data_ptr()), count), place);
  }
  if (!values.device().is_cpu()) values.copy_(here);
}

PendingSum Communicator::start_sum(std::span<float> values, std::string_view place) const {
  return {group_, group_->join(local_, JobKind::SumFloat, place, 0, in_place(values)), local_};
}

void Communicator::broadcast(std::span<std::byte> bytes, int root, std::string_view place) const {
  QUANTA_CHECK(root >= 0 && root < size(), "distributed: broadcast: root: expected 0..{}, got {}",
               size() - 1, root);
  group_->wait(*group_->join(local_, JobKind::Broadcast, place, root, in_place(bytes)), local_);
}

void Communicator::broadcast(const Tensor& values, int root, std::string_view place) const {
  QUANTA_CHECK(values.defined() && values.is_contiguous(),
               "distributed: broadcast: values: expected a contiguous tensor, got {}",
               values.defined() ? "one with gaps or another order" : "an undefined one");
  const Tensor here = values.cpu();
  broadcast(std::span(static_cast<std::byte*>(here.data_ptr()), here.nbytes()), root, place);
  if (!values.device().is_cpu()) values.copy_(here);
}

std::string Communicator::broadcast(const std::string& text, int root,
                                    std::string_view place) const {
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root, place);
  std::string result = rank() == root ? text : std::string(length, '\0');
  broadcast(std::as_writable_bytes(std::span(result)), root, place);
  return result;
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine,
                                                             std::string_view place) const {
  Job::Part part;
  part.in = mine;
  const std::shared_ptr<Job> job =
      group_->join(local_, JobKind::AllGather, place, 0, std::move(part));
  group_->wait(*job, local_);
  return std::move(job->parts[static_cast<std::size_t>(local_)].out);
}

std::vector<std::vector<std::byte>> Communicator::gather(std::span<const std::byte> mine, int root,
                                                         std::string_view place) const {
  QUANTA_CHECK(root >= 0 && root < size(), "distributed: gather: root: expected 0..{}, got {}",
               size() - 1, root);
  Job::Part part;
  part.in = mine;
  const std::shared_ptr<Job> job =
      group_->join(local_, JobKind::Gather, place, root, std::move(part));
  group_->wait(*job, local_);
  return std::move(job->parts[static_cast<std::size_t>(local_)].out);
}

Communicator::Traffic Communicator::traffic() const {
  const detail::Processes& processes = group_->processes();
  return {processes.bytes_sent(), processes.messages_sent(), group_->seconds_waited(local_)};
}

std::vector<std::byte> to_bytes(const StateDict& state) { return serialize_safetensors(state); }

StateDict from_bytes(std::span<const std::byte> bytes) {
  return parse_safetensors(bytes, "a message").tensors;
}

}  // namespace quanta::distributed
