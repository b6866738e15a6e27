#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/observers/aimet/functional.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::aimet {
namespace {

using test::says;
using test::uniform_tensor;

DequantizedTensor dequantized(const Tensor& x, const Dims& shape = {}, bool symmetric = false) {
  QuantizeDequantize quantizer({.shape = shape, .bitwidth = 8, .symmetric = symmetric});
  quantizer.compute_encodings([&] { quantizer(x); });
  return quantizer(x);
}

// Tensors with encodings -------------------------------------------------------------------------

// AIMET's names of the bases.
static_assert(std::is_base_of_v<QuantizedTensorBase, QuantizedTensor>);
static_assert(std::is_base_of_v<QuantizedTensorBase, DequantizedTensor>);
static_assert(std::is_base_of_v<Quantizer, QuantizeDequantize>);

TEST_CASE("quantize and dequantize of an encoded tensor lose nothing and are idempotent") {
  const EncodedTensor y = dequantized(uniform_tensor({5, 7}, 1), {5, 1});
  const EncodedTensor q = y.quantize();
  CHECK(q.type_name() == "QuantizedTensor");
  CHECK(q.quantize().tensor().is_same(q.tensor()));
  CHECK(y.dequantize().tensor().is_same(y.tensor()));
  CHECK(q.dequantize().tensor().equal(y.tensor()));
  CHECK(q.dequantize().quantize().tensor().equal(q.tensor()));
  CHECK(y.quantized_repr().dtype() == DType::UInt8);
  CHECK(y.quantized_repr().to(DType::Float32).equal(q.tensor()));
}

TEST_CASE("per-tensor encodings travel through views and others do not") {
  const EncodedTensor one = dequantized(uniform_tensor({4, 6}, 1));
  const EncodedTensor rows = dequantized(uniform_tensor({4, 6}, 1), {4, 1});
  const std::vector<std::function<EncodedTensor(const EncodedTensor&)>> views{
      [](const EncodedTensor& x) { return x.reshape({24}); },
      [](const EncodedTensor& x) {
        return x.view({2, 12});
      },
      [](const EncodedTensor& x) { return x.flatten(); },
      [](const EncodedTensor& x) { return x.transpose(0, 1); },
      [](const EncodedTensor& x) {
        return x.permute({1, 0});
      },
      [](const EncodedTensor& x) { return x.select(0, 1); },
      [](const EncodedTensor& x) { return x.slice(1, 0, 3); },
      [](const EncodedTensor& x) { return x.unsqueeze(0); },
  };
  for (const auto& view : views) {
    CHECK(view(one).has_encoding());
    CHECK(view(one).quantize().dequantize().tensor().equal(view(one).tensor().contiguous()));
    CHECK_FALSE(view(rows).has_encoding());
    CHECK(view(rows).kind() == EncodedTensor::Kind::Dequantized);
    says([&] { view(rows).quantize(); },
         "quantize: encoding: expected one, got a DequantizedTensor");
    says([&] { view(rows).dequantize(); }, "dequantize: encoding: expected one");
    says([&] { view(rows).quantized_repr(); }, "quantized_repr: encoding: expected one");
  }
  CHECK(rows.clone().has_encoding());
  CHECK(rows.detach().has_encoding());
  CHECK(rows.contiguous().has_encoding());
}

TEST_CASE("scaled dequantized tensors stay on the grid of the scaled encoding") {
  const EncodedTensor y = dequantized(uniform_tensor({4, 6}, 1));
  for (const double factor : {2.0, -3.0, 0.5}) {
    const EncodedTensor scaled = y.mul(factor);
    REQUIRE(scaled.has_encoding());
    const Tensor back = scaled.quantize().dequantize();
    const std::vector<float> got = back.to_float_vector();
    const std::vector<float> want = scaled.tensor().to_float_vector();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]));
  }
  CHECK(y.mul(0.0).kind() == EncodedTensor::Kind::Plain);
  CHECK(y.quantize().mul(2.0).kind() == EncodedTensor::Kind::Plain);
  const EncodedTensor symmetric = dequantized(uniform_tensor({4, 6}, 1), {}, true);
  CHECK(symmetric.mul(-1.0).kind() == EncodedTensor::Kind::Plain);
  CHECK(symmetric.div(2.0).has_encoding());
}

TEST_CASE("what is no function of encoded tensors gives plain ones") {
  EncodedTensor y = dequantized(uniform_tensor({4, 6}, 1));
  const EncodedTensor plain = relu(y);
  CHECK(plain.type_name() == "Tensor");
  CHECK(y.to(DType::Int32).type_name() == "Tensor");
  CHECK(y.to(DType::Float16).type_name() == "DequantizedTensor");
  CHECK_FALSE(y.add_(1.0).has_encoding());
  CHECK(y.type_name() == "DequantizedTensor");
  says([] { QuantizedTensor(Tensor::zeros({2}, DType::Int8), nullptr); },
       "QuantizedTensor: tensor: expected a floating tensor, got Int8");
}

TEST_CASE("embedding takes rows of a quantized table with their scales") {
  const EncodedTensor table = dequantized(uniform_tensor({6, 8}, 3), {6, 1});
  const std::vector<std::int64_t> indices{5, 0, 5};
  const EncodedTensor rows = embedding(Tensor::from_int64(indices), table);
  CHECK(rows.tensor().sizes() == Dims{3, 8});
  CHECK(rows.quantize().dequantize().tensor().equal(rows.tensor()));
  CHECK(rows.tensor()[0].equal(table.tensor()[5]));
}

TEST_CASE("affine results go to QTensor and back without loss") {
  const Tensor x = uniform_tensor({6, 4, 3}, 3);
  for (const Dims& shape : {Dims{}, Dims{4, 1}, Dims{6, 1, 1}}) {
    for (const bool symmetric : {false, true}) {
      const EncodedTensor y = dequantized(x, shape, symmetric);
      const QTensor q = y.to_qtensor();
      CHECK(q.dtype() == (symmetric ? DType::QInt8 : DType::QUInt8));
      CHECK(dequantize(q).equal(y.tensor()));
      const EncodedTensor back = EncodedTensor::from_qtensor(q);
      CHECK(back.type_name() == "QuantizedTensor");
      CHECK(back.tensor().equal(y.quantize().tensor()));
      CHECK(back.dequantize().tensor().equal(y.tensor()));
    }
  }
}

TEST_CASE("to_qtensor refuses what a QTensor cannot hold") {
  QuantizeDequantize blocks(
      {.shape = {2, 2}, .bitwidth = 8, .symmetric = true, .block_size = {1, 4}});
  blocks.set_range(-1.0, 1.0);
  says(
      [&] {
        blocks(uniform_tensor({2, 8}, 1)).to_qtensor();
      },
      "to_qtensor: encoding: expected no blocks, got block_size [1, 4]");
  QuantizeDequantize wide({.bitwidth = 16, .symmetric = true});
  wide.set_range(-1.0, 1.0);
  says(
      [&] {
        wide(uniform_tensor({2, 8}, 1)).to_qtensor();
      },
      "expected a grid within 8 or 32 bits, got -32768..32767");
  FloatQuantizeDequantize floating({.dtype = "float8_e4m3fn"});
  says([&] { floating(uniform_tensor({2}, 1)).to_qtensor(); }, "expected an affine one, got float");
  says([&] { floating(uniform_tensor({2}, 1)).quantized_repr(); }, "expected an affine encoding");
}

TEST_CASE("AffineEncoding refuses parameters that do not belong together") {
  const Grid grid(0, 255);
  says([&] { AffineEncoding(Tensor(), Tensor::ones({}), grid); }, "scale: expected a floating");
  says([&] { AffineEncoding(Tensor::ones({2}), Tensor::ones({}), grid); },
       "offset: expected a floating tensor of the sizes of scale, [2], got []");
  says(
      [&] {
        AffineEncoding(Tensor::ones({2}), Tensor::ones({2}), grid, {.zero_point_shift = 1.0});
      },
      "zero_point_shift: expected 0 or 0.5, got 1");
  says([&] { AffineEncoding(Tensor::ones({}), Tensor::ones({}), grid).to(DType::Int8); },
       "dtype: expected a floating dtype, got Int8");
}

// JSON -------------------------------------------------------------------------------------------

TEST_CASE("per-tensor encodings come back from their JSON") {
  for (const bool symmetric : {false, true}) {
    const EncodedTensor y = dequantized(uniform_tensor({4, 6}, 1), {}, symmetric);
    const auto& from = dynamic_cast<const AffineEncoding&>(*y.encoding());
    const auto back = encoding_from_json(to_json(from, EncodingVersion::V2_0_0, Dims{4, 6}));
    CHECK(to_json(from, EncodingVersion::V2_0_0) ==
          to_json(from, EncodingVersion::V2_0_0, Dims{4, 6}));
    CHECK(back->scale().equal(from.scale()));
    CHECK(back->offset().item() == from.offset().item());
    const auto& affine = dynamic_cast<const AffineEncoding&>(*back);
    CHECK(affine.grid() == from.grid());
    CHECK(affine.symmetric() == symmetric);
  }
}

TEST_CASE("an encoding file names its tensors and comes back") {
  const EncodedTensor x = dequantized(uniform_tensor({4, 6}, 1));
  const EncodedTensor weight = dequantized(uniform_tensor({4, 6}, 2), {4, 1}, true);
  EncodingFile file;
  file.activations = {{"x", x.encoding(), Dims{4, 6}}};
  const EncodingFile back = encoding_file_from_json(to_json(file));
  REQUIRE(back.activations.size() == 1);
  CHECK(back.activations[0].name == "x");
  CHECK(back.activations[0].encoding->scale().equal(x.encoding()->scale()));

  file.params = {{"w", weight.encoding(), Dims{4, 6}}};
  CHECK(to_json(file).find("\"axis\":0") != std::string::npos);
  file.activations = file.params;
  CHECK(to_json(file).find("\"axis\":-2") != std::string::npos);
  for (const EncodingVersion version : {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0}) {
    file.version = version;
    file.excluded_layers = {"head"};
    const std::string text = to_json(file);
    for (const char* key : {"\"activation_encodings\"", "\"param_encodings\"",
                            "\"excluded_layers\":[\"head\"]", "\"quantizer_args\""}) {
      CHECK(text.find(key) != std::string::npos);
    }
  }
  file.params[0].encoding = nullptr;
  says([&] { to_json(file); }, "w: expected an encoding, got none");
}

// A scale for each kind of encoding, with the sizes of a tensor that it suits.
struct JsonCase {
  std::string name;
  EncodingPtr encoding;
  Dims input_shape;
};

std::vector<JsonCase> json_cases() {
  std::vector<JsonCase> cases;
  const auto scales = [](const Dims& sizes, std::uint64_t seed) {
    const Tensor x = uniform_tensor(sizes, seed);
    auto* values = x.mutable_data<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i) values[i] = std::fabs(values[i]) + 0.01F;
    return x;
  };
  struct Layout {
    const char* name;
    Dims sizes;
    Dims blocks;
    Dims input;
  };
  const std::vector<Layout> layouts{{"tensor", {}, {}, {6, 4, 3, 3}},
                                    {"channels", {6, 1, 1, 1}, {}, {6, 4, 3, 3}},
                                    {"last channels", {4, 1, 1}, {}, {6, 4, 3, 3}},
                                    {"blocks", {6, 4}, {1, 8}, {6, 32}},
                                    {"first blocks", {3, 5}, {7, 1}, {21, 5}}};
  for (const Layout& layout : layouts) {
    for (const bool symmetric : {false, true}) {
      const Grid grid = Grid::from_bitwidth(8, symmetric);
      const Tensor offset = Tensor::full(layout.sizes, symmetric ? 0.0 : -17.0);
      cases.push_back(
          {std::string(layout.name) + (symmetric ? " symmetric" : ""),
           std::make_shared<AffineEncoding>(scales(layout.sizes, 3), offset, grid,
                                            AffineEncodingOptions{symmetric, layout.blocks, 0.0}),
           layout.input});
    }
    cases.push_back(
        {std::string(layout.name) + " float8",
         std::make_shared<FloatEncoding>(scales(layout.sizes, 4),
                                         FloatSpec::from_name("float8_e4m3fnuz"), layout.blocks),
         layout.input});
    cases.push_back({std::string(layout.name) + " float6",
                     std::make_shared<FloatEncoding>(scales(layout.sizes, 4),
                                                     FloatSpec{3, 2, true, false}, layout.blocks),
                     layout.input});
  }
  cases.push_back({"unsigned symmetric",
                   std::make_shared<AffineEncoding>(Tensor::scalar(0.1), Tensor::scalar(-128.0),
                                                    Grid(0, 255), AffineEncodingOptions{true}),
                   {4}});
  cases.push_back(
      {"shifted",
       std::make_shared<AffineEncoding>(Tensor::scalar(0.1), Tensor::scalar(0.0), Grid(-8, 7),
                                        AffineEncodingOptions{true, {}, 0.5}),
       {4}});
  cases.push_back(
      {"signed, not symmetric",
       std::make_shared<AffineEncoding>(Tensor::scalar(0.1), Tensor::scalar(5.0), Grid(-128, 127)),
       {4}});
  for (const char* dtype : {"float16", "bfloat16"}) {
    cases.push_back(
        {dtype,
         std::make_shared<FloatEncoding>(Tensor::scalar(1.0), FloatSpec::from_name(dtype)),
         {4}});
  }
  cases.push_back({"nvfp4",
                   FloatEncoding::nvfp4(Tensor::from_values({0.02F, 4.48F, 0.48F, 0.96F}, {2, 2}),
                                        Tensor::scalar(0.01), {1, 16}),
                   {2, 32}});
  for (const std::int64_t grouping : {2, 4}) {
    GroupedBlockQuantizeDequantize grouped(
        {{.shape = {6, 4}, .bitwidth = 4, .symmetric = true, .block_size = {1, 8}},
         8,
         {1, grouping}});
    grouped.compute_encodings([&] { grouped(uniform_tensor({6, 32}, 5)); });
    cases.push_back({"grouped", grouped.encoding(), {6, 32}});
  }
  return cases;
}

constexpr EncodingVersion kVersions[] = {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0,
                                         EncodingVersion::V2_0_0, EncodingVersion::V2_1_0};

// Empty where the version has no form for it.
std::string text_of(const JsonCase& test, EncodingVersion version) {
  try {
    return to_json(*test.encoding, version, test.input_shape);
  } catch (const Error&) {
    return {};
  }
}

TEST_CASE("encodings of every kind and version are read again and give the same text") {
  std::size_t written = 0;
  for (const JsonCase& test : json_cases()) {
    for (const EncodingVersion version : kVersions) {
      CAPTURE(test.name);
      CAPTURE(to_string(version));
      const std::string text = text_of(test, version);
      if (text.empty()) continue;
      ++written;
      CAPTURE(text);
      const EncodingPtr with_sizes = encoding_from_json(text, test.input_shape);
      CHECK(to_json(*with_sizes, version, test.input_shape) == text);
      const EncodingPtr without = encoding_from_json(text);
      CHECK(to_json(*without, version, test.input_shape) == text);
      // What is read belongs to the same elements and gives the same values.
      if (test.encoding->mapping() == "float" && with_sizes->bitwidth() >= 16) continue;
      const auto* affine = dynamic_cast<const AffineEncoding*>(test.encoding.get());
      if (affine != nullptr && affine->zero_point_shift() != 0.0) continue;
      // 0.6.1 knows no blocks.
      if (version == EncodingVersion::V0_6_1 && !test.encoding->block_size().empty()) continue;
      const Tensor x = uniform_tensor(test.input_shape, 11);
      CHECK(with_sizes->dequantize(with_sizes->quantize(x))
                .equal(test.encoding->dequantize(test.encoding->quantize(x))));
    }
  }
  CHECK(written > 70);
}

TEST_CASE("encoding files of every version are read again and give the same text") {
  for (const EncodingVersion version : kVersions) {
    EncodingFile file;
    file.version = version;
    std::map<std::string, Dims> shapes;
    int number = 0;
    for (const JsonCase& test : json_cases()) {
      if (text_of(test, version).empty()) continue;
      if (version == EncodingVersion::V0_6_1 && !test.encoding->block_size().empty()) continue;
      const std::string name = "t" + std::to_string(number++);
      file.activations.push_back({name, test.encoding, test.input_shape});
      file.params.push_back({name + ".weight", test.encoding, test.input_shape});
      shapes.emplace(name, test.input_shape);
      shapes.emplace(name + ".weight", test.input_shape);
    }
    if (version < EncodingVersion::V2_0_0) file.excluded_layers = {"head"};
    CAPTURE(to_string(version));
    const std::string text = to_json(file);
    const EncodingFile back = encoding_file_from_json(text, shapes);
    CHECK(back.excluded_layers == file.excluded_layers);
    CHECK(to_json(back) == text);
    if (version < EncodingVersion::V2_0_0) {
      CHECK(back.params.size() == file.params.size());
    } else {
      CHECK_THROWS_WITH_AS(encoding_file_from_json(text),
                           doctest::Contains("is counted from the front, got nothing (t"),
                           UnsupportedError);
    }
  }
}

TEST_CASE("encodings at the edges of their forms are written, or refused with the field") {
  const Grid grid = Grid::from_bitwidth(4, true);
  const auto grouped = [&grid](const Tensor& whole) {
    return std::make_shared<GroupedBlockEncoding>(
        Tensor::ones({1, 1}), Tensor::zeros({1, 1}), grid, Dims{4, 4},
        GroupedBlockEncoding::Groups{{1, 2}, 8, Tensor::ones({1, 1}), whole});
  };
  // No channel axis.
  EncodingFile file;
  file.version = EncodingVersion::V2_1_0;
  file.params.push_back({"weight", grouped(Tensor::ones({1, 1})), Dims{4, 4}});
  CHECK(to_json(file).find("\"axis\"") != std::string::npos);
  CHECK_THROWS_WITH_AS(grouped(Tensor::ones({0})), doctest::Contains("per_block_int_scale"),
                       ArgumentError);

  // A block for each channel.
  const auto nvfp4 = FloatEncoding::nvfp4(Tensor::ones({2, 1}), Tensor::ones({}), {1, 16});
  const std::string text = to_json(*nvfp4, EncodingVersion::V2_1_0, Dims{2, 16});
  CHECK(to_json(*encoding_from_json(text, Dims{2, 16}), EncodingVersion::V2_1_0, Dims{2, 16}) ==
        text);

  for (const Dims& sizes : {Dims{0}, Dims{2, 0}}) {
    const AffineEncoding none(Tensor::ones(sizes), Tensor::zeros(sizes), grid,
                              {.symmetric = true, .block_size = Dims::filled(sizes.size(), -1)});
    for (const auto version : {EncodingVersion::V1_0_0, EncodingVersion::V2_0_0}) {
      CHECK_THROWS_WITH_AS(to_json(none, version, Dims{2, 4}), doctest::Contains("scale: expected"),
                           ArgumentError);
    }
  }
}

TEST_CASE("encodings: their numbers are there without a cast") {
  const DequantizedTensor y = dequantized(uniform_tensor({4, 6}, 1), {4, 1});
  const Encoding& affine = *y.encoding();
  CHECK(affine.bitwidth() == 8);
  CHECK_FALSE(affine.is_signed());
  CHECK(affine.offset().sizes() == Dims{4, 1});
  for (std::int64_t row = 0; row < 4; ++row) {
    const double scale = affine.scale()[row].item();
    const double offset = affine.offset()[row].item();
    CHECK(affine.min()[row].item() == doctest::Approx(offset * scale));
    CHECK(affine.max()[row].item() == doctest::Approx((offset + 255.0) * scale));
  }
  const FloatEncoding fp8(Tensor::scalar(0.5), FloatSpec::from_name("float8_e4m3fn"));
  const Encoding& floating = fp8;
  CHECK(floating.bitwidth() == 8);
  CHECK(floating.is_signed());
  CHECK(floating.offset().item() == 0.0);
  CHECK(floating.min().item() == -224.0);
  CHECK(floating.max().item() == 224.0);
}

TEST_CASE("encoded tensors print as what they are") {
  const auto encoding =
      std::make_shared<AffineEncoding>(Tensor::scalar(0.5), Tensor::scalar(0.0), Grid(-8, 7));
  const DequantizedTensor y(Tensor::from_values({-1.0F, 0.5F, 2.0F, 3.5F}, {2, 2}), encoding);
  CHECK(to_string(y) ==
        "DequantizedTensor([[-1.0000,  0.5000],\n"
        "                   [ 2.0000,  3.5000]])");
  CHECK(to_string(y.quantize()).substr(0, 18) == "QuantizedTensor([[");
  CHECK(to_string(y.mul(0.0)).substr(0, 8) == "tensor([");
  says([&] { static_cast<void>(QuantizedTensor(EncodedTensor(y))); },
       "QuantizedTensor: tensor: expected codes, got a DequantizedTensor");
  says([&] { static_cast<void>(DequantizedTensor(EncodedTensor(y.quantize()))); },
       "DequantizedTensor: tensor: expected values on a grid, got a QuantizedTensor");
  says([&] { EncodedTensor(y.tensor(), EncodedTensor::Kind::Plain, encoding); },
       "encoding: expected none for a plain tensor");
}

TEST_CASE("from_encodings builds a quantizer that gives the encoding again") {
  for (const JsonCase& test : json_cases()) {
    CAPTURE(test.name);
    const Encoding& wanted = *test.encoding;
    const std::shared_ptr<Quantizer> quantizer = quantizer_from(wanted);
    CHECK(quantizer->is_initialized());
    const EncodingPtr got = quantizer->get_encodings();
    CHECK(got->bitwidth() == wanted.bitwidth());
    CHECK(got->mapping() == wanted.mapping());
    CHECK(got->granularity() == wanted.granularity());
    CHECK(got->offset().equal(wanted.offset()));
    const std::vector<float> scales = got->scale().to_float_vector();
    const std::vector<float> expected = wanted.scale().to_float_vector();
    for (std::size_t i = 0; i < scales.size(); ++i) {
      // Logarithms of float32 do not reach all scales of float formats.
      const float slack = wanted.mapping() == "float" && test.name != "nvfp4" ? 1e-6F : 0.0F;
      CHECK(std::fabs(scales[i] - expected[i]) <= slack * expected[i]);
    }
    if (wanted.mapping() == "float") continue;
    CHECK(to_json(*got, EncodingVersion::V2_1_0, test.input_shape) ==
          to_json(wanted, EncodingVersion::V2_1_0, test.input_shape));
    if (dynamic_cast<const GroupedBlockEncoding*>(&wanted) != nullptr) {
      CHECK(quantizer->to_string().substr(0, 30) == "GroupedBlockQuantizeDequantize");
      continue;
    }
    const auto& affine = dynamic_cast<const AffineEncoding&>(wanted);
    if (affine.zero_point_shift() != 0.0) continue;
    const Tensor x = uniform_tensor(test.input_shape, 12);
    CHECK((*Quantize::from_encodings(wanted))(x).tensor().equal(wanted.quantize(x)));
  }
}

TEST_CASE("from_encodings gives every scale and offset of a grid exactly") {
  std::mt19937 random(19);
  std::uniform_real_distribution<float> exponent(-12.0F, 6.0F);
  const auto with = [&](const Grid& grid, bool symmetric, std::int64_t lowest, std::int64_t most) {
    std::uniform_int_distribution<std::int64_t> any(lowest, most);
    std::vector<float> scales;
    std::vector<float> offsets;
    for (int i = 0; i < 500; ++i) {
      scales.push_back(std::exp2(exponent(random)));
      offsets.push_back(static_cast<float>(any(random)));
    }
    const auto count = static_cast<std::int64_t>(scales.size());
    return AffineEncoding(Tensor::from_values(scales, {count, 1}),
                          Tensor::from_values(offsets, {count, 1}), grid, {.symmetric = symmetric});
  };
  for (const std::int64_t bits : {1, 2, 3, 4, 5, 8, 12, 16, 24}) {
    CAPTURE(bits);
    const Grid codes = Grid::from_bitwidth(bits, false);
    for (const AffineEncoding& wanted : {with(Grid::from_bitwidth(bits, true), true, 0, 0),
                                         with(codes, false, -codes.qmax(), 0)}) {
      const EncodingPtr got = quantizer_from(wanted)->encoding();
      CHECK(got->scale().equal(wanted.scale()));
      CHECK(got->offset().equal(wanted.offset()));
    }
  }
  // One scale each: those that a range reaches keep one.
  int by_scale = 0;
  for (int i = 0; i < 200; ++i) {
    const AffineEncoding wanted(Tensor::scalar(std::exp2(exponent(random))), Tensor::scalar(0.0),
                                Grid(-8, 7), {.symmetric = true});
    const auto got = QuantizeDequantize::from_encodings(wanted);
    CHECK(got->encoding()->scale().equal(wanted.scale()));
    by_scale += got->parametrization() == AffineQuantizer::Parametrization::ScaleOffset ? 1 : 0;
  }
  CHECK(by_scale > 0);
  CHECK(by_scale < 40);
  const AffineEncoding between(Tensor::scalar(0.1), Tensor::scalar(-2.5), Grid(-8, 7));
  says([&] { Quantize::from_encodings(between); }, "offset: expected whole numbers");
}

TEST_CASE("from_encodings of MXFP4 and NVFP4 keep their scales") {
  const FloatEncoding mx(Tensor::from_values({0.25F, 8.0F}, {1, 2}),
                         FloatSpec::from_name("float4_e2m1fn"), {1, 32});
  const auto quantizer = FloatQuantizeDequantize::from_encodings(mx);
  CHECK(quantizer->get_scale().equal(mx.scale()));
  const auto nv = FloatEncoding::nvfp4(Tensor::from_values({0.02F, 4.48F}, {1, 2}),
                                       Tensor::scalar(0.01), {1, 16});
  const auto two_levels = FloatQuantizeDequantize::from_encodings(*nv);
  CHECK(two_levels->get_scale().equal(nv->scale()));
  FloatQuantizeDequantize loaded({.dtype = "float8_e5m2"});
  loaded.load_state_and_shape(two_levels->state_dict(), "");
  CHECK(loaded.encoding()->scale().equal(nv->scale()));
  CHECK(dynamic_cast<const FloatEncoding&>(*loaded.encoding()).meta_scale().item() ==
        nv->meta_scale().item());
}

TEST_CASE("from_encodings refuses what no quantizer gives") {
  const FloatEncoding fp8(Tensor::scalar(0.1), FloatSpec::from_name("float8_e4m3fn"));
  const AffineEncoding affine(Tensor::scalar(0.1), Tensor::scalar(0.0), Grid(-8, 7));
  says([&] { Quantize::from_encodings(fp8); }, "encoding: expected an affine one, got pertensor");
  says([&] { FloatQuantizeDequantize::from_encodings(affine); }, "expected a float one");
  says([&] { GroupedBlockQuantizeDequantize::from_encodings(affine); },
       "expected one of grouped blocks");
  const AffineEncoding tiny(Tensor::scalar(1e-12), Tensor::scalar(0.0), Grid(-8, 7));
  says([&] { Quantize::from_encodings(tiny); }, "scale: expected scales that a range gives");
  const AffineEncoding beyond(Tensor::scalar(0.1), Tensor::scalar(99.0), Grid(-8, 7));
  says([&] { Quantize::from_encodings(beyond); }, "offset: expected whole numbers");
  const AffineEncoding aside(Tensor::scalar(0.1), Tensor::scalar(3.0), Grid(-8, 7),
                             AffineEncodingOptions{true});
  says([&] { Quantize::from_encodings(aside); }, "offset: expected the middle");
}

TEST_CASE("functional forms: the grid is given by bits or steps or ends") {
  const Tensor x = uniform_tensor({4, 6}, 1, 30.0F);
  const Tensor scale = Tensor::scalar(0.1);
  const Tensor offset = Tensor::scalar(-3.0);
  const auto codes = [&](const functional::Codes& form) {
    return functional::quantize(x, scale, offset, form);
  };
  const auto ends = [&](std::int64_t qmin, std::int64_t qmax) {
    return quantize_affine(x, scale, offset, {.qmin = qmin, .qmax = qmax});
  };
  CHECK(functional::quantize(x, scale, offset, 8).equal(ends(0, 255)));
  CHECK(functional::quantize(x, scale, offset, 8, true).equal(ends(-128, 127)));
  CHECK(codes({.bitwidth = 4}).equal(ends(0, 15)));
  CHECK(codes({.num_steps = 254, .is_signed = true}).equal(ends(-127, 127)));
  CHECK(codes({.num_steps = 9}).equal(ends(0, 9)));
  CHECK(codes({.qmin = -3, .qmax = -3}).equal(ends(-3, -3)));
  const Tensor values = functional::quantize_dequantize(x, scale, offset, 8);
  CHECK(values.equal(quantize_dequantize_affine(x, scale, offset, {.qmin = 0, .qmax = 255})));
  CHECK(functional::quantize_dequantize(x, scale, offset, {.num_steps = 14, .is_signed = true})
            .equal(quantize_dequantize_affine(x, scale, offset, {.qmin = -7, .qmax = 7})));
  const Tensor blocks = Tensor::full({4, 2}, 0.1);
  const Tensor none = Tensor::zeros({4, 2});
  const Tensor q = functional::quantize(x, blocks, none, 8, true, {1, -1});
  CHECK(q.equal(functional::quantize(x, scale, Tensor::scalar(0.0), 8, true)));
  CHECK(functional::dequantize(q, blocks, none, {1, 3})
            .equal(functional::dequantize(q, scale, Tensor::scalar(0.0))));
  says([&] { codes({}); },
       "bitwidth: expected one of bitwidth, num_steps, or qmin and qmax, got none");
  says([&] { codes({.bitwidth = 8, .qmin = 0, .qmax = 1}); }, "got several");
  says([&] { codes({.qmin = 0}); }, "qmax: expected qmin and qmax, got one end");
  says([&] { codes({.qmin = 0, .qmax = 1, .is_signed = false}); }, "is_signed: expected none");
  says([&] { codes({.bitwidth = 8, .zero_point_shift = 0.5}); }, "zero_point_shift: expected 0");
  says([&] { codes({.qmin = 2, .qmax = 1}); }, "qm");
}

TEST_CASE("hostile JSON is refused with the field and its value") {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"([])", "encoding: expected an object for each scale, got none"},
      {R"(3)", "encoding: expected an object or a list, got"},
      {R"({"a": 1})", "y_scale: expected a value, got nothing"},
      {R"({"y_scale": 0.1})", "output_dtype: expected a value, got nothing"},
      {R"({"y_scale": "a", "output_dtype": "int8"})", "y_scale: expected a number, got a string"},
      {R"({"y_scale": 0, "output_dtype": "int8"})", "expected a finite float32 number > 0, got 0"},
      {R"({"y_scale": -1.5, "output_dtype": "int8"})", "number > 0, got -1.5"},
      {R"({"y_scale": 1e300, "output_dtype": "int8"})", "number > 0, got 1e+300"},
      {R"({"y_scale": 0.1, "output_dtype": 8})", "output_dtype: expected a string"},
      {R"({"y_scale": 0.1, "output_dtype": "int0"})", "output_dtype: expected int1..int32"},
      {R"({"y_scale": 0.1, "output_dtype": "int99999999999"})", "got int99999999999"},
      {R"({"y_scale": 0.1, "output_dtype": "uint"})", "got uint"},
      {R"({"y_scale": 0.1, "output_dtype": "string"})", "got string"},
      {R"({"y_scale": 0.1, "output_dtype": "int8", "y_zero_point": 300})",
       "y_zero_point: expected -128..127, got 300"},
      {R"({"y_scale": 0.1, "output_dtype": "int8", "y_zero_point": 1.25})",
       "y_zero_point: expected a whole number"},
      {R"({"y_scale": [0.1], "output_dtype": "int8"})", "axis: expected one for a list"},
      {R"({"y_scale": 0.1, "output_dtype": "int8", "axis": -1})", "expected a list with a number"},
      {R"({"y_scale": [[1], [1, 2]], "output_dtype": "int8", "axis": -1, "block_size": 2})",
       "y_scale: expected lists of equal length, got one of 2"},
      {R"({"y_scale": [1, [1]], "output_dtype": "int8", "axis": -1, "block_size": 2})",
       "y_scale: expected lists of equal"},
      {R"({"y_scale": [], "output_dtype": "int8", "axis": -1})", "an empty list"},
      {R"({"y_scale": [1, 2], "output_dtype": "int8", "axis": -1, "y_zero_point": [1]})",
       "y_zero_point: expected the sizes of y_scale"},
      {R"({"y_scale": [1], "output_dtype": "int8", "axis": -99})", "axis: expected"},
      {R"({"y_scale": 0.1, "output_dtype": "float8e9m9"})", "output_dtype: expected float16"},
      {R"([{"dtype": "int", "bitwidth": 99, "is_symmetric": "True"}])", "bitwidth: expected 1..32"},
      {R"([{"dtype": "int", "bitwidth": 8, "is_symmetric": true}])",
       "is_symmetric: expected a str"},
      {R"({"enc_type": "PER_TENSOR", "dtype": "INT", "bw": 8, "is_sym": true, "scale": [1],
           "offset": [1, 2]})",
       "offset: expected as many as scales"},
      {R"({"enc_type": "LPBQ", "dtype": "INT", "bw": 8, "is_sym": true, "scale": [1, 1],
           "offset": [-128, -128], "compressed_bw": 4, "block_size": 4,
           "per_block_int_scale": [1, 2, 3]})",
       "per_block_int_scale: expected a multiple of 2, got 3"},
      {R"({"enc_type": "LPBQ", "dtype": "INT", "bw": 8, "is_sym": true, "scale": [1, 1],
           "offset": [-128, -3], "compressed_bw": 4, "block_size": 4,
           "per_block_int_scale": [1, 2]})",
       "offset: expected -128, the lowest of 8 bits, for LPBQ, got -3"},
      {R"({"enc_type": "LPBQ", "dtype": "INT", "bw": 8, "is_sym": false, "scale": [1, 1],
           "offset": [-128, -128], "compressed_bw": 4, "block_size": 4,
           "per_block_int_scale": [1, 2]})",
       "is_sym: expected true for LPBQ, got false"},
      {R"([{"dtype": "int", "bitwidth": 8, "is_symmetric": "False", "scale": 0.5, "offset": -10,
            "min": -5.0, "max": 200.0}])",
       "max: expected 122.5, as scale and offset say, got 200"},
      {R"([{"dtype": "int", "bitwidth": 8, "is_symmetric": "False", "scale": 0.5, "offset": -10,
            "min": 1.0, "max": 122.5}])",
       "min: expected -5, as scale and offset say, got 1"},
      {R"([{"dtype": "int", "bitwidth": 8, "is_symmetric": "False", "scale": 0.5, "offset": -10,
            "min": "low", "max": 122.5}])",
       "min: expected a number, got a string"},
  };
  for (const auto& [text, message] : cases) {
    CAPTURE_BINDING(text);
    says([&text = text] { encoding_from_json(text); }, message);
  }
  CHECK_THROWS_AS(encoding_from_json(R"({"y_scale": [0.1], "output_dtype": "int8", "axis": 0})"),
                  UnsupportedError);
  for (const char* text : {"", "{", "{\"y_scale\": 0.1", "nul", "{\"a\":1,\"a\":2}"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(encoding_from_json(text), FileError);
  }
  CHECK_THROWS_AS(encoding_from_json(std::string(5000, '[')), FileError);
  says([] { encoding_file_from_json(R"({"version": "9.9.9"})"); }, "got 9.9.9");
  says([] { encoding_file_from_json(R"({"version": "2.0.0", "encodings": 3})"); },
       "encodings: expected a list");
  says(
      [] {
        encoding_file_from_json(
            R"({"version": "2.0.0", "encodings": [{"y_scale": 1, "output_dtype": "int8"}]})");
      },
      "name: expected a value, got nothing");
}

TEST_CASE("to_json refuses what a version cannot express") {
  const Grid grid(-127, 127);
  const AffineEncoding narrow(Tensor::scalar(0.1), Tensor::scalar(0.0), grid);
  says([&] { to_json(narrow, EncodingVersion::V1_0_0); }, "got -127..127");
  const AffineEncoding blocks(Tensor::ones({1, 4}), Tensor::zeros({1, 4}), Grid(-8, 7),
                              {.symmetric = true, .block_size = {1, 2}});
  says(
      [&] {
        to_json(blocks, EncodingVersion::V2_0_0, Dims{1, 8});
      },
      "expected a channel axis beside the block axis, got [1, 4]");
  says([&] { to_json(blocks, EncodingVersion::V2_0_0); }, "input_shape: expected the sizes");
  const AffineEncoding two(Tensor::ones({2, 3}), Tensor::zeros({2, 3}), Grid(-8, 7));
  says([&] { to_json(two, EncodingVersion::V2_0_0, Dims{2, 3}); }, "expected one channel axis");
  const FloatEncoding fp8(Tensor::scalar(0.1), FloatSpec::from_name("float8_e4m3fn"));
  says([&] { to_json(fp8, EncodingVersion::V1_0_0); },
       "version: expected 2.0.0 or later for a float format");
}

}  // namespace
}  // namespace quanta::aimet
