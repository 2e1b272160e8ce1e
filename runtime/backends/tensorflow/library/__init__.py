"""Support code of emitted modules: every definition needs TensorFlow alone and can be copied into a file of its own."""
