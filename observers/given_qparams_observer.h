#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/observers/observer.h"
#include "quanta/observers/qconfig.h"

// What throws says so. Many threads may share an observer (see observers/collector.h).

namespace quanta {

/// Gives the scales and zero points that it was made with, whatever passes: for weights whose grid
/// was found before (adaround, gptq ...), so that convert gives each weight the code it lies on.
/// FixedQParamsObserver is the one for activations, under torch's name.
class GivenQParamsObserver final : public Observer {
 public:
  struct Options {
    /// Float32 [1] and Int64 [1] per tensor, [C] both per channel.
    ObservedQParams qparams{};
    DType dtype = DType::QInt8;
    QScheme qscheme = QScheme::PerTensorSymmetric;  ///< not PerChannelAffineFloatQParams
    std::int64_t ch_axis = 0;
    std::int64_t quant_min = -128;
    std::int64_t quant_max = 127;
  };
  /// Copies the tensors. Throws ArgumentError for scales that are not finite and > 0, zero points
  /// outside of the codes, sizes that do not fit the scheme and codes that the dtype does not have;
  /// UnsupportedError for float qparams.
  explicit GivenQParamsObserver(const Options& options);
  static ObserverFactory with_args(const Options& options);

  std::string name() const override { return "GivenQParamsObserver"; }
  Settings settings() const override;
  std::int64_t ch_axis() const noexcept override { return options_.ch_axis; }
  DigestKind digests() const override { return DigestKind::Alone; }
  /// Anything passes.
  Digest digest(const Tensor& /*x*/) const override { return {.passed = true}; }
  bool absorb(const Digest& /*digest*/) override { return true; }
  bool join(Digest& /*digest*/, const Digest& /*next*/) const override { return true; }
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return true; }
  /// Nothing to forget: the parameters stay.
  void reset() override {}
  /// Changes nothing; throws ArgumentError when the parameters differ.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  /// Throws ArgumentError as the constructor does, and for another number of scales.
  void load_state(const StateDict& state, const std::string& prefix) override;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;  // qparams are guarded by mutex_, the rest never changes
};

/// A factory of observers that give what `observer` calculates now, with its dtype, scheme, axis and
/// codes. Throws as calculate_qparams and the constructor do.
ObserverFactory given_qparams_of(const Observer& observer);

}  // namespace quanta
