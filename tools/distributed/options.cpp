// What the commands take: apart from what runs them, so that `quanta` completes it without MPI too.

#include "cli/observer_option.h"
#include "distributed/calibrate.h"
#include "distributed/evaluate.h"
#include "distributed/fashion_network.h"
#include "distributed/ranks.h"
#include "distributed/train.h"

namespace quanta::cli {

void add_ranks_options(CLI::App& command, RanksOptions& options) {
  command
      .add_option("--ranks", options.ranks,
                  "Ranks in all, some of them threads of one process; results depend on the ranks, "
                  "not on the processes (default: one for each process that mpirun started)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--threads", options.threads,
                  "Threads of each rank (default: its share of the machine's cores)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--time-limit", options.time_limit,
                  "Seconds that a rank waits for the others before it says for whom, and ends all")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
}

void add_calibrate_command(CLI::App& app, CalibrateCommand& options) {
  CLI::App* command = app.add_subcommand(
      "calibrate",
      "Watch a float network's activations, convert it to int8 and write it: the same file on any "
      "number of ranks");
  command->add_option("--save,-o", options.save, "Where to write the int8 network")->required();
  command->add_flag("--packed", options.packed,
                    "With the weights as this machine's kernels want them, which processes share");
  command->add_option("--model", options.model, "The network")
      ->check(CLI::IsMember(fashion_network_names()))
      ->capture_default_str();
  command->add_option("--weights", options.weights, "Float weights (default: Quanta's own)")
      ->check(CLI::ExistingFile);
  command->add_option("--data", options.data, "Folder with the Fashion-MNIST .gz files")
      ->check(CLI::ExistingDirectory);
  command->add_option("--observer", options.observer, "How activations are observed")
      ->check(CLI::IsMember(observer_names()))
      ->capture_default_str();
  command->add_flag("--per-tensor", options.per_tensor,
                    "One scale for each weight instead of one for each output channel");
  command->add_option("--images", options.images, "How many images of the training split")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Images at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_ranks_options(*command, options.ranks);
}

void add_evaluate_command(CLI::App& app, EvaluateCommand& options) {
  CLI::App* command = app.add_subcommand(
      "evaluate",
      "Top-1, top-5 and loss of a network on a data set, the same on any number of ranks");
  CLI::Option* model = command->add_option("--model", options.model, "The network")
                           ->check(CLI::IsMember(fashion_network_names()))
                           ->capture_default_str();
  CLI::Option* weights =
      command
          ->add_option("--weights", options.weights,
                       "Float weights, or a model that save_model wrote (default: Quanta's own)")
          ->check(CLI::ExistingFile);
  command->add_option("--onnx", options.onnx, "An ONNX file instead: one input, scores of classes")
      ->check(CLI::ExistingFile)
      ->excludes(model, weights);
  command->add_option("--data", options.data, "Folder with the Fashion-MNIST .gz files")
      ->check(CLI::ExistingDirectory);
  command->add_option("--split", options.split, "Which images of Fashion-MNIST")
      ->check(CLI::IsMember({"test", "train"}))
      ->capture_default_str();
  CLI::Option* pictures = command
                              ->add_option("--pictures", options.pictures,
                                           "A folder of pictures instead, one folder a class (RGB)")
                              ->check(CLI::ExistingDirectory);
  command->add_option("--size", options.size, "Height and width of the pictures")
      ->check(CLI::Range(1, 8192))
      ->needs(pictures)
      ->capture_default_str();
  command->add_option("--mean", options.mean, "Of the pictures' channels, 0..1")
      ->expected(3)
      ->delimiter(',')
      ->needs(pictures);
  command->add_option("--std", options.std, "Of the pictures' channels")
      ->expected(3)
      ->delimiter(',')
      ->needs(pictures);
  command->add_option("--images", options.images, "The first so many (default: all)")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options.batch, "Images at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--json", options.json, "Where to write the figures");
  add_ranks_options(*command, options.ranks);
}

void add_train_command(CLI::App& app, TrainCommand& options) {
  CLI::App* command = app.add_subcommand(
      "train", "Train a network on Fashion-MNIST with quantization in the loop, on several ranks");
  command->add_option("--model", options.model, "The network")
      ->check(CLI::IsMember(fashion_network_names()))
      ->capture_default_str();
  command
      ->add_option("--weights", options.weights,
                   "Float weights to begin with (default: Quanta's own)")
      ->check(CLI::ExistingFile);
  command->add_option("--data", options.data, "Folder with the Fashion-MNIST .gz files")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--float", options.in_float, "Train in float");
  command->add_option("--epochs", options.epochs, "How often all images are seen")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--steps", options.steps, "So many steps instead")
      ->check(CLI::Range(1, 1000000000));
  command->add_option("--images", options.images, "The first so many (default: all)")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options.batch, "Images at a time, of all ranks together")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--accumulate", options.accumulate,
                   "Batches that make one step (gradient accumulation)")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--optimizer", options.optimizer, "How parameters are changed")
      ->check(CLI::IsMember({"sgd", "adamw"}))
      ->capture_default_str();
  command->add_flag("--zero", options.zero,
                    "Each rank keeps a share of the optimizer's state (ZeRO-1)");
  command->add_option("--lr", options.lr, "The largest learning rate (one cycle)")
      ->check(CLI::Range(1e-12, 1e3))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Of the images' order")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  CLI::Option* checkpoint = command->add_option(
      "--checkpoint", options.checkpoint,
      "Where the training is kept; if it is there, it goes on, on any number of "
      "ranks");
  command->add_option("--save-every", options.save_every, "Steps between two checkpoints")
      ->check(CLI::Range(1, 1000000000))
      ->needs(checkpoint)
      ->capture_default_str();
  command->add_option("--save,-o", options.save, "Where to write the int8 network in the end");
  command->add_option("--json", options.json, "Where to write losses, times and bytes sent");
  add_ranks_options(*command, options.ranks);
}

}  // namespace quanta::cli
