#include <algorithm>
#include <array>

#include "json_change.h"
#include "parts.h"
#include "quanta/nn/models/bert.h"
#include "safetensors_change.h"
#include "support.h"
#include "support/files.h"

// A directory in one input (parts.h): any is read or refused; a model that was read encodes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  static const fuzz::Folder folder;
  const auto parts = fuzz::split_parts(fuzz::as_text(data, size));
  for (std::size_t i = 0; i < parts.size(); ++i) folder.write(fuzz::kBertFiles[i], parts[i]);
  fuzz::read_or_refuse(
      [&] { nn::models::SentenceEncoder::from_directory(folder.path()).encode("a b"); });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace quanta;
  fuzz::Random random(seed);
  auto parts = fuzz::split_parts(fuzz::as_text(data, size));
  const std::size_t changed = fuzz::below(random, parts.size());
  std::string& part = parts[changed];
  const std::size_t room = part.size() + (max_size - std::min(size, max_size)) / 2;
  const std::string_view name = fuzz::kBertFiles[changed];
  if (name.ends_with(".json")) {
    part = fuzz::changed_json_text(part, room, random);
  } else if (name.ends_with(".safetensors")) {
    part = fuzz::changed_safetensors(part, room, random);
  } else {
    part = fuzz::changed_bytes(part, room);
  }
  return fuzz::put_back(fuzz::joined_parts(parts), data, size, max_size);
}
