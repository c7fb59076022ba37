// The inner loops for every processor of the architecture.
#define DSPARK_HD static inline
#define DSPARK_ISA baseline
#define DSPARK_ISA_NAME "baseline"
#define DSPARK_VECTOR_BYTES 16
#define DSPARK_TILE_ROWS 4
#include "backends/cpu/vector_ops.inl"
