"""One rank of a gang that may hold ranks in other languages: the same calls as rank.c, the same file of results."""

import sys

import gangway as gw
import numpy as np
from gangway import low, objects

COUNT, FEATURES, SEQUENCE, ROWS, VOCAB, STEPS = 1000, 37, 16, 2, 64, 3
KINDS = ("sum", "min", "max", "mean", "product")
TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}

gangs = gw.init()
gang = gangs.root
me = gang.rank
out = open(f"{sys.argv[1]}/{me}", "w")


def put(name, result):
    result = b"" if result is None else result
    out.write(f"{name} {result.hex() if isinstance(result, bytes) else np.asarray(result).tobytes().hex()}\n")


def whole(i, salt):
    return ((i + 1) * 7919 + me * 104729 + salt * 1299709) % 20011 - 10005


def fill(dtype, count, salt):
    numbers = whole(np.arange(count), salt)
    return numbers.astype(dtype) / dtype(1000) if dtype in (np.float32, np.float64) else numbers.astype(dtype)


def both(name, label, *arguments, **options):
    """Both forms of a collective."""
    put(label, getattr(gang, name)(*arguments, **options))
    put(f"{label} later", getattr(gang, name.rstrip("_") + "_async" + "_" * name.endswith("_"))(*arguments, **options).wait())


def parts_of_counts():
    """Rank r brings or gets r + 1 elements; in all_to_all it sends so many to every rank."""
    x, counts, mine = fill(np.float32, 16, 90), [1, 2, 3, 4], me + 1
    both("all_to_all", "all_to_all counts", x[:4 * mine], counts=[mine] * 4, got=counts)
    both("all_gather", "all_gather counts", x[:mine], counts=counts)
    both("reduce_scatter", "reduce_scatter counts", x[:10], counts=counts)
    both("gather", "gather counts", x[:mine], 2, counts=counts)
    both("scatter_", "scatter counts", np.zeros(mine, np.float32), x[:10] if me == 2 else None, 2, counts=counts)


def collectives():
    for salt, (word, dtype) in enumerate(TYPES.items()):
        for op in KINDS[: 5 if salt < 2 else 3]:
            both("all_reduce", f"all_reduce {word} {op}", fill(dtype, COUNT, salt), op=op)
    y, x = fill(np.float32, COUNT, 80), fill(np.float32, COUNT, 0)
    put("accumulate", gang.all_reduce_into_(y.copy(), x, accumulate=True))
    put("accumulate later", gang.all_reduce_into_async_(y, x, accumulate=True).wait())
    x = fill(np.float32, 4 * COUNT, 10)
    part, rows = x[:COUNT], x.reshape(4, COUNT)
    both("all_gather", "all_gather", part)
    places = [np.zeros(COUNT, np.float32) for _ in range(4)]
    put("all_gather_list", np.concatenate(gang.all_gather_list_(places, part)))
    for place in places:
        place[:] = 0
    put("all_gather_list later", np.concatenate(gang.all_gather_list_async_(places, part).wait()))
    for op in KINDS:
        both("reduce_scatter", f"reduce_scatter {op}", rows, op=op)
    both("all_to_all", "all_to_all", rows)
    parts_of_counts()
    for root in range(4):
        x = fill(np.float32, 4 * COUNT, 20 + root)
        both("broadcast", f"broadcast from {root}", x[:COUNT], root)
        for op in KINDS:
            both("reduce", f"reduce {op} to {root}", x[:COUNT], root, op=op)
        both("gather", f"gather to {root}", x[:COUNT], root)
        both("scatter_", f"scatter from {root}", np.zeros(COUNT, np.float32),
             x.reshape(4, COUNT) if me == root else None, root)


def exchanges():
    x, y = fill(np.float32, COUNT, 30), np.zeros(COUNT, np.float32)
    following, before, other = (me + 1) % 4, (me + 3) % 4, me ^ 1
    gang.exchange_([(x, following)], [(y, before)])
    put("batch", y)
    if me < other:
        gang.send(x, other)
    put("recv", gang.recv_(y, other))
    if me > other:
        gang.send(x, other)
    got, sent = gang.recv_async_(y, following), gang.send_async(x, before)
    put("recv later", got.wait())
    sent.wait()


def small_things():
    gang.barrier()
    gang.barrier_async().wait()
    for root in range(4):
        put("flag", bytes([gang.broadcast_flag(me == 2, root)]))
        put("flag later", bytes([gang.broadcast_flag_async(me == 2, root).wait()]))
    put("all_sum", np.float64(gang.all_sum(whole(0, 40) / 1000)))
    put("all_sum later", np.float64(gang.all_sum_async(whole(0, 40) / 1000).wait()))
    for root in range(4):  # the package sends objects, with a letter that says how; other languages send bytes
        text = f"rank {me} ".encode()
        put("broadcast_bytes", objects._take(low.gw_gang_broadcast_bytes(gang._h, text, len(text), root)))
    text = b"rank 0 rank 1 "[:me]
    put("all_gather_bytes", objects._take(low.gw_gang_all_gather_bytes(gang._h, text, me, bytearray(32))))
    for name, made in (("split", gang.split(me % 2, -me)), ("create_gang", gang.create_gang([3, 0, 2])),
                       ("duplicate", gang.duplicate())):
        x = fill(np.float32, COUNT, 50)
        put(name, x if made is None else made.all_reduce(x))


def train():
    model = gw.Llama(dim=32, layers=2, heads=4, vocab=VOCAB).parallelize(gangs, seed=9)
    opt = gw.AdamW(model, lr=0.01)
    i, row = np.arange(SEQUENCE), me * ROWS + np.arange(ROWS)
    for step in range(STEPS):
        tokens = (i[None] * 7 + row[:, None] * 5 + step * 3) % VOCAB
        result = gw.train_step(model, opt, tokens, max_grad_norm=1.0)
        put("loss", np.float64(result.loss))
        put("grad_norm", np.float64(result.grad_norm))
    for parameter in model:
        put("parameter", parameter.gather())


def own_compute():
    group = gw.ShardGroup(gangs, "own", {"w": gw.Spec([FEATURES])}, seed=5)
    opt = gw.AdamW(group, lr=0.01)
    for step in range(STEPS):
        x, y = fill(np.float32, FEATURES, 60 + step), fill(np.float32, FEATURES, 70 + step)
        with group.unsharded() as full:
            group.add_gradients({"w": full["w"] * x - y})
        group.reduce()
        put("grad_norm", np.float64(opt.step(scale=0.25, max_grad_norm=1.0).grad_norm))
    for parameter in opt.model:
        put("parameter", parameter.gather())


collectives()
exchanges()
small_things()
train()
own_compute()
out.close()
gangs.shutdown()
