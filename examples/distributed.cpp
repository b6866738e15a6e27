// Calibration, training with quantization in the loop and evaluation on several processes, with the
// numbers of one: run it alone, or with mpirun -np 4. Needs the package dataset-fashion-mnist, and MPI
// when Quanta is built (tools/setup --mpi).
//
//   distributed [--images N] [--steps N] [--data FOLDER]

#include <cstdio>
#include <memory>
#include <string>

#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

namespace data = quanta::data;
namespace distributed = quanta::distributed;
namespace optim = quanta::optim;
using data::FashionMnist;
using distributed::Communicator;
using quanta::examples::number_option;
using quanta::examples::option;
using quanta::nn::models::FashionMobileNet;

struct Options {
  std::string folder;
  std::int64_t images = 1024;  // to calibrate and train with
  std::int64_t steps = 40;
};

FashionMobileNet load() {
  FashionMobileNet net;
  load_state_dict(net,
                  quanta::read_safetensors(QUANTA_DEMO_DATA_DIR "/fashion_mobilenet.safetensors"));
  net.eval();
  return net;
}

// Every rank runs a share of the batches; afterwards all have the same observers.
FashionMobileNet calibrate(const std::shared_ptr<const data::Dataset>& images,
                           const Communicator& comm) {
  FashionMobileNet net = load();
  quanta::fuse_modules(net, fusion_groups(net));
  const auto prepared = quanta::prepare(net, quanta::get_default_qconfig());
  distributed::calibrate(prepared, images, comm,
                         {.batch_size = 64, .transform = FashionMnist::normalization()});
  return quanta::convert(prepared);
}

// Every rank sees its part of each batch; gradients, batch norms and observers are those of all of it.
FashionMobileNet train(const std::shared_ptr<const data::Dataset>& images, std::int64_t steps,
                       const Communicator& comm) {
  FashionMobileNet net = load();
  net.train();
  quanta::fuse_modules_qat(net, fusion_groups(net));
  FashionMobileNet prepared = quanta::prepare_qat(net, quanta::get_default_qat_qconfig());
  prepared.requires_grad_();
  distributed::convert_sync_batch_norm(prepared, comm);
  distributed::DataParallel parallel(prepared, comm);
  optim::SGD sgd(prepared.parameters(), {.lr = 1e-3, .momentum = 0.9});
  distributed::ZeroRedundancyOptimizer optimizer(sgd, comm);  // momentum is divided among the ranks

  data::DataLoader loader(images, {.batch_size = 64,
                                   .shuffle = true,
                                   .transform = FashionMnist::normalization(),
                                   .seed = 1,
                                   .shard = {.index = comm.rank(), .count = comm.size()}});
  double loss = 0.0;
  for (std::int64_t done = 0; done < steps;) {
    for (const data::Batch& part : loader) {
      optimizer.zero_grad();
      loss = parallel.backward(quanta::cross_entropy(prepared(part.input), part.target),
                               part.target.size(0));
      optimizer.step();
      if (++done == steps) break;
    }
  }
  if (comm.is_first()) std::printf("loss after %d steps: %.4f\n", static_cast<int>(steps), loss);
  distributed::unsync_observers(prepared);
  distributed::revert_sync_batch_norm(prepared);
  prepared.requires_grad_(false);
  prepared.eval();
  return quanta::convert(prepared);
}

int work(const Options& options, const Communicator& comm) {
  const FashionMnist training(options.folder, FashionMnist::Split::Train);
  const FashionMnist test(options.folder, FashionMnist::Split::Test);
  const auto images = std::make_shared<data::Subset>(training.dataset(), 0, options.images);
  const auto percent = [&](const quanta::nn::Module& net) {
    return 100.0 * distributed::evaluate(net, test.dataset(), distributed::accuracy(), comm,
                                         {.transform = FashionMnist::normalization()})
                       .value();
  };
  const double in_float = percent(load());
  const double calibrated = percent(calibrate(images, comm));
  const double trained = percent(train(images, options.steps, comm));
  if (comm.is_first()) {
    std::printf(
        "%d ranks in %d processes, top-1 in %%: float %.2f, calibrated %.2f, trained %.2f\n",
        comm.size(), comm.processes(), in_float, calibrated, trained);
  }
  // Every rank has the same numbers.
  return calibrated > in_float - 2.0 && trained > in_float - 2.0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "distributed [--images N] [--steps N] [--data FOLDER]\n"
      "Calibrates, trains and evaluates fashion_mobilenet on the ranks that mpirun started.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    Options options;
    options.folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
    options.images = number_option(argc, argv, "--images", options.images);
    options.steps = number_option(argc, argv, "--steps", options.steps);
    return distributed::run([&](const Communicator& comm) { return work(options, comm); });
  });
}
