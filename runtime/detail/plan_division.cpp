#include "quanta/runtime/detail/plan_division.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quanta/runtime/detail/buffer_places.h"
#include "quanta/runtime/detail/item_loop.h"
#include "quanta/runtime/detail/row_program.h"
#include "quanta/runtime/parallel.h"

namespace quanta::replay::detail {

Division::Division(const Program& program, std::int64_t rows_at_a_time, std::int64_t all_rows)
    : rows(rows_at_a_time), parts(all_rows / rows_at_a_time) {
  RowProgram cut = with_rows(program, rows);
  layout.program = std::move(cut.program);
  layout.arena_bytes = place_buffers(layout.program);
  for (std::size_t b = 0; b < layout.program.buffers.size(); ++b) {
    const Buffer& buffer = layout.program.buffers[b];
    if (buffer.kind != BufferKind::Input && buffer.kind != BufferKind::Output) continue;
    auto& bytes = buffer.kind == BufferKind::Input ? input_bytes : output_bytes;
    bytes.resize(std::max(bytes.size(), buffer.number + 1));
    bytes[buffer.number] = static_cast<std::size_t>(rows) * cut.row_bytes[b];
  }
}

void Division::run(std::span<const Place> in_places, std::span<const Place> out_places) const {
  std::vector<std::unique_ptr<Instance>> instances;
  const std::int64_t workers = std::min<std::int64_t>(parts, get_num_threads());
  for (std::int64_t w = 0; w < workers; ++w) instances.push_back(layout.take());
  quanta::detail::for_each_item(
      parts, quanta::detail::ItemLength::Long, [&](std::int64_t part, int worker) {
        const Instance& own = *instances[static_cast<std::size_t>(worker)];
        Instance::move(own.in_input, in_places);
        Instance::move_on(own.in_input, input_bytes, part);
        Instance::move(own.in_output, out_places);
        Instance::move_on(own.in_output, output_bytes, part);
        layout.run_steps(own, 0, layout.program.steps.size());
      });
  for (std::unique_ptr<Instance>& instance : instances) layout.give(std::move(instance));
}

}  // namespace quanta::replay::detail
