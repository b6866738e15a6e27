# Runs the cases below FOLDERS, without those that LEFT_OUT names. Says SKIPPED and MISSING where a
# folder is not there.

foreach(folder IN LISTS FOLDERS)
  if(NOT IS_DIRECTORY "${folder}")
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: ${MISSING} (${folder})")
    return()
  endif()
endforeach()
# Those that are left out count as unsupported.
file(STRINGS "${LEFT_OUT}" names REGEX "^[^#]")
list(LENGTH names left_out)
execute_process(
  COMMAND ${CONFORM} --left-out "${LEFT_OUT}" --max-unsupported ${left_out} --onnx ${FOLDERS}
  RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "exit code ${code}, expected 0")
endif()
