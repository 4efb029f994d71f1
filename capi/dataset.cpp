// Datasets.
#include <gangway/dataset.h>

#include <array>
#include <mutex>

#include "data/dataset.h"
#include "mesh_handle.h"
#include "sized_structs.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// A batch that was handed out, with what the caller's struct points at.
struct HandedBatch {
  data::DataBatchPtr data;
  std::array<int64_t, 2> shape{};
  gw_view tokens{}, labels{}, documents{};
  gw_batch batch{};

  gw_view view(void* values, gw_dtype dtype) const {
    gw_view made{};
    made.data = values;
    made.device_type = GW_DEVICE_CPU;
    made.ndim = 2;
    made.dtype = dtype;
    made.shape = shape.data();
    return made;
  }

  void fill(int64_t sequence, bool packed, bool weighted) {
    shape = {data->rows.last - data->rows.first, sequence};
    tokens = view(data->tokens.data(), GW_I64);
    labels = view(data->labels.data(), GW_I64);
    documents = view(data->documents.data(), GW_I32);
    gw_batch_init(&batch, sizeof batch);
    batch.inputs = &tokens;
    batch.input_count = 1;
    batch.targets = &labels;
    batch.target_count = 1;
    if (packed) batch.documents = &documents;
    if (weighted) batch.weight = data->label_count;
  }
};

data::DatasetOptions options_of(const gw_dataset_options* given) {
  const gw_dataset_options o = read_struct(&required(given, "options"), gw_dataset_options_init, "options");
  data::DatasetOptions options;
  if (o.source_count > 0) required(o.sources, "options.sources");
  for (size_t i = 0; i < o.source_count; ++i) {
    const gw_data_source source = read_element(o.sources, i, gw_data_source_init, "options.sources");
    const std::string name = text("options.sources[", i, "]");
    options.sources.push_back({&required(source.path, (name + ".path").c_str()), text_or(source.format, ""),
                               finite(source.weight, (name + ".weight").c_str())});
  }
  if (o.packing != GW_PACKING_STREAM && o.packing != GW_PACKING_DOCUMENTS)
    fail(Code::invalid_argument, "options.packing is ", o.packing, ", which is no gw_packing");
  options.rows.packing = o.packing == GW_PACKING_STREAM ? data::Packing::stream : data::Packing::documents;
  options.rows.sequence = o.sequence;
  options.rows.document_end = o.document_end;
  options.seed = o.seed;
  options.vocab = o.vocab_size;
  options.shuffle = o.shuffle != 0;
  options.read_ahead = o.read_ahead;
  return options;
}

}  // namespace

struct gw_dataset : Handle {
  explicit gw_dataset(const data::DatasetOptions& options) : dataset(options) {}
  const Use& thread_use() const { return use; }
  const Use use = new_use();
  data::Dataset dataset;
  std::mutex mutex;  // protects the members below
  // The last two batches: the caller may use one while it takes the next.
  std::array<HandedBatch, 2> handed;
  size_t calls = 0;
};

void gw_data_source_init(gw_data_source* source, size_t size) {
  gw_data_source d{};
  d.weight = 1;
  init_struct(source, size, d);
}

void gw_dataset_options_init(gw_dataset_options* options, size_t size) {
  const data::DatasetOptions o;
  gw_dataset_options d{};
  d.sequence = 2048;
  d.document_end = o.rows.document_end;
  d.packing = GW_PACKING_STREAM;
  d.shuffle = o.shuffle ? 1 : 0;
  d.read_ahead = o.read_ahead;
  init_struct(options, size, d);
}

gw_status gw_dataset_create(const gw_dataset_options* options, gw_dataset** out_dataset) {
  return guarded([&] {
    gw_dataset*& result = out(out_dataset, "out_dataset");
    result = new gw_dataset(options_of(options));
  });
}

gw_dataset* gw_dataset_retain(gw_dataset* dataset) { return retain(dataset); }
void gw_dataset_release(gw_dataset* dataset) { release(dataset); }

void gw_data_batch_init(gw_data_batch* batch, size_t size) { start_struct(batch, size); }

gw_status gw_dataset_next(gw_dataset* dataset, const gw_gangs* gangs, int64_t global_batch,
                          gw_data_batch* batch) {
  return guarded([&] {
    gw_dataset& d = required(dataset, "dataset");
    check_out_struct(batch, "batch");
    const GangsPtr here = gangs_or_current(gangs);
    int part = 0, parts = 1;
    if (here != nullptr) here->data_shard(&part, &parts);
    const std::lock_guard lock(d.mutex);
    HandedBatch& handed = d.handed[d.calls % 2];
    gw_data_batch b{};
    handed.data = d.dataset.next(global_batch, part, parts, std::move(handed.data), &b.data_seconds);
    ++d.calls;
    // Each rank of context parallelism counts the labels of its part of the sequences.
    const data::RowOptions& options = d.dataset.options().rows;
    const bool packed = options.packing == data::Packing::documents;
    handed.fill(options.sequence, packed, here == nullptr || here->mesh().degree(Axis::cp) == 1);
    const data::BatchRows& rows = handed.data->rows;
    b.batch = &handed.batch;
    b.tokens = &handed.tokens;
    b.labels = &handed.labels;
    b.documents = handed.batch.documents;
    b.first_row = rows.global_first;
    b.last_row = rows.global_first + rows.global;
    b.rank_first_row = rows.first;
    b.rank_last_row = rows.last;
    b.label_count = handed.data->label_count;
    write_struct(batch, b);
  });
}

gw_status gw_dataset_rows_per_epoch(const gw_dataset* dataset, int64_t* out_rows) {
  return guarded([&] { out(out_rows, "out_rows") = required(dataset, "dataset").dataset.rows_per_epoch(); });
}

gw_status gw_dataset_rows_taken(const gw_dataset* dataset, int64_t* out_rows) {
  return guarded([&] { out(out_rows, "out_rows") = required(dataset, "dataset").dataset.rows_taken(); });
}

gw_status gw_dataset_batches_taken(const gw_dataset* dataset, int64_t* out_batches) {
  return guarded(
      [&] { out(out_batches, "out_batches") = required(dataset, "dataset").dataset.batches_taken(); });
}

gw_status gw_dataset_set_rows_taken(gw_dataset* dataset, int64_t rows) {
  return guarded([&] { required(dataset, "dataset").dataset.set_rows_taken(rows); });
}

gw_status gw_dataset_position(const gw_dataset* dataset, char* text, size_t capacity, size_t* out_len) {
  return guarded([&] {
    out(out_len, "out_len");
    copy_text(required(dataset, "dataset").dataset.position(), text, capacity, out_len);
  });
}

gw_status gw_dataset_restore(gw_dataset* dataset, const char* position, int32_t ignore_differences) {
  return guarded([&] {
    data::Dataset& d = required(dataset, "dataset").dataset;
    d.restore(&required(position, "position"), ignore_differences != 0);
  });
}
