"""A cost model of a step that several processes take together: arithmetic over its plan, nothing runs."""
