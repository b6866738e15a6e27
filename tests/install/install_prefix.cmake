# Run by ctest with BUILD_DIR, CONFIG and WORK_DIR: installs into WORK_DIR/prefix.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

file(REMOVE_RECURSE "${WORK_DIR}")
# Installed somewhere and then moved: nothing in the package may name the prefix.
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --config "${CONFIG}" --prefix
    "${WORK_DIR}/installed")
file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/prefix")

foreach(private runtime/check.h ops/cpu ops/conv runtime/detail nn/detail)
  if(EXISTS "${WORK_DIR}/prefix/include/quanta/${private}")
    message(FATAL_ERROR "private header installed: ${private}")
  endif()
endforeach()

# The installed command finds its libraries.
if(EXISTS "${WORK_DIR}/prefix/bin/quanta")
  run("${WORK_DIR}/prefix/bin/quanta" --help)
  # It finds the demo's weights beside itself.
  execute_process(COMMAND "${WORK_DIR}/prefix/bin/quanta" demo --help OUTPUT_VARIABLE help)
  if(NOT help MATCHES "${WORK_DIR}/prefix/[^ ]*share/quanta")
    message(FATAL_ERROR "expected ${WORK_DIR}/prefix/share/quanta for --weights, got ${help}")
  endif()
  foreach(file share/quanta/fashion_resnet.safetensors share/quanta/fashion_mobilenet.safetensors
          share/bash-completion/completions/quanta share/zsh/site-functions/_quanta)
    if(NOT EXISTS "${WORK_DIR}/prefix/${file}")
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
endif()
