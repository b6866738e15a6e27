#include "quanta/nn/qat/module.h"

#include "quanta/runtime/check.h"

namespace quanta::nn::qat {

QatModule::QatModule(std::string_view op, const QConfig& qconfig) {
  QUANTA_CHECK(static_cast<bool>(qconfig.weight),
               "{}: qconfig: expected one with a fake quantizer for weights "
               "(get_default_qat_qconfig()), got none",
               op);
  fake_quant_ = qconfig.weight();
}

QatModule& QatModule::operator=(const QatModule& other) {
  if (this != &other) fake_quant_ = other.fake_quant_->clone();
  return *this;
}

}  // namespace quanta::nn::qat
