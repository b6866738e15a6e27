#include <doctest/doctest.h>

#include <array>

#include "quanta/observers/defaults.h"
#include "quanta/observers/qconfig.h"

namespace quanta {
namespace {

TEST_CASE("named QConfigs: each pairs the observers that torch's pairs") {
  struct Row {
    const char* name;
    QConfig qconfig;
    ObserverFactory activation;
    ObserverFactory weight;
  };
  const std::array rows{
      Row{"default_qconfig", default_qconfig(), default_observer(), default_weight_observer()},
      Row{"default_debug_qconfig", default_debug_qconfig(), default_debug_observer(),
          default_weight_observer()},
      Row{"default_per_channel_qconfig", default_per_channel_qconfig(), default_observer(),
          default_per_channel_weight_observer()},
      Row{"default_dynamic_qconfig", default_dynamic_qconfig(), default_dynamic_quant_observer(),
          default_weight_observer()},
      Row{"per_channel_dynamic_qconfig", per_channel_dynamic_qconfig(),
          default_dynamic_quant_observer(), default_per_channel_weight_observer()},
      Row{"float_qparams_weight_only_qconfig", float_qparams_weight_only_qconfig(),
          default_placeholder_observer(), default_float_qparams_observer()},
      Row{"float_qparams_weight_only_qconfig_4bit", float_qparams_weight_only_qconfig_4bit(),
          default_placeholder_observer(), default_float_qparams_observer_4bit()},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CHECK(row.qconfig == QConfig{row.activation, row.weight});
    CHECK(qconfig_from_name(row.name) == row.qconfig);
  }
}

TEST_CASE("float16 QConfigs: both sides only mark the dtype") {
  CHECK(float16_dynamic_qconfig().activation()->is_dynamic());
  for (const QConfig& qconfig : {float16_dynamic_qconfig(), float16_static_qconfig()}) {
    CHECK(qconfig.activation()->dtype() == DType::Float16);
    CHECK(qconfig.weight()->dtype() == DType::Float16);
    CHECK_FALSE(qconfig.weight()->is_dynamic());
  }
}

}  // namespace
}  // namespace quanta
