"""A pytest plugin for Triton's interpreter: three times its speed, and torch's matrix product.

The interpreter patches triton.language again at every call of a helper and checks each sum of integers for overflow:
here it patches once for each module of kernels and does not check. Its products come from numpy, whose rounding errors
are larger than torch's: here they are torch's, so that a kernel is compared with the plain computation on equal terms.
"""

import dataclasses

import numpy as np
import torch
from triton.runtime import interpreter


class _Kept:
    def restore(self):
        """Keep the patch: nothing else runs in this process."""


_patched: set[int] = set()
_patch = interpreter._patch_lang


def _patch_once(function):
    if id(function.__globals__) not in _patched:
        _patched.add(id(function.__globals__))
        _patch(function)
    return _Kept()


interpreter._patch_lang = _patch_once
_builder = interpreter.interpreter_builder
_builder.options = dataclasses.replace(_builder.options, sanitize_overflow=False)


def _dot(self, a, b, total, input_precision, imprecise):
    left, right = (torch.from_numpy(np.ascontiguousarray(part.data)) for part in (a, b))
    return interpreter.TensorHandle((left @ right).numpy() + total.data, total.dtype.scalar)


interpreter.InterpreterBuilder.create_dot = _dot
