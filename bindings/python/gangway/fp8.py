"""FP8: linear layers whose products take 8-bit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _low as c
from .enums import Fp8Scaling
from .members import member
from .names import Fp8ScalingLike
from .structs import struct

if TYPE_CHECKING:
    from typing_extensions import Self


def fp8_options(patterns: str | Sequence[str] | None = None, *, scaling: Fp8ScalingLike = "tensor", history: int = 16) -> Any:
    """gw_fp8_options from the arguments of fp8_apply()."""
    text = patterns if patterns is None or isinstance(patterns, str) else ", ".join(patterns)
    return struct("gw_fp8_options", patterns=text, scaling=member(Fp8Scaling, scaling, "scaling"), history=history)


class Fp8Methods:
    """What a Module has for its layers in FP8."""

    _h: Any

    def fp8_apply(self, patterns: str | Sequence[str] | None = None, *, scaling: Fp8ScalingLike = "tensor",
                  history: int = 16) -> Self:
        """Local, before parallelize(). Makes linear layers compute in FP8: e4m3 for inputs and weights, e5m2 for gradients.

        patterns: of module paths ("model.layers.*.mlp.*"), in a list or separated by commas; None: every linear layer but the
        head. scaling: one scale for a "tensor", from its values, which depend on the mesh; "delayed": likewise, from the largest
        magnitude of the last `history` steps; "row": one for each row along the dim that is summed, all e4m3. A GPU takes sizes
        that are multiples of 16. Masters, gradients, reductions and the head stay as they are."""
        c.gw_fp8_apply(self._h, fp8_options(patterns, scaling=scaling, history=history))
        return self
