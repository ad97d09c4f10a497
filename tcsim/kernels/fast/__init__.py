"""The fast path: aligned units of narrow inputs in vectors of float32 and int32."""
