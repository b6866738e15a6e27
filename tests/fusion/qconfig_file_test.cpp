#include "quanta/fusion/qconfig_file.h"

#include <doctest/doctest.h>

#include <array>

#include "fusion/small_network.h"
#include "quanta/fusion/quantize.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/given_qparams_observer.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/files.h"

namespace quanta {
namespace {

QConfigMapping everything() {
  QConfigMapping mapping(get_default_qconfig());
  mapping.set_object_type<nn::Linear>(std::nullopt);
  mapping.set_module_name(
      "conv1",
      QConfig{HistogramObserver::with_args({.bins = 512}),
              MinMaxObserver::with_args({.dtype = DType::QInt8, .quant_min = -8, .quant_max = 7})});
  mapping.set_module_name(
      "conv2", QConfig{{},
                       GivenQParamsObserver::with_args(
                           {.qparams = {Tensor::from_values({0.1F}),
                                        Tensor::from_int64(std::array<std::int64_t, 1>{0})}})});
  mapping.set_module_name_regex("layer2\\..*", get_default_qat_qconfig());
  mapping.set_module_name_regex(".*", std::nullopt);
  return mapping;
}

TEST_CASE("A QConfigMapping comes back from its file, observer for observer") {
  const std::string json = to_json(everything());
  const QConfigMapping read = qconfig_mapping_from_json(json);
  CHECK(to_json(read) == json);
  CHECK(read.global()->activation.name == get_default_qconfig().activation.name);
  CHECK(read.global() == everything().global());
  CHECK(read.by_name() == everything().by_name());
  CHECK(read.by_regex() == everything().by_regex());
  CHECK(read.by_type() == everything().by_type());
  CHECK(to_json(qconfig_mapping_from_json(to_json(QConfigMapping()))) == to_json(QConfigMapping()));
}

TEST_CASE("A network is quantized with a mapping from a file as with the mapping itself") {
  const test::SmallNetwork net;
  QConfigMapping mapping(get_default_qconfig());
  mapping.set_module_name("fc", std::nullopt);
  const test::TemporaryFile file;
  save_qconfig_mapping(mapping, file.path);
  Generator generator(1);
  const std::vector<Tensor> data{randn({2, 3, 8, 8}, generator)};
  const auto want = quantize(net, data[0], data, {.qconfigs = mapping});
  const auto got = quantize(net, data[0], data, {.qconfigs = load_qconfig_mapping(file.path)});
  CHECK(test::same_bits(got(data[0]), want(data[0])));
}

TEST_CASE("Each observer that a file makes begins without data") {
  const QConfigMapping read =
      qconfig_mapping_from_json(to_json(QConfigMapping(get_default_qconfig())));
  const auto first = read.global()->activation();
  first->update(Tensor::from_values({1.0F, 2.0F}));
  CHECK_FALSE(read.global()->activation()->has_data());
}

TEST_CASE("Files that are no mapping are refused, with the place") {
  const auto refused = [](const char* json, const char* part) {
    CHECK_THROWS_WITH_AS(qconfig_mapping_from_json(json, "m.json"), doctest::Contains(part),
                         FileError);
  };
  refused("[]", "m.json: expected an object");
  refused(R"({"format": "other", "version": 1})", "m.json: format");
  refused(R"({"format": "quanta.qconfig_mapping", "version": 2})", "version");
  refused(R"({"format": "quanta.qconfig_mapping", "version": 1, "nmaes": {}})", "'nmaes'");
  refused(R"({"format": "quanta.qconfig_mapping", "version": 1, "types": {"Lineal": null}})",
          "types: Lineal");
  refused(
      R"({"format": "quanta.qconfig_mapping", "version": 1, "names": {"fc": {"weight": null}}})",
      "names: fc: expected a member 'activation'");
  refused(
      R"({"format": "quanta.qconfig_mapping", "version": 1, "global": {"activation":
         {"kind": "FakeQuantize", "observer": {"kind": "FakeQuantize", "observer": null}}, "weight": null}})",
      "observer");
  CHECK_THROWS_AS(qconfig_mapping_from_json(
                      R"({"format": "quanta.qconfig_mapping", "version": 1, "global": {"activation":
         {"kind": "MinMaxObserver", "settings": {"bins": 3}}, "weight": null}})"),
                  ArgumentError);
  CHECK_THROWS_AS(load_qconfig_mapping("/nowhere/mapping.json"), FileError);
}

TEST_CASE("What cannot be made again is not written") {
  class Own final : public MinMaxObserver {
   public:
    std::string name() const override { return "OwnObserver"; }
  };
  const ObserverFactory own{"OwnObserver", [] { return std::make_shared<Own>(); }};
  CHECK_THROWS_WITH_AS(to_json(QConfigMapping(QConfig{own, {}})), doctest::Contains("OwnObserver"),
                       UnsupportedError);
  struct Unknown : nn::Module {
    Tensor forward(const Tensor& x) const override { return x; }
  };
  QConfigMapping mapping;
  mapping.set_object_type<Unknown>(std::nullopt);
  CHECK_THROWS_WITH_AS(to_json(mapping), doctest::Contains("register_module_form"),
                       UnsupportedError);
}

}  // namespace
}  // namespace quanta
