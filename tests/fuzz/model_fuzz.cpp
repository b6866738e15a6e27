#include "networks.h"
#include "quanta/fusion/model_file.h"
#include "quanta/observers/qconfig.h"
#include "safetensors_change.h"
#include "support.h"

// Any file is loaded or refused; a refused one leaves the network as it was, and a loaded one gives
// results and a state.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  static const std::string tree = to_string(*fuzz::network());
  static const Tensor x = fuzz::images();
  const auto net = fuzz::network();
  const fuzz::MemoryFile file(fuzz::as_text(data, size));
  const bool loaded = fuzz::read_or_refuse(
      [&] { load_model(*net, file.path(), QConfigMapping(default_qconfig())); });
  if (!loaded) {
    fuzz::expect(to_string(*net) == tree, "a refused file leaves the network as it was");
    return 0;
  }
  net->state_dict();
  fuzz::read_or_refuse([&] { (*net)(x); });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string file =
      quanta::fuzz::changed_safetensors(quanta::fuzz::as_text(data, size), max_size, random);
  return quanta::fuzz::put_back(file, data, size, max_size);
}
