#pragma once

// Private: gradients on their way to the other ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/module.h"

namespace quanta::distributed::detail {

/// Gradients one behind the other in buckets, whose sums over the ranks begin as soon as they and those
/// before them are complete: in the same order on all ranks. The last parameters are in the first
/// bucket, as their gradients are there first.
class GradientBuckets {
 public:
  GradientBuckets(std::vector<nn::Module::NamedTensor> parameters, std::size_t bucket_bytes,
                  const Communicator& comm);

  std::size_t size() const noexcept { return buckets_.size(); }
  /// How many sums were begun.
  std::size_t started() const noexcept { return started_; }

  /// Adds the gradient of parameter `number` to what is there, and begins the sums that it was the last
  /// one for. False, and nothing else, where it is not finite.
  bool add(std::size_t number, const Tensor& gradient);
  /// From now on a bucket is sent when add() was called for all of `expected` that are in it. Buckets
  /// of which nothing is `used` are left out.
  void start_when_complete(std::span<const std::size_t> expected, const std::vector<char>& used);
  /// Begins all sums that were not.
  void start_all(const std::vector<char>& used);
  /// Waits for the sums; adds them, times `factor`, to the grad() of the parameters that are used.
  void finish(double factor, const std::vector<char>& used);
  /// Waits for sums that go on, and forgets everything.
  void clear() noexcept;

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::vector<float> values;
    std::size_t missing = 0;
    PendingSum sum;
  };
  struct Place {
    std::size_t bucket = 0;
    std::size_t offset = 0;
    bool filled = false;
  };

  bool is_used(const Bucket& bucket, const std::vector<char>& used) const;
  void start(Bucket& bucket);
  void start_complete();
  std::span<float> values_of(std::size_t number);

  std::vector<nn::Module::NamedTensor> parameters_;
  Communicator comm_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;       // by parameter
  std::vector<std::size_t> order_;  // the buckets that are sent, while backward goes on
  std::size_t started_ = 0;         // of these
  bool by_itself_ = false;          // whether add() begins sums
};

}  // namespace quanta::distributed::detail
