"""Properties of compiled steps, tried on random specs: equal to the oracle, needed, early, determined."""
