#pragma once

// Plans made by hand, for tests.

#include <cstddef>
#include <vector>

#include "quanta/runtime/detail/buffer_places.h"
#include "quanta/runtime/detail/forks.h"
#include "quanta/runtime/detail/plan_layout.h"
#include "quanta/runtime/recorder.h"

namespace quanta::test {

/// The steps of network(x), whose results have no places yet.
template <typename Network>
replay::detail::Program program_of(const Network& network, const Tensor& x) {
  const replay::Recording recording(x);
  const Tensor y = network(x);
  replay::detail::Program program = replay::detail::make_program(recording, {&x, 1}, {&y, 1});
  replay::detail::simplify(program, Device::cpu());
  replay::detail::reuse_inputs(program);
  return program;
}

/// The only result, after run(inputs, outputs) has been told where x lies and where the result is to.
template <typename Run>
Tensor result_of(const replay::detail::Program& program, const Tensor& x, const Run& run) {
  const replay::detail::Value& result = program.outputs[0];
  const replay::detail::Buffer& buffer = program.buffers[result.buffer];
  const replay::detail::Place in{x.storage(), x.storage()->data()};
  replay::detail::Place out;
  if (buffer.kind == replay::detail::BufferKind::Input) {
    out = in;
  } else if (buffer.kind == replay::detail::BufferKind::Constant) {
    out = {buffer.constant, buffer.constant->data()};
  } else {
    out.storage = IntrusivePtr<Storage>(new Storage(buffer.bytes, Device::cpu()));
    out.begin = out.storage->data();
  }
  run(std::span(&in, 1), std::span(&out, 1));
  return replay::detail::tensor_of(result, out.storage, out.begin);
}

/// Whether two steps must keep their order.
bool conflict(const replay::detail::Program& program, std::size_t a, std::size_t b);

/// Every step of a fork once, in its order, and no two lanes need anything of each other.
void check_forks(const replay::detail::Program& program,
                 const std::vector<replay::detail::Fork>& forks);

/// Buffers that are needed at the same time lie apart, as steps of other lanes may run in between.
void check_memory(const replay::detail::Program& program,
                  const std::vector<replay::detail::Fork>& forks = {});

}  // namespace quanta::test
