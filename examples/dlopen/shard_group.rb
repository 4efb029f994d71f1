# A program with its own compute and its own loop in Ruby, without a binding: y = w x, two microbatches a step.
#   gangrun -n 2 ruby examples/dlopen/shard_group.rb
require_relative "gangway"

FEATURES, ROWS, MICROBATCHES = 10, 32, 2

# Half the squared errors of y = w x, true w[i] = i / 8, over made-up rows from n on; and the sums of the gradient.
def own_compute(w, n)
  sums = [0.0] * FEATURES
  loss = (n...n + ROWS).sum do |row|
    x = (1..FEATURES).map { |i| ((row * i * 97 % 1021) - 510) / 1024.0 }
    error = (0...FEATURES).sum(0.0) { |i| (w[i] - i / 8.0) * x[i] }
    FEATURES.times { |i| sums[i] += error * x[i] }
    0.5 * error * error
  end
  [loss, sums]
end

# The f32 elements that a view shows, and where they are.
def elements(group, part)
  view = Gangway::Struct.new("gw_view")
  Gangway.call("gw_shard_group_view", group, 0, Gangway::CONSTANTS.fetch(part), view)
  Fiddle::Pointer.new(view["data"] + view["byte_offset"], 4 * FEATURES)
end

weight = Gangway::Struct.new("gw_parameter_options")
weight["name"], weight["ndim"], weight["dims"] = "w", 1, [FEATURES]
adamw = Gangway::Struct.new("gw_adamw_options")
adamw["lr"] = 0.02
gangs = Gangway.take("gw_gangs_create", nil, nil)
root = Gangway.take("gw_gangs_get", gangs, "root")
group = Gangway.take("gw_shard_group_create", gangs, "line", weight, 1, nil, 1)
model = Gangway.take("gw_module_from_groups", [group].pack("J"), 1)
optimizer = Gangway.take("gw_adamw_create", model, adamw)

rank, size = Gangway.call("gw_gang_rank", root), Gangway.call("gw_gang_size", root)
items = ROWS * MICROBATCHES * size # of a step, over all ranks
options = Gangway::Struct.new("gw_step_options")
options["scale"], options["max_grad_norm"] = 1.0 / items, 1.0
mean = 1.0
(1..200).each do |step|
  loss = 0.0
  MICROBATCHES.times do |m|
    Gangway.call("gw_shard_group_unshard", group, nil, nil)
    w, dw = elements(group, "GW_PART_FULL_VALUE"), elements(group, "GW_PART_FULL_GRADIENT")
    part, sums = own_compute(w[0, w.size].unpack("e*"), ROWS * ((step * MICROBATCHES + m) * size + rank))
    dw[0, dw.size] = dw[0, dw.size].unpack("e*").zip(sums).map(&:sum).pack("e*")
    loss += part
    Gangway.call("gw_shard_group_reshard", group, nil)
  end
  Gangway.call("gw_shard_group_reduce", group, nil)
  Gangway.call("gw_optimizer_step", optimizer, options, nil, nil)
  mean = Gangway.take("gw_gang_all_sum", root, loss, type: "f64") / items
  puts format("step %d  loss %.6f", step, mean) if rank.zero? && (step % 50).zero?
end
%w[gw_optimizer_release gw_module_release gw_shard_group_release gw_gang_release]
  .zip([optimizer, model, group, root]).each { |name, handle| Gangway.call(name, handle) }
Gangway.call("gw_gangs_shutdown", gangs, -1)
Gangway.call("gw_gangs_release", gangs)
exit(mean < 0.001)
