"""What a step means, evaluated literally: an oracle that shares no code with the compiler or the runtime.

Weights are immutable and have versions, every value is computed once by recursion, everything is float64, and nothing
is ever written in place. Specs are read as data; nothing of ``compiler`` or ``runtime`` is imported.
"""
