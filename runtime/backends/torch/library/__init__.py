"""The library that emitted PyTorch code is made of: its definitions are copied into emitted files as source text."""
