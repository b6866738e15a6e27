#pragma once

#include <string>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/module.h"
#include "quanta/observers/collector.h"

namespace quanta::distributed {

/// Keeps the observers and fake quantizers of a model that is trained on several ranks the same on all
/// of them: a MinMaxObserver or one of its relatives (alone, or in a FakeQuantize,
/// FusedMovingAvgObsFakeQuantize or LearnableFakeQuantize) takes the range of the batch over all ranks
/// before it uses it, so that all quantize with one scale and moving averages are those of whole batches.
/// A part of a batch may be empty. Observers of weights see the same on all ranks, and need no message.
///
/// From then on ranks call the model together, in train and in eval mode, as long as observers are on
/// (disable_observer). Copies of the model, as convert makes them, are on their own. What a model has of
/// other kinds is left alone where it does not observe (given or trained scales, placeholders); one that
/// does, such as a HistogramObserver, throws UnsupportedError with its place in the model, as its
/// statistics would go different ways, and the model is as it was; one that is switched on later is not
/// looked at again. A LearnableFakeQuantize with use_grad_scaling counts the elements of its rank's part.
/// All ranks call it together; one thread at a time.
void sync_observers(nn::Module& model, const Communicator& comm);
/// Each rank's observers watch their own data again.
void unsync_observers(nn::Module& model);

/// Whether what passes the collector makes it wait for all ranks: an observer that is synchronised and
/// switched on.
bool waits_for_all_ranks(const Collector& collector);
/// The places of those in a model.
std::vector<std::string> waiting_observers(const nn::Module& model);

}  // namespace quanta::distributed
