// Marks functions that compile for the host and, under nvcc, for the device too.
#pragma once

#if defined(__CUDACC__)
#define DSPARK_HD __host__ __device__ inline
#else
#define DSPARK_HD inline
#endif
