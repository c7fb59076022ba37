# One flags target for all of this project's code.
add_library(dspark_flags INTERFACE)
target_compile_features(dspark_flags INTERFACE cxx_std_20)

# Host and device must round alike: no contraction of a * b + c; fused operations are written out (core/exp.h).
target_compile_options(dspark_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor>
  # GCC 12 warns of impossible overlaps inside std::string (its bug 105651).
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # CMake 3.25 does not know CUDA C++20 for nvcc, so the flag is given by hand.
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --fmad=false --expt-relaxed-constexpr>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>)

if(DSPARK_WERROR)
  target_compile_options(dspark_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()

if(DSPARK_SANITIZE)
  target_compile_options(dspark_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DSPARK_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(dspark_flags INTERFACE -fsanitize=${DSPARK_SANITIZE})
endif()
