#include "quanta/runtime/onnx_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "onnx_test_util.h"
#include "quanta/runtime/error.h"
#include "support/onnx_text.h"

namespace quanta {
namespace {

namespace fs = std::filesystem;
namespace model_field = detail::onnx_model;
namespace graph_field = detail::onnx_graph;
namespace attribute_field = detail::onnx_attribute;
namespace tensor_field = detail::onnx_tensor;
using detail::OnnxAttributeType;
using test::message;
using test::raw;
using test::tensor_message;
using test::Write;

Tensor read(const std::string& tensor) {
  const OnnxModel model = test::parse_model(test::model_with_tensor(tensor));
  REQUIRE(model.graph.initializers.size() == 1);
  return model.graph.initializers[0].value;
}

void refuse(const std::string& model, const std::string& text) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS(test::parse_model(model), doctest::Contains(text.c_str()), FileError);
}

void refuse_tensor(const std::string& tensor, const std::string& text) {
  refuse(test::model_with_tensor(tensor), text);
}

/// int32_data, packed.
Write int32s(std::vector<std::int32_t> values) {
  return [values](auto& writer) {
    writer.add_packed_int32(tensor_field::kInt32Data, values.begin(), values.end());
  };
}

template <typename T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Write type_is(OnnxAttributeType type) {
  return [type](auto& writer) {
    writer.add_int32(attribute_field::kType, static_cast<std::int32_t>(type));
  };
}

}  // namespace

TEST_CASE("onnx: types have ONNX's names and the dtypes that hold them") {
  CHECK(to_string(OnnxType::Float) == "FLOAT");
  CHECK(to_string(OnnxType::Int2) == "INT2");
  CHECK(to_string(static_cast<OnnxType>(99)) == "type 99");
  CHECK(to_string(static_cast<OnnxType>(-1)) == "type -1");
  CHECK(dtype_of(OnnxType::UInt4) == DType::UInt8);
  CHECK_FALSE(dtype_of(OnnxType::String).has_value());
  CHECK_FALSE(dtype_of(static_cast<OnnxType>(99)).has_value());
  for (int number = 1; number <= 26; ++number) {
    const auto type = static_cast<OnnxType>(number);
    const bool packed = type == OnnxType::UInt4 || type == OnnxType::Int4 ||
                        type == OnnxType::UInt2 || type == OnnxType::Int2;
    if (dtype_of(type) && !packed) CHECK(onnx_type_of(*dtype_of(type)) == type);
  }
  CHECK(onnx_type_of(DType::QInt8) == OnnxType::Int8);
  CHECK(onnx_type_of(DType::QUInt4x2) == OnnxType::UInt4);
}

TEST_CASE("onnx: raw data of every type is read") {
  CHECK(read(tensor_message(OnnxType::Float, {2}, raw(bytes_of<float>({1.5F, -2}))))
            .to_float_vector() == std::vector<float>{1.5F, -2});
  CHECK(read(tensor_message(OnnxType::Double, {1, 1}, raw(bytes_of<double>({0.25})))).item() ==
        0.25);
  CHECK(read(tensor_message(OnnxType::Int64, {}, raw(bytes_of<std::int64_t>({-5})))).item() == -5);
  CHECK(read(tensor_message(OnnxType::Int32, {1}, raw(bytes_of<std::int32_t>({-5})))).item() == -5);
  CHECK(read(tensor_message(OnnxType::Int16, {1}, raw(bytes_of<std::int16_t>({-5})))).item() == -5);
  CHECK(read(tensor_message(OnnxType::UInt16, {1}, raw(bytes_of<std::uint16_t>({65535})))).item() ==
        65535);
  CHECK(read(tensor_message(OnnxType::Int8, {1}, raw("\x80"))).item() == -128);
  CHECK(read(tensor_message(OnnxType::UInt8, {1}, raw("\xff"))).item() == 255);
  CHECK(read(tensor_message(OnnxType::Bool, {2}, raw(std::string("\x01\x00", 2))))
            .to_int64_vector() == std::vector<std::int64_t>{1, 0});
  CHECK(
      read(tensor_message(OnnxType::Float16, {1}, raw(bytes_of<std::uint16_t>({0x3E00})))).item() ==
      1.5);
  CHECK(read(tensor_message(OnnxType::BFloat16, {1}, raw(bytes_of<std::uint16_t>({0x3FC0}))))
            .item() == 1.5);
  CHECK(read(tensor_message(OnnxType::Float8E4M3FN, {1}, raw("\x38"))).item() == 1);
  CHECK(read(tensor_message(OnnxType::Float8E5M2, {1}, raw("\x3c"))).item() == 1);
  // The first element is in the lowest bits; an odd count leaves bits over.
  CHECK(read(tensor_message(OnnxType::Int4, {3}, raw("\x78\xff"))).to_int64_vector() ==
        std::vector<std::int64_t>{-8, 7, -1});
  CHECK(read(tensor_message(OnnxType::UInt4, {3}, raw("\x78\xff"))).to_int64_vector() ==
        std::vector<std::int64_t>{8, 7, 15});
  CHECK(read(tensor_message(OnnxType::Int2, {5}, raw("\xe4\x03"))).to_int64_vector() ==
        std::vector<std::int64_t>{0, 1, -2, -1, -1});
  CHECK(read(tensor_message(OnnxType::UInt2, {5}, raw("\xe4\x03"))).to_int64_vector() ==
        std::vector<std::int64_t>{0, 1, 2, 3, 3});
  CHECK(read(tensor_message(OnnxType::Float, {3, 0, 2}, raw(""))).sizes() == Dims{3, 0, 2});
}

TEST_CASE("onnx: typed data is read, packed and one by one") {
  const std::vector<float> floats{1.5F, -2, 3};
  const auto one_by_one = [&](auto& writer) {
    for (const float value : floats) writer.add_float(tensor_field::kFloatData, value);
  };
  const auto packed = [&](auto& writer) {
    writer.add_packed_float(tensor_field::kFloatData, floats.begin(), floats.end());
  };
  const auto mixed = [&](auto& writer) {
    writer.add_packed_float(tensor_field::kFloatData, floats.begin(), floats.begin() + 2);
    writer.add_float(tensor_field::kFloatData, floats[2]);
  };
  for (const Write& write : {Write(one_by_one), Write(packed), Write(mixed)}) {
    CHECK(read(tensor_message(OnnxType::Float, {3}, write)).to_float_vector() == floats);
  }
  CHECK(read(tensor_message(OnnxType::Double, {1}, [](auto& writer) {
          writer.add_double(tensor_field::kDoubleData, 0.25);
        })).item() == 0.25);
  CHECK(read(tensor_message(OnnxType::Int64, {2}, [](auto& writer) {
          for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{1} << 40})
            writer.add_int64(tensor_field::kInt64Data, value);
        })).to_int64_vector() == std::vector<std::int64_t>{-1, std::int64_t{1} << 40});
  const std::vector<std::int64_t> low_high{-3, 3};
  for (const OnnxType type : {OnnxType::Int32, OnnxType::Int16, OnnxType::Int8}) {
    CHECK(read(tensor_message(type, {2}, int32s({-3, 3}))).to_int64_vector() == low_high);
  }
  CHECK(read(tensor_message(OnnxType::UInt8, {1}, int32s({255}))).item() == 255);
  CHECK(read(tensor_message(OnnxType::UInt16, {1}, int32s({65535}))).item() == 65535);
  CHECK(read(tensor_message(OnnxType::Bool, {1}, int32s({1}))).item() == 1);
  CHECK(read(tensor_message(OnnxType::Float16, {1}, int32s({0x3E00}))).item() == 1.5);
  CHECK(read(tensor_message(OnnxType::BFloat16, {1}, int32s({0x3FC0}))).item() == 1.5);
  CHECK(read(tensor_message(OnnxType::Float8E4M3FN, {1}, int32s({0x38}))).item() == 1);
  CHECK(read(tensor_message(OnnxType::Int4, {3}, int32s({0x78, 0xff}))).to_int64_vector() ==
        std::vector<std::int64_t>{-8, 7, -1});
  // dims may be packed as well.
  CHECK(read(message([](auto& writer) {
          const std::vector<std::int64_t> dims{1, 2};
          writer.add_packed_int64(tensor_field::kDims, dims.begin(), dims.end());
          writer.add_int32(tensor_field::kDataType, 2);
          writer.add_string(tensor_field::kName, "t");
          writer.add_bytes(tensor_field::kRawData, "ab");
        })).sizes() == Dims{1, 2});
}

TEST_CASE("onnx: types without a dtype give a tensor without a value") {
  const OnnxModel model = test::parse_model(
      test::model_with_tensor(tensor_message(OnnxType::String, {2}, [](auto& writer) {
        writer.add_bytes(tensor_field::kStringData, "a");
        writer.add_bytes(tensor_field::kStringData, "bc");
      })));
  CHECK(model.graph.initializers[0].name == "t");
  CHECK(model.graph.initializers[0].type == OnnxType::String);
  CHECK_FALSE(model.graph.initializers[0].value.defined());
  CHECK_FALSE(read(tensor_message(OnnxType::UInt32, {1}, raw("abcd"))).defined());
  CHECK_FALSE(read(tensor_message(OnnxType::Float8E4M3FNUZ, {1}, raw("a"))).defined());
  CHECK_FALSE(read(tensor_message(OnnxType::Complex128, {1}, raw("0123456789abcdef"))).defined());
  refuse_tensor(tensor_message(OnnxType::UInt32, {1}, raw("abc")), "raw_data: expected 4 bytes");
}

TEST_CASE("onnx: tensors whose values do not fit their sizes are refused by name") {
  refuse_tensor(tensor_message(OnnxType::Float, {2}, raw("abc")), "tensor 't': byte");
  refuse_tensor(tensor_message(OnnxType::Float, {2}, raw("abc")),
                "raw_data: expected 8 bytes for FLOAT of sizes [2], got 3");
  refuse_tensor(tensor_message(OnnxType::Int4, {3}, raw("a")), "raw_data: expected 2 bytes");
  refuse_tensor(tensor_message(OnnxType::Float, {2}), "expected 2 values for FLOAT");
  refuse_tensor(tensor_message(OnnxType::Int8, {2}, int32s({1})), "expected 2 values for INT8");
  refuse_tensor(tensor_message(OnnxType::Int8, {1}, int32s({128})),
                "int32_data: expected -128..127 for INT8, got 128");
  refuse_tensor(tensor_message(OnnxType::Bool, {1}, raw("\x02")), "expected BOOL values 0 and 1");
  refuse_tensor(tensor_message(OnnxType::Bool, {1}, int32s({2})), "expected 0..1 for BOOL");
  refuse_tensor(tensor_message(OnnxType::Float, {1}, int32s({1})),
                "values of FLOAT stand in another type's field");
  refuse_tensor(tensor_message(OnnxType::Float, {-1}, raw("")), "expected sizes >= 0");
  const std::int64_t large = std::int64_t{1} << 40;
  refuse_tensor(tensor_message(OnnxType::Float, {large, large}, raw("")), "2^55 elements");
  refuse_tensor(tensor_message(OnnxType::Float, {0, large, large}, raw("")), "2^55 elements");
  refuse_tensor(tensor_message(OnnxType::Float, {large}), "expected 1099511627776 values");
  refuse_tensor(tensor_message(OnnxType::Float, std::vector<std::int64_t>(11, 1), raw("abcd")),
                "at most 10 dimensions");
  refuse_tensor(tensor_message(OnnxType::Undefined, {1}, raw("a")), "data_type: expected 1..26");
  refuse_tensor(tensor_message(static_cast<OnnxType>(99), {1}, raw("a")),
                "data_type: expected 1..26, got 99");
  refuse_tensor(tensor_message(OnnxType::String, {1}, raw("a")), "values of STRING in string_data");
}

TEST_CASE("onnx: values in two places and in segments are refused") {
  refuse_tensor(tensor_message(OnnxType::UInt8, {1},
                               [](auto& writer) {
                                 raw("a")(writer);
                                 int32s({1})(writer);
                               }),
                "values in one place");
  refuse_tensor(tensor_message(OnnxType::Int64, {2},
                               [](auto& writer) {
                                 int32s({1})(writer);
                                 writer.add_int64(tensor_field::kInt64Data, 1);
                               }),
                "values in one field");
  refuse_tensor(tensor_message(OnnxType::UInt8, {1},
                               [](auto& writer) { writer.add_string(tensor_field::kSegment, ""); }),
                "segment");
  refuse(test::model_message(message([](auto& graph) {
           graph.add_message(graph_field::kSparseInitializer, message([](auto& sparse) {
                               sparse.add_message(detail::onnx_sparse::kValues,
                                                  tensor_message(OnnxType::UInt8, {0}, raw("")));
                             }));
         })),
         "sparse_initializer 't'");
}

TEST_CASE("onnx: attributes of every type are read and a missing type is found") {
  struct Row {
    OnnxAttributeType type;
    Write value;
    OnnxAttribute expected;
  };
  const std::vector<std::int64_t> ints{1, -2};
  const std::vector<float> floats{1, 2.5F};
  const std::vector<Row> rows{
      {OnnxAttributeType::Int, [](auto& w) { w.add_int64(attribute_field::kInt, -3); },
       std::int64_t{-3}},
      {OnnxAttributeType::Float, [](auto& w) { w.add_float(attribute_field::kFloat, 1.5F); }, 1.5F},
      {OnnxAttributeType::String, [](auto& w) { w.add_bytes(attribute_field::kString, "a"); },
       std::string("a")},
      {OnnxAttributeType::Ints,
       [&](auto& w) {
         for (const std::int64_t value : ints) w.add_int64(attribute_field::kInts, value);
       },
       ints},
      {OnnxAttributeType::Ints,
       [&](auto& w) { w.add_packed_int64(attribute_field::kInts, ints.begin(), ints.end()); },
       ints},
      {OnnxAttributeType::Floats,
       [&](auto& w) {
         for (const float value : floats) w.add_float(attribute_field::kFloats, value);
       },
       floats},
      {OnnxAttributeType::Floats,
       [&](auto& w) { w.add_packed_float(attribute_field::kFloats, floats.begin(), floats.end()); },
       floats},
      {OnnxAttributeType::Strings,
       [](auto& w) {
         w.add_bytes(attribute_field::kStrings, "a");
         w.add_bytes(attribute_field::kStrings, "");
       },
       std::vector<std::string>{"a", ""}},
  };
  const auto find = [](const std::string& attribute) {
    return test::parse_model(test::model_with_attribute(attribute))
        .graph.nodes[0]
        .attributes.at("a");
  };
  const auto same = [](const OnnxAttribute& a, const OnnxAttribute& b) {
    if (a.index() != b.index()) return false;
    return std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (requires { value == value; } &&
                        !std::is_same_v<T, std::vector<OnnxTensor>>) {
            return value == std::get<T>(b);
          } else {
            return false;
          }
        },
        a);
  };
  for (const Row& row : rows) {
    CAPTURE(static_cast<int>(row.type));
    CHECK(same(find(test::attribute_message("a", row.value)), row.expected));
    CHECK(same(find(test::attribute_message("a",
                                            [&](auto& writer) {
                                              row.value(writer);
                                              type_is(row.type)(writer);
                                            })),
               row.expected));
  }
  // Writers of proto3 leave out zeros and empty lists.
  CHECK(same(find(test::attribute_message("a", type_is(OnnxAttributeType::Int))), std::int64_t{0}));
  CHECK(same(find(test::attribute_message("a", type_is(OnnxAttributeType::Ints))),
             std::vector<std::int64_t>{}));
}

TEST_CASE("onnx: attributes that are not what they say are refused") {
  const auto refused = [](const Write& rest, const std::string& text) {
    refuse(test::model_with_attribute(test::attribute_message("a", rest)), text);
  };
  refused(type_is(OnnxAttributeType::Undefined), "node 'n' (Op): attribute 'a': byte");
  refused([](auto&) {}, "expected a type and a value, got neither");
  refused(type_is(OnnxAttributeType::Tensor), "expected a value of type 4, got none");
  refused([](auto& w) { w.add_int32(attribute_field::kType, 15); }, "type: expected 1..14, got 15");
  refused(
      [](auto& w) {
        w.add_int64(attribute_field::kInt, 1);
        type_is(OnnxAttributeType::Float)(w);
      },
      "type: expected that of its value, 2, got 1");
  refused(
      [](auto& w) {
        w.add_int64(attribute_field::kInt, 1);
        w.add_float(attribute_field::kFloat, 1);
      },
      "expected one value, got two");
  refused([](auto& w) { w.add_string(attribute_field::kReference, "outer"); },
          "ref_attr_name: expected it in functions only");
  refused([](auto& w) { w.add_string(attribute_field::kInt, "text"); },
          "field 3: expected an integer");
  refuse(
      test::model_with_attribute(message([](auto& w) { w.add_int64(attribute_field::kInt, 1); })),
      "expected a name, got none");
  const std::string one =
      test::attribute_message("a", [](auto& w) { w.add_int64(attribute_field::kInt, 1); });
  refuse(
      test::model_message(test::graph_of_nodes({test::node_message("Op", {}, {"y"}, {one, one})})),
      "attribute 'a': byte");
}

TEST_CASE("onnx: names that are made twice are refused") {
  const std::string node = test::node_message("Op", {"x"}, {"y"});
  refuse(test::model_message(test::graph_of_nodes({node, node})),
         "node 'n' (Op): output 'y' is made twice");
  const std::string value = message([](auto& w) { w.add_string(detail::onnx_value::kName, "y"); });
  refuse(test::model_message(message([&](auto& graph) {
           graph.add_message(graph_field::kInput, value);
           graph.add_message(graph_field::kNode, node);
         })),
         "output 'y' is made twice");
  refuse(test::model_message(message([&](auto& graph) {
           graph.add_message(graph_field::kInput, value);
           graph.add_message(graph_field::kInput, value);
         })),
         "input 'y' is there twice");
  const std::string tensor = tensor_message(OnnxType::UInt8, {1}, raw("a"));
  refuse(test::model_message(message([&](auto& graph) {
           graph.add_message(graph_field::kInitializer, tensor);
           graph.add_message(graph_field::kInitializer, tensor);
         })),
         "initializer 't' is there twice");
  // Files before IR 4 name every initializer as an input.
  const std::string input = message([](auto& w) { w.add_string(detail::onnx_value::kName, "t"); });
  CHECK_NOTHROW(test::parse_model(test::model_message(message([&](auto& graph) {
    graph.add_message(graph_field::kInitializer, tensor);
    graph.add_message(graph_field::kInput, input);
  }))));
}

TEST_CASE("onnx: too many nodes and too deep graphs are refused") {
  const std::string node = test::node_message("Op", {}, {});
  const std::string three = test::model_message(test::graph_of_nodes({node, node, node}));
  CHECK(test::parse_model(three, {.max_nodes = 3}).graph.nodes.size() == 3);
  CHECK_THROWS_WITH_AS(test::parse_model(three, {.max_nodes = 2}),
                       doctest::Contains("at most 2 nodes"), FileError);
  const auto nested = [](int depth) {
    std::string graph = test::graph_of_nodes({test::node_message("Op", {}, {})});
    for (int i = 0; i < depth; ++i) {
      graph = test::graph_of_nodes(
          {test::node_message("If", {}, {}, {test::attribute_message("branch", [&](auto& w) {
                                w.add_message(attribute_field::kGraph, graph);
                              })})});
    }
    return test::model_message(graph);
  };
  CHECK_NOTHROW(test::parse_model(nested(16)));
  refuse(nested(17), "at most 16 deep");
  refuse(nested(2000), "at most 16 deep");
}

TEST_CASE("onnx: a model needs its version, a graph and opsets") {
  refuse("", "ir_version: expected 1 or more, got 0: this is no ONNX model");
  refuse(message([](auto& w) { w.add_int64(model_field::kIrVersion, 8); }), "graph: expected one");
  refuse(message([](auto& w) {
           w.add_int64(model_field::kIrVersion, 8);
           w.add_string(model_field::kGraph, "");
         }),
         "opset_import: expected versions");
  refuse(test::model_message("", [](auto& w) { w.add_string(model_field::kGraph, ""); }),
         "graph: expected one, got another");
  refuse(test::model_message("",
                             [](auto& w) {
                               w.add_message(model_field::kOpsetImport, message([](auto& opset) {
                                               opset.add_string(detail::onnx_opset::kDomain,
                                                                "ai.onnx");
                                               opset.add_int64(detail::onnx_opset::kVersion, 14);
                                             }));
                             }),
         "opset_import: expected one version of '', got 13 and 14");
  const OnnxModel old = test::parse_model(message([](auto& w) {
    w.add_int64(model_field::kIrVersion, 2);
    w.add_string(model_field::kGraph, "");
  }));
  CHECK(old.opsets.at("") == 1);
}

TEST_CASE("onnx: lengths beyond the file are refused") {
  // protozero cuts a length to 32 bits: 2^32 + 1 would be 1.
  std::string bytes = message([](auto& w) { w.add_int64(model_field::kIrVersion, 8); });
  bytes += "\x3a";  // the graph
  protozero::write_varint(std::back_inserter(bytes), (std::uint64_t{1} << 32) + 1);
  bytes += std::string(10, '\0');
  refuse(bytes, "field 7: expected 4294967297 bytes, got 10");
  refuse("\x3b", "unknown pbf field type");
  refuse(std::string(20, '\xff'), "varint too long");
  refuse(std::string(1, '\0'), "invalid tag");
}

TEST_CASE("onnx: functions keep what refers to the attributes of a call") {
  const OnnxModel model = read_onnx(test::onnx_seeds() / "function.onnx");
  REQUIRE(model.functions.size() == 1);
  const OnnxFunction& function = model.functions[0];
  CHECK(function.domain == "my");
  CHECK(function.name == "Bent");
  CHECK(function.opsets.at("") == 18);
  CHECK(function.attribute_names == std::vector<std::string>{"slope"});
  CHECK(std::get<float>(function.attributes.at("beta")) == 0.5F);
  REQUIRE(function.nodes.size() == 2);
  CHECK(function.nodes[0].references.at("alpha").name == "slope");
  CHECK(function.nodes[0].attributes.empty());
  const auto& branch =
      std::get<std::shared_ptr<const OnnxGraph>>(function.nodes[1].attributes.at("then_branch"));
  CHECK(branch->nodes.at(0).references.at("alpha").name == "beta");
  CHECK(model.graph.nodes.at(0).domain == "my");
}

TEST_CASE("onnx: a mapped file's tensors outlive the model") {
  const test::TemporaryFolder folder;
  Tensor weight;
  {
    test::write_bytes(folder / "m.onnx",
                      test::model_with_tensor(tensor_message(OnnxType::UInt8, {3}, raw("abc"))));
    weight = read_onnx(folder / "m.onnx").graph.initializers.at(0).value;
  }
  CHECK(weight.to_int64_vector() == std::vector<std::int64_t>{'a', 'b', 'c'});
  weight.mutable_data<std::uint8_t>()[0] = 0;
  CHECK(read_onnx(folder / "m.onnx").graph.initializers.at(0).value.to_int64_vector()[0] == 'a');
}

TEST_CASE("onnx: files that are not there or no models are refused with their path") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(read_onnx(folder / "none.onnx"), doctest::Contains("none.onnx"), FileError);
  CHECK_THROWS_WITH_AS(read_onnx(folder.path()), doctest::Contains("a folder"), FileError);
  test::write_bytes(folder / "large.onnx", "");
  fs::resize_file(folder / "large.onnx", std::uintmax_t{1} << 31);
  CHECK_THROWS_WITH_AS(read_onnx(folder / "large.onnx"),
                       doctest::Contains("save with external data"), FileError);
  CHECK_THROWS_WITH_AS(read_onnx_tensor(folder / "large.onnx"),
                       doctest::Contains("less than 2 GiB"), FileError);
}

TEST_CASE("onnx: any damage of a file gives a model or a FileError") {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same damage in each run
  std::size_t refused = 0;
  std::size_t total = 0;
  const auto attempt = [&](const std::string& bytes) {
    ++total;
    try {
      const test::OnnxText text(test::parse_model(bytes));
      CHECK(text.text().starts_with("ir "));
    } catch (const FileError&) {
      ++refused;
    }
  };
  for (const auto& entry : fs::directory_iterator(test::onnx_seeds())) {
    CAPTURE(entry.path().string());
    const std::string bytes = test::read_bytes(entry.path());
    for (std::size_t i = 0; i < 10; ++i) attempt(bytes.substr(0, bytes.size() * i / 10));
    for (int i = 0; i < 100; ++i) {
      std::string changed = bytes;
      const std::size_t bit = random() % (8 * bytes.size());
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      attempt(changed);
    }
  }
  CHECK(total >= 19 * 110);
  CHECK(refused > total / 4);
}

}  // namespace quanta
