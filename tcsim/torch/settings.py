"""PyTorch's switches that fuse products out of sight, turned off while any emulation is active and put back after the last."""

from __future__ import annotations

import threading
from typing import Any

import torch


class Settings:
    """Attention takes its math path (so its products are aten's) or, where `flash`, its flash path; transformer layers their slow one.
    The switches are the process's, so they are counted: the first in turns them, the last out turns them back."""

    def __init__(self, flash: bool = False) -> None:
        self._flash = flash
        self._lock = threading.Lock()
        self._active = 0
        self._before: dict[Any, bool] = {}

    def __enter__(self) -> None:
        with self._lock:
            if self._active == 0:
                self._before = {switch: read() for switch, read, _ in _SWITCHES}
                for switch, _, write in _SWITCHES:
                    write(self._flash and switch == "flash")
            self._active += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                for switch, _, write in _SWITCHES:
                    write(self._before[switch])


_CUDA, _MHA = torch.backends.cuda, torch.backends.mha
_SWITCHES = (
    ("flash", _CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp),
    ("efficient", _CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp),
    ("cudnn", _CUDA.cudnn_sdp_enabled, _CUDA.enable_cudnn_sdp),
    ("fast path", _MHA.get_fastpath_enabled, _MHA.set_fastpath_enabled),
)
settings = Settings()
flash_settings = Settings(flash=True)
