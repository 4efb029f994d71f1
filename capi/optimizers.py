#!/usr/bin/env python3
"""Makes all that follows from the tables of optimizers and schedules (optimizer_table.py):

  capi/include/gangway/optimizers.h, capi/optimizers.cpp      an options struct, its _init and a _create for each
  bindings/python/gangway/optimizers.py                       a class for each
  bindings/rust/gangway/src/optimizers.rs                     options and a type for each
  bindings/julia/src/optimizers.jl                            a function for each
  tests/capi/optimizer_rows.h                                 what the C tests ask of each alike
  impl/tools/train/optimizer_keys.h                           what gw-train --help says of [optimizer]

usage: optimizers.py [--check]       --check: changes nothing, exits 1 when a file is out of date
"""
import json
import pathlib
import sys
import textwrap

from optimizer_table import read_kinds, read_schedules

TOP = pathlib.Path(__file__).resolve().parents[1]
MADE = "Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit."


# --- C

C_TYPES = {"number": "double", "integer": "int64_t", "flag": "int32_t", "dtype": "gw_dtype", "schedule": "gw_schedule"}
SMALL = ("flag", "dtype", "schedule")


def plain(standard):
    """A default as people write it."""
    return standard.removesuffix(".0")


def c_standard(field):
    if field.kind in ("dtype", "schedule"):
        return f"GW_{field.standard.upper()}"
    return str(int(field.standard == "true")) if field.kind == "flag" else plain(field.standard)


def c_field(field):
    declared, told = f"  {C_TYPES[field.kind]} {field.name};", f"/* {field.sentences(c_standard(field))} */"
    return f"{declared} {told}\n" if len(declared) + len(told) < 110 else comment(told[3:-3], "  ") + declared + "\n"


def comment(words, indent=""):
    lines = textwrap.wrap(words, 104 - len(indent))
    return f"{indent}/* " + f"\n{indent} * ".join(lines) + " */\n"


def c_kind(kind):
    name = kind.name
    states = "; ".join(f"{n}: {doc}" for n, doc in kind.states) or "none"
    body = ""
    for field in kind.fields:
        if field.name == "loss_scale":
            body += "  const gw_optimizer_rule *rules;\n  size_t rule_count;\n"
        body += c_field(field)
        small = [f for f in kind.fields if f.kind in SMALL]
        if field is small[-1] and len(small) % 2:
            body += "  int32_t reserved;\n"
    return (comment(f"{kind.doc} States (gw_parameter_state): {states}.") +
            f"typedef struct gw_{name}_options {{\n  size_t struct_size;\n  const gw_ext *next;\n{body}"
            f"}} gw_{name}_options;\n"
            f"GW_API void gw_{name}_options_init(gw_{name}_options *options, size_t size);\n" +
            comment(f"Local. Makes the optimizer {kind.title}, which keeps the model alive. The caller releases *out_optimizer. "
                    "INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its "
                    "range.") +
            f"GW_API gw_status gw_{name}_create(gw_module *model, const gw_{name}_options *options,\n"
            f"                                  gw_optimizer **out_optimizer);\n")


def header(kinds, schedules):
    names = ", ".join(["GW_SCHEDULE_INVALID = -1"] + [f"GW_{n.upper()} = {i}" for i, (n, _) in enumerate(schedules)])
    told = "; ".join(f"{name}: {doc}" for name, doc in schedules)
    return (f"/* {MADE} */\n" +
            comment(f"The optimizers ({', '.join(k.title for k in kinds)}) and the schedules of their rates. Rules and "
                    "loss scales: optim.h.") +
            "#ifndef GANGWAY_OPTIMIZERS_H\n#define GANGWAY_OPTIMIZERS_H\n\n#include <gangway/optim.h>\n\n"
            '#ifdef __cplusplus\nextern "C" {\n#endif\n\n' +
            comment(f"What follows the warm-up. {told}.") +
            f"typedef int32_t gw_schedule;\nenum gw_schedule_value {{ {names} }};\n\n" +
            "\n".join(c_kind(kind) for kind in kinds) +
            "\n#ifdef __cplusplus\n}\n#endif\n#endif\n")


def c_value(field):
    if field.kind == "flag":
        return f"o.{field.name} != 0"
    if field.kind == "dtype":
        return f"dtype_or(o.{field.name}, DType::{field.standard})"
    return f"o.{field.name}"


def source(kinds, schedules):
    made = f"// {MADE}\n#include <gangway/optimizers.h>\n\n#include \"optimizer_options.h\"\n\n"
    made += "using namespace gangway;\nusing namespace gangway::capi;\n"
    for kind in kinds:
        name = kind.name
        sets = "".join(f"  d.{f.name} = {c_standard(f)};\n" for f in kind.own)
        values = ", ".join(f'{{"{f.name}", {c_value(f)}}}' for f in kind.own)
        made += f"""
void gw_{name}_options_init(gw_{name}_options* options, size_t size) {{
  auto d = common_defaults<gw_{name}_options>({kind.standard("lr")}, {kind.standard("weight_decay")});
{sets}  init_struct(options, size, d);
}}

gw_status gw_{name}_create(gw_module* model, const gw_{name}_options* options, gw_optimizer** out_optimizer) {{
  return create_optimizer("{name}", model, options, gw_{name}_options_init, out_optimizer,
                          [](const gw_{name}_options&{" o" if kind.own else ""}) -> HyperValues {{
                            return {{{values}}};
                          }});
}}
"""
    return made


def rows(kinds):
    floats = [(k.name, f) for k in kinds for f in k.fields if f.kind == "number"]
    return (f"/* {MADE}\n * The rows by which C tests ask the same of each optimizer. */\n"
            "#define OPTIMIZERS(X) \\\n" + " \\\n".join(f"  X({k.name})" for k in kinds) +
            "\n\n/* Of struct_calls.h. */\n#define OPTIMIZER_INPUTS \\\n" +
            ", \\\n".join(f"  INPUT({k.name}_options, {k.name}_options, NULL)" for k in kinds) +
            "\n\n/* Of finite_test.c. */\n#define OPTIMIZER_FLOATS \\\n" +
            " \\\n".join(f'  FLOAT({name}_options, {f.name}, "{f.name} = ", {name})' for name, f in floats) +
            "\n")


# --- gw-train

def key_row(kind, field, schedules):
    doc = field.doc + (": " + ", ".join(name for name, _ in schedules) if field.kind == "schedule" else "")
    doc += f", in {field.range}" if field.range else ""
    words = [json.dumps(w) for w in (kind, field.name, plain(field.standard), doc)]
    row = f"    {{{', '.join(words)}}},\n"
    return row if len(row) <= 111 else f"    {{{', '.join(words[:3])},\n     {words[3]}}},\n"


def keys(kinds, schedules):
    """The common options first, with the defaults of adamw, then those that each kind has beside or otherwise."""
    first = next(k for k in kinds if k.name == "adamw")
    common = [f for f in first.fields if f not in first.own]
    body = "".join(key_row("", f, schedules) for f in common)
    for kind in kinds:
        others = [f for f in kind.fields if f not in kind.own and plain(f.standard) != plain(first.standard(f.name))]
        body += "".join(key_row(kind.name, f, schedules) for f in kind.own + others)
    return (f"// {MADE}\n// The keys of [optimizer]: of every kind (\"\"), and those of one kind.\n#pragma once\n\n"
            "namespace gangway::train {\n\n// clang-format off\n"
            "struct OptimizerKey {\n  const char *kind, *name, *standard, *doc;\n};\n"
            f"inline constexpr OptimizerKey kOptimizerKeys[] = {{\n{body}}};\n// clang-format on\n\n"
            "}  // namespace gangway::train\n")


# --- Python

PYTHON_TYPES = {"number": "float", "integer": "int", "flag": "bool", "dtype": "DTypeLike", "schedule": "ScheduleLike"}


def python_default(field):
    if field.kind in ("dtype", "schedule"):
        return f'"{field.standard}"'
    return field.standard.capitalize() if field.kind == "flag" else field.standard


def indented(words, width):
    return textwrap.fill(words, 118, initial_indent=" " * width, subsequent_indent=" " * width, break_long_words=False,
                         break_on_hyphens=False)


def packed(items, width):
    """A list whose items are kept whole."""
    return indented(", ".join(item.replace(" ", "\0") for item in items), width).replace("\0", " ")


def python_kind(kind):
    parameters, passed = [], []
    betas = {"beta1", "beta2"} <= {f.name for f in kind.fields}
    for field in kind.fields:
        if field.name == "loss_scale":
            parameters.append("rules: Sequence[Rule] = ()")
            passed.append("rules=rules")
        parameters.append(f"{field.name}: {PYTHON_TYPES[field.kind]} = {python_default(field)}")
        value = {"dtype": f"dtype_of({field.name})", "schedule": f'member(Schedule, {field.name}, "{field.name}")'}
        passed.append(f"{field.name}={value.get(field.kind, field.name)}")
        if field.name == "beta2" and betas:
            parameters.append("betas: tuple[float, float] | None = None")
    signature = packed(["self", "model: Module | ShardGroup | Sequence[ShardGroup]", "*"] + parameters, 8)
    call = packed([f'"{kind.name}"', "model"] + passed, 12)
    told = "".join(f"\n    {f.name}: {f.doc}{f.allowed}." for f in kind.own)
    if betas:
        told += "\n    betas: (beta1, beta2) at once."
    states = "; ".join(f"{n} ({doc})" for n, doc in kind.states) or "none"
    both = "        beta1, beta2 = betas or (beta1, beta2)\n" if betas else ""
    doc = indented(f'"""{kind.doc} The other options are those of every optimizer: see Optimizer.', 4)
    kept = indented(f'States: {states}."""', 4)
    return (f"class {kind.title}(Optimizer):\n{doc}\n{told}\n\n{kept}\n\n    def __init__(\n{signature},\n    ) -> None:\n{both}"
            f"        super().__init__(\n{call})\n")


def python(kinds, schedules):
    names = sorted([k.title for k in kinds] + ["Schedule"])
    values = "".join(f"    {name.upper()} = c.GW_{name.upper()}\n" for name, _ in schedules)
    told = "".join(f"\n    {name.upper()}: {doc}." for name, doc in schedules)
    return (f"# {MADE}\n" + '"""The optimizers, and the schedules of their learning rates."""\n\n'
            "from __future__ import annotations\n\nfrom typing import Literal, Sequence, Union\n\nfrom . import _low as c\n"
            "from .arrays import DTypeLike, dtype_of\nfrom .enums import Open\nfrom .groups import ShardGroup\n"
            "from .members import member\nfrom .module import Module\nfrom .train import Optimizer, Rule\n\n"
            f"__all__ = [{', '.join(f'{chr(34)}{n}{chr(34)}' for n in names)}]\n\n\n"
            'class Schedule(Open):\n    """How the learning rate goes on after its warm-up.\n' + told + '\n    """\n\n' + values +
            f"\n\nScheduleLike = Union[Schedule, Literal[{', '.join(chr(34) + name + chr(34) for name, _ in schedules)}]]\n\n\n" + "\n\n".join(python_kind(kind) for kind in kinds))


# --- Rust

RUST_TYPES = {"number": "f64", "integer": "i64", "flag": "bool", "dtype": "crate::DType", "schedule": "Schedule"}


def rust_name(kind):
    return kind.title.capitalize() if kind.title.isupper() else kind.title


def rust_doc(words, indent):
    return "".join(f"{indent}/// {line}\n" for line in textwrap.wrap(words, 105 - len(indent)))


def rust_kind(kind):
    name = rust_name(kind)
    body = "".join(rust_doc(f.sentences(plain(f.standard)), " " * 8) +
                   f"        {f.name}: {RUST_TYPES[f.kind]},\n" for f in kind.fields)
    return (f"options! {{\n    /// Options of [`{name}`].\n    {name}Options = gw_{kind.name}_options, "
            f"gw_{kind.name}_options_init {{\n{body}    }} with {{\n        /// By name pattern; the last match wins.\n"
            "        rules: Vec<Rule> = Vec::new(),\n    }\n}\n")


def rust(kinds, schedules):
    values = "".join(f"{rust_doc(doc[0].upper() + doc[1:] + '.', ' ' * 8)}        {name.title().replace('_', '')} = GW_{name.upper()},\n"
                     for name, doc in schedules)
    made = (f"// {MADE}\n//! The optimizers, and the schedules of their learning rates.\n"
            "use crate::optim::{optimizer_kinds, Optimizer, Rule};\nuse crate::options::{open_enum, options, with_rules};\n\n"
            f"open_enum! {{\n    /// How the learning rate goes on after its warm-up.\n    Schedule {{\n{values}    }}\n}}\n\n")
    made += "\n".join(rust_kind(kind) for kind in kinds)
    made += "\nwith_rules! {\n" + "".join(f"    {rust_name(k)}Options.rules => gw_{k.name}_options;\n" for k in kinds) + "}\n"
    made += "\noptimizer_kinds! {\n"
    for kind in kinds:
        states = "; ".join(f"`{n}`, {doc}" for n, doc in kind.states) or "none"
        made += rust_doc(f"{kind.doc} States: {states}.", " " * 4)
        made += f"    {rust_name(kind)}({rust_name(kind)}Options) = gw_{kind.name}_create;\n"
    return made + "}\n"


# --- Julia

def julia_default(field):
    if field.kind == "dtype":
        return {"f32": "Float32", "f64": "Float64", "f16": "Float16"}[field.standard]
    return f":{field.standard}" if field.kind == "schedule" else plain(field.standard)


def julia_kind(kind):
    keywords = "".join(f", {f.name} = {julia_default(f)}" for f in kind.own)
    told = "".join(f"- `{f.name}`: {f.doc}{f.allowed}.\n" for f in kind.own)
    states = "; ".join(f"`{n}`, {doc}" for n, doc in kind.states) or "none"
    return (f'"""\n    {kind.title}(model; lr = {plain(kind.standard("lr"))}{keywords}, ...)\n\n{kind.doc}\n\n{told}\n'
            f'The other keywords are those of every [`Optimizer`](@ref). States: {states}.\n"""\n'
            f'{kind.title}(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_{kind.name}_options, "{kind.title}", keywords) do made, out\n'
            f"    LibGangway.gw_{kind.name}_create(model, made, out)\nend\n"
            f"hidden(::Type{{LibGangway.gw_{kind.name}_options}}) = (:rule_count,)\n")


def julia(kinds, schedules):
    values = ", ".join(f"{name} = LibGangway.GW_{name.upper()}" for name, _ in schedules)
    return (f"# {MADE}\n# The optimizers, and the schedules of their learning rates.\n\n"
            f"export {', '.join(k.title for k in kinds)}\n\nCHOICES[:schedule] = ({values})\n\n" +
            "\n".join(julia_kind(kind) for kind in kinds))


def main():
    kinds, schedules = read_kinds(), read_schedules()
    outputs = {
        "capi/include/gangway/optimizers.h": header(kinds, schedules),
        "capi/optimizers.cpp": source(kinds, schedules),
        "tests/capi/optimizer_rows.h": rows(kinds),
        "impl/tools/train/optimizer_keys.h": keys(kinds, schedules),
        "bindings/python/gangway/optimizers.py": python(kinds, schedules),
        "bindings/rust/gangway/src/optimizers.rs": rust(kinds, schedules),
        "bindings/julia/src/optimizers.jl": julia(kinds, schedules),
    }
    stale = []
    for name, made in outputs.items():
        path = TOP / name
        if not path.exists() or path.read_text() != made:
            stale.append(name)
            if sys.argv[1:] != ["--check"]:
                path.write_text(made)
    if stale and sys.argv[1:] == ["--check"]:
        sys.exit("out of date, run capi/optimizers.py: " + ", ".join(stale))


main()
