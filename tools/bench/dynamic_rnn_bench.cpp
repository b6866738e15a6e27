// LSTM and GRU with QInt8 and Float16 weights beside the float layers: 64 steps of 256 features,
// two layers of 512. The weights of the hidden states are read anew in every step; those of the
// input once a call. OMP_NUM_THREADS says how many threads.

#include <memory>
#include <string>

#include "op_bench.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/observers/qconfig.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kSteps = 64;
constexpr std::int64_t kInputs = 256;
constexpr std::int64_t kHidden = 512;

/// Bytes of weights that a call reads; those of one layer's hidden states stay in a cache, if it is
/// large enough.
Work work_of(std::int64_t batch, std::int64_t gates, std::int64_t weight_bytes) {
  const std::int64_t hidden = gates * kHidden * kHidden;
  const std::int64_t once = gates * kHidden * (kInputs + kHidden);
  return {.bytes = static_cast<double>(weight_bytes * (2 * kSteps * hidden + once)),
          .operations = 2.0 * static_cast<double>(kSteps * batch * (2 * hidden + once)),
          .read_set = static_cast<std::size_t>(weight_bytes * hidden)};
}

template <typename Float, typename Dynamic>
void add_layer(const std::string& name, std::int64_t gates) {
  struct Form {
    const char* name;
    QConfig (*qconfig)();
    std::int64_t weight_bytes;
  };
  for (const Form& form : {Form{"int8", &default_dynamic_qconfig, 1},
                           Form{"int8/per_channel", &per_channel_dynamic_qconfig, 1},
                           Form{"float16", &float16_dynamic_qconfig, 2}}) {
    for (const std::int64_t batch : {1, 4, 16}) {
      const std::string full = name + "/" + form.name + "/batch" + std::to_string(batch);
      add_benchmark(full, work_of(batch, gates, form.weight_bytes), [form, batch] {
        const auto float32 = nn::make_module<Float>(
            nn::RecurrentOptions{.input_size = kInputs, .hidden_size = kHidden, .num_layers = 2});
        float32->set_qconfig(form.qconfig());
        const std::shared_ptr<nn::Module> dynamic = Dynamic::from_float(*float32);
        float32->eval();
        dynamic->eval();
        const Tensor x = float_input({kSteps, batch, kInputs});
        return std::pair([dynamic, x] { (*dynamic)(x); }, [float32, x] { (*float32)(x); });
      });
    }
  }
}

const Family kFamily([] {
  namespace qd = nn::quantized::dynamic;
  add_layer<nn::LSTM, qd::LSTM>("lstm/2x512", 4);
  add_layer<nn::GRU, qd::GRU>("gru/2x512", 3);
});

}  // namespace
}  // namespace quanta::bench
