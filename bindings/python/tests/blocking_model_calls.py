"""What each blocking call of models, optimizers, checkpoints and shard groups needs as rank 0 or 1 (test_gil.py). With
GANGWAY_SHARED_REGIONS=0 whole values are gathered from the peer each time."""


import numpy as np
from blocking_calls import entry, folder

import gangway as gw
from gangway import _low
from gangway.structs import block, struct

def linear(gang, **options):
    return gw.Linear(4, 4).parallelize(gw.Gangs.create(gang), seed=1, **options)


ONES = np.ones((2, 4), np.float32)


def of_model(name, call):
    def body(gang, meet):
        model = linear(gang)
        meet(lambda: call(model))

    body.__name__ = name
    entry(body)


of_model("gw_module_forward", lambda m: m.forward(ONES))
of_model("gw_parameter_gather", lambda m: m["weight"].gather())
of_model("gw_parameter_gather_gradient", lambda m: m["weight"].gather_gradient())
of_model("gw_parameter_assign", lambda m: m["weight"].assign(np.ones((4, 4), np.float32)))
of_model("gw_clip_grad_norm", lambda m: m.clip_grad_norm(1.0))
of_model("gw_module_save", lambda m: m.save(folder()))


@entry
def gw_module_check_replicas(gang, meet):
    model = linear(gang, strategy="no_shard")
    meet(model.check_replicas)


@entry
def gw_movement_create(gang, meet):
    grid = gw.Partition(gang).cartesian(2)
    meet(lambda: gw.AllGather(grid, 0))


@entry
def gw_movement_forward(gang, meet):
    gather = gw.AllGather(gw.Partition(gang).cartesian(2), 0)
    meet(lambda: gather(np.ones(3)))


@entry
def gw_movement_backward(gang, meet):
    gather = gw.AllGather(gw.Partition(gang).cartesian(2), 0)
    gather(np.ones(3))
    meet(lambda: gather.backward(np.ones(6)))


@entry
def gw_parallelize(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Linear(4, 4).parallelize(gangs))


@entry
def gw_tensor_parallel(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Llama(**SMALL).tensor_parallel(gangs))


@entry
def gw_context_parallel(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Llama(**SMALL).context_parallel(gangs))


@entry
def gw_fully_shard(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Linear(4, 4).fully_shard("", gangs))


@entry
def gw_replicate(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Linear(4, 4).replicate(gangs))


@entry
def gw_module_materialize(gang, meet):
    gangs = gw.Gangs.create(gang)
    model = gw.Linear(4, 4).fully_shard("", gangs)
    meet(lambda: model.materialize(gangs))


@entry
def gw_module_load(gang, meet):
    model = linear(gang)
    model.save(folder())
    meet(lambda: model.load(folder()))


@entry
def gw_model_from_folder(gang, meet):
    llama(gang).save(folder())
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.from_pretrained(folder(), gangs))


@entry
def gw_module_backward(gang, meet):
    model = linear(gang)
    frame = gw.Frame(model)
    model.forward(ONES, frame=frame)
    meet(lambda: model.backward(ONES, frame=frame))


@entry
def gw_optimizer_step(gang, meet):
    opt = gw.SGD(linear(gang))
    meet(lambda: opt.step(max_grad_norm=1.0))


TOKENS = np.zeros((1, 8), np.int64)
SMALL = {"vocab": 16, "dim": 8, "layers": 1, "heads": 2}


def llama(gang):
    return gw.Llama(**SMALL).parallelize(gw.Gangs.create(gang))


@entry
def gw_train_step(gang, meet):
    model = llama(gang)
    opt = gw.SGD(model)
    meet(lambda: gw.train_step(model, opt, TOKENS))


def run_of(gang, name, **options):
    """A model of a run, its optimizer, and the checkpoints of a folder of their own."""
    gangs = gw.Gangs.create(gang)
    model = gw.Llama(**SMALL).parallelize(gangs)
    return model, gw.SGD(model, **options), gw.Checkpoints(f"{folder()}/{name}", gangs=gangs)


@entry
def gw_checkpoints_create(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.Checkpoints(f"{folder()}/create", gangs=gangs))


@entry
def gw_checkpoints_save(gang, meet):
    model, opt, run = run_of(gang, "save")
    meet(lambda: run.save(model, opt, step=1))
    run.wait()


@entry
def gw_checkpoints_wait(gang, meet):
    model, opt, run = run_of(gang, "wait")
    meet(run.wait)


@entry
def gw_checkpoints_restore(gang, meet):
    model, opt, run = run_of(gang, "restore")
    meet(lambda: run.restore(model, opt))


@entry
def gw_optimizer_load(gang, meet):
    model, opt, run = run_of(gang, "load", momentum=0.5)
    run.save(model, opt, step=1)
    run.wait()
    meet(lambda: gw.load_optimizer(opt, f"{folder()}/load/step-00000001/optimizer.safetensors"))


@entry
def gw_optimizer_swap_ema(gang, meet):
    model = llama(gang)
    opt = gw.SGD(model, ema_decay=0.5)
    gw.train_step(model, opt, TOKENS)
    meet(opt.swap_ema)


@entry
def gw_metrics_create(gang, meet):
    model = llama(gang)
    meet(lambda: gw.Metrics(model))


@entry
def gw_metrics_log(gang, meet):
    model = llama(gang)
    metrics, result = gw.Metrics(model), gw.train_step(model, gw.SGD(model), TOKENS)
    meet(lambda: metrics.log(result))


@entry
def gw_metrics_flush(gang, meet):
    metrics = gw.Metrics(llama(gang))
    meet(metrics.flush)


@entry
def gw_metrics_restore(gang, meet):
    metrics = gw.Metrics(llama(gang))
    place = metrics.position()
    meet(lambda: metrics.restore(place))


@entry
def gw_eval_step(gang, meet):
    model = llama(gang)
    meet(lambda: gw.eval_step(model, TOKENS))


@entry
def gw_generate(gang, meet):  # the package calls gw_generate_rows alone
    model = llama(gang)
    room = bytearray(16)
    meet(lambda: _low.gw_generate(model._h, block("l", [1]), 1, struct("gw_generate_options", token_count=2), None, room, 2))


@entry
def gw_generate_rows(gang, meet):
    model = llama(gang)
    meet(lambda: model.generate([[1], [2, 3]], 2))


@entry
def gw_log_probs(gang, meet):
    model = llama(gang)
    meet(lambda: gw.log_probs(model, TOKENS))


@entry
def gw_verify(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.verify(lambda: gw.Llama(**SMALL), TOKENS, gangs=gangs))


@entry
def gw_verify_groups(gang, meet):
    def step(over):
        group = gw.ShardGroup(over, "g", {"w": np.ones(4)})
        with group.unsharded():
            group.add_gradients([np.ones(4) / over.data_shard[1]])
        group.reduce()
        return 1, group

    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.verify_groups(step, gangs))


def adapted(gang):
    return gw.Llama(**SMALL).lora_apply(rank=2).parallelize(gw.Gangs.create(gang))


@entry
def gw_lora_enable(gang, meet):
    model = adapted(gang)
    meet(lambda: model.lora_enable(False))


@entry
def gw_lora_save(gang, meet):
    model = adapted(gang)
    meet(lambda: model.lora_save(folder()))


@entry
def gw_lora_load(gang, meet):
    model = adapted(gang)
    model.lora_save(folder())
    meet(lambda: model.lora_load(folder()))


@entry
def gw_lora_merge(gang, meet):
    model = adapted(gang)
    meet(model.lora_merge)


class Outer:
    """Calls a child that is a parameter group of its own; the two ranks meet in one of the calls."""

    def __init__(self, meet, phase):
        self.meets = {phase: meet}

    def shapes(self, x):
        return [x]

    def _call(self, phase, call):
        return self.meets.get(phase, lambda c: c())(call)

    def forward(self, call):
        call.set_outputs(self._call("forward", lambda: call.forward("inner", call.inputs[0]))[0])

    def backward_input(self, call):
        call.set_input_grads(self._call("backward", lambda: call.backward("inner", call.output_grads[0]))[0])


def nested(gang, meet, phase):
    gangs = gw.Gangs.create(gang)
    # Two parameter groups: backward finds the last one's values in place and has to gather the one before.
    inner = gw.Sequential(gw.Linear(4, 4), gw.Linear(4, 4))
    model = gw.Custom(Outer(meet, phase), children={"inner": inner}, parameters={"w": (4,)})
    model.fully_shard("inner.*", gangs, prefetch_forward=0, prefetch_backward=0)
    model.fully_shard("", gangs, prefetch_forward=0, prefetch_backward=0).materialize(gangs)
    frame = gw.Frame(model)
    model.forward(ONES, frame=frame)
    model.backward(ONES, frame=frame)


@entry
def gw_call_forward(gang, meet):
    nested(gang, meet, "forward")


@entry
def gw_call_backward(gang, meet):
    nested(gang, meet, "backward")


def group_of(gang):
    return gw.ShardGroup(gw.Gangs.create(gang), "g", {"w": np.ones(10, np.float32)})


@entry
def gw_shard_group_create(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gw.ShardGroup(gangs, "g", {"w": np.ones(10, np.float32)}))


@entry
def gw_shard_group_unshard(gang, meet):
    group = group_of(gang)
    meet(group.unshard)


@entry
def gw_shard_group_reduce(gang, meet):
    group = group_of(gang)
    with group.unsharded():
        group.add_gradients([np.ones(10, np.float32)])
    meet(group.reduce)


@entry
def gw_shard_group_begin_update(gang, meet):
    update = group_of(gang).updating()
    meet(update.__enter__)
