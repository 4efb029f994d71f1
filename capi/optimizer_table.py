"""The tables of optimizers and schedules, read from C++ as text: a row for each optimizer in impl/optim/<kind>.cpp (all are listed in
impl/optim/kind.cpp), a row for each schedule in impl/optim/schedule.cpp. Also the options that all optimizers share."""
import dataclasses
import pathlib
import re
import sys

OPTIM = pathlib.Path(__file__).resolve().parents[1] / "impl/optim"


@dataclasses.dataclass
class Field:
    """An option of an optimizer."""
    name: str
    kind: str      # number, integer, flag, dtype, schedule
    standard: str  # as C++ and Python write it; of a dtype "f32"
    doc: str       # ends without a full stop
    range: str = ""

    @property
    def allowed(self):
        """The range, to be put behind a comma."""
        return f", in {self.range}" if self.range and self.kind != "dtype" else ""

    def sentences(self, standard):
        return f"{self.doc[0].upper()}{self.doc[1:]}. Default {standard}{self.allowed}."


@dataclasses.dataclass
class Kind:
    """An optimizer."""
    name: str
    title: str
    doc: str
    states: list  # (name, doc)
    fields: list  # all, in the order of the C struct

    @property
    def own(self):
        """The fields that not every optimizer has."""
        return [f for f in self.fields if f.name not in SHARED]

    def standard(self, name):
        return next(f.standard for f in self.fields if f.name == name)


def lists(text):
    """A braced initialiser of literals as nested lists; neighbouring strings are one."""
    stack, joins = [[]], False
    for token in re.findall(r'"(?:\\.|[^"\\])*"|[{},]|//[^\n]*|[^\s{},"]+', text):
        if token.startswith("//"):
            continue
        if token == "{":
            stack.append([])
        elif token == "}":
            done = stack.pop()
            stack[-1].append(done)
        elif token != ",":
            if token.startswith('"'):
                token = token[:-1].replace('\\"', '"').replace('"', '"', 1)
                if joins:
                    stack[-1][-1] += token[1:]
                    continue
            stack[-1].append(token)
        joins = token.startswith('"')
    return stack[0][0]


def table(source, declared, count):
    """The rows of `constexpr <declared>[] = {...};`."""
    found = re.search(rf"constexpr {declared}\[\] = (\{{.*?\n\}});", source, re.S)
    if found is None:
        return []
    rows = lists(found[1])
    for row in rows:
        if len(row) != count:
            sys.exit(f"{declared}: {row} has not {count} members")
    return rows


def text(token):
    if not token.startswith('"'):
        sys.exit(f"{token} is not a text; a row holds literals only")
    return token[1:]


def own_field(row):
    name, standard, interval, doc = row
    kind = ("flag" if standard in ("true", "false") else "dtype" if standard.startswith("DType::") else
            "integer" if re.fullmatch(r"-?\d+", standard) else "number")
    return Field(text(name), kind, standard.removeprefix("DType::"), text(doc), text(interval))


def number(standard):
    return standard if re.search(r"[.e]", standard) else standard + ".0"


COMMON = [
    Field("ema_decay", "number", "0.0",
          "decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none",
          "[0, 1)"),
    Field("warmup_steps", "integer", "0", "steps in which the rate rises from 0"),
    Field("total_steps", "integer", "0", "where the decay of the rate ends"),
    Field("last_lr_ratio", "number", "0.0", "the rate after total_steps, as a part of lr", "[0, 1]"),
    Field("decay_steps", "integer", "0",
          "steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps"),
]
LOSS_SCALE = [
    Field("loss_scale", "number", "0.0",
          "0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none"),
    Field("initial_loss_scale", "number", "65536.0", "where a dynamic scale starts; 1 to 2^24"),
    Field("loss_scale_interval", "integer", "2000", "finite steps in a row that double a dynamic scale; at least 1"),
]


SHARED = {"lr", "weight_decay", "schedule"} | {f.name for f in COMMON + LOSS_SCALE}


def read_kind(path):
    source = path.read_text()
    row = re.search(r"extern const OptimizerKind (k\w+) = \{(.*?)\n\};", source, re.S)
    if row is None:
        return None, None
    members = {name: lists("{" + value + "}") for name, value in
               re.findall(r"\.(\w+) =\s+(.*?),\n(?=\s*\.|\Z)", row[2] + "\n", re.S)}
    one = {name: values[0] for name, values in members.items()}
    own = [own_field(r) for r in table(source, "Hyperparameter kHyperparameters", 4)]
    decay = Field("weight_decay", "number", number(one["weight_decay"]),
                  "leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise", "[0, inf)")
    fields = [Field("lr", "number", number(one["lr"]), "learning rate", "[0, inf)")]
    fields += [f for f in own if f.kind in ("number", "integer")] + [decay]
    fields += [f for f in own if f.kind == "flag"]
    fields += [Field("schedule", "schedule", "constant", "how the learning rate goes on after the warm-up")]
    fields += [f for f in own if f.kind == "dtype"] + COMMON
    states = [(text(name), text(doc)) for name, doc in table(source, "StateName kStates", 2)]
    return row[1], Kind(text(one["name"]), text(one["title"]), text(one["doc"]), states, fields + LOSS_SCALE)


def read_kinds():
    rows = dict(read_kind(path) for path in sorted(OPTIM.glob("*.cpp")))
    listed = re.findall(r"&(k\w+)", re.search(r"kKinds\[\] = \{(.*?)\}", (OPTIM / "kind.cpp").read_text(), re.S)[1])
    if set(listed) != set(rows) - {None}:
        sys.exit(f"impl/optim/kind.cpp lists {listed}, but the rows are {sorted(set(rows) - {None})}")
    return [rows[name] for name in listed]


def read_schedules():
    return [(text(name), text(doc)) for name, doc, _, _ in
            table(re.sub(r"<.*?>", "", (OPTIM / "schedule.cpp").read_text()), "ScheduleKind kSchedules", 4)]
