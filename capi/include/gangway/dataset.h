/* Datasets: files of tokens as the batches of a training.
 *
 * The rows of a training are one long list. Which row comes n-th is a pure function of the options, the files
 * and n, never of the ranks; so a training sees the same global batches on any mesh, and goes on from the
 * number of rows that it has taken. */
#ifndef GANGWAY_DATASET_H
#define GANGWAY_DATASET_H

#include <gangway/mesh.h>
#include <gangway/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_dataset gw_dataset;

/* How tokens become rows of a length S. */
typedef int32_t gw_packing;
enum gw_packing_value {
  GW_PACKING_INVALID = -1,
  /* Row i of a file has the tokens from i * S on; the last row is padded. A row has parts of several
   * documents, and attention crosses their bounds. */
  GW_PACKING_STREAM = 0,
  /* Each row has whole documents, with padding at its end. Only documents that are longer than a row are
   * cut. The batch says which document each token belongs to, so that neither labels nor attention cross the
   * bounds of documents, and positions count from 0 in each. */
  GW_PACKING_DOCUMENTS = 1
};

/* Files that are one source of rows. */
typedef struct gw_data_source {
  size_t struct_size;
  const gw_ext *next;
  /* A file; a folder, which means all of its files with a known ending; or a pattern with *, ? or []. Several
   * files are read in the order of their names. No row has tokens of two files. */
  const char *path;
  /* How tokens are written: "u8", "u16" or "u32" (numbers alone, little-endian), "llm.c" (its .bin with a
   * header), "megatron" (its .bin with an .idx beside it), "npy" (one dimension, integers). Default null: by
   * the endings .u8, .u16, .u32 and .npy, and for .bin by an .idx beside it or by llm.c's header. */
  const char *format;
  double weight; /* The share of this source in the rows, compared with the other weights. Default 1. */
} gw_data_source;
GW_API void gw_data_source_init(gw_data_source *source, size_t size);

typedef struct gw_dataset_options {
  size_t struct_size;
  const gw_ext *next;
  /* Weights are rounded to 1/65536 of their sum. After any number of rows each source is within one row of
   * its share. Each source has epochs of its own, in which each of its rows comes once. */
  const gw_data_source *sources;
  size_t source_count;
  int64_t sequence;     /* The tokens of a row. Default 2048. */
  uint64_t seed;        /* Of the order of rows. Default 0. */
  int64_t vocab_size;   /* Ids from this number on are refused. Default 0: ids are not compared. */
  int64_t document_end; /* Of packed documents: the id that ends each one. Default -1: by the index. */
  gw_packing packing;   /* Default GW_PACKING_STREAM. */
  int32_t shuffle;      /* Default 1. 0: each source's rows come in the order of its files. */
  int32_t read_ahead;   /* How many batches a thread reads ahead. Default 2. 0: there is no such thread. */
  int32_t reserved;
} gw_dataset_options;
GW_API void gw_dataset_options_init(gw_dataset_options *options, size_t size);

/* Local. Opens the files of a dataset. The caller releases *out_dataset.
 *
 * Packed documents need an index of the rows, which is 8 bytes for each 2^20 tokens of a file and one length
 * of rows. If it is not there, this call reads the whole file to make it (gw-tokens --sequence makes it
 * beforehand), and keeps it beside the file, or in memory if the folder cannot be written.
 *
 * INVALID_ARGUMENT: an option is out of its range, a file's format is not known, or nothing tells where its
 * documents end. NOT_FOUND: no file matches. IO: a file cannot be read. CORRUPT: a file is truncated or
 * empty, or is not what its format says. Each text names the file and the position in it. */
GW_API gw_status gw_dataset_create(const gw_dataset_options *options, gw_dataset **out_dataset);
GW_API gw_dataset *gw_dataset_retain(gw_dataset *dataset);
GW_API void gw_dataset_release(gw_dataset *dataset);

/* This rank's rows of one global batch. What it points at is valid until the next but one call of
 * gw_dataset_next, and no longer than the dataset. */
typedef struct gw_data_batch {
  size_t struct_size;
  const gw_ext *next;
  const gw_batch *batch;    /* For gw_train_step and gw_eval_step: the tokens, the labels, the documents. */
  const gw_view *tokens;    /* i64 [rows, sequence]; 0 where there is padding. */
  const gw_view *labels;    /* i64 [rows, sequence]: the token that follows; -100 where none does. */
  const gw_view *documents; /* i32 [rows, sequence], with packed documents, else null: each token's document
                              * in its row, from 0; -1 where there is padding. */
  int64_t first_row;        /* The global batch has the rows [first_row, last_row) of the training. */
  int64_t last_row;
  int64_t rank_first_row; /* Of them, this rank has [rank_first_row, rank_last_row). */
  int64_t rank_last_row;
  int64_t label_count; /* This rank's labels that are not -100. */
  double data_seconds; /* The time that the call waited for the rows. */
} gw_data_batch;
GW_API void gw_data_batch_init(gw_data_batch *batch, size_t size);

/* Local. Takes the next `global_batch` rows of the training, and gives those of this rank's data
 * coordinate (gw_gangs_data_shard); where the parts cannot be equal, the first ones have one row more.
 * Every rank calls it with the same global_batch. With null gangs they are the thread's current ones, or
 * else all rows are given. There is no end: a new epoch follows.
 *
 * If the call fails, no rows are taken. BUSY: another thread is in a call on the dataset.
 * INVALID_ARGUMENT: global_batch is out of its range. CORRUPT: an id is outside of the vocabulary. IO: a
 * file cannot be read, or has changed since the dataset was made. TIMEOUT: the rows did not come within
 * GANGWAY_TIMEOUT_MS. */
GW_API gw_status gw_dataset_next(gw_dataset *dataset, const gw_gangs *gangs, int64_t global_batch,
                                 gw_data_batch *batch);

/* Local. Gives the number of rows in all sources, each of which comes once in an epoch of its source.
 * INVALID_ARGUMENT: null. */
GW_API gw_status gw_dataset_rows_per_epoch(const gw_dataset *dataset, int64_t *out_rows);
/* Local. Gives the number of rows that were taken, over all ranks. Rows that were only read ahead do not
 * count. INVALID_ARGUMENT: null. */
GW_API gw_status gw_dataset_rows_taken(const gw_dataset *dataset, int64_t *out_rows);
/* Local. Gives the number of batches that were taken. INVALID_ARGUMENT: null. */
GW_API gw_status gw_dataset_batches_taken(const gw_dataset *dataset, int64_t *out_batches);
/* Local. Goes to the place after `rows` rows; 0 is the beginning, for example of each evaluation. The number
 * of batches stays as it is. INVALID_ARGUMENT: rows is below 0. */
GW_API gw_status gw_dataset_set_rows_taken(gw_dataset *dataset, int64_t rows);

/* Local. Copies the place in the training as text (JSON) into `text`, which has room for `capacity` bytes:
 * the rows and batches taken, with names and sizes of the files, a hash of some of their bytes, and the
 * options that decide the order. It is the same on every rank. *out_len is its length; a null text asks
 * for the length alone. INVALID_ARGUMENT: `capacity` does not exceed *out_len, which leaves no room for
 * the final zero. */
GW_API gw_status gw_dataset_position(const gw_dataset *dataset, char *text, size_t capacity, size_t *out_len);
/* Local. Goes to the place that gw_dataset_position gave. Gangs and the size of batches may be others than
 * before. INVALID_ARGUMENT: the text is none of such. MISMATCH: files or options differ, so that other rows
 * would follow; the text names the first difference. If ignore_differences is not 0, the numbers of rows and
 * batches are taken over in spite of that. */
GW_API gw_status gw_dataset_restore(gw_dataset *dataset, const char *position, int32_t ignore_differences);

#ifdef __cplusplus
}
#endif
#endif
