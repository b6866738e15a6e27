#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
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
    CHECK(back->grid() == from.grid());
    CHECK(back->symmetric() == symmetric);
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

TEST_CASE("hostile JSON is refused with the field and its value") {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"([])", "encoding: expected an object, got an array"},
      {R"({})", "y_scale: expected a value, got nothing"},
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
      {R"({"y_scale": 0.1, "output_dtype": "int8", "y_zero_point": 1.5})",
       "y_zero_point: expected a whole number"},
  };
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    says([&] { encoding_from_json(text); }, message);
  }
  for (const char* text : {R"({"y_scale": [0.1], "output_dtype": "int8"})",
                           R"({"y_scale": 0.1, "output_dtype": "float8e4m3fn"})",
                           R"({"y_scale": 0.1, "output_dtype": "int8", "axis": 0})"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(encoding_from_json(text), UnsupportedError);
  }
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
