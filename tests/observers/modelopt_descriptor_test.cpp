#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/quantizer_config.h"
#include "quanta/observers/yaml/descriptor_yaml.h"
#include "quanta/runtime/error.h"

namespace quanta::modelopt {
namespace {

using Descriptor = ScaledQuantDescriptor;

TEST_CASE("descriptors: every field comes back from the dictionary and from YAML") {
  Descriptor descriptor;
  descriptor.num_bits = NumBits::floating(4, 3);
  descriptor.name = "it's: a 'name'";
  descriptor.fake_quant = false;
  descriptor.amax = Tensor::from_values({1.5F, 0.1F}, {2, 1});
  descriptor.scale_amax = 0.5;
  descriptor.calib_method = "histogram";
  descriptor.is_unsigned = true;
  descriptor.narrow_range = true;
  descriptor.dynamic = true;
  descriptor.block_sizes = BlockConfig{
      {{-1, 16}}, QuantType::Dynamic, NumBits::floating(4, 3), BlockSizes{{-1, 64}}, true};
  descriptor.dialect = Descriptor::Dialect::ModelOpt;
  const auto check_back = [](const Descriptor& one) {
    const Descriptor from_dict = Descriptor::from_dict(one.dict(), one.dialect);
    CHECK(from_dict == one);
    CHECK(from_dict.dict() == one.dict());
    const Descriptor from_yaml = descriptor_from_yaml(to_yaml(one), one.dialect);
    CHECK(from_yaml == one);
    CHECK(from_yaml.dict() == one.dict());
  };
  check_back(descriptor);
  CHECK(descriptor.released_dict() ==
        ConfigValue::dict({{"num_bits", ConfigValue::tuple({4, 3})},
                           {"name", "it's: a 'name'"},
                           {"fake_quant", false},
                           {"amax", ConfigValue::list({ConfigValue::list({1.5}),
                                                       ConfigValue::list({double{0.1F}})})},
                           {"scale_amax", 0.5},
                           {"unsigned", true}}));
  Descriptor other;
  other.axis = Axis{{0}, true};
  check_back(other);
  CHECK_THROWS_WITH_AS(released_yaml(other), doctest::Contains("axis: expected a tuple, got 0"),
                       ArgumentError);
  other.axis = Axis{{0, -1}};
  check_back(other);
  other.axis.reset();
  other.learn_amax = true;
  other.amax = Tensor::scalar(0.1);
  other.num_bits = NumBits::floating(4, 3);
  check_back(other);
  other.amax = Tensor::full({1, 2, 1, 1}, 1e-30);
  check_back(other);
}

TEST_CASE("descriptors: amax is a number or nested lists and nothing else") {
  const auto list = [](std::vector<ConfigValue> items) {
    return ConfigValue::list(std::move(items));
  };
  const auto amax_of = [](const ConfigValue& value) {
    return Descriptor::from_dict(ConfigValue::dict({{"amax", value}})).amax;
  };
  CHECK(amax_of(2.5).sizes() == Dims{});
  CHECK(amax_of(list({1.5, 2})).sizes() == Dims{2});
  const Tensor nested = amax_of(list({list({list({1.0})}), list({list({2.0})})}));
  CHECK(nested.sizes() == Dims{2, 1, 1});
  CHECK(nested.to_float_vector() == std::vector<float>{1.0F, 2.0F});
  CHECK(descriptor_from_yaml("amax: [[1.0], [2.5]]").amax.sizes() == Dims{2, 1});
  const auto refuse = [&](const ConfigValue& value, const char* text) {
    CHECK_THROWS_WITH_AS(amax_of(value), doctest::Contains(text), ArgumentError);
  };
  refuse(ConfigValue::tuple({1.0, 2.0}), "amax: expected a float or a list, got (1.0, 2.0)");
  refuse(list({ConfigValue::tuple({1.0, 2.0})}),
         "amax: expected lists, not tuples, got (1.0, 2.0)");
  refuse(3, "amax: expected a float or a list, got 3");
  refuse(true, "amax: expected a float or a list");
  refuse(list({}), "amax: expected lists with numbers");
  refuse(list({1.0, "2"}), "amax: expected a number, got '2'");
  refuse(list({list({1.0, 2.0}), list({3.0})}), "amax: expected lists of one length and depth");
  refuse(list({1.0, list({3.0})}), "amax: expected lists of one length and depth");
  refuse(list({list({3.0}), 1.0}), "amax: expected lists of one depth");
  ConfigValue deep = 1.0;
  for (int level = 0; level < 11; ++level) deep = list({deep});
  refuse(deep, "amax: expected at most 10 levels");
  Descriptor descriptor;
  descriptor.amax = Tensor::ones({2}, DType::Int32);
  CHECK_THROWS_WITH_AS(descriptor.check(), doctest::Contains("got Int32"), ArgumentError);
}

TEST_CASE("descriptors: E4M3 suits each dialect and E2M1 ModelOpt's alone") {
  const ConfigValue e4m3 = ConfigValue::dict({{"num_bits", ConfigValue::tuple({4, 3})}});
  for (const auto dialect :
       {Descriptor::Dialect::PytorchQuantization, Descriptor::Dialect::ModelOpt}) {
    CHECK(Descriptor::from_dict(e4m3, dialect).num_bits == NumBits::floating(4, 3));
  }
  const ConfigValue e2m1 = ConfigValue::dict({{"num_bits", ConfigValue::tuple({2, 1})}});
  CHECK_NOTHROW(Descriptor::from_dict(e2m1, Descriptor::Dialect::ModelOpt));
  CHECK_THROWS_WITH_AS(Descriptor::from_dict(e2m1),
                       doctest::Contains("expected an integer or (4, 3), got (2, 1)"),
                       ArgumentError);
  static_assert(std::is_same_v<pytorch_quantization::QuantDescriptor, QuantDescriptor>);
}

TEST_CASE("descriptors: block axes are what a dictionary of block sizes has beside its names") {
  const auto blocks = QuantDescriptor::get_block_quant_axes_and_sizes(
      ConfigValue::dict({{-1, 32},
                         {"type", "dynamic"},
                         {"scale_bits", 8},
                         {"scale_block_sizes", ConfigValue::dict({{-1, 4}})},
                         {0, 2}}));
  CHECK(blocks == BlockSizes{{-1, 32}, {0, 2}});
  CHECK(!QuantDescriptor::get_block_quant_axes_and_sizes({}).has_value());
  CHECK_THROWS_WITH_AS(QuantDescriptor::get_block_quant_axes_and_sizes(8),
                       doctest::Contains("block_sizes: expected a dictionary, got 8"),
                       ArgumentError);
}

TEST_CASE("descriptors: fields that exclude each other are named with their values") {
  const auto refuse = [](const ConfigValue& fields, const char* text) {
    CHECK_THROWS_WITH_AS(Descriptor::from_dict(fields, Descriptor::Dialect::ModelOpt),
                         doctest::Contains(text), ArgumentError);
  };
  refuse(ConfigValue::dict({{"learn_amax", true}, {"axis", ConfigValue::tuple({0})}}),
         "axis: expected none with learn_amax=True, got (0,)");
  refuse(ConfigValue::dict({{"axis", 1}, {"block_sizes", ConfigValue::dict({{-1, 4}})}}),
         "axis: expected none with block_sizes, got 1");
  refuse(ConfigValue::dict({{"block_sizes", ConfigValue::dict({{-1, 0}})}}), "got 0");
  refuse(ConfigValue::dict({{"block_sizes", ConfigValue::dict({{-1, 4}, {-1, 8}})}}), "once");
  refuse(ConfigValue::dict({{"num_bits", -3}}), "num_bits: expected 0 or more, got -3");
  refuse(ConfigValue::dict({{"num_bits", 8}, {"num_bits", 4}}), "num_bits: expected it once");
  refuse(ConfigValue::dict({{"bits", 8}}), "bits");
  refuse(ConfigValue::list({8}), "expected a dictionary, got [8]");
}

TEST_CASE("configs: from_yaml gives what to_yaml was given") {
  const ConfigValue fields = ConfigValue::dict(
      {{"num_bits", ConfigValue::tuple({2, 1})},
       {"block_sizes",
        ConfigValue::dict(
            {{-1, 16}, {"type", "dynamic"}, {"scale_bits", ConfigValue::tuple({4, 3})}})},
       {"bias", ConfigValue::dict({{-1, ConfigValue()}, {"method", "mean"}})},
       {"rotate", ConfigValue::dict({{"enable", true}, {"block_size", 8}})},
       {"effective_bits", 4.5},
       {"constant_amax", 1e-5}});
  const QuantizerConfig config = QuantizerConfig::from_dict(fields);
  CHECK(config_from_yaml(to_yaml(config)) == config);
  CHECK_THROWS_WITH_AS(
      QuantizerConfig::from_dict(ConfigValue::dict({{"effective_bits", 17}})),
      doctest::Contains("effective_bits: expected a number above 0 and at most 16, got 17"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(QuantizerConfig::from_dict(
                           ConfigValue::dict({{"rotate", ConfigValue::dict({{"block_size", 0}})}})),
                       doctest::Contains("got 0"), ArgumentError);
}

TEST_CASE("yaml: scalars are what YAML 1.1 makes of them") {
  const ConfigValue value = parse_yaml(
      "a: null\nb: ~\nc:\nd: yes\ne: Off\nf: 12\ng: -1.5e-3\nh: .inf\ni: '12'\nj: \"x\\ny\"\nk: "
      "[1, [2]]\n"
      "l: {-1: 4}\nm: 1e999\nn: infinity\n");
  const auto& dict = *value.get_if<ConfigValue::Dict>();
  CHECK(dict.find("a")->is_null());
  CHECK(dict.find("b")->is_null());
  CHECK(dict.find("c")->is_null());
  CHECK(*dict.find("d") == ConfigValue(true));
  CHECK(*dict.find("e") == ConfigValue(false));
  CHECK(*dict.find("f") == ConfigValue(12));
  CHECK(*dict.find("g") == ConfigValue(-1.5e-3));
  CHECK(to_string(*dict.find("h")) == "inf");
  CHECK(*dict.find("i") == ConfigValue("12"));
  CHECK(*dict.find("j") == ConfigValue("x\ny"));
  CHECK(*dict.find("k") == ConfigValue::list({1, ConfigValue::list({2})}));
  CHECK(*dict.find("l") == ConfigValue::dict({{-1, 4}}));
  CHECK(dict.find("m")->get_if<std::string>() != nullptr);
  CHECK(*dict.find("n") == ConfigValue("infinity"));
}

TEST_CASE("yaml: names that look like something else are quoted") {
  for (const char* name :
       {"",     "12", "true",      "null", "a b",  "x: y", "- z", "#",   "'",  "\"", "\\", "\n",
        "\x01", "ä",  "w.1/b-c_d", "~",    ".inf", "=",    "<<",  "1e5", "*x", "&x", "!x"}) {
    Descriptor descriptor;
    descriptor.name = name;
    CAPTURE(name);
    CHECK(descriptor_from_yaml(to_yaml(descriptor)) == descriptor);
  }
}

TEST_CASE("yaml: the amax of each row of a large weight comes back") {
  const Descriptor::Dialect dialect = Descriptor::Dialect::ModelOpt;
  Descriptor descriptor;
  descriptor.dialect = dialect;
  std::vector<float> maxima;
  for (int i = 0; i < 32000; ++i) maxima.push_back(1.0F / static_cast<float>(3 + i));
  for (const Dims& sizes : {Dims{32000, 1}, Dims{1, 32000}}) {
    descriptor.amax = Tensor::from_values(maxima, sizes);
    CHECK(descriptor_from_yaml(to_yaml(descriptor), dialect) == descriptor);
  }
}

TEST_CASE("yaml: malformed and hostile text is refused") {
  const auto refuse = [](const std::string& text, const char* why) {
    CHECK_THROWS_WITH_AS(parse_yaml(text), doctest::Contains(why), ArgumentError);
  };
  refuse("num_bits: [8", "line ");
  refuse("a: b: c", "line 1");
  refuse("\tnum_bits: 8", "line");
  refuse("- 8", "expected a dictionary, got [8]");
  refuse("", "expected a dictionary, got None");
  refuse("a: 1\na: 2", "expected 'a' once");
  refuse("a: !!python/tuple [1]", "expected no tags");
  refuse("a: !!str 8", "expected no tags");
  refuse("a: *missing", "expected YAML");
  refuse("a: " + std::string(40, '[') + std::string(40, ']'), "levels");
  refuse(std::string((8 << 20) + 1, ' '), "8388608");
  refuse("a: " + std::string(100000, '['), "parse_yaml");
  refuse("a: " + std::string(100000, '{'), "parse_yaml");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string name = "a" + std::to_string(i);
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += name + ": &" + name + " [";
    for (int k = 0; k < 10; ++k) bomb += (k == 0 ? "" : ", ") + last;
    bomb += "]\n";
  }
  refuse(bomb, "values");
  std::string many = "a: [1";
  for (int i = 0; i < 1000000; ++i) many += ",1";
  refuse(many + "]", "at most 1000000 values");
  std::string repeated = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\nb: [*a";
  for (int i = 0; i < 1000; ++i) repeated += ",*a";
  refuse(repeated + "]", "at most 10000 keys and values of aliases");
  std::string keys;
  for (int i = 0; i < 10001; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  refuse(keys, "at most 10000 keys");
  CHECK_THROWS_AS(parse_yaml(std::string("a: \0b", 5)), ArgumentError);
  CHECK_THROWS_WITH_AS(descriptor_from_yaml("num_bits: eight"),
                       doctest::Contains("num_bits: expected an integer or a pair"), ArgumentError);
  CHECK_THROWS_AS(config_from_yaml("block_sizes: {-1: 4, 0: 2, type: dynamic}"), ArgumentError);
}

}  // namespace
}  // namespace quanta::modelopt
