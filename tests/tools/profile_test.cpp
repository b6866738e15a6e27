#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "quanta/fusion/model_file.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "quanta/tools/cli/networks.h"
#include "quanta/tools/cli/profile.h"
#include "support/tensors.h"

namespace quanta::cli {
namespace {

namespace fs = std::filesystem;

/// The files that the command takes and writes, in a folder that goes away.
class Files {
 public:
  Files() {
    folder_ = fs::temp_directory_path() / ("quanta-profile-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    const NetworkKind& kind = network_kind("mlp");
    write_safetensors(folder_ / "weights.safetensors", kind.make()->state_dict());
    StateDict inputs;
    inputs.set("x", test::random_tensor({4, 784}, 1));
    write_safetensors(folder_ / "x.safetensors", inputs);
  }
  ~Files() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string operator/(const char* name) const { return (folder_ / name).string(); }
  ProfileOptions options() const {
    ProfileOptions options;
    options.model = "mlp";
    options.weights = *this / "weights.safetensors";
    options.calib = options.input = *this / "x.safetensors";
    options.batch = 2;
    options.repeats = 3;
    return options;
  }
  nlohmann::json read(const char* name) const {
    std::ifstream file(*this / name);
    return nlohmann::json::parse(file);
  }

 private:
  fs::path folder_;
};

}  // namespace

TEST_CASE("quanta profile: figures for each module of an int8 network beside float") {
  const Files files;
  ProfileOptions options = files.options();
  options.json = files / "out.json";
  options.trace = files / "trace.json";
  REQUIRE(run_profile(options) == 0);

  const nlohmann::json figures = files.read("out.json");
  CHECK(figures.at("dtype") == "int8");
  CHECK(figures.at("batch") == 2);
  CHECK(figures.at("machine").at("read_cache_gbytes") > 0.0);
  const nlohmann::json& modules = figures.at("modules");
  REQUIRE(modules.size() == 5);
  CHECK(modules[0].at("path") == "quant");
  CHECK_FALSE(modules[0].contains("float_us"));
  double share = figures.at("total").at("outside_us").get<double>() /
                 (figures.at("total").at("outside_us").get<double>() +
                  figures.at("total").at("op_us").get<double>());
  for (const nlohmann::json& module : modules) share += module.at("share").get<double>();
  CHECK(share == doctest::Approx(1.0));
  const nlohmann::json& linear = modules[1];
  CHECK(linear.at("path") == "fc1");
  CHECK(linear.at("type") == "QuantizedLinearReLU");
  CHECK(linear.at("multiply_adds") == 2 * 784 * 1024);
  CHECK(linear.at("gops") > 0.0);
  CHECK(linear.at("float_us") > 0.0);
  CHECK(linear.at("plan_us") > 0.0);
  CHECK_FALSE(linear.at("kernels").empty());

  const nlohmann::json events = files.read("trace.json").at("traceEvents");
  const auto has = [&](const char* name) {
    return std::any_of(events.begin(), events.end(),
                       [&](const nlohmann::json& event) { return event.at("name") == name; });
  };
  CHECK(has("fc1"));
  CHECK(has("quantized::linear_relu"));
  CHECK(has("linear"));
}

TEST_CASE("quanta profile: a dynamic network has no quantizing modules") {
  const Files files;
  ProfileOptions options = files.options();
  options.dtype = "dynamic-int8";
  options.calib.clear();
  options.json = files / "out.json";
  REQUIRE(run_profile(options) == 0);
  const nlohmann::json figures = files.read("out.json");
  CHECK(figures.at("dtype") == "dynamic-int8");
  REQUIRE(figures.at("modules").size() == 3);
  for (const nlohmann::json& module : figures.at("modules")) CHECK(module.contains("float_us"));
}

TEST_CASE("quanta profile: a network without weights runs with random ones") {
  const Files files;
  ProfileOptions options;
  options.model = "mlp";
  options.repeats = 1;
  options.json = files / "out.json";
  REQUIRE(run_profile(options) == 0);
  CHECK(files.read("out.json").at("modules").size() == 5);
}

TEST_CASE("quanta profile: bad options are told by name") {
  const Files files;
  ProfileOptions options = files.options();
  options.batch = 5;
  CHECK_THROWS_WITH_AS(run_profile(options), doctest::Contains("--batch: expected at most the 4"),
                       ArgumentError);
  options = files.options();
  options.dtype = "float32";
  CHECK_THROWS_WITH_AS(run_profile(options), doctest::Contains("--dtype: expected int8"),
                       ArgumentError);
  options = files.options();
  options.calib.clear();
  CHECK_THROWS_WITH_AS(run_profile(options), doctest::Contains("--calib"), ArgumentError);
  options = files.options();
  options.weights = files / "model.safetensors";
  const NetworkKind& kind = network_kind("mlp");
  save_model(*load_network(kind, NetworkForm::Int8, files / "weights.safetensors",
                           read_inputs(kind, options.calib)),
             options.weights);
  CHECK_THROWS_WITH_AS(run_profile(options), doctest::Contains("--weights: expected float weights"),
                       ArgumentError);
}

}  // namespace quanta::cli
