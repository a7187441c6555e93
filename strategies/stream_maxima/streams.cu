// The best k of every row, a cluster for each, that is read in a stream.
//
// Compile-time: as of maxima.cu, and see stream.cuh.
#include "stream.cuh"
#include "maxima.cu"
