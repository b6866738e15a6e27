#include <algorithm>

#include "safetensors_change.h"
#include "support.h"
#include "training.h"

namespace {

bool is_same(const quanta::StateDict& lhs, const quanta::StateDict& rhs) {
  return std::equal(
      lhs.begin(), lhs.end(), rhs.begin(), rhs.end(),
      [](const auto& a, const auto& b) { return a.first == b.first && a.second.equal(b.second); });
}

}  // namespace

// Any file is loaded or refused; a refused one leaves the training as it was, and a loaded one goes
// on.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  fuzz::Training training;
  const StateDict model = training.net->state_dict();
  const StateDict optimizer = training.adam->state_dict();
  const std::string generator = training.generator.state();
  const fuzz::MemoryFile file(fuzz::as_text(data, size));
  const bool loaded =
      fuzz::read_or_refuse([&] { optim::load_checkpoint(file.path(), training.parts()); });
  if (!loaded) {
    fuzz::expect(is_same(training.net->state_dict(), model) &&
                     is_same(training.adam->state_dict(), optimizer) &&
                     training.schedule->last_step() == 0 && training.generator.state() == generator,
                 "a refused file leaves the training as it was");
    return 0;
  }
  fuzz::read_or_refuse([&] { training.step(); });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string file =
      quanta::fuzz::changed_safetensors(quanta::fuzz::as_text(data, size), max_size, random);
  return quanta::fuzz::put_back(file, data, size, max_size);
}
