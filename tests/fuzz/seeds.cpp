// Writes the files that fuzz targets begin with: small ones, each with what its format has.
//
//   <program> FOLDER GOLDEN-CASES

#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "networks.h"
#include "parts.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/qconfig_file.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/models/bert.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/observers/aimet/float_encoding.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/statistics_file.h"
#include "quanta/runtime/detail/zip_reader.h"
#include "quanta/runtime/safetensors.h"
#include "support/files.h"
#include "training.h"
#ifdef QUANTA_FUZZ_DATA
#include "quanta/nn/data/npy.h"
#endif
#ifdef QUANTA_FUZZ_YAML
#include "quanta/observers/yaml/descriptor_yaml.h"
#endif

namespace quanta::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path place(const fs::path& folder, const char* target, const std::string& name) {
  fs::create_directories(folder / target);
  return folder / target / name;
}

void write(const fs::path& path, std::string_view bytes) {
  std::FILE* out = std::fopen(path.c_str(), "wb");
  if (out == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size()) {
    broken("writing " + path.string());
  }
  std::fclose(out);
}

std::string read(const fs::path& path) {
  std::FILE* in = std::fopen(path.c_str(), "rb");
  if (in == nullptr) broken("opening " + path.string());
  std::string bytes(fs::file_size(path), '\0');
  if (std::fread(bytes.data(), 1, bytes.size(), in) != bytes.size()) broken("reading");
  std::fclose(in);
  return bytes;
}

// Models ----------------------------------------------------------------------------------------

void fuse(Network& net) { fuse_modules(net, {{"conv", "bn", "relu"}}); }

void write_models(const fs::path& folder) {
  const Tensor x = images();
  const QConfigMapping qconfigs(default_qconfig());
  const auto converted = [&](Network& net) {
    fuse(net);
    prepare_(net, qconfigs);
    net(x);
    convert_(net, {.uncalibrated = Uncalibrated::Allow});
  };
  const std::map<std::string, std::function<void(Network&)>> forms{
      {"float", [](Network&) {}},
      {"fused", fuse},
      {"prepared",
       [&](Network& net) {
         fuse(net);
         prepare_(net, qconfigs);
         net(x);
       }},
      {"converted", converted},
      {"dynamic", [](Network& net) { quantize_dynamic_(net); }},
      {"float16", [](Network& net) { quantize_dynamic_(net, {}, DType::Float16); }},
      {"weight_only", [](Network& net) { quantize_weight_only_(net, {.bits = 8}); }},
  };
  for (const auto& [name, quantize] : forms) {
    const auto net = network();
    quantize(*net);
    save_model(*net, place(folder, "model", name + ".safetensors"));
  }
  const auto net = network();
  converted(*net);
  (*net)(x);
  save_model(*net, place(folder, "model", "packed.safetensors"), {.packed = SavePacked::Yes});
}

void write_training(const fs::path& folder) {
  Training training;
  const auto save = [&](const char* name) {
    optim::save_checkpoint(training.parts(), place(folder, "checkpoint", name),
                           {{"epoch", 3}, {"loader.batch", 7}});
  };
  save("begin.safetensors");
  for (int i = 0; i < 3; ++i) training.step();
  save("trained.safetensors");
}

void write_statistics(const fs::path& folder) {
  const Tensor x = images();
  MinMaxObserver min_max;
  min_max.update(x);
  HistogramObserver histogram(HistogramObserverOptions{.bins = 32});
  histogram.update(x);
  PerChannelMinMaxObserver channels(PerChannelMinMaxObserverOptions{.ch_axis = 1});
  channels.update(x);
  save_statistics({{"a", min_max.clone()}, {"b", histogram.clone()}, {"c", channels.clone()}},
                  place(folder, "statistics", "observers.safetensors"));
}

// BERT ------------------------------------------------------------------------------------------

constexpr std::string_view kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##b\nc\n";

void write_bert(const fs::path& folder) {
  manual_seed(3);
  nn::models::BertModel model({.vocab_size = 8,
                               .hidden_size = 4,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .intermediate_size = 6,
                               .max_position_embeddings = 5});
  const fs::path weights = place(folder, "bert", "weights");
  write_safetensors(model.state_dict(), weights);
  Parts parts;
  parts[0] = R"({"model_type":"bert","vocab_size":8,"hidden_size":4,"num_hidden_layers":1,)"
             R"("num_attention_heads":2,"intermediate_size":6,"max_position_embeddings":5,)"
             R"("type_vocab_size":2,"layer_norm_eps":1e-12,"hidden_act":"gelu"})";
  parts[1] = kVocabulary;
  parts[3] = read(weights);
  fs::remove(weights);
  write(place(folder, "bert", "plain.bert"), joined_parts(parts));
  parts[2] = R"({"do_lower_case":false,"tokenize_chinese_chars":true,"strip_accents":false})";
  parts[4] = R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":false})";
  write(place(folder, "bert", "whole.bert"), joined_parts(parts));

  const auto with_text = [&](const char* name, std::string_view text) {
    write(place(folder, "tokenizer", name),
          std::string(kVocabulary) + std::string(1, '\0') + std::string(text));
  };
  with_text("plain.txt", "a abb, C cd");
  with_text("accents.txt", "\xc3\x84 \xe4\xb8\xad a\xcc\x80 \xff \t\xc2\xa0!");
}

// Descriptions of quantizers --------------------------------------------------------------------

void write_encodings(const fs::path& folder) {
  using namespace aimet;
  const auto affine = [](const Dims& sizes, const Grid& grid, AffineEncodingOptions options) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    std::vector<float> scales(static_cast<std::size_t>(count), 0.125F);
    return std::make_shared<AffineEncoding>(Tensor::from_values(scales, sizes),
                                            Tensor::zeros(sizes), grid, options);
  };
  const NamedEncoding activation{"relu", affine({}, {0, 255}, {})};
  const NamedEncoding channels{"fc.weight", affine({6, 1}, {-128, 127}, {.symmetric = true}),
                               Dims{6, 4}};
  const NamedEncoding blocks{
      "fc.weight", affine({6, 2}, {-8, 7}, {.symmetric = true, .block_size = {1, 2}}), Dims{6, 4}};
  const NamedEncoding half{"gelu", std::make_shared<FloatEncoding>(
                                       Tensor::scalar(1.0), FloatSpec::from_name("float16"))};
  int number = 0;
  for (const EncodingVersion version : {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0,
                                        EncodingVersion::V2_0_0, EncodingVersion::V2_1_0}) {
    for (const NamedEncoding& weight : {channels, blocks}) {
      const std::string name = std::to_string(number++) + ".json";
      const auto put = [&](const std::vector<NamedEncoding>& activations) {
        write(place(folder, "encodings", name),
              to_json(EncodingFile{version, activations, {weight}, {}}));
      };
      if (!read_or_refuse([&] { put({activation, half}); })) {
        read_or_refuse([&] { put({activation}); });
      }
    }
  }
  write(place(folder, "encodings", "one.json"),
        to_json(*channels.encoding, EncodingVersion::V2_0_0, Dims{6, 4}));
}

void write_qconfigs(const fs::path& folder) {
  QConfigMapping mapping(default_qconfig());
  mapping.set_module_name("fc", default_dynamic_qconfig());
  mapping.set_module_name_regex("conv.*", default_qat_qconfig());
  write(place(folder, "qconfig", "mapping.json"), to_json(mapping));
}

void write_yaml([[maybe_unused]] const fs::path& folder) {
#ifdef QUANTA_FUZZ_YAML
  using namespace modelopt;
  ScaledQuantDescriptor descriptor;
  write(place(folder, "yaml", "default.yaml"), to_yaml(descriptor));
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  descriptor.num_bits = NumBits::floating(4, 3);
  descriptor.amax = Tensor::from_values({1.5F, 0.1F}, {2, 1});
  descriptor.block_sizes = BlockConfig{
      {{-1, 16}}, QuantType::Dynamic, NumBits::floating(4, 3), BlockSizes{{-1, 64}}, true};
  write(place(folder, "yaml", "blocks.yaml"), to_yaml(descriptor));
  const ConfigValue fields = ConfigValue::dict(
      {{"num_bits", ConfigValue::tuple({2, 1})},
       {"block_sizes",
        ConfigValue::dict(
            {{-1, 16}, {"type", "dynamic"}, {"scale_bits", ConfigValue::tuple({4, 3})}})},
       {"bias", ConfigValue::dict({{-1, ConfigValue()}, {"method", "mean"}})},
       {"rotate", ConfigValue::dict({{"enable", true}, {"block_size", 8}})},
       {"constant_amax", 1e-5}});
  write(place(folder, "yaml", "config.yaml"), to_yaml(QuantizerConfig::from_dict(fields)));
  write(place(folder, "yaml", "aliases.yaml"), "a: &x [1, 2.5, .inf]\nb: *x\n? c\n: {d: ~}\n");
#endif
}

// Data ------------------------------------------------------------------------------------------

void put_big_endian(std::string& text, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(value >> shift & 0xFFU);
}

std::string packed(std::string_view bytes, int window) {
  z_stream stream{};
  std::string result(bytes.size() + 100, '\0');
  if (deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) broken("zlib");
  std::string input(bytes);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) broken("zlib");
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

void write_idx(const fs::path& folder) {
  const auto idx = [](char type, const std::vector<std::uint32_t>& sizes, std::size_t bytes) {
    std::string file{'\0', '\0', type, static_cast<char>(sizes.size())};
    for (const std::uint32_t size : sizes) put_big_endian(file, size);
    for (std::size_t i = 0; i < bytes; ++i) file += static_cast<char>(i * 37);
    return file;
  };
  constexpr int kGzip = 15 + 16;
  write(place(folder, "idx", "images.idx"), idx(0x08, {2, 3, 4}, 24));
  write(place(folder, "idx", "images.gz.idx"), packed(idx(0x08, {2, 3, 4}, 24), kGzip));
  write(place(folder, "idx", "labels.idx"), idx(0x0C, {5}, 20));
  write(place(folder, "idx", "doubles.gz.idx"), packed(idx(0x0E, {1, 2}, 16), kGzip));
}

void write_arrays([[maybe_unused]] const fs::path& folder) {
#ifdef QUANTA_FUZZ_DATA
  const Tensor x = Tensor::arange(6).view({2, 3});
  data::write_npy(x, place(folder, "npy", "float.npy"));
  data::write_npy(x.to(DType::Bool), place(folder, "npy", "bool.npy"));
  data::write_npy(Tensor::scalar(7.0, DType::Int64), place(folder, "npy", "scalar.npy"));
  data::write_npz({{"x", x}, {"none", Tensor::empty({3, 0}, DType::Float16)}},
                  place(folder, "npy", "two.npy"));
#endif
}

void put_chunk(std::string& file, const std::string& type, const std::string& data) {
  put_big_endian(file, static_cast<std::uint32_t>(data.size()));
  const std::string body = type + data;
  file += body;
  put_big_endian(file,
                 static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                                                  static_cast<uInt>(body.size()))));
}

void write_png(const fs::path& path, char colour_type, char bits, std::size_t row_bytes,
               bool interlaced = false) {
  std::string header;
  put_big_endian(header, 4);
  put_big_endian(header, 2);
  header += std::string{bits, colour_type, '\0', '\0', static_cast<char>(interlaced ? 1 : 0)};
  std::string rows;
  for (std::size_t row = 0; row < 2; ++row) {
    rows += static_cast<char>(row);  // its filter
    for (std::size_t i = 0; i < row_bytes; ++i) rows += static_cast<char>(i * 50 + row);
  }
  std::string file = "\x89PNG\r\n\x1a\n";
  put_chunk(file, "IHDR", header);
  if (colour_type == 3) put_chunk(file, "PLTE", std::string("\x01\x02\x03\x40\x50\x60", 6));
  if (colour_type == 3) put_chunk(file, "tRNS", "\x7f");
  put_chunk(file, "tEXt", std::string("Title\0x", 7));
  put_chunk(file, "IDAT", packed(rows, 15));
  put_chunk(file, "IEND", "");
  write(path, file);
}

// 8 rows of 16 pixels: the left half (200, 100, 50), the right half (40, 40, 200).
constexpr std::string_view kJpegHex =
    "ffd8ffdb00430002010101010102010101020202020204030202020205040403040605060606050606060709"
    "08060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affdb004301020202020202050303050a07"
    "06070a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
    "0a0a0a0a0a0a0a0affc00011080008001003011100021101031101ffc4001500010100000000000000000000"
    "000000000509ffc40014100100000000000000000000000000000000ffc40015010101000000000000000000"
    "00000000000809ffc40014110100000000000000000000000000000000ffda000c03010002110311003f003c"
    "573613dd7a13cdffd9";

void write_images(const fs::path& folder) {
  write_png(place(folder, "png", "grey.png"), 0, 8, 4);
  write_png(place(folder, "png", "bits.png"), 0, 1, 1);
  write_png(place(folder, "png", "deep.png"), 2, 16, 24);
  write_png(place(folder, "png", "rgb.png"), 2, 8, 12);
  write_png(place(folder, "png", "palette.png"), 3, 8, 4);
  write_png(place(folder, "png", "alpha.png"), 6, 8, 16);
  write_png(place(folder, "png", "interlaced.png"), 2, 8, 12, true);
  std::string jpeg;
  for (std::size_t i = 0; i < kJpegHex.size(); i += 2) {
    jpeg += static_cast<char>(std::stoi(std::string(kJpegHex.substr(i, 2)), nullptr, 16));
  }
  write(place(folder, "jpeg", "two_halves.jpg"), jpeg);
  write(place(folder, "jpeg", "grey.jpg"), "P5\n# grey\n3 2\n255\nabcdef");
  write(place(folder, "jpeg", "colour.jpg"), "P6 1 2 200\nabcdef");
}

/// The pickles within PyTorch's files.
void write_pickles(const fs::path& folder, const fs::path& golden) {
  for (const auto& entry : fs::directory_iterator(golden / "torch")) {
    if (entry.path().extension() != ".pt") continue;
    const std::string bytes = read(entry.path());
    const auto data = test::as_bytes(bytes);
    if (!detail::is_zip(data)) continue;
    const detail::ZipReader zip(data, "seed");
    for (const auto& record : zip.records()) {
      if (!record.name.ends_with("/data.pkl")) continue;
      const auto pickle = zip.read(record);
      write(place(folder, "pickle", entry.path().stem().string() + ".pkl"),
            {reinterpret_cast<const char*>(pickle.data()), pickle.size()});
    }
  }
}

void write_seeds(const fs::path& folder, const fs::path& golden) {
  write_models(folder);
  write_training(folder);
  write_statistics(folder);
  write_bert(folder);
  write_encodings(folder);
  write_qconfigs(folder);
  write_yaml(folder);
  write_idx(folder);
  write_arrays(folder);
  write_images(folder);
  write_pickles(folder, golden);
}

}  // namespace
}  // namespace quanta::fuzz

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER GOLDEN-CASES\n", argv[0]);
    return 2;
  }
  quanta::fuzz::write_seeds(argv[1], argv[2]);
  return 0;
}
