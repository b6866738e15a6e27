# Fails unless CONFORM with ARGUMENTS exits with 2 and says TEXT.

execute_process(
  COMMAND ${CONFORM} ${ARGUMENTS}
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code EQUAL 2)
  message(FATAL_ERROR "exit code ${code}, expected 2:\n${output}${errors}")
endif()
string(FIND "${output}${errors}" "${TEXT}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "'${TEXT}' is not in:\n${output}${errors}")
endif()
