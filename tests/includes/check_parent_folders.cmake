# Fails if a source file of src/ or kernels/ includes through a parent folder.
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE files "${SOURCE}/src/*.h" "${SOURCE}/src/*.cpp" "${SOURCE}/kernels/*.h"
  "${SOURCE}/kernels/*.cuh" "${SOURCE}/kernels/*.cu" "${SOURCE}/kernels/*.cpp")
if(NOT files)
  message(FATAL_ERROR "no source files in ${SOURCE}")
endif()
foreach(file IN LISTS files)
  file(STRINGS "${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<][^\">]*\\.\\./")
  foreach(line IN LISTS lines)
    message(SEND_ERROR "${file}: ${line}")
  endforeach()
endforeach()
