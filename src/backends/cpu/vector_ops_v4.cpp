// The inner loops for x86-64-v4 (AVX-512 F, BW, CD, DQ, VL).
#define DSPARK_HD static inline
#define DSPARK_ISA x86_64_v4
#define DSPARK_ISA_NAME "x86-64-v4"
#define DSPARK_VECTOR_BYTES 64
#define DSPARK_TILE_ROWS 12
#include "backends/cpu/vector_ops.inl"
