# Run by ctest with BUILD_DIR, CONFIG, GENERATOR, CXX_COMPILER, WORK_DIR and CONSUMER_DIR.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${output}\nfailed (${result}): ${command}")
  endif()
  list(GET ARGN 0 program)
  if(NOT program STREQUAL CMAKE_COMMAND)
    message(STATUS "${program} printed: ${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
# Installed somewhere and then moved: nothing in the package may name the prefix.
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --config "${CONFIG}" --prefix
    "${WORK_DIR}/installed")
file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/prefix")

foreach(private runtime/check.h ops/cpu runtime/detail)
  if(EXISTS "${WORK_DIR}/prefix/include/quanta/${private}")
    message(FATAL_ERROR "private header installed: ${private}")
  endif()
endforeach()

run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
    "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build" --config "${CONFIG}")
run("${WORK_DIR}/build/bin/consumer")

# The installed command finds its libraries too.
if(EXISTS "${WORK_DIR}/prefix/bin/quanta")
  run("${WORK_DIR}/prefix/bin/quanta" --help)
endif()
