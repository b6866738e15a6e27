# Run by ctest with CONFIG, GENERATOR, CXX_COMPILER, WORK_DIR, CONSUMER_DIR, KIND and DISTRIBUTED
# (whether there is quanta::distributed): builds and runs the consumer against WORK_DIR/prefix with the
# static or the shared libraries.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

set(build "${WORK_DIR}/build_${KIND}")
run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${build}" -G "${GENERATOR}"
    "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix" "-DQUANTA_KIND=${KIND}"
    "-DQUANTA_DISTRIBUTED=${DISTRIBUTED}")
run("${CMAKE_COMMAND}" --build "${build}" --config "${CONFIG}")
run("${build}/bin/consumer")
if(DISTRIBUTED)
  run("${build}/bin/ranks")
endif()
