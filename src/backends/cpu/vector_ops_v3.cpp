// The inner loops for x86-64-v3 (AVX2, FMA).
#define DSPARK_HD static inline
#define DSPARK_ISA x86_64_v3
#define DSPARK_ISA_NAME "x86-64-v3"
#define DSPARK_VECTOR_BYTES 32
#define DSPARK_TILE_ROWS 6
#include "backends/cpu/vector_ops.inl"
