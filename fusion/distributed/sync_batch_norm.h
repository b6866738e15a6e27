#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/norm.h"

namespace quanta::distributed {

/// A batch norm whose batch is spread over the ranks: in train mode mean and variance, and the gradients
/// that flow through them, are those of all ranks' parts together, of which some may be empty. The
/// numbers are summed in double. Parameters and buffers, their names and eval mode are those of the batch
/// norm, so that states of one load into the other; in eval mode nothing is sent.
///
/// In train mode all ranks call it together, and go back through it together; one thread at a time. Calls
/// throw what a batch norm throws (ArgumentError for a channel with a single value in all parts
/// together), and CommunicationError.
template <int N>
class SyncBatchNorm : public nn::BatchNorm<N> {
 public:
  /// `place` is what messages call it: its place in the model.
  SyncBatchNorm(const nn::BatchNormOptions& options, const Communicator& comm,
                std::string place = "SyncBatchNorm")
      : nn::BatchNorm<N>(options), comm_(comm), place_(std::move(place)) {}
  std::string type_name() const override { return "SyncBatchNorm"; }

 protected:
  Tensor normalize_batch(const Tensor& x, const BatchNormTrainOptions& options) const override;

 private:
  Communicator comm_;
  std::string place_;
};
using SyncBatchNorm1d = SyncBatchNorm<1>;
using SyncBatchNorm2d = SyncBatchNorm<2>;
using SyncBatchNorm3d = SyncBatchNorm<3>;
extern template class SyncBatchNorm<1>;
extern template class SyncBatchNorm<2>;
extern template class SyncBatchNorm<3>;

/// Puts a SyncBatchNorm in the place of every BatchNorm1d, 2d and 3d below `model`, those in the fused
/// layers of quantization-aware training (nn/qat/batch_norm.h) too; tensors, mode and hooks stay. To be
/// called after fusing and prepare_qat, which know batch norms by their class, and before the model is
/// called; gives how many there were. Throws ArgumentError when the model itself is one.
std::int64_t convert_sync_batch_norm(nn::Module& model, const Communicator& comm);
/// Puts plain batch norms back, for what is done on one rank alone: convert, export.
std::int64_t revert_sync_batch_norm(nn::Module& model);

}  // namespace quanta::distributed
