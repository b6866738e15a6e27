#include "quanta/observers/yaml/descriptor_yaml.h"
#include "support.h"

// Any text gives a dictionary, a description of a quantizer, or is refused; what was read is written
// and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::read_or_refuse([&] { modelopt::to_yaml(modelopt::parse_yaml(text)); });
  fuzz::read_or_refuse([&] {
    const modelopt::ScaledQuantDescriptor descriptor = modelopt::descriptor_from_yaml(text);
    const std::string written = to_yaml(descriptor);
    fuzz::expect(to_yaml(modelopt::descriptor_from_yaml(written)) == written,
                 "what was written is read as the same");
  });
  fuzz::read_or_refuse([&] { to_yaml(modelopt::config_from_yaml(text)); });
  return 0;
}
