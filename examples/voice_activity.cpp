// Where in a recording does somebody speak? silero-vad, a network of convolutions, an LSTM and
// branches (If) that depend on the sampling rate, as an ONNX file. Its state goes from one call to
// the next by the names of inputs and outputs.
//
// `tools/run example voice_activity` fetches the network first (tools/setup --models).
//
//   voice_activity [RECORDING.wav [silero_vad.onnx]]

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "quanta/fusion/graph/frozen.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/wav.h"

namespace {

using quanta::Tensor;
using quanta::graph::NamedTensors;

int run(const std::string& wav_path, const std::string& model_path) {
  const quanta::examples::Wav wav = quanta::examples::read_wav(wav_path);
  if (wav.rate != 16000 && wav.rate != 8000) {
    throw quanta::ArgumentError(wav_path + ": expected 16000 or 8000 samples a second, got " +
                                std::to_string(wav.rate));
  }
  // The rate is known: with it as a constant, the branches for the other one go away.
  const auto rate = Tensor::scalar(static_cast<double>(wav.rate), quanta::DType::Int64);
  const quanta::graph::Model model =
      quanta::graph::load_onnx(model_path, {.constants = {{"sr", rate}}});
  const quanta::graph::FrozenGraph network(model);

  // Chunks of 32 ms, each with the 4 ms before it.
  const std::int64_t chunk = wav.rate * 32 / 1000, context = wav.rate * 4 / 1000;
  const Tensor silence = Tensor::zeros({context});
  const std::vector<Tensor> sound{silence, wav.samples};
  const Tensor samples = quanta::cat(sound, 0).unsqueeze(0);
  Tensor state = Tensor::zeros({2, 1, 128});
  std::vector<float> voice;
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t at = 0; at + context + chunk <= samples.size(1); at += chunk) {
    const NamedTensors results = network.run(
        {{"input", samples.slice(1, at, at + context + chunk).contiguous()}, {"state", state}});
    voice.push_back(static_cast<float>(results.at("output").item()));
    state = results.at("stateN");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  // Speech begins above one half and ends when it stays below 0.35 for a quarter of a second.
  constexpr double kSeconds = 0.032;
  constexpr std::size_t kPause = 8;
  int segments = 0;
  for (std::size_t i = 0; i < voice.size(); ++i) {
    if (voice[i] < 0.5F) continue;
    std::size_t end = i;
    for (std::size_t j = i; j < voice.size() && j <= end + kPause; ++j) {
      if (voice[j] >= 0.35F) end = j;
    }
    std::printf("speech %6.2f s .. %6.2f s\n", static_cast<double>(i) * kSeconds,
                static_cast<double>(end + 1) * kSeconds);
    ++segments;
    i = end;
  }
  for (const float p : voice) std::putchar(" .:-=+*#%@"[static_cast<int>(p * 9.99F)]);
  const double length = static_cast<double>(wav.samples.numel()) / static_cast<double>(wav.rate);
  std::printf(
      "\n%.2f s of sound, %d segments of speech; %.3f ms a chunk, %.0f times as fast as life\n",
      length, segments, 1e3 * took.count() / static_cast<double>(voice.size()),
      length / took.count());
  return segments > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "voice_activity [RECORDING.wav [silero_vad.onnx]]\n"
      "Where somebody speaks in a recording.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? argv[1] : QUANTA_DEMO_DATA_DIR "/speech.wav",
               argc > 2 ? argv[2]
                        : QUANTA_MODELS_DIR "/silero-vad==6.2.3/silero_vad/data/silero_vad.onnx");
  });
}
