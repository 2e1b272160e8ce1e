"""Minimal specs on which compiler and oracle once differed, as the soak wrote them; every test run tries them."""
