// Marks functions that compile for the host and, under nvcc, for the device too.
#pragma once

// A source that is compiled for a newer instruction set than the rest of the program defines
// DSPARK_HD as `static inline` first: the linker keeps one copy of an inline function, and it must
// not be one the processor may lack.
#if defined(__CUDACC__)
#define DSPARK_HD __host__ __device__ inline
#elif !defined(DSPARK_HD)
#define DSPARK_HD inline
#endif
