/* The reference model S32: 32.0 M parameters, of which 4.2 M are the embedding. C11 and C++. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#define S32_DIM 512
#define S32_LAYERS 8
#define S32_HEADS 8
#define S32_KV_HEADS 4
#define S32_FFN 1408
#define S32_VOCAB 8192
#define S32_SEQUENCE 256
#define S32_BATCH 4 /* rows a rank */

#endif
