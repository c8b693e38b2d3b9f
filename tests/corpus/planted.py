"""Twenty wrong rules, each beside the real model that it breaks."""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """A rule that is wrong, and a model that it applies to."""

    model: str
    name: str
    pattern: str
    replacement: str

    @property
    def text(self) -> str:
        """The rule as an entry of a catalogue."""
        return (
            f"  - name: {self.name}\n"
            f"    pattern: {self.pattern!r}\n"
            f"    replacement: {self.replacement!r}\n"
        )


_RESNET, _WHISPER, _OPT = "resnet18-legacy13", "whisper_encoder-legacy17", "opt-dynamo18"
_MOBILE, _GEMMA = "mobilenetv3-legacy13", "gemma2-dynamo20"

PLANTED = (
    Planted(_RESNET, "relu_leaks", "Relu(x)", "LeakyRelu(x, alpha=0.01)"),
    Planted(_RESNET, "mean_is_maximum", "GlobalAveragePool(x)", "GlobalMaxPool(x)"),
    Planted(_RESNET, "gemm_drops_bias", "Gemm(x, w, b, **attrs)", "Gemm(x, w, **attrs)"),
    Planted(_RESNET, "add_is_max", "Add(a, b)", "Max(a, b)"),
    Planted(_WHISPER, "softmax_axis", "Softmax(x, axis=-1)", "Softmax(x, axis=-2)"),
    Planted(_WHISPER, "erf_is_tanh", "Erf(x)", "Tanh(x)"),
    Planted(
        _WHISPER,
        "norm_epsilon",
        "LayerNormalization(x, s, b, epsilon=0.00001, **attrs)",
        "LayerNormalization(x, s, b, epsilon=0.1, **attrs)",
    ),
    Planted(_WHISPER, "conv_drops_bias", "Conv(x, w, b, **attrs)", "Conv(x, w, **attrs)"),
    Planted(_OPT, "relu_is_abs", "Relu(x)", "Abs(x)"),
    Planted(_OPT, "softmax_is_hardmax", "Softmax(x, axis=-1)", "Hardmax(x, axis=-1)"),
    Planted(
        _OPT,
        "gemm_scales",
        "Gemm(x, w, b, alpha=1.0, **attrs)",
        "Gemm(x, w, b, alpha=1.01, **attrs)",
    ),
    Planted(_MOBILE, "hard_sigmoid_is_soft", "HardSigmoid(x, **_)", "Sigmoid(x)"),
    Planted(_MOBILE, "relu_is_elu", "Relu(x)", "Elu(x)"),
    Planted(_MOBILE, "gate_is_max", "Mul(a, b)", "Max(a, b)"),
    Planted(_MOBILE, "residual_subtracts", "Add(a, b)", "Sub(a, b)"),
    Planted(_GEMMA, "forgets_the_root", "Reciprocal(Sqrt(x))", "Reciprocal(x)"),
    Planted(_GEMMA, "square_is_abs", "Pow(x, 2.0)", "Abs(x)"),
    Planted(_GEMMA, "half_is_not_turned", "Neg(x)", "x"),
    Planted(_GEMMA, "tanh_is_softsign", "Tanh(x)", "Softsign(x)"),
    Planted(_GEMMA, "cosine_is_sine", "Cos(x)", "Sin(x)"),
)


def catalogue(*rules: Planted) -> str:
    """Return the text of a catalogue of *rules*."""
    return "dpl: 1\nrewrites:\n" + "".join(rule.text for rule in rules)


def pairs() -> list[tuple[Planted, Planted]]:
    """Return every two rules for one model, in both orders of listing in turn."""
    found = [(a, b) for a in PLANTED for b in PLANTED if a.model == b.model and a.name < b.name]
    return [pair if number % 2 else pair[::-1] for number, pair in enumerate(found)]
