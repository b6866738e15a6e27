#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/tensor.h"

namespace quanta::distributed {

struct DataParallelOptions {
  /// Gradients are sent off in buckets of about so many bytes: small ones start early, large ones
  /// need fewer messages. A parameter that is larger has a bucket of its own.
  std::size_t bucket_bytes = std::size_t{4} << 20U;
  /// Whether observers take the batch's range over all ranks (sync_observers).
  bool sync_observers = true;
};

/// Trains one model on several ranks, each of which has a copy of it and sees its part of every batch:
///
///   net.requires_grad_();
///   distributed::convert_sync_batch_norm(net, comm);
///   distributed::DataParallel parallel(net, comm);
///   optim::SGD optimizer(net.parameters(), {.lr = 0.1});
///   for (const data::Batch& part : loader) {        // loader: {.shard = {comm.rank(), comm.size()}}
///     optimizer.zero_grad();
///     const Tensor loss = cross_entropy(net(part.input), part.target);
///     parallel.backward(loss, part.target.size(0));
///     optimizer.step();
///   }
///
/// Afterwards every rank's gradients are those of the mean loss over all examples of the batch, however
/// they are divided among the ranks: a part may be smaller than the others, or empty. They are summed
/// in buckets, in the order of the ranks, while backward goes on: as many ranks give the same bits each
/// time, in one process or in several.
///
/// All ranks make it and call its functions together. A rank's object is for the rank's thread, as its
/// model is. Where a rank throws, the others' calls fail as Communicator says.
class DataParallel {
 public:
  /// Broadcasts the parameters, buffers and observers of rank 0. Trains those parameters that require a
  /// gradient now. The model has to outlive it, with the parameters it has. Throws ArgumentError on
  /// all ranks where the models differ in names, sizes, dtypes or in which parameters are trained, for
  /// a parameter to be trained that is not Float32, and for bucket_bytes of 0; UnsupportedError as
  /// sync_observers does.
  DataParallel(nn::Module& model, const Communicator& comm,
               const DataParallelOptions& options = {});
  /// Observers watch their own rank again.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Goes back through `loss`, the mean over this rank's `examples`, and adds the gradients of the mean
  /// over those of all ranks to grad(). Gives that mean loss.
  ///
  /// A rank without examples gives the loss of an empty batch, whatever number that is: what waits for
  /// all ranks on the way (SyncBatchNorm) needs it too; where there is no such thing, an undefined
  /// tensor will do. A parameter that no rank's loss depends on keeps its grad(); one that some do not
  /// depend on gets their part as 0.
  ///
  /// Throws NumericError for a loss that is NaN or infinite, on all ranks, and for such a gradient, on
  /// the rank that met it, with the parameter's name; under no_sync() for both on all ranks, in the first
  /// backward() afterwards. Throws ArgumentError for a loss with several elements, examples < 0, and
  /// where no rank has any. The gradients are as they were then, and what no_sync() gathered is dropped.
  double backward(const Tensor& loss, std::int64_t examples);

  /// While it lives, backward() sends nothing: gradients are gathered on this rank until the first
  /// backward() afterwards, which takes them in. The result is the gradient of the mean loss over all
  /// examples since then: losses are not to be divided by the number of steps. All ranks hold one at
  /// the same time. backward() gives the mean loss of this rank's examples so far.
  class NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DataParallel;
    explicit NoSync(DataParallel& parallel);
    DataParallel& parallel_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// Forgets what was gathered without being sent.
  void drop_gathered();

  /// How often backward() has sent gradients.
  std::int64_t steps() const noexcept;
  /// Parameters that no rank's loss depended on in the last of these.
  const std::vector<std::string>& unused_parameters() const noexcept;
  /// How many buckets there are, and how many of them the last of these sent before backward had come
  /// to its end.
  std::size_t buckets() const noexcept;
  std::size_t overlapped_buckets() const noexcept;

  nn::Module& model() const noexcept;
  const Communicator& communicator() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Gives the state of rank 0's model (parameters, buffers, observers) to all ranks. Throws ArgumentError
/// on all of them where the models differ in names, sizes or dtypes.
void broadcast_state(nn::Module& model, const Communicator& comm);

}  // namespace quanta::distributed
