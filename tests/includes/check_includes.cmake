# Fails unless each header of MAY is found with the include folders FOLDERS, and none of MUST_NOT is.
cmake_minimum_required(VERSION 3.25)

set(options)
foreach(folder IN LISTS FOLDERS)
  list(APPEND options "-I${folder}")
endforeach()

set(ENV{LC_ALL} C)  # the compiler's words are read below
foreach(header IN LISTS MAY MUST_NOT)
  if(NOT EXISTS "${SOURCE}/src/${header}" AND NOT EXISTS "${SOURCE}/${header}")
    message(FATAL_ERROR "there is no ${header}: it was renamed, or the list of this test is wrong")
  endif()
  execute_process(
    COMMAND "${COMPILER}" -std=c++20 -M ${options} -include "${header}" -x c++ /dev/null
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE text)
  if(header IN_LIST MAY)
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${header} is not reached, and should be:\n${text}")
    endif()
  elseif(result EQUAL 0)
    message(SEND_ERROR "${header} is reached, and should not be")
  elseif(NOT text MATCHES "(No such file or directory|file not found)")
    message(SEND_ERROR "${header} fails for another reason than that it is not found:\n${text}")
  elseif(NOT text MATCHES "${header}")
    message(SEND_ERROR "${header} is reached, and should not be; what it includes is not found:\n${text}")
  endif()
endforeach()
