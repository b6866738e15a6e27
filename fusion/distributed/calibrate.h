#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/data/data_loader.h"
#include "quanta/nn/module.h"
#include "quanta/observers/statistics_file.h"

// What each function throws is said below. For one thread of each rank.

namespace quanta::distributed {

/// Called by the first rank as its share of the batches goes on, scaled to all of them.
using CalibrationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct CalibrateOptions {
  /// Batches are the same on any number of ranks: each rank gets whole ones.
  std::int64_t batch_size = 32;
  /// Statistics are put together whenever each rank has run so many batches. 0: every 64, with histograms
  /// between 1 and 64, so that few batches have to run twice. The result does not depend on it; long
  /// rounds take memory for the digests of their batches, short ones messages.
  std::int64_t combine_every = 0;
  /// Has to give an item the same tensor each time: no random ones.
  data::Transform transform{};
  /// How many batches a thread makes ahead.
  std::int64_t prefetch = 2;
  /// Runs a batch; without it `prepared(batch.input)`.
  std::function<void(const nn::Module& prepared, const data::Batch& batch)> forward{};
  CalibrationProgress progress{};
};

/// Runs the data set through a model that observes its activations, each rank a share of the batches;
/// after that every rank's observers hold what those of one rank hold that has run all batches one after
/// the other, to the last bit, moving averages too:
///
///   auto prepared = prepare(net, get_default_qconfig());   // on every rank
///   distributed::calibrate(prepared, images, comm);
///   auto int8 = convert(prepared);                         // the same on every rank
///
/// As far as the model gives a batch the same activations on each of them (it does with the same number
/// of threads on the same kind of CPU). All ranks call it with like models; what rank 0's observers have
/// seen before counts. Eager networks and graphs (prepare_jit), torch's observers, fake quantizers that
/// observe and change nothing, ModelOpt's TensorQuantizers; of AIMET's quantizers those that gather
/// (within QuantizationSimModel::compute_encodings or aimet::compute_encodings, whose function calls
/// this). Batches run twice on ranks whose histograms turn out to need other bins; see
/// docs/distributed.md for how often, and for memory.
///
/// Throws UnsupportedError before anything runs, listing the paths, for observers that cannot be shared
/// (classes with an update() of their own, TensorQuantizers with a static bias) and for fake quantizers
/// that quantize while they observe, so that a batch depends on those before it
/// (disable_fake_quant(prepared) helps). ArgumentError for a model in train mode or without observers,
/// no data set, batch_size < 1, combine_every < 0, and ranks whose observers or numbers of batches
/// differ; what the model, the data set and the observers throw (NaN). This rank's observers are then as
/// they were.
void calibrate(const nn::Module& prepared, const std::shared_ptr<const data::Dataset>& dataset,
               const Communicator& comm, const CalibrateOptions& options = {});

struct CalibrateCollectorsOptions {
  std::int64_t combine_every = 0;  ///< as in CalibrateOptions
  CalibrationProgress progress{};
};

/// The same of collectors that stand alone: ModelOpt's calibrators, AIMET's analyzers, torch's
/// observers.
///
///   Statistics collectors{{"fc1", std::make_shared<modelopt::HistogramCalibrator>(options)}};
///   distributed::calibrate(collectors, batches, [&](std::int64_t batch) {
///     collectors.at("fc1")->update(activations(batch));
///   }, comm);
///
/// `feed` lets the collectors see batch 0 .. batches - 1; a rank calls it for its share of them, for
/// some twice. Throws UnsupportedError and ArgumentError as the form above, for batches < 0 and no
/// function, and what `feed` throws.
void calibrate(const Statistics& collectors, std::int64_t batches,
               const std::function<void(std::int64_t batch)>& feed, const Communicator& comm,
               const CalibrateCollectorsOptions& options = {});

}  // namespace quanta::distributed
