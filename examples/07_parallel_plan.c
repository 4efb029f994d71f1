/* Tensor parallelism of a model of your own: a plan says which modules are split over the ranks, and how. The
 * model learns the same on any number of ranks.
 *   gangrun -n 2 07_parallel_plan */
#include "example.h"
enum { kRows = 16, kIn = 8, kWide = 32, kHidden = 64, kParts = 3 };

/* Rows as text: columns, then rows, so that one sum at the end of the MLP brings the ranks together. */
static const char *const mlp_plan = "1.gate_proj -> colwise\n"
                                    "1.up_proj   -> colwise\n"
                                    "1.down_proj -> rowwise\n";
/* The layers around it as structs. */
static gw_plan_row row(const char *pattern, gw_style style, gw_placement input, gw_placement output) {
  WITH_DEFAULTS(gw_plan_row, row);
  row.pattern = pattern;
  row.style = style;
  row.input = input;
  row.output = output;
  return row;
}

static gw_module *make_model(gw_gangs *gangs) {
  gw_module *parts[kParts], *model = NULL;
  check(gw_linear_create(kIn, kWide, 1, &parts[0]));
  check(gw_mlp_create(kWide, kHidden, 0, &parts[1]));
  check(gw_linear_create(kWide, 1, 1, &parts[2]));
  check(gw_sequential_create(parts, kParts, &model)); /* named 0, 1 and 2 */
  for (int i = 0; i < kParts; ++i) gw_module_release(parts[i]);
  const gw_plan_row rows[] = {
      row("0", GW_STYLE_COLWISE, GW_PLACEMENT_DEFAULT, GW_PLACEMENT_REPLICATE), /* outputs are gathered */
      row("2", GW_STYLE_ROWWISE, GW_PLACEMENT_REPLICATE, GW_PLACEMENT_DEFAULT), /* each takes its part */
  };
  WITH_DEFAULTS(gw_tensor_parallel_options, plan);
  plan.plan = mlp_plan;
  plan.rows = rows;
  plan.row_count = 2;
  check(gw_tensor_parallel(model, gangs, &plan));
  check(gw_fully_shard(model, "", gangs, NULL)); /* what tp has left of each parameter */
  check(gw_module_materialize(model, gangs, 1, GW_F64));
  return model;
}

static void print_layouts(gw_module *model) {
  size_t count = 0;
  check(gw_module_parameter_count(model, &count));
  for (size_t i = 0; i < count; ++i) {
    gw_parameter *parameter = NULL;
    WITH_DEFAULTS(gw_parameter_info, info);
    check(gw_module_parameter(model, i, &parameter));
    check(gw_parameter_describe(parameter, &info));
    printf("%-18s %s\n", info.name, info.layout);
    gw_parameter_release(parameter);
  }
}

int main(void) {
  WITH_DEFAULTS(gw_mesh_options, mesh);
  mesh.dp_shard = 1;
  mesh.tp = -1; /* all ranks */
  gw_gangs *gangs = NULL;
  int32_t rank = 0, ranks = 1;
  check(gw_gangs_create(NULL, &mesh, &gangs));
  check(gw_gangs_coordinate(gangs, "tp", &rank, &ranks));
  gw_module *model = make_model(gangs);
  if (rank == 0) print_layouts(model);

  gw_frame *frame = NULL;
  gw_optimizer *opt = NULL;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 0.01;
  check(gw_adamw_create(model, &adamw, &opt));
  check(gw_frame_create(model, NULL, &frame));
  double x[kRows * kIn], gradient[kRows], loss = 0;
  gw_view input, output_gradient, y;
  check(gw_view_set(&input, x, (int64_t[]){kRows, 1, kIn}, 3, GW_F64)); /* rows of one token */
  check(gw_view_set(&output_gradient, gradient, (int64_t[]){kRows, 1, 1}, 3, GW_F64));
  for (int step = 1; step <= 100; ++step, loss = 0) {
    for (int i = 0; i < kRows * kIn; ++i) x[i] = (step * 131 + i * i) * 7919 % 2003 / 1000.0 - 1;
    gw_tensor *output = NULL, *input_gradient = NULL;
    size_t count = 0;
    check(gw_module_forward(model, &input, 1, frame, NULL, &output, 1, &count));
    check(gw_tensor_view(output, &y));
    for (int r = 0; r < kRows; ++r) { /* the mean squared distance from x0 - x1 */
      const double difference = ((const double *)y.data)[r] - (x[r * kIn] - x[r * kIn + 1]);
      loss += difference * difference / kRows;
      gradient[r] = 2 * difference / kRows;
    }
    check(gw_module_backward(model, &output_gradient, 1, frame, NULL, &input_gradient, 1, &count));
    check(gw_optimizer_step(opt, NULL, NULL, NULL));
    gw_tensor_release(output);
    gw_tensor_release(input_gradient);
    if (rank == 0 && (step == 1 || step % 25 == 0)) printf("step %d  loss %.9f\n", step, loss);
  }
  gw_frame_release(frame);
  gw_optimizer_release(opt);
  gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return 0;
}
