#include "quanta/nn/models/tokenizer.h"

#include "support.h"

// A vocabulary and, behind a NUL, a text: any bytes of the first are read or refused, any of the
// second become tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  using nn::models::WordPieceTokenizer;
  const std::string_view input = fuzz::as_text(data, size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string text(input.substr(std::min(end + 1, input.size())));
  fuzz::read_or_refuse([&] {
    const auto tokenizer = WordPieceTokenizer::from_text(input.substr(0, end), "fuzz", {});
    const std::vector<std::string> texts{text, ""};
    const nn::models::TokenBatch batch = tokenizer(texts);
    fuzz::expect(batch.input_ids.sizes() == batch.attention_mask.sizes(), "a mask for each token");
    for (const std::int64_t id : batch.input_ids.to_int64_vector()) tokenizer.token(id);
  });
  return 0;
}
