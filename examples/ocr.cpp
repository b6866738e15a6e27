// Three networks of somebody else, as ONNX files: PP-OCR finds the lines of text in a picture, tells
// whether a line stands on its head, and reads it. In float first; then two of them are quantized
// with pictures of text, and read it again in int8.
//
// `tools/run example ocr` fetches the networks first (tools/setup --models).
//   ocr [PICTURE [FOLDER-WITH-THE-ONNX-FILES]]

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "console/measure.h"
#include "console/progress.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/nn/data/image.h"
#include "quanta/nn/data/transforms.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using namespace quanta;
using graph::FrozenGraph, graph::Model;
using Network = std::function<Tensor(const Tensor& x)>;

// A picture [3, H, W] of these sizes as the networks take it: [1, 3, height, width] in -1 .. 1.
Tensor prepared(const Tensor& picture, std::int64_t height, std::int64_t width) {
  Generator unused;
  const std::vector<float> half(3, 0.5F);
  const Tensor resized = data::resize(height, width)(picture.contiguous(), unused);
  return data::normalize(half, half)(resized, unused).unsqueeze(0);
}

// For each pixel the detector says how probably it is in the middle of a line of text. Pixels that
// hang together are a line; the box around them grows to hold the letters' full height. Gives the
// lines, upright, as the reader takes them.
std::vector<Tensor> cut_lines(const Tensor& picture, const Network& detect, const Network& turned) {
  const std::int64_t height = picture.size(1), width = picture.size(2);
  std::vector<float> inside = detect(prepared(picture, height, width)).to_float_vector();
  std::vector<Tensor> lines;
  for (std::int64_t start = 0; start < height * width; ++start) {
    std::int64_t top = height, bottom = 0, left = width, right = 0;
    for (std::vector<std::int64_t> open{start}; !open.empty();) {
      const std::int64_t at = open.back(), y = at / width, x = at % width;
      open.pop_back();
      if (inside[static_cast<std::size_t>(at)] < 0.3F) continue;
      inside[static_cast<std::size_t>(at)] = 0.0F;  // seen
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
      left = std::min(left, x), right = std::max(right, x + 1);
      if (y > 0) open.push_back(at - width);
      if (y + 1 < height) open.push_back(at + width);
      if (x > 0) open.push_back(at - 1);
      if (x + 1 < width) open.push_back(at + 1);
    }
    const std::int64_t h = bottom - top, w = right - left;
    if (h < 4 || w < 4) continue;
    const std::int64_t grow = h * w * 8 / (10 * (h + w));  // 1.6 times area through circumference
    Tensor line = picture.slice(1, std::max<std::int64_t>(top - grow, 0), bottom + grow)
                      .slice(2, std::max<std::int64_t>(left - grow, 0), right + grow);
    if (turned(prepared(line, 48, 192)).to_float_vector()[1] > 0.9F) line = flip(line, {1, 2});
    lines.push_back(prepared(line, 48, line.size(2) * 48 / line.size(1)));
  }
  return lines;
}

// The most probable character of each column; the same one again is one, and the first is none.
std::string read_line(const Tensor& line, const Network& read,
                      const std::vector<std::string>& characters) {
  std::string text;
  std::int64_t previous = 0;
  for (const std::int64_t best : argmax(read(line), 2).flatten().to_int64_vector()) {
    if (best != previous) text += characters[static_cast<std::size_t>(best)];
    previous = best;
  }
  return text;
}

// [3, H, W], of sizes that the detector can halve five times.
Tensor read_picture(const std::string& path) {
  const Tensor picture = data::read_image(path);
  return picture.slice(1, 0, picture.size(1) / 32 * 32).slice(2, 0, picture.size(2) / 32 * 32);
}

int run(const std::string& path, const std::string& folder) {
  const Model detect = graph::load_onnx(folder + "/ch_PP-OCRv4_det_infer.onnx");
  const Model turned = graph::load_onnx(folder + "/ch_ppocr_mobile_v2.0_cls_infer.onnx");
  const Model read = graph::load_onnx(folder + "/ch_PP-OCRv4_rec_infer.onnx");
  std::istringstream names(read.file().metadata.at("character"));
  std::vector<std::string> characters{""};
  for (std::string name; std::getline(names, name);) characters.push_back(name);
  characters.emplace_back(" ");
  const Tensor picture = read_picture(path);

  // Other pictures of text: two halves of one for the detector, its lines for the reader.
  const Tensor text = read_picture(QUANTA_DEMO_DATA_DIR "/ocr_calibration.png");
  const std::vector<Tensor> lines = cut_lines(text, detect, turned);
  QConfig per_tensor = get_default_qconfig();  // transposed convolutions have no other weights
  per_tensor.weight = default_weight_observer();
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_object_type<nn::ConvTranspose2d>(per_tensor);
  const Model detect8 = quantize_jit(detect, qconfigs, [&](const Model& observed) {
    const std::int64_t half = text.size(1) / 2;
    for (std::int64_t top : {std::int64_t{0}, half}) {
      observed(prepared(text.slice(1, top, top + half), half / 32 * 32, text.size(2)));
    }
  });
  const Model read8 = quantize_jit(read, qconfigs, [&](const Model& observed) {
    console::ProgressBar bar("calibrating the reader", std::ssize(lines));
    for (const Tensor& line : lines) observed(line), bar.advance(1);
  });

  // As plans: the first run with new sizes is recorded, later ones follow it.
  const FrozenGraph fast_turned(turned), fast_detect(detect), fast_read(read),
      fast_detect8(detect8), fast_read8(read8);
  std::string text32, text8;
  const auto go = [&](const FrozenGraph& find, const FrozenGraph& reader, std::string& found) {
    found.clear();
    for (const Tensor& line : cut_lines(picture, find, fast_turned)) {
      found += "    " + read_line(line, reader, characters) + "\n";
    }
  };
  const std::vector<double> ms = console::median_ms(
      {[&] { go(fast_detect, fast_read, text32); }, [&] { go(fast_detect8, fast_read8, text8); }},
      10);
  const auto show = [](const char* name, const std::string& found, double time, std::size_t bytes) {
    std::printf("\n%s: %.1f ms a picture, weights of %zu kB\n%s", name, time, bytes / 1000,
                found.c_str());
  };
  show("float32", text32, ms[0], console::weight_bytes(detect) + console::weight_bytes(read));
  show("int8", text8, ms[1], console::weight_bytes(detect8) + console::weight_bytes(read8));
  return text32.empty() || text8.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "ocr [PICTURE [FOLDER-WITH-THE-ONNX-FILES]]\n"
      "PP-OCR reads a picture in float and in int8.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? argv[1] : QUANTA_DEMO_DATA_DIR "/ocr_text.png",
               argc > 2 ? argv[2] : QUANTA_OCR_DIR);
  });
}
